//! Where the bytes of values lie: one range of addresses, in huge pages where the system has them.
//!
//! A look-up in many gigabytes waits for the translation of addresses as long as for the bytes. The
//! processor keeps few translations, and one of a huge page covers 2 MiB instead of 4 KiB.
//!
//! The range is cut into granules. What is free below `top` has memory, and is taken first. Holes
//! are free, too, but the system has their memory back. Behind `top` nothing was touched yet.
//!
//! Thread safety: any thread calls any method. Reading takes no lock; placing, dropping and
//! trimming take one for a look into the maps.
//!
//! Lock order: the lock of the maps is innermost.
//!
//! Invariants:
//!
//! 1. A granule below `top` is in one piece, free, a hole, or of a range that is being trimmed.
//! 2. The call that takes a piece writes it, before another thread knows of it. It is read alone
//!    after that.

use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

use crate::os::ForkGuard;
use crate::os::sync::Mutex;
use crate::storage::FreeMap;

/// An odd number of cache lines. Values of one size begin with what a search reads first: so these
/// bytes spread over the sets of the processor's caches. A block of 16 KiB takes 20.
const GRANULE: usize = 13 * 64;

/// A huge page.
const HUGE: usize = 2 << 20;

/// A pool that may become no larger than this has its values on the heap: the last huge page would
/// be too much of it.
const LEAST: u64 = 64 << 20;

/// The range is longer than the most that is in use by one part of so many. What is free lies in
/// pieces, and a value needs one.
const SPARE: u64 = 4;

/// The largest page that the system may have beside huge ones.
const PAGE: usize = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };

/// The shortest range whose memory is given back: less would be mostly parts of pages.
const SHORTEST: u64 = (16 * PAGE / GRANULE) as u64;

/// The bytes that a value of `len` bytes takes.
pub(crate) const fn placed_len(len: usize) -> usize {
    len.div_ceil(GRANULE) * GRANULE
}

/// Memory for the bytes of values.
pub(crate) struct FrameArena {
    base: NonNull<u8>,
    /// What was mapped, from an address at or before `base` on.
    mapped: (NonNull<u8>, usize),
    space: Mutex<Space>,
    fork: ForkGuard,
}

// SAFETY: the memory is the arena's own until it is dropped. Its pieces are disjoint, written
// before they are shared, and only read after that (invariants 1 and 2).
unsafe impl Send for FrameArena {}
// SAFETY: as above; all else is behind the mutex.
unsafe impl Sync for FrameArena {}

/// In granules.
struct Space {
    free: FreeMap,
    holes: FreeMap,
    top: u64,
    most: u64,
}

impl Space {
    /// Takes `len` granules: of what has memory if it can.
    fn take(&mut self, len: u64) -> Option<u64> {
        if let Some(at) = self.free.allocate_shortest(len) {
            return Some(at);
        }
        if let Some(at) = self.holes.allocate_shortest(len) {
            return Some(at);
        }
        // The system gives memory by huge pages, so all of the last one is free.
        let end = (self.top + len) as usize * GRANULE;
        let top = (end.next_multiple_of(HUGE) / GRANULE) as u64;
        if top > self.most {
            return None;
        }
        self.free.release(self.top, top - self.top);
        self.top = top;
        self.free.allocate_shortest(len)
    }
}

/// Some bytes of an arena, in use.
struct Piece {
    arena: Arc<FrameArena>,
    /// In granules.
    at: u64,
    /// In bytes.
    len: usize,
}

impl Piece {
    fn granules(&self) -> u64 {
        self.len.div_ceil(GRANULE) as u64
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range is this piece's alone (invariant 1), within the mapping, and was
        // written before the piece was shared (invariant 2). The arena outlives the piece.
        unsafe { std::slice::from_raw_parts(self.arena.address(self.at), self.len) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.arena.fork.is_forked() {
            // A thread of the parent may have held the mutex at the fork.
            return;
        }
        let granules = self.granules();
        self.arena.space.lock().free.release(self.at, granules);
    }
}

/// A figure may ask for values on the heap.
#[cfg(feature = "bench")]
static REFUSED: crate::os::sync::atomic::AtomicBool =
    crate::os::sync::atomic::AtomicBool::new(false);

#[cfg(feature = "bench")]
impl FrameArena {
    /// Whether pools that are made from now on have one.
    pub(crate) fn allow(allowed: bool) {
        REFUSED.store(!allowed, crate::os::sync::atomic::Ordering::Relaxed);
    }
}

/// Whether values may lie in an arena.
fn is_allowed() -> bool {
    #[cfg(feature = "bench")]
    if REFUSED.load(crate::os::sync::atomic::Ordering::Relaxed) {
        return false;
    }
    true
}

/// The calls of the system. What is only advice may fail: everything works without it.
#[cfg(all(target_os = "linux", not(miri)))]
mod memory {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// New memory of zeros, which takes none until it is touched.
    pub(super) fn map(len: usize) -> Option<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, which replaces none.
        let start = unsafe { mmap_anonymous(null_mut(), len, access, flags) };
        NonNull::new(start.ok()?.cast())
    }

    // SAFETY: the caller names a range of a mapping of its own.
    pub(super) unsafe fn ask_for_huge_pages(at: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise; the bytes stay as they are.
        unsafe { madvise(at.as_ptr().cast(), len, Advice::LinuxHugepage) }.ok();
    }

    // SAFETY: the caller names whole pages of its own, which no thread reads before it writes them.
    pub(super) unsafe fn give_back(at: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise; the bytes become zeros.
        unsafe { madvise(at.as_ptr().cast(), len, Advice::LinuxDontNeed) }.ok();
    }

    // SAFETY: the caller names a whole mapping, which nothing refers to any more.
    pub(super) unsafe fn unmap(at: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { munmap(at.as_ptr().cast(), len) }.ok();
    }
}

/// Elsewhere values lie on the heap.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod memory {
    use std::ptr::NonNull;

    pub(super) fn map(_len: usize) -> Option<NonNull<u8>> {
        None
    }

    // SAFETY: it does nothing.
    pub(super) unsafe fn ask_for_huge_pages(_at: NonNull<u8>, _len: usize) {}

    // SAFETY: it does nothing.
    pub(super) unsafe fn give_back(_at: NonNull<u8>, _len: usize) {}

    // SAFETY: it does nothing.
    pub(super) unsafe fn unmap(_at: NonNull<u8>, _len: usize) {}
}

impl FrameArena {
    /// An arena for at most `most` bytes in use; `None` where they are few, or where the system has
    /// no such range.
    pub(super) fn new(most: u64) -> Option<Arc<FrameArena>> {
        let room = usize::try_from(most.checked_add(most / SPARE)?).ok()?;
        let room = Some(room.checked_next_multiple_of(HUGE)?);
        let room = room.filter(|_| most > LEAST && is_allowed())?;
        let len = room.checked_add(HUGE)?;
        let start = memory::map(len)?;
        let skipped = start.as_ptr().addr().next_multiple_of(HUGE) - start.as_ptr().addr();
        // SAFETY: less than a huge page is skipped, and one more was mapped.
        let base = unsafe { start.add(skipped) };
        // SAFETY: the range lies in the mapping, which nothing uses yet.
        unsafe { memory::ask_for_huge_pages(base, room) };
        let space = Space {
            free: FreeMap::default(),
            holes: FreeMap::default(),
            top: 0,
            most: (room / GRANULE) as u64,
        };
        let (space, fork) = (Mutex::new(space), ForkGuard::new());
        Some(Arc::new(FrameArena { base, mapped: (start, len), space, fork }))
    }

    fn address(&self, granule: u64) -> *mut u8 {
        // SAFETY: only granules below `most` are named, which the mapping has.
        unsafe { self.base.as_ptr().add(granule as usize * GRANULE) }
    }

    /// A copy of `bytes`; `None` if it has no room for it.
    pub(crate) fn place(self: &Arc<Self>, bytes: &[u8]) -> Option<Bytes> {
        let granules = bytes.len().div_ceil(GRANULE) as u64;
        let at = if granules > 0 { self.space.lock().take(granules)? } else { return None };
        let piece = Piece { arena: Arc::clone(self), at, len: bytes.len() };
        let to = self.address(at);
        // SAFETY: the range was taken just now and is this call's alone (invariants 1 and 2), and
        // it has as many bytes at least.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Some(Bytes::from_owner(piece))
    }

    /// Bytes that have memory and are in no use.
    pub(super) fn free_bytes(&self) -> u64 {
        self.space.lock().free.units() * GRANULE as u64
    }

    /// As [`FrameArena::free_bytes`], and whether a value that weighs `bytes` finds a place there.
    /// What it weighs beside its bytes is less than a granule.
    pub(super) fn free_for(&self, bytes: u64) -> (u64, bool) {
        let space = self.space.lock();
        let longest = space.free.longest().map_or(0, |(_, len)| len);
        (space.free.units() * GRANULE as u64, longest > 0 && longest >= bytes / GRANULE as u64)
    }

    /// Gives memory back until at most `most` bytes are free, or only short ranges are; how many
    /// are free then.
    pub(super) fn trim(&self, most: u64) -> u64 {
        loop {
            let (start, len) = {
                let mut space = self.space.lock();
                let free = space.free.units() * GRANULE as u64;
                let longest = space.free.longest().filter(|(_, len)| *len >= SHORTEST);
                let Some((start, len)) = longest.filter(|_| free > most) else { return free };
                let is_taken = space.free.take(start, len);
                debug_assert!(is_taken, "the longest range is free");
                (start, len)
            };
            self.discard(start, len);
            self.space.lock().holes.release(start, len);
        }
    }

    /// Gives the memory of a range back that is in no map.
    fn discard(&self, start: u64, len: u64) {
        let (from, to) = (start as usize * GRANULE, (start + len) as usize * GRANULE);
        let (from, to) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
        if from >= to {
            return;
        }
        // SAFETY: whole pages of a range that is in no piece and in no map, so that no thread has a
        // way to it.
        unsafe { memory::give_back(self.base.add(from), to - from) };
    }
}

impl Drop for FrameArena {
    fn drop(&mut self) {
        let (start, len) = self.mapped;
        // SAFETY: each piece holds the arena, so none is left, and nothing else refers to it.
        unsafe { memory::unmap(start, len) };
    }
}

impl std::fmt::Debug for FrameArena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let space = self.space.lock();
        let [top, free, holes] = [space.top, space.free.units(), space.holes.units()];
        write!(f, "FrameArena({top} granules, {free} of them free, {holes} holes)")
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// Each piece has bytes of its own.
    fn is_sound(pieces: &VecDeque<(u8, Bytes)>) -> bool {
        pieces.iter().all(|(byte, piece)| piece.iter().all(|found| found == byte))
    }

    fn in_use(pieces: &VecDeque<(u8, Bytes)>) -> u64 {
        pieces.iter().map(|(_, piece)| placed_len(piece.len()) as u64).sum()
    }

    #[test]
    fn few_bytes_lie_on_the_heap() {
        assert!(FrameArena::new(LEAST).is_none() && FrameArena::new(u64::MAX).is_none());
        assert!(FrameArena::new(LEAST + 1).is_some_and(|arena| arena.place(&[]).is_none()));
    }

    /// A slice keeps its bytes, and a full arena refuses.
    #[test]
    fn pieces_outlive_what_they_were_placed_for() {
        let arena = FrameArena::new(LEAST + 1).unwrap();
        let all: Vec<Bytes> = (0..).map_while(|n| arena.place(&vec![n as u8; 1 << 20])).collect();
        assert!((80..=82).contains(&all.len()), "{} pieces of 1 MiB", all.len());
        assert!(arena.place(&vec![0; 1 << 20]).is_none());
        let kept = all[7].slice(10..20);
        drop(all);
        let free = arena.free_bytes();
        assert!(arena.trim(0) < 64 << 10, "{free} free");
        drop(arena);
        assert_eq!(kept[..], [7; 10]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Pieces come and go in any order, and memory is given back between them.
        #[test]
        fn pieces_never_overlap(
            acts in prop::collection::vec((0u8..8, 1usize..100_000), 1..200),
        ) {
            let arena = FrameArena::new(LEAST + 1).unwrap();
            let mut pieces = VecDeque::new();
            for (n, (act, len)) in acts.into_iter().enumerate() {
                match act {
                    0..=4 => {
                        let placed = arena.place(&vec![n as u8; len]);
                        pieces.extend(placed.map(|piece| (n as u8, piece)));
                    }
                    5 => drop(pieces.pop_front()),
                    6 if !pieces.is_empty() => drop(pieces.remove(len % pieces.len())),
                    _ => {
                        let free = arena.trim(len as u64 * 4);
                        prop_assert_eq!(free, arena.free_bytes());
                    }
                }
                prop_assert!(is_sound(&pieces));
                let space = arena.space.lock();
                let known = space.free.units() + space.holes.units();
                prop_assert_eq!(space.top, known + in_use(&pieces) / GRANULE as u64);
            }
        }
    }
}
