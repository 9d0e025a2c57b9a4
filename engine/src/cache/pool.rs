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

use std::sync::Arc;

use smallvec::SmallVec;

use super::arena::FrameArena;
use super::frame::{BufferFrame, Swips, Warmth};
use super::queues::{EvictionQueue, Queues};
use super::room::{LoadRoom, most_queued};
use super::swip::Retired;
use super::{Below, Weigh};
use crate::base::memory::Gauge;
use crate::cache::counts::Counts;
use crate::mvcc::{EpochGuard, pin};
use crate::os::sync::Mutex;
use crate::os::sync::atomic::{AtomicU64, Ordering};

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
pub(super) struct Entry<V: Send + Sync + 'static> {
    pub(super) frame: Arc<BufferFrame<V>>,
    pub(super) parents: SmallVec<[(Swips<V>, u32); 1]>,
}

pub(super) struct State<V: Send + Sync + 'static> {
    pub(super) queues: Queues<Entry<V>>,
    /// Bytes that have left the small queue for the medium.
    passed: u64,
}

/// What swips know of their pool.
pub(super) struct Core<V: Send + Sync + 'static> {
    pub(super) capacity: AtomicU64,
    pub(super) used: Arc<Gauge>,
    /// Of `used`, what is about to be loaded.
    pub(super) rooms: Arc<Gauge>,
    /// Where the bytes of values lie; `None` if on the heap.
    pub(super) arena: Option<Arc<FrameArena>>,
    pub(super) state: Mutex<State<V>>,
}

/// Values that swips lead to, bounded by bytes. It does not know what it holds.
pub(crate) struct FramePool<V: Send + Sync + 'static> {
    pub(super) core: Arc<Core<V>>,
    counts: Counts<2>,
    below: Option<Arc<dyn Below>>,
}

/// What has left the pool. The pool drops it after it has released its lock.
pub(super) struct Gone<V: Send + Sync + 'static> {
    frames: Vec<Retired<BufferFrame<V>>>,
    entries: Vec<Entry<V>>,
}

impl<V: Send + Sync + 'static> Gone<V> {
    pub(super) fn new() -> Gone<V> {
        Gone { frames: Vec::new(), entries: Vec::new() }
    }

    /// Lets go of it; whether there was something.
    pub(super) fn give_up(self) -> bool {
        let is_some = !self.frames.is_empty();
        drop(self.entries);
        Retired::give_up(self.frames);
        is_some
    }
}

impl<V: Send + Sync + 'static> State<V> {
    /// Evicts until the queues have at most `most` bytes.
    pub(super) fn make_room(&mut self, most: u64, gone: &mut Gone<V>) {
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

impl<V: Send + Sync + 'static> Core<V> {
    /// Takes all frames out that `swips` lead to.
    pub(super) fn remove_all(&self, swips: &Swips<V>) {
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
        gone.give_up();
    }
}

impl<V: Weigh + Send + Sync + 'static> Core<V> {
    /// Puts a value into a frame that swip `n` leads to, or finds that it leads to one already. If
    /// the pool may not have it, the frame is the caller's alone.
    fn admit(
        self: &Arc<Self>,
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
        if !swips.may_lead_to(self) {
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

    /// Puts `value` into the place of a frame that the pool has.
    fn replace(
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
        gone.give_up();
        Some(new)
    }
}

impl<V: Weigh + Send + Sync + 'static> FramePool<V> {
    /// A pool of at most `capacity_bytes`, which is the most that it is made for, too.
    pub(crate) fn new(capacity_bytes: u64) -> FramePool<V> {
        let state = State { queues: Queues::default(), passed: 0 };
        let core = Core {
            capacity: AtomicU64::new(capacity_bytes),
            used: Arc::default(),
            rooms: Arc::default(),
            arena: FrameArena::new(capacity_bytes),
            state: Mutex::new(state),
        };
        FramePool { core: Arc::new(core), counts: Counts::default(), below: None }
    }

    /// Adds a second cache below it, of bytes as they lie on the medium.
    pub(crate) fn above(mut self, below: Option<Arc<dyn Below>>) -> FramePool<V> {
        self.below = below;
        self
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

    /// Keeps room for a value that is about to be loaded and will weigh about `bytes`, perhaps in
    /// place of others. `None` if the pool can have no such value now: the reader then loads it for
    /// itself alone.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<LoadRoom> {
        self.core.reserve(bytes)
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
            Some(room) => self.core.admit(room, at, (value, None)),
            None => Arc::new(BufferFrame::apart(value)),
        }
    }

    /// Puts value `n` into the pool that no reader has asked for, if there is room and it is not
    /// there.
    pub(crate) fn fill(&self, (swips, n): (&Swips<V>, usize), value: V, warmth: Warmth) {
        if let Some(room) = self.reserve(value.weight()) {
            drop(self.core.admit(room, (swips, n), (value, Some(warmth))));
        }
    }

    /// Has a second swip lead to the frame that a first one leads to, if that is in memory.
    pub(crate) fn share(&self, (from, n): (&Swips<V>, usize), (to, m): (&Swips<V>, usize)) {
        let guard = pin();
        let mut state = self.core.state.lock();
        let (Some(frame), Some(way), Ok(number)) = (
            from.list.get(n).and_then(|way| way.swip.pin(&guard)),
            to.list.get(m),
            u32::try_from(m),
        ) else {
            return;
        };
        if to.may_lead_to(&self.core)
            && !way.swip.is_set()
            && let Some(entry) = state.entry_of(&frame)
        {
            entry.parents.push((to.clone(), number));
            way.lead_to(frame);
        }
    }

    /// Puts `value` into the place of a frame that a reader has found, and into the room that was
    /// kept for it, with the warmth of the old one; `None` if that has left.
    pub(crate) fn replace(
        &self,
        room: LoadRoom,
        old: &BufferFrame<V>,
        value: V,
    ) -> Option<Arc<BufferFrame<V>>> {
        self.core.replace(room, old, value)
    }

    /// Sets the most bytes that it holds. Values beyond that leave at once.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        let before = self.core.capacity.swap(capacity_bytes, Ordering::Relaxed);
        if capacity_bytes < before {
            self.core.shrink_to(most_queued(capacity_bytes));
        }
        self.trim();
    }

    /// Gives memory back that is beyond the capacity and in no use: of values that have left since
    /// the capacity was lowered.
    pub(crate) fn trim(&self) {
        self.core.trim(self.capacity());
    }

    /// Bytes in use, and those that are kept for what comes next.
    pub(crate) fn taken(&self) -> u64 {
        self.used() + self.core.free_bytes()
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.core.used.bytes()
    }

    /// Whether one more value would displace no other. With less than an eighth left it counts as
    /// full.
    pub(crate) fn has_room(&self) -> bool {
        self.used() < self.capacity() / 8 * 7
    }

    /// The most bytes it will use.
    pub(crate) fn capacity(&self) -> u64 {
        self.core.capacity()
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
        self.core.state.lock().queues.len()
    }
}

impl<V: Send + Sync + 'static> Drop for FramePool<V> {
    fn drop(&mut self) {
        self.core.shrink_to(0);
    }
}

impl<V: Send + Sync + 'static> std::fmt::Debug for FramePool<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FramePool({} of {} bytes)", self.core.used.bytes(), self.core.capacity())
    }
}
