//! The heap of the C library: what was freed goes back to the operating system.
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
pub(crate) fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: it takes the heaps' own locks, and gives back only pages in which nothing lies.
    unsafe {
        libc::malloc_trim(0)
    };
}
