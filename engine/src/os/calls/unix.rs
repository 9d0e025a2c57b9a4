//! The calls that Linux and macOS share.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::sync_all;

/// Reads at most `buffer.len()` bytes at `offset`; 0 means the end of the file.
pub(in crate::os) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}

/// Fills all of `buffer` from `offset`.
///
/// # Errors
///
/// `UnexpectedEof` where the file ends before that; or an I/O error.
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

/// Writes all of `bytes` at `offset`.
pub(in crate::os) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Whether the file system has refused an access because it passes by the system's cache.
pub(in crate::os) fn is_refused_access(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::INVAL)
}

/// Gives a file that is made these permissions, before the umask takes some away.
pub(in crate::os) fn set_permissions(options: &mut fs::OpenOptions, permissions: u32) {
    options.mode(permissions);
}

/// Makes a directory and its parents where missing, with these permissions.
pub(in crate::os) fn make_directory(path: &Path, permissions: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(permissions).create(path)
}

/// Makes the names in a directory durable.
pub(in crate::os) fn sync_names(directory: &Path) -> io::Result<()> {
    sync_all(&File::open(directory)?)
}

/// Locks a file, or shares its lock with others; false where another open file has it.
pub(in crate::os) fn try_lock(file: &File, is_exclusive: bool) -> io::Result<bool> {
    let operation = match is_exclusive {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the lock of a file back.
pub(in crate::os) fn unlock(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingUnlock)?)
}

/// The number by which the kernel's table of locks names a file.
pub(in crate::os) fn number_of(file: &File) -> Option<u64> {
    file.metadata().ok().map(|metadata| metadata.ino())
}

/// Makes a symbolic link.
///
/// # Errors
///
/// An I/O error.
pub(crate) fn make_link(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Free bytes of a writable directory.
pub(crate) fn free_space(directory: &Path) -> Option<u64> {
    let writable = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok();
    let system = rustix::fs::statvfs(directory).ok().filter(|_| writable)?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Whether a file lies on tmpfs; `None` where that cannot be told.
pub(crate) fn is_on_tmpfs(path: &Path) -> Option<bool> {
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
pub(crate) fn device_at(path: &Path) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    match fs::metadata(path).ok()?.file_type() {
        kind if kind.is_char_device() => Some("a character device (devdax)"),
        kind if kind.is_block_device() => Some("a block device"),
        _ => None,
    }
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A path as bytes, for what is kept on the media.
pub(crate) fn bytes_of_path(path: &Path) -> Cow<'_, [u8]> {
    Cow::Borrowed(path.as_os_str().as_bytes())
}

/// The path that [`bytes_of_path`] has given these bytes for.
pub(crate) fn path_of_bytes(bytes: &[u8]) -> Option<PathBuf> {
    Some(PathBuf::from(OsStr::from_bytes(bytes)))
}
