//! A pool whose region grows: the units that come by it, and zones that have to wait for them.

use super::ZonePool;
use crate::os::sync::atomic::Ordering;

impl ZonePool {
    /// Takes the units in that a longer region has: they are free. The superblock speaks of them
    /// already.
    pub(crate) fn grow(&self, units: u32) {
        let mut state = self.state.lock();
        let before = self.units.swap(units, Ordering::Relaxed);
        debug_assert!((before..=self.geometry.zone_slots).contains(&units), "pools only grow");
        state.free.give_each(before, units);
    }

    /// Units that there are, and those that the region still grows by.
    pub(crate) fn room(&self) -> u32 {
        let geometry = self.geometry();
        if self.is_stuck() { geometry.units } else { geometry.target }
    }

    /// Bytes of a region that has grown by all that it still grows by.
    pub(crate) fn region_len(&self) -> u64 {
        self.geometry.zone(self.room())
    }

    /// Notes whether the region could grow.
    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// Whether the region could not grow the last time that it tried.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Whether the region is to grow by itself, and could the last time that it tried.
    pub(crate) fn grows(&self) -> bool {
        let geometry = self.geometry();
        geometry.units < geometry.target && !self.is_stuck()
    }

    /// Whether a stream asked for a zone that is larger than any free piece.
    pub(crate) fn is_asked_for(&self) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        wanted != 0 && !self.has(&self.state.lock(), wanted)
    }

    /// The same where the region does not grow: something has to be freed.
    pub(crate) fn lacks_wanted(&self) -> bool {
        self.is_asked_for() && !self.grows()
    }

    /// Whether the space of a request that failed is free by now. It returns true once, so that
    /// the caller wakes the waiting writers once.
    pub(crate) fn finds_wanted(&self) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted == 0 {
            return false;
        }
        // A stream that asks in vain says so under the mutex.
        let state = self.state.lock();
        self.has(&state, wanted) && self.wanted.swap(0, Ordering::Relaxed) != 0
    }
}
