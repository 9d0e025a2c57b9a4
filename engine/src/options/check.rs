//! Which options can be true together. All are checked before anything is created.

use std::path::Path;

use super::{Index, Options};
use crate::error::{Error, Result};
use crate::limits;
use crate::operator::Operators;

impl Options {
    /// The merge operators that an opening knows.
    pub(crate) fn operators(&self) -> Result<Operators> {
        Operators::default().with(&self.merge_operators)
    }

    /// Fails if the region is to lie in the database's `directory` under a name that another of its
    /// files has.
    pub(crate) fn check_place(&self, directory: &Path) -> Result<()> {
        let Some(path) = &self.pm_path else { return Ok(()) };
        let absolute = |path: &Path| std::path::absolute(path).ok();
        let is_inside = path.parent().and_then(absolute) == absolute(directory);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_taken = ["LOCK", "CREATING", "index", ""].contains(&name.as_ref())
            || ["journal-", "extents-"].iter().any(|prefix| name.starts_with(prefix));
        if is_inside && is_taken {
            return Err(Error::invalid(format!(
                "pm_path {} is the name of another file of the database; name a file elsewhere, \
                 or set no pm_path",
                path.display()
            )));
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.operators()?;
        let range = limits::MIN_PM_SIZE..=limits::MAX_PM_SIZE;
        if !range.contains(&self.pm_size) {
            return Err(Error::invalid(format!(
                "a region of {} bytes is out of bounds: pm_size takes {} to {}",
                self.pm_size,
                range.start(),
                range.end()
            )));
        }
        if self.permissions & 0o600 != 0o600 || self.permissions & !0o666 != 0 {
            return Err(Error::invalid(format!(
                "file permissions of {:#o} are out of bounds: the owner has to read and write, and \
                 files of a database are not executed; set 0o600, 0o640, 0o660 or so",
                self.permissions
            )));
        }
        if self.index == Index::Persistent && !self.has_persistent_memory() {
            return Err(Error::invalid(
                "the persistent index needs persistent memory, and the mode is `file`: open with \
                 mode `dax` (or `emulated`, to try it), or with the volatile index",
            ));
        }
        Ok(())
    }
}
