//! The ring: one slot for each LSN between its ticket and its publication.
//!
//! Thread safety: the thread that has the ticket fills its slot; the publisher empties it.
//!
//! Invariants:
//!
//! 1. An LSN gets a ticket only when the LSN a ring's length before it was published, so a slot
//!    has one LSN at a time.
//! 2. A thread that parks for an LSN is in its slot's list, and looked once more after it put
//!    itself there; whoever publishes the LSN empties the list first and wakes after.
//! 3. `finished` names the LSN last finished in the slot; it is stored after the slot's content
//!    and loaded before it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;

use parking_lot::Mutex;

use super::floor::Gidx;
use super::group::Few;
use crate::pm::Fenced;
use crate::record::Lsn;

/// How many groups can be under way at once.
pub(super) const RING: u64 = 4096;

/// What the publisher needs to know of a finished group.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) fenced: Fenced,
    /// Where each touched stream ends after the group.
    pub(super) tails: Few<(u32, Gidx)>,
    /// Whether somebody waits for the sync.
    pub(super) durable: bool,
}

#[derive(Debug, Default)]
struct Slot {
    finished: AtomicU64,
    content: Mutex<Finished>,
    waiters: Mutex<Vec<Thread>>,
}

/// The slots.
#[derive(Debug)]
pub(super) struct Ring {
    slots: Box<[Slot]>,
}

impl Ring {
    /// An empty ring.
    pub(super) fn new() -> Ring {
        Ring { slots: (0..RING).map(|_| Slot::default()).collect() }
    }

    fn slot(&self, lsn: Lsn) -> &Slot {
        &self.slots[(lsn % RING) as usize]
    }

    /// Marks a group as written and indexed.
    pub(super) fn finish(&self, lsn: Lsn, finished: Finished) {
        let slot = self.slot(lsn);
        debug_assert_ne!(slot.finished.load(Ordering::Relaxed), lsn, "one finish a ticket");
        *slot.content.lock() = finished;
        slot.finished.store(lsn, Ordering::SeqCst);
    }

    /// Whether a group is finished (and not yet published).
    pub(super) fn is_finished(&self, lsn: Lsn) -> bool {
        self.slot(lsn).finished.load(Ordering::SeqCst) == lsn
    }

    /// Puts this thread among those to be woken when `lsn` is published.
    pub(super) fn enlist(&self, lsn: Lsn) {
        self.slot(lsn).waiters.lock().push(std::thread::current());
    }

    /// Empties the list of those who wait for `lsn` into `waiters`.
    pub(super) fn dismiss(&self, lsn: Lsn, waiters: &mut Vec<Thread>) {
        waiters.append(&mut self.slot(lsn).waiters.lock());
    }

    /// Everybody who waits for anything.
    pub(super) fn dismiss_all(&self) -> Vec<Thread> {
        let mut waiters = Vec::new();
        self.slots.iter().for_each(|slot| waiters.append(&mut slot.waiters.lock()));
        waiters
    }

    /// Takes what a finished group left for the publisher.
    pub(super) fn take(&self, lsn: Lsn) -> Finished {
        debug_assert!(self.is_finished(lsn), "only finished slots are taken (invariant 3)");
        std::mem::take(&mut *self.slot(lsn).content.lock())
    }
}
