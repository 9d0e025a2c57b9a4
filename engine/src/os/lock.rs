//! One process at a time: the lock on a database's directory.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, ErrorKind, Result};

/// What the holder of the lock wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nobody else may have it open.
    Exclusive,
    /// Other readers may have it open too.
    Shared,
}

/// The held lock; dropping it (or the end of the process, however it ends) gives it back.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    #[expect(dead_code, reason = "the open file is the lock")]
    file: Option<fs::File>,
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
        let mut file = opened.map_err(|e| Error::io("open the lock file", &path, e))?;
        let operation = match access {
            Access::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Access::Shared => FlockOperation::NonBlockingLockShared,
        };
        if let Err(errno) = flock(&file, operation) {
            if errno == rustix::io::Errno::WOULDBLOCK {
                return Err(held_by(directory, &path));
            }
            return Err(Error::io("lock", &path, errno.into()));
        }
        if access == Access::Exclusive {
            write_holder(&mut file).map_err(|e| Error::io("write the lock file", &path, e))?;
        }
        Ok(DirectoryLock { file: Some(file) })
    }

    /// A lock that locks nothing, for a database on simulated files.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn none() -> DirectoryLock {
        DirectoryLock { file: None }
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
