//! One process at a time: the lock on a database's directory, or on a tree's file.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::calls::{self, FileId};
use super::{Files, ForkGuard, OpenHow, RealFiles};

/// The permissions of a database's files by default: those of their owner alone.
pub const PRIVATE: u32 = 0o600;

/// No name of a holder is longer.
const HOLDER: u64 = 4096;

/// The last line of a lock file whose holder stopped.
const STOPPED: &str = "stopped";

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another holds it: the whole message.
    InUse(String),
    /// A call failed: what it was to do, with which file, and the cause.
    Io(&'static str, PathBuf, io::Error),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::InUse(message) => f.write_str(message),
            LockError::Io(doing, path, error) => {
                write!(f, "cannot {doing} {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for LockError {}

/// What the holder of the lock wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No other process and no other handle may have it open.
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
pub struct FileLock {
    file: fs::File,
    fork: ForkGuard,
}

impl FileLock {
    /// Locks `file`; `None` when another open file of it is locked.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn take(file: fs::File, access: Access) -> io::Result<Option<FileLock>> {
        let is_taken = calls::try_lock(&file, access == Access::Exclusive)?;
        Ok(is_taken.then(|| FileLock { file, fork: ForkGuard::new() }))
    }

    /// The file.
    pub(super) fn file(&self) -> &fs::File {
        &self.file
    }

    /// Locks the file that `path` leads to. A missing one is made.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn at(files: &RealFiles, path: &Path, access: Access) -> io::Result<Option<FileLock>> {
        loop {
            let file = match access {
                Access::Exclusive => open_or_make(files, path)?,
                Access::Shared => match files.open_system(path, OpenHow::Read) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => open_or_make(files, path)?,
                    opened => opened?,
                },
            };
            let Some(lock) = FileLock::take(file, access)? else { return Ok(None) };
            // The path may have got another file in between, which others lock.
            if files.leads_to(path, &lock.file)? {
                return Ok(Some(lock));
            }
        }
    }
}

fn open_or_make(files: &RealFiles, path: &Path) -> io::Result<fs::File> {
    loop {
        match files.open_system(path, OpenHow::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match files.open_system(path, OpenHow::CreateNew) {
            // Another process was faster.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if !self.fork.is_forked() {
            let unlocked = calls::unlock(&self.file);
            debug_assert!(unlocked.is_ok(), "a lock that is held can be given back: {unlocked:?}");
        }
    }
}

/// The held lock of a database: of its directory and, once it is taken, of its region. The region
/// has a lock of its own because a copy of the directory may name the same region.
#[derive(Debug)]
pub struct DirectoryLock {
    /// Of the file that the region's path leads to. It is given back first: who gets the directory
    /// takes it next, and would be refused.
    region: Option<FileLock>,
    #[expect(dead_code, reason = "given back when it is dropped")]
    lock: Option<FileLock>,
    #[expect(dead_code, reason = "given back when it is dropped")]
    other: Option<Box<dyn fmt::Debug + Send + Sync>>,
}

impl DirectoryLock {
    /// Takes the lock of the database in `directory`, which is held; a lock file that is missing is
    /// made. While it is held exclusively, a lock file that is lost or replaced keeps `files` from
    /// making, changing and removing names there.
    ///
    /// # Errors
    ///
    /// Another process holds it: the message names that process where the lock file says which. Or
    /// the lock file cannot be made or opened.
    pub fn take(
        files: &RealFiles,
        directory: &Path,
        access: Access,
    ) -> Result<DirectoryLock, LockError> {
        let path = directory.join("LOCK");
        let io = |e| LockError::Io("lock", path.clone(), e);
        let taken = match FileLock::at(files, &path, access) {
            // A copy on a medium that nothing is written to: no other opening writes there either.
            Err(e) if access == Access::Shared && e.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                return Ok(DirectoryLock::none());
            }
            taken => taken.map_err(io)?,
        };
        let Some(mut lock) = taken else { return Err(held_by(files, directory, &path)) };
        if access == Access::Exclusive {
            files.locked_by(&path, &lock.file).map_err(io)?;
            // The content is for the message of another opening alone, and a full device or one
            // that refuses writes must not keep what is durable from being read.
            write_holder(&mut lock.file).unwrap_or(());
        }
        Ok(DirectoryLock { lock: Some(lock), ..DirectoryLock::none() })
    }

    /// Takes the lock of the region at `path`. A region that is not there needs none.
    ///
    /// # Errors
    ///
    /// Another open database holds it: the message names the process. Or an I/O error.
    pub fn take_region(
        &mut self,
        files: &RealFiles,
        path: &Path,
        access: Access,
    ) -> Result<(), LockError> {
        debug_assert!(self.region.is_none(), "a database has one region");
        let how = if access == Access::Exclusive { OpenHow::Write } else { OpenHow::Read };
        let file = match files.open_system(path, how) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(LockError::Io("open", path.to_path_buf(), e)),
        };
        let inode = calls::id_of(&file).ok().and_then(FileId::number);
        let taken = FileLock::take(file, access)
            .map_err(|e| LockError::Io("lock", path.to_path_buf(), e))?;
        let Some(lock) = taken else { return Err(region_held(path, inode)) };
        self.region = Some(lock);
        Ok(())
    }

    /// A lock that keeps no other opening out.
    pub fn none() -> DirectoryLock {
        DirectoryLock { lock: None, region: None, other: None }
    }

    /// A lock of files that are not the operating system's.
    pub fn other(lock: impl fmt::Debug + Send + Sync + 'static) -> DirectoryLock {
        DirectoryLock { other: Some(Box::new(lock)), ..DirectoryLock::none() }
    }
}

fn write_holder(file: &mut fs::File) -> io::Result<()> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "unknown program".to_string());
    file.set_len(0)?;
    writeln!(file, "{} {program}", std::process::id())
}

fn region_held(path: &Path, inode: Option<u64>) -> LockError {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let who = match inode.and_then(|inode| holder_of(&locks, inode)) {
        Some(pid) if pid == std::process::id() => format!("process {pid} (this one)"),
        Some(pid) => {
            let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", program.trim())
        }
        None => "another process".to_string(),
    };
    LockError::InUse(format!(
        "the region {} is in use by a database that is open in {who}: two directories name \
             the same region, as a copy of a directory does; close that database, or name a \
             region of its own for each with pm_path",
        path.display()
    ))
}

/// The process that holds a lock on the file with this inode, by the kernel's table of locks.
fn holder_of(locks: &str, inode: u64) -> Option<u32> {
    let ending = format!(":{inode}");
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_held = fields.get(1) == Some(&"FLOCK");
        let pid = fields.get(4)?.parse().ok().filter(|pid| *pid > 0);
        pid.filter(|_| is_held && fields.get(5).is_some_and(|file| file.ends_with(&ending)))
    })
}

/// Says that the process which has a directory locked stopped after a failure. What it wrote may be
/// on no device, and a sync by another process does not tell.
///
/// # Errors
///
/// An I/O error.
pub fn say_stopped(files: &RealFiles, directory: &Path) -> io::Result<()> {
    // Another process may have the lock file by now.
    files.check(directory)?;
    let file = files.open_system(&directory.join("LOCK"), OpenHow::Write)?;
    calls::write_all_at(&file, format!("{STOPPED}\n").as_bytes(), file.metadata()?.len())
}

/// Whether the process that has a directory locked said so. A note that a process left as it ended
/// does not count. To tell the two apart this shares the lock for an instant, in which a process
/// that begins to write is refused; without a note it takes no lock.
///
/// # Errors
///
/// An I/O error.
pub fn has_stopped(files: &RealFiles, directory: &Path) -> io::Result<bool> {
    let path = directory.join("LOCK");
    if !read_holder(files, &path)?.lines().any(|line| line == STOPPED) {
        return Ok(false);
    }
    Ok(FileLock::at(files, &path, Access::Shared)?.is_none())
}

fn read_holder(files: &RealFiles, path: &Path) -> io::Result<String> {
    let (file, mut holder) = (files.open_system(path, OpenHow::Read)?, String::new());
    file.take(HOLDER).read_to_string(&mut holder).map(|_| holder)
}

fn held_by(files: &RealFiles, directory: &Path, path: &Path) -> LockError {
    let holder = read_holder(files, path).unwrap_or_default();
    let who = match holder.lines().next().and_then(|line| line.trim().split_once(' ')) {
        Some((pid, program)) => format!("process {pid} ({program})"),
        None => "another process".to_string(),
    };
    LockError::InUse(format!(
        "the database {} is open in {who}, or others read it; close it there first",
        directory.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: an opening was refused where the name of its process could not be written to `LOCK`, on
    /// a full disk for example. Cause: the failure of that write was the opening's. Fix: the lock
    /// holds without the name.
    #[test]
    fn a_lock_file_that_takes_no_writes_locks_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        // A device that is always full, and takes locks.
        std::os::unix::fs::symlink("/dev/full", directory.path().join("LOCK")).unwrap();
        let files = RealFiles::default();
        let take = || DirectoryLock::take(&files, directory.path(), Access::Exclusive);
        let held = take().unwrap();
        let refused = take().unwrap_err();
        assert!(matches!(refused, LockError::InUse(_)), "{refused:?}");
        assert!(refused.to_string().contains("is open in another process"), "{refused}");
        drop(held);
        take().unwrap();
    }

    /// Bug: a reader was refused for ever once a writer that had stopped was gone. Cause: its note
    /// stays in the lock file, and readers did not look whether the writer still has the lock. Fix:
    /// the note counts as long as its process has the lock. The next writer clears it.
    #[test]
    fn a_note_counts_as_long_as_its_process_has_the_lock() {
        let (directory, files) = (tempfile::tempdir().unwrap(), RealFiles::default());
        let take = |access| DirectoryLock::take(&files, directory.path(), access).unwrap();
        let has_stopped = || has_stopped(&files, directory.path()).unwrap();
        let writer = take(Access::Exclusive);
        assert!(!has_stopped());
        say_stopped(&files, directory.path()).unwrap();
        assert!(has_stopped());
        drop(writer);
        assert!(!has_stopped(), "it has ended");
        let reader = take(Access::Shared);
        assert!(!has_stopped(), "a reader is no writer");
        drop(reader);
        let _next = take(Access::Exclusive);
        assert!(!has_stopped(), "the next one has not");
    }

    #[test]
    fn the_kernels_table_names_the_holder() {
        let table = "1: POSIX  ADVISORY  WRITE 77 08:01:4242 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 88 08:01:4242 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 99 08:01:4242 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE -1 08:01:4343 0 EOF\n";
        assert_eq!(holder_of(table, 4242), Some(99));
        assert_eq!(holder_of(table, 4343), None, "it lives in another namespace");
        assert_eq!(holder_of(table, 242), None);
        assert_eq!(holder_of("", 4242), None);
    }
}
