//! Directories that are held: names below the path of one are found through one handle, opened
//! once.
//!
//! A path is looked up again at each call. The process may have changed its working directory
//! since, a link may lead elsewhere, or another directory may have the name. The handle stays with
//! the directory that was opened. On Windows the handle is the canonical path of that moment. Links
//! and the working directory are settled then, and a directory that was moved is not followed.
//!
//! Thread safety: every method may be called from any thread; `lock` is held for an instant.
//!
//! Invariants:
//!
//! 1. A name below the path of a held directory is never looked up in another directory.
//! 2. Once the directory has a lock file of this process, no name in it is made, changed or removed
//!    while that name leads to another file: another process may work there by then.

use std::io;
use std::path::{Path, PathBuf};

use super::calls::{self, DirectoryHandle, FileId, Place};
use crate::sync::locks::Mutex;

/// A directory that is held.
#[derive(Debug)]
pub struct HeldDirectory {
    path: PathBuf,
    handle: DirectoryHandle,
    /// The lock file of this process there.
    lock: Mutex<Option<LockName>>,
}

#[derive(Debug)]
struct LockName {
    name: PathBuf,
    id: FileId,
}

impl HeldDirectory {
    pub(super) fn open(path: &Path, at: Place<'_>) -> io::Result<HeldDirectory> {
        let handle = DirectoryHandle::open(at)?;
        Ok(HeldDirectory { path: path.to_path_buf(), handle, lock: Mutex::default() })
    }

    /// Whether it has this path.
    pub(super) fn is(&self, path: &Path) -> bool {
        self.path == path
    }

    /// Where a path is that begins with this directory's.
    pub(super) fn place<'a>(&'a self, path: &'a Path) -> Option<Place<'a>> {
        let path = path.strip_prefix(&self.path).ok()?;
        Some(Place { directory: Some(&self.handle), path })
    }

    /// How many components its path has: of two directories that a path begins with, the one with
    /// more is nearer.
    pub(super) fn depth(&self) -> usize {
        self.path.components().count()
    }

    /// Takes note of the lock file by which this process has the directory.
    pub(super) fn locked_by(&self, path: &Path, id: FileId) {
        let name = path.strip_prefix(&self.path).unwrap_or(path).to_path_buf();
        *self.lock.lock() = Some(LockName { name, id });
    }

    /// Fails if the directory's lock file is another one than this process has locked.
    pub(super) fn check_lock(&self) -> io::Result<()> {
        let lock = self.lock.lock();
        let Some(LockName { name, id }) = &*lock else { return Ok(()) };
        let found = calls::id_at(Place { directory: Some(&self.handle), path: name });
        match found {
            Ok(found) if found == *id => Ok(()),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ if self.handle.is_removed() => Err(self.removed()),
            found => Err(io::Error::other(format!(
                "{} was {} while this process had the directory locked by it, so another process \
                 may work there: nothing is changed there any more; close the database, and open \
                 it again",
                self.path.join(name).display(),
                if found.is_ok() { "replaced" } else { "removed" },
            ))),
        }
    }

    /// Says so where a call failed because the directory is no more.
    pub(super) fn explain(&self, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::NotFound if self.handle.is_removed() => self.removed(),
            _ => error,
        }
    }

    fn removed(&self) -> io::Error {
        io::Error::other(format!(
            "the directory {} was removed while it was in use, and a directory that has its name \
             now is another one; what was in it is gone once the database is closed: copy what is \
             needed, close it, and restore it",
            self.path.display()
        ))
    }
}
