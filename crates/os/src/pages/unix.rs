//! By `mmap`.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// Sets aside `len` bytes of addresses at which nothing may be accessed yet.
pub fn reserve(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    let base = unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags)?
    };
    NonNull::new(base.cast::<u8>())
        .ok_or_else(|| io::Error::other("the kernel mapped the region at address 0"))
}

/// Makes the first `len` bytes from `base` accessible: zeros, unless they were before.
///
/// # Safety
///
/// They lie in what [`reserve`] has set aside, and no file is mapped there.
pub unsafe fn make_accessible(base: NonNull<u8>, len: usize) -> io::Result<()> {
    let (base, access) = (base.as_ptr().cast(), MprotectFlags::READ | MprotectFlags::WRITE);
    // SAFETY: the range lies in address space of the caller's; it only gains access.
    unsafe { rustix::mm::mprotect(base, len, access)? };
    // Huge pages halve the cost of random reads. Without them everything works too.
    #[cfg(target_os = "linux")]
    // SAFETY: as above.
    unsafe { rustix::mm::madvise(base, len, rustix::mm::Advice::LinuxHugepage) }.ok();
    Ok(())
}

/// Maps `len` bytes of a file from `offset` on at `at`, shared. With `sync`, only if stores reach
/// the media by flush and fence alone (`MAP_SYNC`): the kernel refuses where that is not so.
///
/// # Safety
///
/// The range lies in what [`reserve`] has set aside, and nothing refers to it. No process cuts the
/// file short or changes it otherwise while it is mapped.
pub unsafe fn map_file(
    at: NonNull<u8>,
    len: usize,
    file: &File,
    offset: u64,
    sync: bool,
) -> io::Result<()> {
    let (flags, access) = (shared_flags(sync)?, ProtFlags::READ | ProtFlags::WRITE);
    let at = at.as_ptr().cast();
    // SAFETY: the file's pages replace unused ones (the caller's part).
    unsafe { rustix::mm::mmap(at, len, access, flags | MapFlags::FIXED, file, offset)? };
    Ok(())
}

/// Whether [`map_file`] failed because stores do not reach the media by flush and fence alone.
pub fn is_refused_sync(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

/// Gives the memory of accessible bytes back. They read as zeros from now on.
///
/// # Safety
///
/// They lie in what [`reserve`] has set aside, no file is mapped there, and nothing refers to them.
pub unsafe fn discard(base: NonNull<u8>, len: usize) -> io::Result<()> {
    let base = base.as_ptr().cast();
    #[cfg(target_os = "linux")]
    // SAFETY: the range is anonymous and private; its pages become zeros.
    unsafe {
        rustix::mm::madvise(base, len, rustix::mm::Advice::LinuxDontNeed)?;
    }
    #[cfg(not(target_os = "linux"))]
    // SAFETY: the same; fresh pages take the place of the old ones.
    unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        rustix::mm::mmap_anonymous(base, len, ProtFlags::READ | ProtFlags::WRITE, flags)?;
    }
    Ok(())
}

/// Gives address space back, with what is mapped there.
///
/// # Safety
///
/// [`reserve`] has set aside `len` bytes at `base`, and nothing refers to them.
pub unsafe fn release(base: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the caller's part.
    unsafe { rustix::mm::munmap(base.as_ptr().cast(), len)? };
    Ok(())
}

/// How a file is mapped.
#[cfg(target_os = "linux")]
fn shared_flags(sync: bool) -> io::Result<MapFlags> {
    Ok(match sync {
        true => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
        false => MapFlags::SHARED | MapFlags::POPULATE,
    })
}

/// The same, without persistent memory.
#[cfg(not(target_os = "linux"))]
fn shared_flags(sync: bool) -> io::Result<MapFlags> {
    if sync { Err(io::ErrorKind::Unsupported.into()) } else { Ok(MapFlags::SHARED) }
}
