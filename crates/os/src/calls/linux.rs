//! The calls of Linux.

use std::fs::File;
use std::io;

use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::thread::CpuSet;

/// Makes what was written to a file durable, with its length. Once: after an interrupted call the
/// kernel may have reported a failed write-back, so it is not tried again.
#[expect(clippy::disallowed_methods, reason = "a sync that handles are made of")]
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}

/// Makes a file durable with all that is known of it; the names in a directory.
#[expect(clippy::disallowed_methods, reason = "a sync that handles are made of")]
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fsync(file)?)
}

/// Makes all of the file system durable that a file is in, names too.
#[expect(clippy::disallowed_methods, reason = "a sync that handles are made of")]
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

/// Sees to it that the bytes from `from` up to `to` have space, and that the file has them.
pub(crate) fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    let allocate = || rustix::fs::fallocate(file, FallocateFlags::empty(), from, to - from);
    match retry_on_intr(allocate) {
        Ok(()) => Ok(()),
        // A file system without preallocation: the space is found at the write.
        Err(Errno::OPNOTSUPP) if file.metadata()?.len() < to => file.set_len(to),
        Err(Errno::OPNOTSUPP) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// The same for a file that is mapped, where a store that finds no space kills the process.
pub(crate) fn allocate_mapped(file: &File, len: u64) -> io::Result<()> {
    let allocate = || rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len);
    Ok(retry_on_intr(allocate)?)
}

/// Gives the space of a range back; whether the file system can.
pub(crate) fn punch(file: &File, from: u64, len: u64) -> io::Result<bool> {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| rustix::fs::fallocate(file, how, from, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Hints that a range will be read soon. A hint that is refused is no failure.
pub(crate) fn will_need(file: &File, offset: u64, len: u64) {
    let len = std::num::NonZeroU64::new(len);
    rustix::fs::fadvise(file, offset, len, Advice::WillNeed).unwrap_or(());
}

/// Hints that reads follow no order. A hint that is refused is no failure.
pub(crate) fn expect_random_reads(file: &File) {
    rustix::fs::fadvise(file, 0, None, Advice::Random).unwrap_or(());
}

/// Has accesses pass by the system's cache, or no more; whether that was taken.
pub(crate) fn pass_by_cache(file: &File, on: bool) -> bool {
    let Ok(flags) = rustix::fs::fcntl_getfl(file) else { return false };
    let flags = if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    rustix::fs::fcntl_setfl(file, flags).is_ok()
}

/// Fills `bytes` with random ones.
///
/// # Errors
///
/// An I/O error.
pub fn draw_random(bytes: &mut [u8; 16]) -> io::Result<()> {
    let drawn = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    debug_assert_eq!(drawn, bytes.len(), "so few bytes come at once");
    Ok(())
}

/// The numbers of the processors that this thread may run on; none if that cannot be found out.
pub fn allowed_cores() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Has this thread run on one processor alone, which is one of those allowed; whether it does.
pub fn pin_thread(core: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).is_ok()
}
