//! The pool: which values are in memory, and which of them leave when bytes run out.
//!
//! Thread safety: every method may be called from any thread. A reader that finds a value takes no
//! lock. Loads, evictions and removals take one, for a few instructions each.
//!
//! Lock order: the lock of the pool is the innermost. No value is dropped under it.
//!
//! Invariants, which [`FramePool::check`] and [`FramePool::check_swips`] hold against the whole:
//!
//! 1. A frame is in the queues if and only if a swip leads to it; its entry lists these swips.
//! 2. `used` is the sum of what rooms hold, what frames in the queues hold, and what frames hold
//!    that left and are still in use. It never exceeds the capacity, but after the capacity was
//!    lowered.
//! 3. A swip changes under the lock alone.
//!
//! Which value leaves: S3-FIFO (Yang and others, SOSP 2023). What comes enters the small queue, a
//! tenth of all. If it was asked for three times when it comes to the queue's end, it goes on to
//! the main queue, or it leaves. A value at the end of the main queue goes round again as often as
//! it was asked for. A swip keeps in its mark when its value left the small queue: what comes again
//! soon enters the main queue.

mod check;
mod room;

use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::arena::FrameArena;
use super::counts::Counts;
use super::frame::{BufferFrame, Warmth};
use super::queues::{EvictionQueue, Queues};
use super::swip::{Retired, Swip};
use super::{Below, Weigh};
use crate::base::memory::{Gauge, Holding};
use crate::mvcc::{EpochGuard, pin};
use crate::os::sync::Mutex;
use crate::os::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::os::sync::shared::OnceLock;
use crate::os::{LINE, prefetch_lines};

use room::{LoadRoom, most_queued};

const HITS: usize = 0;
const MISSES: usize = 1;

/// A value in the small queue that was asked for so often goes on to the main queue: once when it
/// was loaded, and twice again.
const ASKED_AGAIN: u8 = 3;

/// The small queue has one part of so many of all bytes.
const SMALL: u64 = 10;

/// The most values that one eviction passes over.
const MOST_SPARED: usize = 128;

/// A frame in the queues, and the swips that lead to it.
struct Entry<V: Send + Sync + 'static> {
    frame: Arc<BufferFrame<V>>,
    parents: SmallVec<[(Swips<V>, u32); 1]>,
}

struct State<V: Send + Sync + 'static> {
    queues: Queues<Entry<V>>,
    /// Bytes that have left the small queue for the medium.
    passed: u64,
}

/// Values that swips lead to, bounded by bytes. It does not know what it holds.
pub(crate) struct FramePool<V: Send + Sync + 'static> {
    /// Itself, as swips know it.
    own: Weak<FramePool<V>>,
    capacity: AtomicU64,
    used: Arc<Gauge>,
    /// Of `used`, what is about to be loaded.
    rooms: Arc<Gauge>,
    /// Where the bytes of values lie; `None` if on the heap.
    arena: Option<Arc<FrameArena>>,
    /// On lines of its own: loads and evictions write it, and hits read what lies beside it.
    state: CachePadded<Mutex<State<V>>>,
    counts: Counts<2>,
    below: Option<Arc<dyn Below>>,
}

/// What has left the pool. The pool drops it after it has released its lock.
struct Gone<V: Send + Sync + 'static> {
    frames: Vec<Retired<BufferFrame<V>>>,
    entries: Vec<Entry<V>>,
}

impl<V: Send + Sync + 'static> Gone<V> {
    fn new() -> Gone<V> {
        Gone { frames: Vec::new(), entries: Vec::new() }
    }

    /// Lets go of it; whether there was something.
    fn release(self) -> bool {
        let is_some = !self.frames.is_empty();
        drop(self.entries);
        Retired::give_up(self.frames);
        is_some
    }
}

/// What the swips of an extent share.
struct Home<V: Send + Sync + 'static> {
    /// The pool whose frames they lead to, once there was one.
    pool: OnceLock<Weak<FramePool<V>>>,
    /// Whether the extent was replaced: nothing is loaded into the pool for it any more.
    is_closed: AtomicBool,
    _held: Holding,
}

/// The way to a value.
struct HintedSwip<V: Send + Sync + 'static> {
    swip: Swip<BufferFrame<V>>,
    /// Where the value begins, as long as the swip leads to it. It lies beside the swip: so a
    /// reader asks for the value's first lines before it has seen the frame.
    begins_at: AtomicUsize,
}

impl<V: Send + Sync + 'static> Default for HintedSwip<V> {
    fn default() -> HintedSwip<V> {
        HintedSwip { swip: Swip::default(), begins_at: AtomicUsize::new(0) }
    }
}

impl<V: Weigh + Send + Sync + 'static> HintedSwip<V> {
    /// Leads to `frame` from now on, where it led to nothing.
    fn lead_to(&self, frame: Arc<BufferFrame<V>>) {
        self.begins_at.store(frame.begins_at().addr(), Ordering::Relaxed);
        let before = self.swip.set(frame);
        debug_assert!(before.is_ok(), "it led to nothing, and changes under the lock alone");
    }
}

/// So many lines of a value are read first: in a block, what leads to its entries.
const FIRST_LINES: usize = 5;

/// The swips of an extent, by the number of the block.
///
/// Thread safety: a reader loads a swip. The pool alone changes one, under its lock.
pub(crate) struct Swips<V: Send + Sync + 'static> {
    list: Arc<[HintedSwip<V>]>,
    home: Arc<Home<V>>,
}

impl<V: Send + Sync + 'static> Clone for Swips<V> {
    fn clone(&self) -> Swips<V> {
        Swips { list: Arc::clone(&self.list), home: Arc::clone(&self.home) }
    }
}

impl<V: Send + Sync + 'static> Swips<V> {
    /// Swips to `len` values on the medium, whose bytes `gauge` counts.
    pub(crate) fn new(len: usize, gauge: &Arc<Gauge>) -> Swips<V> {
        let bytes = len * size_of::<HintedSwip<V>>() + size_of::<Home<V>>();
        let (pool, is_closed) = (OnceLock::new(), AtomicBool::new(false));
        let held = gauge.hold(bytes as u64);
        Swips {
            list: (0..len).map(|_| HintedSwip::default()).collect(),
            home: Arc::new(Home { pool, is_closed, _held: held }),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Value `n`, if it is in memory. No sign of use.
    #[inline]
    fn get<'g>(&self, n: usize, pinned: &'g EpochGuard) -> Option<&'g BufferFrame<V>> {
        self.list.get(n)?.swip.get(pinned)
    }

    /// As [`Swips::get`], for a reader that searches the value next.
    #[inline]
    fn get_to_search<'g>(&self, n: usize, pinned: &'g EpochGuard) -> Option<&'g BufferFrame<V>> {
        let way = self.list.get(n)?;
        let found = way.swip.get(pinned)?;
        let begins_at = way.begins_at.load(Ordering::Relaxed);
        prefetch_lines(std::ptr::without_provenance(begins_at), FIRST_LINES * LINE);
        Some(found)
    }

    /// Value `n`, if it is in memory, for a holder that outlives its epoch. No sign of use.
    pub(crate) fn peek(&self, n: usize) -> Option<Arc<BufferFrame<V>>> {
        self.list.get(n)?.swip.pin(&pin())
    }

    /// Whether value `n` is in memory. No sign of use.
    pub(crate) fn has(&self, n: usize) -> bool {
        self.list.get(n).is_some_and(|way| way.swip.is_set())
    }

    /// How warm value `n` is, if it is in memory.
    pub(crate) fn warmth(&self, n: usize) -> Option<Warmth> {
        self.get(n, &pin()).map(BufferFrame::warmth)
    }

    /// Whether the pool may lead them to frames of `pool`.
    fn may_lead_to(&self, pool: &Weak<FramePool<V>>) -> bool {
        let own = self.home.pool.get_or_init(|| Weak::clone(pool));
        // See `leave`.
        fence(Ordering::SeqCst);
        Weak::ptr_eq(own, pool) && !self.home.is_closed.load(Ordering::Relaxed)
    }

    /// Whether two are the same swips.
    fn are(&self, others: &Swips<V>) -> bool {
        Arc::ptr_eq(&self.home, &others.home)
    }

    /// Bytes of value `n`, if it is in memory and no reader has asked for it.
    pub(crate) fn unread_bytes(&self, n: usize) -> u64
    where
        V: Weigh,
    {
        let guard = pin();
        let unread = self.get(n, &guard).filter(|frame| !frame.warmth().is_used());
        unread.map_or(0, |frame| frame.weight())
    }

    /// Takes all frames out of the pool, and has it take no more.
    pub(crate) fn leave(&self) {
        self.home.is_closed.store(true, Ordering::Relaxed);
        // With the fence of the pool: it sees the mark before it takes a frame, or is seen here.
        fence(Ordering::SeqCst);
        if let Some(pool) = self.home.pool.get().and_then(Weak::upgrade) {
            pool.remove_all(self);
        }
    }
}

impl<V: Send + Sync + 'static> std::fmt::Debug for Swips<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let there = self.list.iter().filter(|way| way.swip.is_set()).count();
        write!(f, "Swips({there} of {} in memory)", self.list.len())
    }
}

impl<V: Send + Sync + 'static> State<V> {
    /// Evicts until the queues have at most `most` bytes.
    fn make_room(&mut self, most: u64, gone: &mut Gone<V>) {
        while self.queues.bytes() > most {
            let Some(place) = self.victim() else { return };
            let bytes = self.queues.bytes();
            let is_small = self.queues.queue_of(place) == Some(EvictionQueue::Small);
            let Some(entry) = self.queues.remove(place) else { return };
            if is_small {
                self.passed += bytes - self.queues.bytes();
            }
            let mark = if is_small { self.passed } else { 0 };
            // The way to it goes first. Its memory goes when no reader can be on the way.
            let swips = entry.parents.iter().filter_map(|(swips, n)| swips.list.get(*n as usize));
            gone.frames.extend(swips.filter_map(|way| way.swip.take(mark)));
            gone.entries.push(entry);
        }
    }

    /// The queue that the next value leaves from.
    fn leaving_from(&self) -> EvictionQueue {
        let small = self.queues.bytes_of(EvictionQueue::Small);
        let has = |queue| self.queues.first(queue).is_some();
        let is_small = small * SMALL >= self.queues.bytes() && has(EvictionQueue::Small);
        if is_small || !has(EvictionQueue::Main) {
            EvictionQueue::Small
        } else {
            EvictionQueue::Main
        }
    }

    /// The place of the value that leaves next. It passes over what was used; but not for ever,
    /// since readers go on using.
    fn victim(&mut self) -> Option<u32> {
        for _ in 0..MOST_SPARED {
            let queue = self.leaving_from();
            let place = self.queues.first(queue)?;
            let Entry { frame, parents } = self.queues.get(place)?;
            let Warmth { heat, .. } = frame.warmth();
            if Arc::strong_count(frame) > 1 + parents.len() {
                // Its bytes would stay: a cursor is in it.
                self.queues.move_to(place, queue);
                continue;
            }
            let (to, heat) = match queue {
                EvictionQueue::Small if heat >= ASKED_AGAIN => (EvictionQueue::Main, 0),
                EvictionQueue::Main if heat > 0 => (EvictionQueue::Main, heat - 1),
                _ => return Some(place),
            };
            frame.set_warmth(Warmth { heat, queue: to });
            self.queues.move_to(place, to);
        }
        self.queues.first(self.leaving_from())
    }

    /// The entry of a frame.
    fn entry_of(&mut self, frame: &BufferFrame<V>) -> Option<&mut Entry<V>> {
        let entry = self.queues.get_mut(frame.place())?;
        std::ptr::eq(&raw const *entry.frame, frame).then_some(entry)
    }
}

impl<V: Send + Sync + 'static> FramePool<V> {
    /// The most bytes it will use.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Takes all frames out that `swips` lead to.
    fn remove_all(&self, swips: &Swips<V>) {
        let (guard, mut gone) = (pin(), Gone::new());
        let mut state = self.state.lock();
        for (n, way) in swips.list.iter().enumerate() {
            let Some(frame) = way.swip.get(&guard) else { continue };
            let place = frame.place();
            if let Some(entry) = state.entry_of(frame) {
                entry.parents.retain(|(of, m)| !(of.are(swips) && *m as usize == n));
                if entry.parents.is_empty() {
                    gone.entries.extend(state.queues.remove(place));
                }
            }
            gone.frames.extend(way.swip.take(0));
        }
        drop(state);
        gone.release();
    }
}

impl<V: Weigh + Send + Sync + 'static> FramePool<V> {
    /// A pool of at most `capacity_bytes`, which is the most that it is made for, too.
    pub(crate) fn new(capacity_bytes: u64) -> Arc<FramePool<V>> {
        FramePool::above(capacity_bytes, None)
    }

    /// As [`FramePool::new`]. Below it may be a second cache, of bytes as they lie on the medium.
    pub(crate) fn above(capacity_bytes: u64, below: Option<Arc<dyn Below>>) -> Arc<FramePool<V>> {
        Arc::new_cyclic(|own| FramePool {
            own: Weak::clone(own),
            capacity: AtomicU64::new(capacity_bytes),
            used: Arc::default(),
            rooms: Arc::default(),
            arena: FrameArena::new(capacity_bytes),
            state: CachePadded::new(Mutex::new(State { queues: Queues::default(), passed: 0 })),
            counts: Counts::default(),
            below,
        })
    }

    /// What is below it.
    pub(crate) fn below(&self) -> Option<&dyn Below> {
        self.below.as_deref()
    }

    /// Value `n`, if it is in memory; a sign of use.
    #[inline]
    pub(crate) fn get<'g>(
        &self,
        swips: &Swips<V>,
        n: usize,
        pinned: &'g EpochGuard,
    ) -> Option<&'g BufferFrame<V>> {
        let found = swips.get_to_search(n, pinned);
        match found {
            Some(frame) => {
                frame.touch();
                self.counts.add(HITS);
            }
            None => self.counts.add(MISSES),
        }
        found
    }

    /// As [`FramePool::get`], for a holder that outlives its epoch: it counts a reference.
    pub(crate) fn get_pinned(&self, swips: &Swips<V>, n: usize) -> Option<Arc<BufferFrame<V>>> {
        let found = swips.peek(n);
        if let Some(frame) = &found {
            frame.touch();
        }
        self.counts.add(if found.is_some() { HITS } else { MISSES });
        found
    }

    /// Puts value `n` into the room that was kept for it. If another thread was faster, its value
    /// is used. Without room it stays the reader's own.
    pub(crate) fn admit(
        &self,
        room: Option<LoadRoom>,
        at: (&Swips<V>, usize),
        value: V,
    ) -> Arc<BufferFrame<V>> {
        match room {
            Some(room) => self.admit_as(room, at, (value, None)),
            None => Arc::new(BufferFrame::apart(value)),
        }
    }

    /// Puts value `n` into the pool that no reader has asked for, if there is room and it is not
    /// there.
    pub(crate) fn fill(&self, (swips, n): (&Swips<V>, usize), value: V, warmth: Warmth) {
        if let Some(room) = self.reserve(value.weight()) {
            drop(self.admit_as(room, (swips, n), (value, Some(warmth))));
        }
    }

    /// Has a second swip lead to the frame that a first one leads to, if that is in memory.
    pub(crate) fn share(&self, (from, n): (&Swips<V>, usize), (to, m): (&Swips<V>, usize)) {
        let guard = pin();
        let mut state = self.state.lock();
        let (Some(frame), Some(way), Ok(number)) = (
            from.list.get(n).and_then(|way| way.swip.pin(&guard)),
            to.list.get(m),
            u32::try_from(m),
        ) else {
            return;
        };
        if to.may_lead_to(&self.own)
            && !way.swip.is_set()
            && let Some(entry) = state.entry_of(&frame)
        {
            entry.parents.push((to.clone(), number));
            way.lead_to(frame);
        }
    }

    /// Puts a value into a frame that swip `n` leads to, or finds that it leads to one already. If
    /// the pool may not have it, the frame is the caller's alone.
    fn admit_as(
        &self,
        room: LoadRoom,
        (swips, n): (&Swips<V>, usize),
        (mut value, warmth): (V, Option<Warmth>),
    ) -> Arc<BufferFrame<V>> {
        let bytes = value.weight();
        let number = u32::try_from(n).ok();
        let place = swips.list.get(n).zip(number).zip(self.resize(room, bytes));
        let Some(((way, number), LoadRoom { held, loading, .. })) = place else {
            return Arc::new(BufferFrame::apart(value));
        };
        self.settle(&mut value);
        let guard = pin();
        let mut state = self.state.lock();
        if !swips.may_lead_to(&self.own) {
            drop(state);
            return Arc::new(BufferFrame::apart(value));
        }
        if let Some(there) = way.swip.pin(&guard) {
            return there;
        }
        let warmth = warmth.unwrap_or_else(|| self.warmth_of_new(&state, way.swip.mark()));
        let frame = Arc::new(BufferFrame::new(value, warmth, Some(held)));
        let parents = SmallVec::from_iter([(swips.clone(), number)]);
        let entry = Entry { frame: Arc::clone(&frame), parents };
        let Some(place) = state.queues.push(warmth.queue, entry, bytes) else { return frame };
        frame.set_place(place);
        way.lead_to(Arc::clone(&frame));
        drop(loading);
        frame
    }

    /// Moves a value, which has room, to where values lie.
    fn settle(&self, value: &mut V) {
        if let Some(arena) = &self.arena {
            let before = value.weight();
            value.move_into(arena);
            debug_assert_eq!(value.weight(), before, "a value weighs the same wherever it lies");
        }
    }

    /// What left the small queue a short time ago is wanted more than what never came.
    fn warmth_of_new(&self, state: &State<V>, mark: u64) -> Warmth {
        let is_back = mark > 0 && state.passed - mark <= most_queued(self.capacity());
        Warmth {
            queue: if is_back { EvictionQueue::Main } else { EvictionQueue::Small },
            ..Warmth::READ
        }
    }

    /// Puts `value` into the place of a frame that a reader has found, and into the room that was
    /// kept for it, with the warmth of the old one; `None` if that has left.
    pub(crate) fn replace(
        &self,
        room: LoadRoom,
        old: &BufferFrame<V>,
        mut value: V,
    ) -> Option<Arc<BufferFrame<V>>> {
        let bytes = value.weight();
        let LoadRoom { held, loading, .. } = self.resize(room, bytes)?;
        self.settle(&mut value);
        let mut gone = Gone::new();
        let mut state = self.state.lock();
        let place = old.place();
        let entry = state.entry_of(old)?;
        let new = Arc::new(BufferFrame::new(value, old.warmth(), Some(held)));
        new.set_place(place);
        for (swips, n) in &entry.parents {
            let Some(way) = swips.list.get(*n as usize) else { continue };
            gone.frames.extend(way.swip.take(0));
            way.lead_to(Arc::clone(&new));
        }
        // The last reference is one of those that the swips had.
        entry.frame = Arc::clone(&new);
        state.queues.set_bytes(place, bytes);
        drop(state);
        drop(loading);
        gone.release();
        Some(new)
    }

    /// Sets the most bytes that it holds. Values beyond that leave at once.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        let before = self.capacity.swap(capacity_bytes, Ordering::Relaxed);
        if capacity_bytes < before {
            self.shrink_to(most_queued(capacity_bytes));
        }
        self.trim();
    }

    /// Gives memory back that is beyond the capacity and in no use: of values that have left since
    /// the capacity was lowered.
    pub(crate) fn trim(&self) {
        self.trim_to(self.capacity());
    }

    /// Bytes in use, and those that are kept for what comes next.
    pub(crate) fn taken(&self) -> u64 {
        self.used() + self.free_bytes()
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.bytes()
    }

    /// Whether one more value would displace no other. With less than an eighth left it counts as
    /// full.
    pub(crate) fn has_room(&self) -> bool {
        self.used() < self.capacity() / 8 * 7
    }

    /// Look-ups that found their value.
    pub(crate) fn hits(&self) -> u64 {
        self.counts.sum(HITS)
    }

    /// Look-ups that did not.
    pub(crate) fn misses(&self) -> u64 {
        self.counts.sum(MISSES)
    }

    /// Frames in the queues.
    #[cfg(test)]
    pub(super) fn frames(&self) -> usize {
        self.state.lock().queues.len()
    }
}

impl<V: Send + Sync + 'static> Drop for FramePool<V> {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl<V: Send + Sync + 'static> std::fmt::Debug for FramePool<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FramePool({} of {} bytes)", self.used.bytes(), self.capacity())
    }
}
