//! One process at a time: the lock on a database's directory, or on a tree's file.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::ForkGuard;
use crate::error::{Error, ErrorKind, Result};

/// What the holder of the lock wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nobody else may have it open.
    Exclusive,
    /// Other readers may have it open too.
    Shared,
}

/// A file that this process has locked; dropping it (or the end of the process, however it ends)
/// gives it back.
///
/// The lock belongs to the open file, which a child forked or started by another thread shares
/// until it closes it (or becomes another program). So the lock is given back by name: closing
/// the file would leave it held for as long as such a child lives. For the same reason a forked
/// child that drops it must leave it alone.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: fs::File,
    fork: ForkGuard,
}

impl FileLock {
    /// Locks `file`; `None` when another open file of it is locked.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub(crate) fn take(file: fs::File, access: Access) -> std::io::Result<Option<FileLock>> {
        let operation = match access {
            Access::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Access::Shared => FlockOperation::NonBlockingLockShared,
        };
        match flock(&file, operation) {
            Ok(()) => Ok(Some(FileLock { file, fork: ForkGuard::new() })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if !self.fork.is_forked() {
            let unlocked = flock(&self.file, FlockOperation::NonBlockingUnlock);
            debug_assert!(unlocked.is_ok(), "a lock that is held can be given back: {unlocked:?}");
        }
    }
}

/// The held lock of a directory.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    #[expect(dead_code, reason = "given back when it is dropped")]
    lock: Option<FileLock>,
}

impl DirectoryLock {
    /// Takes the lock of the database in `directory`.
    ///
    /// # Errors
    ///
    /// `Unavailable` when another process holds it, naming that process; or on an I/O error.
    pub(crate) fn take(directory: &Path, access: Access) -> Result<DirectoryLock> {
        let path = directory.join("LOCK");
        let opened = match access {
            Access::Exclusive => fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path),
            Access::Shared => fs::File::open(&path),
        };
        let file = opened.map_err(|e| Error::io("open the lock file", &path, e))?;
        let taken = FileLock::take(file, access).map_err(|e| Error::io("lock", &path, e))?;
        let Some(mut lock) = taken else { return Err(held_by(directory, &path)) };
        if access == Access::Exclusive {
            write_holder(&mut lock.file).map_err(|e| Error::io("write the lock file", &path, e))?;
        }
        Ok(DirectoryLock { lock: Some(lock) })
    }

    /// A lock that locks nothing, for a database on simulated files.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn none() -> DirectoryLock {
        DirectoryLock { lock: None }
    }
}

fn write_holder(file: &mut fs::File) -> std::io::Result<()> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "unknown program".to_string());
    file.set_len(0)?;
    writeln!(file, "{} {program}", std::process::id())
}

fn held_by(directory: &Path, path: &PathBuf) -> Error {
    let mut holder = String::new();
    let read = fs::File::open(path).and_then(|mut f| f.read_to_string(&mut holder));
    let who = match (read, holder.trim().split_once(' ')) {
        (Ok(_), Some((pid, program))) => format!("process {pid} ({program})"),
        _ => "another process".to_string(),
    };
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the database {} is open in {who}; close it there, or open it read-only once it is \
             closed",
            directory.display()
        ),
    )
}
