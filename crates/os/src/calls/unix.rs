//! The calls that Linux and macOS share.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{DirectoryHandle, FileId, Place, sync_all};
use crate::files::OpenHow;

/// Reads at most `buffer.len()` bytes at `offset`; 0 means the end of the file.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}

/// Fills all of `buffer` from `offset`.
///
/// # Errors
///
/// `UnexpectedEof` where the file ends before that; or an I/O error.
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Whether the file system has refused an access because it passes by the system's cache.
pub(crate) fn is_refused_access(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::INVAL)
}

impl DirectoryHandle {
    pub(crate) fn open(at: Place<'_>) -> io::Result<DirectoryHandle> {
        open(at, OFlags::RDONLY | OFlags::DIRECTORY, 0).map(DirectoryHandle)
    }

    /// Whether no path leads to it any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.0.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }
}

impl Place<'_> {
    fn directory(&self) -> BorrowedFd<'_> {
        self.directory.map_or(CWD, |directory| directory.0.as_fd())
    }

    fn path(&self) -> &Path {
        if self.path.as_os_str().is_empty() { Path::new(".") } else { self.path }
    }
}

fn open(at: Place<'_>, how: OFlags, permissions: u32) -> io::Result<File> {
    let mode = Mode::from_bits_truncate(permissions as _);
    let how = how | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| rustix::fs::openat(at.directory(), at.path(), how, mode))?;
    Ok(File::from(opened))
}

/// Opens a file. One that is made has these permissions, before the umask takes some away.
pub(crate) fn open_file(at: Place<'_>, how: OpenHow, permissions: u32) -> io::Result<File> {
    let how = match how {
        OpenHow::Read => OFlags::RDONLY,
        OpenHow::Write => OFlags::RDWR,
        OpenHow::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
    };
    open(at, how, permissions)
}

/// The length of the regular file that has a name; `None` where something else has it, a link too.
pub(crate) fn regular_len(at: Place<'_>) -> io::Result<Option<u64>> {
    let found = rustix::fs::statat(at.directory(), at.path(), AtFlags::SYMLINK_NOFOLLOW)?;
    let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    Ok(is_regular.then_some(found.st_size as u64))
}

/// Opens a regular file to read. What has taken its name meanwhile is not waited for.
pub(crate) fn open_regular(at: Place<'_>) -> io::Result<File> {
    open(at, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY, 0)
}

/// Renames a file over whatever has the new name.
pub(crate) fn rename(from: Place<'_>, to: Place<'_>) -> io::Result<()> {
    Ok(rustix::fs::renameat(from.directory(), from.path(), to.directory(), to.path())?)
}

/// Removes a file.
pub(crate) fn remove_file(at: Place<'_>) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(at.directory(), at.path(), AtFlags::empty())?)
}

/// Removes a directory that is empty.
pub(crate) fn remove_directory(at: Place<'_>) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(at.directory(), at.path(), AtFlags::REMOVEDIR)?)
}

/// Makes a directory with these permissions, where there is none.
pub(crate) fn make_directory(at: Place<'_>, permissions: u32) -> io::Result<()> {
    let mode = Mode::from_bits_truncate(permissions as _);
    match rustix::fs::mkdirat(at.directory(), at.path(), mode) {
        Err(Errno::EXIST) if is_directory(at)? => Ok(()),
        done => Ok(done?),
    }
}

/// Whether there is a directory.
pub(crate) fn is_directory(at: Place<'_>) -> io::Result<bool> {
    match rustix::fs::statat(at.directory(), at.path(), AtFlags::empty()) {
        Ok(found) => Ok(FileType::from_raw_mode(found.st_mode) == FileType::Directory),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The names in a directory; of directories alone if `directories` says so.
pub(crate) fn list(at: Place<'_>, directories: bool) -> io::Result<Vec<String>> {
    let opened = open(at, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    let mut names = Vec::new();
    for entry in Dir::new(opened)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if directories && entry.file_type() != FileType::Directory {
            // A file system may not say what an entry is.
            let path = at.path().join(name);
            let is_told = entry.file_type() != FileType::Unknown;
            if is_told || !is_directory(Place { path: &path, ..at })? {
                continue;
            }
        }
        names.push(name.to_string_lossy().into_owned());
    }
    Ok(names)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_names(at: Place<'_>) -> io::Result<()> {
    match at.directory {
        Some(held) if at.path.as_os_str().is_empty() => sync_all(&held.0),
        _ => sync_all(&open(at, OFlags::RDONLY, 0)?),
    }
}

/// That of an open file.
pub(crate) fn id_of(file: &File) -> io::Result<FileId> {
    let found = file.metadata()?;
    Ok(FileId { device: found.dev(), number: found.ino() })
}

/// That of the file that a name leads to.
pub(crate) fn id_at(at: Place<'_>) -> io::Result<FileId> {
    let found = rustix::fs::statat(at.directory(), at.path(), AtFlags::empty())?;
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    Ok(FileId { device: found.st_dev as u64, number: found.st_ino as u64 })
}

/// Makes a symbolic link.
pub(crate) fn make_link(target: &Path, link: Place<'_>) -> io::Result<()> {
    Ok(rustix::fs::symlinkat(target, link.directory(), link.path())?)
}

/// Where a symbolic link leads.
pub(crate) fn read_link(at: Place<'_>) -> io::Result<PathBuf> {
    let target = rustix::fs::readlinkat(at.directory(), at.path(), Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()).into())
}

/// Locks a file, or shares its lock with others; false where another open file has it.
pub(crate) fn try_lock(file: &File, is_exclusive: bool) -> io::Result<bool> {
    match if is_exclusive { file.try_lock() } else { file.try_lock_shared() } {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Gives the lock of a file back.
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    file.unlock()
}

/// Gives a file these permissions. The umask does not count.
pub(crate) fn set_permissions(file: &File, permissions: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, Mode::from_bits_truncate(permissions as _))?)
}

/// Free bytes of a writable directory.
pub fn free_space(directory: &Path) -> Option<u64> {
    let writable = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok();
    let system = rustix::fs::statvfs(directory).ok().filter(|_| writable)?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Whether a file lies on tmpfs; `None` where that cannot be told.
pub fn is_on_tmpfs(path: &Path) -> Option<bool> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    let system = rustix::fs::statfs(path).ok()?;
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_fallible_conversions,
        reason = "the type differs between architectures and systems"
    )]
    let kind = i64::try_from(system.f_type);
    Some(kind.is_ok_and(|kind| kind == TMPFS_MAGIC))
}

/// What kind of device is at a path; `None` for anything else.
pub fn device_at(path: &Path) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    match fs::metadata(path).ok()?.file_type() {
        kind if kind.is_char_device() => Some("a character device (devdax)"),
        kind if kind.is_block_device() => Some("a block device"),
        _ => None,
    }
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A path as bytes, for what is kept on the media.
pub fn bytes_of_path(path: &Path) -> Cow<'_, [u8]> {
    Cow::Borrowed(path.as_os_str().as_bytes())
}

/// The path that [`bytes_of_path`] has given these bytes for.
pub fn path_of_bytes(bytes: &[u8]) -> Option<PathBuf> {
    Some(PathBuf::from(OsStr::from_bytes(bytes)))
}
