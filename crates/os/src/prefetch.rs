//! Prefetching: a hint to the processor that bytes will be read soon.
//!
//! Thread safety: no memory is accessed, so anything may be hinted at, at any time.

/// Bytes that one hint fetches.
pub const LINE: usize = 64;

/// Hints that the cache line at `address` will be read. The address may be any at all.
#[inline(always)]
fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses nothing: it cannot fault, whatever the address. SSE is part
        // of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: `prfm` accesses nothing: it cannot fault, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address,
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    std::hint::black_box(address);
}

/// Hints at the lines that the first `len` bytes at `address` lie in.
#[inline(always)]
pub fn prefetch_lines(address: *const u8, len: usize) {
    for at in (0..len).step_by(LINE) {
        prefetch(address.wrapping_add(at));
    }
}
