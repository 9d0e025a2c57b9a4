//! The ring: one slot for each LSN between its ticket and its run.
//!
//! Thread safety: the thread that has the ticket fills its slot, the publisher empties it. A slot
//! is atomics only, and no thread waits for it.
//!
//! Invariants:
//!
//! 1. An LSN gets a ticket only when the LSN a ring's length before it was taken by the publisher,
//!    so a slot has one LSN at a time.
//! 2. `finished` names the LSN last finished in the slot; it is stored after the slot's content
//!    and loaded before it. Once a group is abandoned the database is poisoned, and its slot is not
//!    used again.
//!
//! Wait queues: threads sleep in one until another thread wakes them.

use crossbeam_utils::atomic::AtomicCell;

use super::group::Few;
use crate::base::record::Lsn;
use crate::os::sync::{AtomicU32, AtomicU64, Futex, Ordering, fence};
use crate::pm::Span;

/// How many groups can be under way at once.
pub(super) fn ring_len() -> u64 {
    if is_modelled() { 4 } else { 4096 }
}

/// Whether a model checker or the scheduler runs tests of this part. What is counted in thousands
/// is counted in ones then, so that every bound is met in few steps.
pub(super) fn is_modelled() -> bool {
    #[cfg(test)]
    let is_modelled = cfg!(feature = "loom") || crate::os::schedule::is_task();
    #[cfg(not(test))]
    let is_modelled = false;
    is_modelled
}

/// A fenced range of a finished group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The stream whose tail it moved; none for the words of a zone switch.
    pub(super) stream: Option<u32>,
    pub(super) span: Span,
}

/// What a group leaves for the publisher.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) written: Few<Written>,
    /// Whether its writer waits for nothing but the operating system.
    pub(super) relaxed: bool,
}

/// The first range is inline, as most groups have no other.
#[derive(Default)]
struct Slot {
    finished: AtomicU64,
    at: AtomicU64,
    /// Length (32 bits), stream + 1 (16 bits), and the bits below.
    about: AtomicU64,
    more: AtomicCell<Option<Box<More>>>,
}

/// Ranges beyond the first.
#[derive(Debug)]
struct More(Few<Written>);

/// With an LSN in `finished`: its group was abandoned. LSNs have 56 bits.
const ABANDONED: u64 = 1 << 63;

const RELAXED: u64 = 1 << 63;
const HAS_MORE: u64 = 1 << 62;

const _: () = assert!(AtomicCell::<Option<Box<More>>>::is_lock_free(), "no lock in a slot");

/// The slots.
pub(super) struct Ring {
    slots: Box<[Slot]>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("slots", &self.slots.len()).finish()
    }
}

impl Ring {
    /// An empty ring.
    pub(super) fn new() -> Ring {
        Ring { slots: (0..ring_len()).map(|_| Slot::default()).collect() }
    }

    fn slot(&self, lsn: Lsn) -> &Slot {
        &self.slots[lsn as usize % self.slots.len()]
    }

    /// Marks a group as written and indexed.
    pub(super) fn finish(&self, lsn: Lsn, finished: &Finished) {
        let slot = self.slot(lsn);
        let before = slot.finished.load(Ordering::Relaxed);
        debug_assert!(before < lsn, "LSN {lsn} finishes in the slot of LSN {before} (invariant 1)");
        let (first, more) = finished.written.split_first().unzip();
        let (at, mut about) = first.map_or((0, 0), |w| (w.span.at, pack(w)));
        if let Some(more) = more.filter(|more| !more.is_empty()) {
            slot.more.store(Some(Box::new(More(more.into()))));
            about |= HAS_MORE;
        }
        if finished.relaxed {
            about |= RELAXED;
        }
        slot.at.store(at, Ordering::Relaxed);
        slot.about.store(about, Ordering::Relaxed);
        slot.finished.store(lsn, Ordering::SeqCst);
    }

    /// Whether a group is finished.
    pub(super) fn is_finished(&self, lsn: Lsn) -> bool {
        self.slot(lsn).finished.load(Ordering::SeqCst) == lsn
    }

    /// Marks a group whose thread died between its ticket and its finish: it is never published.
    pub(super) fn abandon(&self, lsn: Lsn) {
        self.slot(lsn).finished.store(lsn | ABANDONED, Ordering::SeqCst);
    }

    /// Whether a group's thread writes nothing for it any more: it finished or abandoned the group.
    pub(super) fn is_left(&self, lsn: Lsn) -> bool {
        self.slot(lsn).finished.load(Ordering::SeqCst) & !ABANDONED >= lsn
    }

    /// Takes what a finished group left, range by range; whether it is relaxed.
    pub(super) fn take(&self, lsn: Lsn, mut each: impl FnMut(Written)) -> bool {
        debug_assert!(self.is_finished(lsn), "only finished slots are taken (invariant 2)");
        let slot = self.slot(lsn);
        let about = slot.about.load(Ordering::Relaxed);
        let written = unpack(slot.at.load(Ordering::Relaxed), about);
        if written.span.len > 0 {
            each(written);
        }
        if about & HAS_MORE != 0 {
            slot.more.take().into_iter().flat_map(|more| more.0).for_each(each);
        }
        about & RELAXED != 0
    }
}

fn pack(written: &Written) -> u64 {
    debug_assert!(written.span.len <= u64::from(u32::MAX), "a range lies within a zone");
    let stream = written.stream.map_or(0, |stream| u64::from(stream) + 1);
    debug_assert!(stream < 1 << 16, "streams are numbered below STREAM_SLOTS");
    written.span.len | stream << 32
}

fn unpack(at: u64, about: u64) -> Written {
    let stream = (about >> 32 & 0xffff) as u32;
    Written { stream: stream.checked_sub(1), span: Span { at, len: about & 0xffff_ffff } }
}

/// A queue of waiting threads.
///
/// Thread safety: any thread waits, any thread wakes.
///
/// Invariants:
///
/// 1. A thread enters, looks once more whether it has to wait, and then sleeps. A waking thread
///    has changed what the waiter looks at before. Both put a sequentially consistent fence in
///    between: either the waiter sees the change, or the waking thread sees the waiter.
/// 2. A sleeper read `wakes` before it looked: a wake-up after that does not let it sleep.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    wakes: Futex,
    waiters: AtomicU32,
    /// Whether the thread that wakes up next wakes all others (1) or not (0).
    relay: AtomicU32,
}

/// A thread that has entered a queue. It leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    queue: &'a WaitQueue,
    seen: u32,
}

impl WaitQueue {
    /// Enters. The caller looks once more before it sleeps (invariant 1).
    pub(super) fn enter(&self) -> Waiter<'_> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let seen = self.wakes.count();
        fence(Ordering::SeqCst);
        Waiter { queue: self, seen }
    }

    /// Wakes all.
    pub(super) fn wake_all(&self) {
        if self.has_waiters() {
            self.wakes.move_on();
            self.wakes.wake(u32::MAX >> 1);
        }
    }

    /// Wakes one, which wakes all others: it costs this thread one wake-up, however many sleep.
    pub(super) fn wake_through_one(&self) {
        if self.has_waiters() {
            self.relay.store(1, Ordering::SeqCst);
            self.wakes.move_on();
            self.wakes.wake(1);
        }
    }

    /// Wakes one; whether one slept. A waiter that does not sleep yet looks again instead.
    pub(super) fn wake_one(&self) -> bool {
        if !self.has_waiters() {
            return false;
        }
        self.wakes.move_on();
        self.wakes.wake(1) > 0
    }

    /// How many threads have entered.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn waiters(&self) -> u32 {
        self.waiters.load(Ordering::SeqCst)
    }

    fn has_waiters(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waiters.load(Ordering::SeqCst) > 0
    }
}

impl Waiter<'_> {
    /// Sleeps until it is woken; not at all if that happened since it entered. May also end for no
    /// reason.
    pub(super) fn sleep(self) {
        self.queue.wakes.sleep_at(self.seen);
        let relay = &self.queue.relay;
        if relay.load(Ordering::SeqCst) == 1 && relay.swap(0, Ordering::SeqCst) == 1 {
            self.queue.wake_all();
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let before = self.queue.waiters.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a waiter that leaves has entered");
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_gives_back_what_was_put_in() {
        let ring = Ring::new();
        let part = |stream, at| Written { stream, span: Span { at, len: 4096 } };
        for parts in [
            vec![part(Some(0), 1 << 40)],
            vec![part(Some(383), 64), part(None, 128), part(Some(7), 0)],
            vec![],
        ] {
            for relaxed in [false, true] {
                let lsn = 7 + ring_len() * (2 + u64::from(relaxed));
                ring.finish(lsn, &Finished { written: parts.iter().copied().collect(), relaxed });
                assert!(ring.is_finished(lsn) && !ring.is_finished(lsn + ring_len()));
                let mut taken = Vec::new();
                assert_eq!(ring.take(lsn, |written| taken.push(written)), relaxed);
                assert_eq!(taken, parts);
            }
            ring.slot(7).finished.store(0, Ordering::Relaxed);
        }
    }
}
