//! A file that gets its name once it is whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{Files, OpenHow};
use super::handle::File;

/// A file that is written under a temporary name. Dropping it removes it, unless it got its name:
/// on a full disk a part of a file must not keep the space that others need.
#[derive(Debug)]
pub struct NewFile<'a> {
    files: &'a dyn Files,
    file: Arc<File>,
    made_as: PathBuf,
    is_named: bool,
}

impl<'a> NewFile<'a> {
    /// Creates it. What has the temporary name is of a process that died, and goes.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn create(files: &'a dyn Files, to: &Path) -> io::Result<NewFile<'a>> {
        let made_as = NewFile::made_as(to);
        let file = match files.open(&made_as, OpenHow::CreateNew) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                files.remove(&made_as)?;
                files.open(&made_as, OpenHow::CreateNew)?
            }
            other => other?,
        };
        Ok(NewFile { files, file, made_as, is_named: false })
    }

    /// The temporary name for a file.
    pub fn made_as(to: &Path) -> PathBuf {
        to.with_extension("new")
    }

    /// To write it.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Gives it its name. The caller has synced it, and syncs the directory.
    ///
    /// # Errors
    ///
    /// An I/O error. It may have its name.
    pub fn rename(mut self, to: &Path) -> io::Result<()> {
        self.files.rename(&self.made_as, to)?;
        self.is_named = true;
        Ok(())
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_named {
            // One that stays all the same goes when its name is needed again.
            self.files.remove(&self.made_as).unwrap_or(());
        }
    }
}
