//! The bytes of a region in memory. The only place that holds an address.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A private, zeroed, anonymous mapping: the DRAM image of a region.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory that lives until drop; who may touch which bytes when is
// settled by the region's invariants (see `region.rs`), not by the thread that made it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of zeros. They take memory only once touched.
    pub(super) fn anonymous(len: usize) -> io::Result<Mapping> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped the region at address 0"))?;
        // Huge pages halve the cost of random reads. Without them everything works too.
        // SAFETY: the range is the mapping just made.
        let advised =
            unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        drop(advised);
        Ok(Mapping { base, len })
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of a range. The caller keeps the region's invariant 1: nobody writes them
    /// while the slice lives.
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        self.check(at, len);
        // SAFETY: in bounds (checked), initialised (zeroed by the kernel), and not written while
        // borrowed (region invariant 1).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// Copies `bytes` in. The caller keeps the region's invariant 1: the range is its own.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: in bounds (checked); nobody else reads or writes the range (region invariant
        // 1), so the ranges cannot overlap either.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.base.as_ptr().add(at),
                bytes.len(),
            );
        }
    }

    /// An aligned word, shared through atomics.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        self.check(at, 8);
        assert!(at.is_multiple_of(8), "a word lies at a multiple of 8, not at {at}");
        // SAFETY: in bounds and aligned (checked; the base is page-aligned); words are only ever
        // accessed through atomics while shared (region invariant 2).
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast::<u64>()) }
    }

    fn check(&self, at: usize, len: usize) {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= self.len),
            "bytes {at}+{len} lie outside a region of {} bytes",
            self.len
        );
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and borrows of it end before its drop.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}
