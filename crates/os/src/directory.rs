//! Directories: names that become durable.
//!
//! Thread safety: every method may be called from any thread; syncs of a directory take turns.
//!
//! Invariant: after the first failed sync of a [`Directory`] every later one fails, as for files
//! (`handle.rs`).

use std::io;
use std::path::{Path, PathBuf};

use super::files::{Files, Sealed};
use super::handle::Failure;
use crate::sync::locks::Mutex;

/// A directory whose names a part of the engine makes durable.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    failure: Failure,
    syncing: Mutex<()>,
}

impl Directory {
    /// The one at a path.
    pub fn at(path: &Path) -> Directory {
        let (path, failure) = (path.to_path_buf(), Failure::default());
        Directory { path, failure, syncing: Mutex::new(()) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes all names in it durable that were created, renamed or removed before this call.
    ///
    /// # Errors
    ///
    /// The sync failed, or an earlier one did.
    pub fn sync(&self, files: &dyn Files) -> io::Result<()> {
        let _turn = self.syncing.lock();
        self.failure.check(&self.path)?;
        let synced = files.sync_names(&self.path, Sealed::new());
        synced.map_err(|e| self.failure.note("sync", e))
    }
}

/// The directory that a path's name is in.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Makes the name of a path durable. A process may have a directory whose parent it may not read:
/// then that cannot be synced by itself, and the file system is synced as a whole.
///
/// # Errors
///
/// As [`Directory::sync`].
pub fn sync_name(files: &dyn Files, path: &Path) -> io::Result<()> {
    // Never as if nothing had changed.
    try_sync_name(files, path).map_err(io::Error::other)
}

fn try_sync_name(files: &dyn Files, path: &Path) -> io::Result<()> {
    match files.sync_names(parent_of(path), Sealed::new()) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            files.sync_file_system(path, Sealed::new())
        }
        synced => synced,
    }
}

/// Creates a directory and its parents where missing, each durable before the next one is made in
/// it. Nothing happens where the directory is there.
///
/// A process that dies between the two steps leaves one directory that is there and not durable,
/// the last that it made. So the name of the first existing one is synced too.
///
/// # Errors
///
/// An I/O error; some of the directories may be there.
pub fn create_directory(files: &dyn Files, path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = path;
    while parent_of(at) != at && !files.has_directory(at)? {
        missing.push(at);
        at = parent_of(at);
    }
    if missing.is_empty() {
        return Ok(());
    }
    match try_sync_name(files, at) {
        // Neither may be read: this process made neither. What it makes is synced below.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
        synced => synced.map_err(io::Error::other)?,
    }
    for directory in missing.into_iter().rev() {
        files.create_directory(directory)?;
        sync_name(files, directory)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealFiles;
    use crate::files::{OpenHow, RawFile};

    /// Files that tell what was made and synced, in order.
    #[derive(Debug)]
    struct Told<F>(F, Mutex<Vec<String>>);

    impl<F: Files> Files for Told<F> {
        fn open_raw(
            &self,
            path: &Path,
            how: OpenHow,
            seal: Sealed,
        ) -> io::Result<Box<dyn RawFile>> {
            self.0.open_raw(path, how, seal)
        }
        fn sync_names(&self, path: &Path, seal: Sealed) -> io::Result<()> {
            self.1.lock().push(format!("sync {}", path.display()));
            self.0.sync_names(path, seal)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            self.0.remove(path)
        }
        fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
            self.0.list(directory)
        }
        fn directories(&self, directory: &Path) -> io::Result<Vec<String>> {
            self.0.directories(directory)
        }
        fn remove_directory(&self, path: &Path) -> io::Result<()> {
            self.0.remove_directory(path)
        }
        fn create_directory(&self, path: &Path) -> io::Result<()> {
            self.1.lock().push(format!("make {}", path.display()));
            self.0.create_directory(path)
        }
        fn has_directory(&self, path: &Path) -> io::Result<bool> {
            self.0.has_directory(path)
        }
    }

    #[test]
    fn each_directory_is_durable_before_the_next_one_is_made_in_it() {
        let root = tempfile::tempdir().unwrap();
        let files = Told(RealFiles::default(), Mutex::default());
        let path = root.path().join("a/b/c");
        create_directory(&files, &path).unwrap();
        assert!(path.is_dir());
        let [top, root] = [root.path().parent().unwrap(), root.path()].map(|p| p.display());
        let steps = [
            format!("sync {top}"),
            format!("make {root}/a"),
            format!("sync {root}"),
            format!("make {root}/a/b"),
            format!("sync {root}/a"),
            format!("make {root}/a/b/c"),
            format!("sync {root}/a/b"),
        ];
        assert_eq!(*files.1.lock(), steps);
        files.1.lock().clear();
        create_directory(&files, &path).unwrap();
        assert!(files.1.lock().is_empty(), "nothing to do where it is there");
    }

    #[test]
    fn a_directory_without_a_parent_in_its_path_lies_in_the_current_one() {
        assert_eq!(parent_of(Path::new("db")), Path::new("."));
        assert_eq!(parent_of(Path::new(".")), Path::new("."));
        assert_eq!(parent_of(Path::new("/")), Path::new("/"));
        assert_eq!(parent_of(Path::new("/db")), Path::new("/"));
        assert_eq!(parent_of(Path::new("a/db")), Path::new("a"));
    }
}
