//! The calls of Windows.
//!
//! Files are shared with all that others may do, as the standard library opens them: an open file
//! can be renamed and removed, and its name is free at once on NTFS.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::mem;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::ptr;

use super::{DirectoryHandle, FileId, Place};
use crate::files::OpenHow;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_FUNCTION, ERROR_LOCK_VIOLATION, ERROR_NOT_SUPPORTED,
};
use windows_sys::Win32::Security::Cryptography::{
    BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
    UnlockFileEx,
};
use windows_sys::Win32::System::IO::OVERLAPPED;
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

/// The byte that a lock takes. A lock keeps other handles from the bytes themselves, those of this
/// process too, so it lies behind all that a file can have.
const LOCKED_BYTE: u64 = 1 << 62;

/// Makes what was written to a file durable, with its length: `FlushFileBuffers`, which also
/// empties the cache of the drive.
#[expect(clippy::disallowed_methods, reason = "a sync that handles are made of")]
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    file.sync_data()
}

/// The same.
#[expect(clippy::disallowed_methods, reason = "a sync that handles are made of")]
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    file.sync_all()
}

impl DirectoryHandle {
    pub(crate) fn open(at: Place<'_>) -> io::Result<DirectoryHandle> {
        at.path().canonicalize().map(DirectoryHandle)
    }

    /// Whether no path leads to it any more: not known.
    pub(crate) fn is_removed(&self) -> bool {
        false
    }
}

impl Place<'_> {
    fn path(&self) -> PathBuf {
        match self.directory {
            Some(held) if self.path.as_os_str().is_empty() => held.0.clone(),
            Some(held) => held.0.join(self.path),
            None => self.path.to_path_buf(),
        }
    }
}

/// Opens a file. Permissions are those of the directory, which new files inherit.
pub(crate) fn open_file(at: Place<'_>, how: OpenHow, _: u32) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(how != OpenHow::Read).create_new(how == OpenHow::CreateNew);
    options.open(at.path())
}

/// The length of the regular file that has a name; `None` where something else has it, a link too.
pub(crate) fn regular_len(at: Place<'_>) -> io::Result<Option<u64>> {
    let found = fs::symlink_metadata(at.path())?;
    Ok(found.is_file().then_some(found.len()))
}

/// Opens a regular file to read.
pub(crate) fn open_regular(at: Place<'_>) -> io::Result<File> {
    File::open(at.path())
}

/// Renames a file over whatever has the new name.
pub(crate) fn rename(from: Place<'_>, to: Place<'_>) -> io::Result<()> {
    fs::rename(from.path(), to.path())
}

/// Removes a file.
pub(crate) fn remove_file(at: Place<'_>) -> io::Result<()> {
    fs::remove_file(at.path())
}

/// Removes a directory that is empty.
pub(crate) fn remove_directory(at: Place<'_>) -> io::Result<()> {
    fs::remove_dir(at.path())
}

/// Makes a directory, where there is none.
pub(crate) fn make_directory(at: Place<'_>, _: u32) -> io::Result<()> {
    match fs::create_dir(at.path()) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_directory(at)? => Ok(()),
        done => done,
    }
}

/// Whether there is a directory.
pub(crate) fn is_directory(at: Place<'_>) -> io::Result<bool> {
    match fs::metadata(at.path()) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The names in a directory; of directories alone if `directories` says so.
pub(crate) fn list(at: Place<'_>, directories: bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(at.path())? {
        let entry = entry?;
        if !directories || entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Makes the names in a directory durable, where the file system flushes directories. Where it
/// refuses, NTFS and ReFS still have every name in their log: after a power cut names are there in
/// the order in which they were made, and the last ones may be missing.
pub(crate) fn sync_names(at: Place<'_>) -> io::Result<()> {
    const REFUSALS: [u32; 3] = [ERROR_ACCESS_DENIED, ERROR_INVALID_FUNCTION, ERROR_NOT_SUPPORTED];
    let mut options = fs::OpenOptions::new();
    // A flush takes a handle that may write.
    options.read(true).write(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS);
    match options.open(at.path()).and_then(|opened| sync_all(&opened)) {
        Err(e) if REFUSALS.into_iter().any(|code| is_code(&e, code)) => Ok(()),
        done => done,
    }
}

/// The same as for the file: names are in the file system's own log.
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    sync_data(file)
}

/// That of an open file: files are not told from each other here.
pub(crate) fn id_of(_: &File) -> io::Result<FileId> {
    Ok(FileId::default())
}

/// That of the file that a name leads to.
pub(crate) fn id_at(at: Place<'_>) -> io::Result<FileId> {
    fs::metadata(at.path()).map(|_| FileId::default())
}

/// The mode `emulated`, which makes links, is refused here.
pub(crate) fn make_link(_: &Path, _: Place<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Where a symbolic link leads.
pub(crate) fn read_link(at: Place<'_>) -> io::Result<PathBuf> {
    fs::read_link(at.path())
}

/// Gives the file so many bytes, with space for them: NTFS allocates what a length covers.
pub(crate) fn allocate(file: &File, _: u64, to: u64) -> io::Result<()> {
    if file.metadata()?.len() < to { file.set_len(to) } else { Ok(()) }
}

/// The same for a file as a whole.
pub(crate) fn allocate_mapped(file: &File, len: u64) -> io::Result<()> {
    allocate(file, 0, len)
}

/// Gives no space back: it stays with the file until that is removed.
pub(crate) fn punch(_: &File, _: u64, _: u64) -> io::Result<bool> {
    Ok(false)
}

/// There is no such hint.
pub(crate) fn will_need(_: &File, _: u64, _: u64) {}

/// There is no such hint for a file that is open.
pub(crate) fn expect_random_reads(_: &File) {}

/// Whether accesses pass by the system's cache is settled when a file is opened, and they never do.
pub(crate) fn pass_by_cache(_: &File, _: bool) -> bool {
    false
}

/// No access passes by the system's cache, so none is refused for that.
pub(crate) fn is_refused_access(_: &io::Error) -> bool {
    false
}

/// Reads at most `buffer.len()` bytes at `offset`; 0 means the end of the file. It moves the
/// position of the file, which no caller uses.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buffer, offset)
}

/// Fills all of `buffer` from `offset`.
///
/// # Errors
///
/// `UnexpectedEof` where the file ends before that; or an I/O error.
pub fn read_exact_at(file: &File, mut buffer: &mut [u8], at: u64) -> io::Result<()> {
    let mut at = at;
    while !buffer.is_empty() {
        match file.seek_read(buffer, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                buffer = &mut buffer[n..];
                at += n as u64;
            }
        }
    }
    Ok(())
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_all_at(file: &File, mut bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut at = offset;
    while !bytes.is_empty() {
        match file.seek_write(bytes, at)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => {
                bytes = &bytes[n..];
                at += n as u64;
            }
        }
    }
    Ok(())
}

/// Locks a file, or shares its lock with others; false where another open file has it.
pub(crate) fn try_lock(file: &File, is_exclusive: bool) -> io::Result<bool> {
    let exclusive = if is_exclusive { LOCKFILE_EXCLUSIVE_LOCK } else { 0 };
    let mut place = place_of_lock();
    // SAFETY: the handle is open, and the place lives until the call has returned: the handle was
    // not opened for overlapped calls, so it does not go on later.
    let locked = unsafe {
        let flags = exclusive | LOCKFILE_FAIL_IMMEDIATELY;
        LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place)
    };
    match (locked, io::Error::last_os_error()) {
        (0, error) if is_code(&error, ERROR_LOCK_VIOLATION) => Ok(false),
        (0, error) => Err(error),
        _ => Ok(true),
    }
}

/// Gives a file these permissions: its directory says who may.
pub(crate) fn set_permissions(_file: &File, _permissions: u32) -> io::Result<()> {
    Ok(())
}

/// Gives the lock of a file back.
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    let mut place = place_of_lock();
    // SAFETY: as for the lock.
    match unsafe { UnlockFileEx(file.as_raw_handle(), 0, 1, 0, &raw mut place) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn place_of_lock() -> OVERLAPPED {
    let mut place = OVERLAPPED::default();
    place.Anonymous.Anonymous.Offset = LOCKED_BYTE as u32;
    place.Anonymous.Anonymous.OffsetHigh = (LOCKED_BYTE >> 32) as u32;
    place
}

fn is_code(error: &io::Error, code: u32) -> bool {
    error.raw_os_error().is_some_and(|found| found.cast_unsigned() == code)
}

/// The mode `emulated`, which looks for room, is refused here.
pub fn free_space(_: &Path) -> Option<u64> {
    None
}

/// There is no tmpfs to tell of.
pub fn is_on_tmpfs(_: &Path) -> Option<bool> {
    None
}

/// Devices have paths of their own, which no database is given.
pub fn device_at(_: &Path) -> Option<&'static str> {
    None
}

/// The name of this machine.
pub fn host_name() -> String {
    let name = std::env::var_os("COMPUTERNAME").unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A path as bytes, for what is kept on the media: its UTF-16 units, the low byte of each first.
pub fn bytes_of_path(path: &Path) -> Cow<'_, [u8]> {
    Cow::Owned(path.as_os_str().encode_wide().flat_map(u16::to_le_bytes).collect())
}

/// The path that [`bytes_of_path`] has given these bytes for.
pub fn path_of_bytes(bytes: &[u8]) -> Option<PathBuf> {
    let (units, rest) = bytes.as_chunks::<2>();
    let units: Vec<u16> = units.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
    rest.is_empty().then(|| PathBuf::from(OsString::from_wide(&units)))
}

/// Fills `bytes` with random ones.
///
/// # Errors
///
/// An I/O error.
pub fn draw_random(bytes: &mut [u8; 16]) -> io::Result<()> {
    // SAFETY: the buffer is as long as the call is told.
    let status = unsafe {
        let len = bytes.len() as u32;
        BCryptGenRandom(ptr::null_mut(), bytes.as_mut_ptr(), len, BCRYPT_USE_SYSTEM_PREFERRED_RNG)
    };
    match status {
        0 => Ok(()),
        status => Err(io::Error::other(format!("BCryptGenRandom failed with {status:#x}"))),
    }
}

/// The memory of this machine in bytes: all of it, and what of it is available.
pub(crate) fn machine_memory() -> Option<(u64, u64)> {
    let mut found = MEMORYSTATUSEX {
        dwLength: mem::size_of::<MEMORYSTATUSEX>() as u32,
        ..MEMORYSTATUSEX::default()
    };
    // SAFETY: the structure says its length.
    let told = unsafe { GlobalMemoryStatusEx(&raw mut found) };
    (told != 0).then_some((found.ullTotalPhys, found.ullAvailPhys))
}

/// The numbers of the processors that this thread may run on: threads are not pinned on Windows.
pub fn allowed_cores() -> Vec<usize> {
    Vec::new()
}

/// Has this thread run on one processor alone; whether it does. Threads are not pinned on Windows.
pub fn pin_thread(_core: usize) -> bool {
    false
}
