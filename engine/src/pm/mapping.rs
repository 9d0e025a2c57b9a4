//! The bytes of a region in memory. The only place that holds an address.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use crate::os::sync::atomic::{AtomicU64, AtomicUsize, Ordering, at_once};
#[cfg(any(test, feature = "testing"))]
use crate::os::sync::locks::Mutex;
use crate::os::{LINE, pages, prefetch_lines};

/// Anonymous mappings that are no longer used and are all zeros again. To map and to touch one is
/// most of what an opening costs on a simulated machine, and tests open thousands.
#[cfg(any(test, feature = "testing"))]
static SPARE: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

/// Of the few lengths that regions of one test have, a few each.
#[cfg(any(test, feature = "testing"))]
const MOST_SPARE: usize = 12;

/// A mapping: the DRAM image of a region, or the region itself. Address space is set aside for as
/// far as it may grow, so that growth never moves it.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    /// Bytes that may be accessed. Only rises.
    len: AtomicUsize,
    /// Bytes of address space.
    room: usize,
    /// Whether it is all zeros, and may be another one's once this goes.
    #[cfg(any(test, feature = "testing"))]
    is_spare: bool,
}

// SAFETY: the mapping is plain memory until drop; which thread may touch which bytes when is
// settled by the region's invariants (see `region.rs`), not by the thread that made it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Sets aside `room` bytes of addresses at which nothing may be accessed yet.
    fn reserve(room: usize) -> io::Result<Mapping> {
        Ok(Mapping {
            base: pages::reserve(room)?,
            len: AtomicUsize::new(0),
            room,
            #[cfg(any(test, feature = "testing"))]
            is_spare: false,
        })
    }

    /// Maps `len` bytes of zeros with room to grow. They take memory only once touched.
    pub(super) fn anonymous(len: usize, room: usize) -> io::Result<Mapping> {
        let new = || {
            let mapping = Mapping::reserve(room.max(len))?;
            mapping.extend(len)?;
            Ok(mapping)
        };
        #[cfg(any(test, feature = "testing"))]
        return at_once(|| Mapping::spare(len, room.max(len)).map_or_else(new, Ok));
        #[cfg(not(any(test, feature = "testing")))]
        new()
    }

    #[cfg(any(test, feature = "testing"))]
    fn spare(len: usize, room: usize) -> Option<Mapping> {
        let mut spare = SPARE.lock();
        let at =
            spare.iter_mut().position(|spare| *spare.len.get_mut() == len && spare.room == room)?;
        Some(spare.swap_remove(at))
    }

    /// Says that an anonymous mapping is all zeros, and will be until it is dropped: another one of
    /// its length may be made of it then.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn is_zeros_again(&mut self) {
        self.is_spare = true;
    }

    /// Makes the first `len` bytes of an anonymous mapping accessible.
    pub(super) fn extend(&self, len: usize) -> io::Result<()> {
        self.check_room(len)?;
        // SAFETY: the range lies in address space that is ours, and no file is mapped in an
        // anonymous mapping.
        unsafe { pages::make_accessible(self.base, len)? };
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Maps the first `len` bytes of a file, shared, with room to grow. With `sync`, only if
    /// stores reach the media by flush and fence alone (`MAP_SYNC`): the kernel refuses where that
    /// is not so.
    pub(super) fn shared(file: &File, len: usize, room: usize, sync: bool) -> io::Result<Mapping> {
        let mapping = Mapping::reserve(room.max(len))?;
        mapping.extend_shared(file, len, sync)?;
        Ok(mapping)
    }

    /// Maps the file from where the mapping ends, up to `len`.
    pub(super) fn extend_shared(&self, file: &File, len: usize, sync: bool) -> io::Result<()> {
        self.check_room(len)?;
        let from = self.len();
        // SAFETY: the range lies in address space that is ours, and nothing refers to its unused
        // part, which the file's pages replace. The file is the region of a locked database: no
        // other process changes it or cuts it short.
        unsafe { pages::map_file(self.base.add(from), len - from, file, from as u64, sync)? };
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn check_room(&self, len: usize) -> io::Result<()> {
        if (self.len()..=self.room).contains(&len) {
            return Ok(());
        }
        let message = format!("{len} bytes do not fit where {} were set aside", self.room);
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Copies `bytes` in past the cache, for what is large and whole lines: nothing has to be
    /// flushed, a fence completes it. The caller keeps the region's invariant 1.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn stream(&self, at: usize, bytes: &[u8]) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        self.check(at, bytes.len());
        assert!(at.is_multiple_of(16), "streaming stores are aligned, not at {at}");
        let (chunks, rest) = bytes.as_chunks::<16>();
        for (i, chunk) in chunks.iter().enumerate() {
            // SAFETY: in bounds and aligned (checked; the base is page-aligned); no other thread
            // reads or writes the range (region invariant 1). SSE2 is part of x86-64.
            unsafe {
                let to = self.base.as_ptr().add(at + i * 16).cast::<__m128i>();
                _mm_stream_si128(to, _mm_loadu_si128(chunk.as_ptr().cast()));
            }
        }
        debug_assert!(rest.is_empty(), "whole chunks are streamed");
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// The bytes of a range. The caller keeps the region's invariant 1: no thread writes them while
    /// the slice lives.
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        self.check(at, len);
        // SAFETY: in bounds (checked), initialised (zeroed by the kernel), and not written while
        // borrowed (region invariant 1).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// Gives back the memory of an anonymous mapping, which has other bytes from now on. The caller
    /// keeps the region's invariant 1: no slice of it is left.
    pub(super) fn discard(&self) {
        // SAFETY: the range is ours and anonymous, and nothing borrows it (the caller's part).
        let done = unsafe { pages::discard(self.base, self.len()) };
        debug_assert!(done.is_ok(), "memory of ours can be given back");
    }

    /// Hints that the two cache lines from `at` on, wherever that is, will be read.
    pub(super) fn prefetch(&self, at: usize) {
        prefetch_lines(self.base.as_ptr().wrapping_add(at), 2 * LINE);
    }

    /// Copies `bytes` in. The caller keeps the region's invariant 1: the range is its own.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: in bounds (checked); no other thread reads or writes the range (region
        // invariant 1), so the ranges cannot overlap either.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len());
        }
    }

    /// Has `fill` write a range in place. The caller keeps the region's invariant 1: the range is
    /// its own.
    pub(super) fn fill<T>(&self, at: usize, len: usize, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        self.check(at, len);
        // SAFETY: in bounds (checked), initialised (zeroed by the kernel), and no other thread
        // reads or writes the range (region invariant 1).
        fill(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) })
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
        let whole = at_once(|| self.len());
        assert!(
            at.checked_add(len).is_some_and(|end| end <= whole),
            "bytes {at}+{len} lie outside a region of {whole} bytes",
        );
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(any(test, feature = "testing"))]
        if self.is_spare {
            let mut spare = SPARE.lock();
            if spare.len() == MOST_SPARE {
                spare.remove(0);
            }
            let len = AtomicUsize::new(self.len());
            spare.push(Mapping { base: self.base, len, room: self.room, is_spare: false });
            return;
        }
        // SAFETY: the mapping is ours, and borrows of it end before its drop.
        let unmapped = unsafe { pages::release(self.base, self.room) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}
