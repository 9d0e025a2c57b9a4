//! Which options can be true together. All are checked before anything is created.

use std::path::Path;

use super::{Index, Mode, Options, Storage};
use crate::error::{Error, Result};
use crate::limits;
use crate::operator::Operators;

impl Options {
    /// The merge operators that an opening knows.
    pub(crate) fn operators(&self) -> Result<Operators> {
        Operators::default().with(&self.merge_operators)
    }

    /// The same with a `pm_path` that a change of the working directory leaves where it is.
    ///
    /// # Errors
    ///
    /// An I/O error where the working directory is not known.
    pub(crate) fn with_absolute_path(&self) -> Result<Options> {
        let mut options = self.clone();
        // The files of a simulated machine have the names that they were given.
        if let (Some(path), Storage::Real) = (&mut options.pm_path, &self.storage) {
            let absolute = std::path::absolute(&*path);
            *path = absolute.map_err(|e| Error::io("find the place of", &*path, e))?;
        }
        Ok(options)
    }

    /// Fails if the region is to lie in the database's `directory` under a name that another of its
    /// files has.
    pub(crate) fn check_place(&self, directory: &Path) -> Result<()> {
        let Some(path) = &self.pm_path else { return Ok(()) };
        let absolute = |path: &Path| std::path::absolute(path).ok();
        let is_inside = path.parent().and_then(absolute) == absolute(directory);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_taken = ["LOCK", "CREATING", "index", "object-fence", "object-tails", "shared", ""]
            .contains(&name.as_ref())
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
        if let Some(url) = &self.object_store {
            check_object_url(url)?;
        }
        if self.share && self.object_store.is_none() {
            return Err(Error::invalid(
                "share needs an object store that other machines reach: set object_store too",
            ));
        }
        if self.file_permissions & 0o600 != 0o600 || self.file_permissions & !0o666 != 0 {
            return Err(Error::invalid(format!(
                "file permissions of {:#o} are out of bounds: the owner has to read and write, and \
                 files of a database are not executed; set 0o600, 0o640, 0o660 or so",
                self.file_permissions
            )));
        }
        if !cfg!(target_os = "linux") && self.mode != Mode::File {
            return Err(Error::invalid(
                "the modes `dax` and `emulated` are of Linux alone; open with the mode `file`",
            ));
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

/// Fails for a URL of which no object store can be made, as far as that can be said without a
/// request.
fn check_object_url(url: &str) -> Result<()> {
    let scheme = url.split_once("://").filter(|(_, rest)| !rest.is_empty()).map(|(name, _)| name);
    match scheme {
        Some("file" | "s3" | "s3a" | "gs" | "az" | "azure" | "abfs" | "abfss") => Ok(()),
        #[cfg(any(test, feature = "testing"))]
        Some("memory") => Ok(()),
        _ => Err(Error::invalid(format!(
            "{url:?} is no URL of an object store: object_store takes s3://bucket/prefix, \
             gs://bucket/prefix, az://container/prefix, or file:///directory"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_object_stores_are_checked_before_anything_is_asked_for() {
        for url in ["s3://bucket/prefix", "gs://b", "az://c/p", "file:///var/objects"] {
            check_object_url(url).unwrap();
        }
        for url in ["", "s3://", "bucket", "http://host/bucket", "ftp://x"] {
            let error = check_object_url(url).unwrap_err().to_string();
            assert!(error.contains("s3://bucket/prefix"), "{error}");
        }
    }
}
