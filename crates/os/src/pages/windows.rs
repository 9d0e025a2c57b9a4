//! By `VirtualAlloc`.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use windows_sys::Win32::System::Memory::{
    DiscardVirtualMemory, MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_NOACCESS, PAGE_READWRITE,
    VirtualAlloc, VirtualFree,
};

/// Sets aside `len` bytes of addresses at which nothing may be accessed yet.
pub fn reserve(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: fresh address space at a place of the system's choice.
    let base = unsafe { VirtualAlloc(ptr::null(), len, MEM_RESERVE, PAGE_NOACCESS) };
    NonNull::new(base.cast::<u8>()).ok_or_else(io::Error::last_os_error)
}

/// Makes the first `len` bytes from `base` accessible: zeros, unless they were before. The system
/// promises memory for all of them, and refuses where it has none to promise.
///
/// # Safety
///
/// They lie in what [`reserve`] has set aside.
pub unsafe fn make_accessible(base: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the range lies in address space of the caller's; what is accessible there stays as it
    // is.
    let made = unsafe { VirtualAlloc(base.as_ptr().cast(), len, MEM_COMMIT, PAGE_READWRITE) };
    if made.is_null() { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The modes that map files are refused here.
///
/// # Errors
///
/// `Unsupported`.
///
/// # Safety
///
/// None is needed; on other systems it is.
pub unsafe fn map_file(_: NonNull<u8>, _: usize, _: &File, _: u64, _: bool) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether [`map_file`] failed because stores do not reach the media by flush and fence alone.
pub fn is_refused_sync(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

/// Gives the memory of accessible bytes back. They read as anything from now on. The promise of
/// memory for them stays until [`release`].
///
/// # Safety
///
/// They lie in what [`reserve`] has set aside, and nothing refers to them.
pub unsafe fn discard(base: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the caller's part.
    match unsafe { DiscardVirtualMemory(base.as_ptr().cast(), len) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.cast_signed())),
    }
}

/// Gives address space back.
///
/// # Safety
///
/// [`reserve`] has set it aside at `base`, and nothing refers to it.
pub unsafe fn release(base: NonNull<u8>, _: usize) -> io::Result<()> {
    // SAFETY: the caller's part. All that was set aside there goes.
    match unsafe { VirtualFree(base.as_ptr().cast(), 0, MEM_RELEASE) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
