//! Calls of the C library that have no safe form: what was freed goes back to the operating
//! system, and how much memory the machine has.
//!
//! Thread safety: from any thread, at any time.

/// Has the C library give back the free pages of all its heaps.
///
/// It keeps what is freed near the thread that had taken it. Where one takes and another frees, as
/// with blocks of a cache, that comes to as much again as is in use. It costs some milliseconds for
/// a hundred megabytes; a thread that takes memory meanwhile waits for a part of that. Does nothing
/// with other libraries, and for a program that has an allocator of its own.
///
/// Source: `malloc_trim` of the GNU C library, which goes through all heaps since 2.8.
pub fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: it takes the heaps' own locks, and gives back only pages in which nothing lies.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// The machine's memory in bytes, as the C library tells it; `None` where it does not.
#[cfg(target_os = "macos")]
pub(super) fn physical_memory() -> Option<u64> {
    // SAFETY: both calls read a number, and take one that the system has named.
    let (pages, page) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).ok()?.checked_mul(u64::try_from(page).ok()?).filter(|bytes| *bytes > 0)
}
