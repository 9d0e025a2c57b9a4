//! Where the parts of an extent are held once they were read.
//!
//! Every read looks into them several times, so a swip leads to them: finding them takes a load.
//! When the parts of all extents take more memory than they may, a clock goes through the slots of
//! the store. It empties those that were not used since it last came by. Their parts are read again
//! when they are needed. Without a memory limit it never does.
//!
//! Invariants:
//!
//! 1. A slot is known to the clock from soon after it was filled until it is emptied.
//! 2. A slot is filled when it is empty, and never refilled: a second thread uses what is there.

use std::sync::Arc;

use super::Parts;
use crate::base::memory::{Clock, LetGo};
use crate::cache::Swip;
use crate::mvcc::{EpochGuard, pin};
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Room for an extent's parts.
#[derive(Debug, Default)]
pub(super) struct Slot {
    parts: Swip<Parts>,
    /// Since the clock came by.
    used: AtomicBool,
    /// In the clock; 0 before the first time.
    place: AtomicU64,
}

impl Slot {
    /// What is in it; a sign of use.
    #[inline]
    pub(super) fn get<'g>(&self, pinned: &'g EpochGuard) -> Option<&'g Parts> {
        let found = self.parts.get(pinned)?;
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Some(found)
    }

    /// What is in it, to keep for long; a sign of use.
    pub(super) fn get_shared(&self) -> Option<Arc<Parts>> {
        let guard = pin();
        self.get(&guard)?;
        self.parts.pin(&guard)
    }

    /// What is in it, to keep for long; no sign of use.
    pub(super) fn peek(&self) -> Option<Arc<Parts>> {
        self.parts.pin(&pin())
    }

    /// Fills it if it is empty, and returns what is in it then. If a reader is about to use it, it
    /// counts as used. Otherwise the clock's hand, which stands before new slots, would find it
    /// unused and empty it at once, time after time.
    pub(super) fn fill(
        self: &Arc<Self>,
        parts: Arc<Parts>,
        clock: &Clock,
        used: bool,
    ) -> Arc<Parts> {
        if let Err(parts) = self.parts.set(Arc::clone(&parts)) {
            return self.peek().unwrap_or(parts);
        }
        self.used.store(used, Ordering::Relaxed);
        let place = clock.keep(Arc::clone(self) as _, parts.memory() as u64);
        // Another thread may have filled it again meanwhile, with a later value.
        self.place.fetch_max(place, Ordering::AcqRel);
        parts
    }

    /// Has the clock forget it, with its extent.
    pub(super) fn leave(&self, clock: &Clock) {
        match self.place.load(Ordering::Acquire) {
            0 => {}
            place => clock.remove(place),
        }
    }
}

impl LetGo for Slot {
    fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn release(&self) {
        drop(self.parts.take(0));
    }
}
