//! The calls of macOS.

use std::fs::File;
use std::io::{self, Read};

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};

/// Makes what was written to a file durable. `fsync` of macOS leaves it in the cache of the drive,
/// `F_FULLFSYNC` does not. A file system that has no such call is refused by the error: nothing
/// would be durable there.
#[expect(clippy::disallowed_methods, reason = "a sync that handles are made of")]
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fcntl_fullfsync(file)?)
}

/// The same; the names in a directory too.
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    sync_data(file)
}

/// The same: it empties the file system's journal, which has the names, as far as it was written.
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    sync_data(file)
}

/// Gives the file so many bytes; a new file has space for them then. Space for what an older file
/// gains is found at the write: `F_PREALLOCATE` counts from the end of what is allocated.
pub(crate) fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    let len = file.metadata()?.len();
    if len > 0 || from > 0 {
        return if len < to { file.set_len(to) } else { Ok(()) };
    }
    allocate_mapped(file, to)
}

/// The same for a file as a whole.
pub(crate) fn allocate_mapped(file: &File, len: u64) -> io::Result<()> {
    let allocate = || rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len);
    match retry_on_intr(allocate) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOTSUP) => file.set_len(len),
        Err(e) => Err(e.into()),
    }
}

/// Gives no space back: it stays with the file until that is removed.
pub(crate) fn punch(_: &File, _: u64, _: u64) -> io::Result<bool> {
    Ok(false)
}

/// Hints that a range will be read soon. A hint that is refused is no failure.
pub(crate) fn will_need(file: &File, offset: u64, len: u64) {
    rustix::fs::fcntl_rdadvise(file, offset, len).unwrap_or(());
}

/// There is no such hint.
pub(crate) fn expect_random_reads(_: &File) {}

/// Has accesses pass by the system's cache (`F_NOCACHE`), or no more; whether that was taken.
pub(crate) fn pass_by_cache(file: &File, on: bool) -> bool {
    rustix::fs::fcntl_nocache(file, on).is_ok()
}

/// Fills `bytes` with random ones.
///
/// # Errors
///
/// An I/O error.
pub fn draw_random(bytes: &mut [u8; 16]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}

/// The numbers of the processors that this thread may run on: macOS has no call for it.
pub fn allowed_cores() -> Vec<usize> {
    Vec::new()
}

/// Has this thread run on one processor alone; whether it does. macOS has no call for it.
pub fn pin_thread(_core: usize) -> bool {
    false
}
