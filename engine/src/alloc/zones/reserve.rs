//! The reserve of the region: units that only commits which free space may take, so that a full
//! region does not stop deletes. `docs/internals/full-disk.md` has the rule.
//!
//! Thread safety: every method may be called from any thread. All is in atomics. A thread that
//! links a zone decides under the zone pool's mutex.
//!
//! Invariants:
//!
//! 1. An ordinary commit takes no zone that leaves fewer units free than the reserve has.
//! 2. It appends to no zone that was taken out of the reserve, as long as that is not whole.

use super::{State, ZonePool};
use crate::error::{Error, ErrorKind};
use crate::os::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What the pool keeps back.
#[derive(Debug)]
pub(super) struct Reserve {
    /// Units; 0 until an opening sets it.
    units: AtomicU32,
    /// Only commits that free space go on: extents have used their own reserve.
    freeing_only: AtomicBool,
    /// Per zone: whether it was taken out of the reserve.
    zones: Box<[AtomicBool]>,
}

impl Reserve {
    /// None, for a pool of so many zones.
    pub(super) fn new(zones: u32) -> Reserve {
        Reserve {
            units: AtomicU32::new(0),
            freeing_only: AtomicBool::new(false),
            zones: (0..zones).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    pub(super) fn units(&self) -> u32 {
        self.units.load(Ordering::Relaxed)
    }

    pub(super) fn set_units(&self, units: u32) {
        self.units.store(units, Ordering::Relaxed);
    }

    pub(super) fn is_freeing_only(&self) -> bool {
        self.freeing_only.load(Ordering::Relaxed)
    }

    /// Whether it was so before.
    pub(super) fn set_freeing_only(&self, on: bool) -> bool {
        self.freeing_only.swap(on, Ordering::Relaxed)
    }

    /// Whether a commit may take `units` of `free` ones.
    pub(super) fn allows(&self, free: u32, units: u32, frees: bool) -> bool {
        frees || (free >= units + self.units() && !self.is_freeing_only())
    }

    /// Notes whether a zone of `units` is taken out of the reserve.
    pub(super) fn note(&self, zone: u32, free: u32, units: u32) {
        let in_reserve = !self.allows(free, units, false);
        self.zones[zone as usize].store(in_reserve, Ordering::Relaxed);
    }

    /// Whether a zone was taken out of it.
    pub(super) fn has(&self, zone: u32) -> bool {
        self.zones[zone as usize].load(Ordering::Relaxed)
    }
}

impl ZonePool {
    /// Whether so many units are free in one piece for whatever commit.
    pub(super) fn has(&self, state: &State, units: u32) -> bool {
        let free = state.free.units() + state.lent;
        state.free.largest() >= units && self.reserve.allows(free, units, false)
    }

    /// Sets how many units only commits that free space may take.
    pub(crate) fn keep_reserve(&self, units: u32) {
        self.reserve.set_units(units);
    }

    /// Whether less than the reserve is free.
    pub(crate) fn is_in_reserve(&self) -> bool {
        self.free() < self.reserve.units()
    }

    /// Only commits that free space go on, or all again; whether it was so before.
    pub(crate) fn set_freeing_only(&self, on: bool) -> bool {
        self.reserve.set_freeing_only(on)
    }

    /// Whether only commits that free space go on.
    pub(crate) fn is_freeing_only(&self) -> bool {
        self.reserve.is_freeing_only()
    }

    /// Whether ordinary commits may not append to a zone: it was taken out of the reserve, which is
    /// not whole.
    pub(crate) fn is_kept_back(&self, zone: u32) -> bool {
        self.reserve.has(zone) && (self.reserve.is_freeing_only() || self.is_in_reserve())
    }

    /// The error of a commit that finds no zone.
    pub(super) fn full(&self, state: &State, least: u32) -> Error {
        let unit = self.geometry.unit >> 10;
        let message = format!(
            "a zone of {} KiB is needed, and of {} units of {unit} KiB of {} {} are free, at most \
             {} in one piece, of which {} are kept for delete, delete_range, truncate_table and \
             drop_table",
            u64::from(least) * unit,
            self.geometry().units,
            self.region.path().display(),
            state.free.units() + state.lent,
            state.free.largest(),
            self.reserve.units(),
        );
        Error::new(ErrorKind::Full, message)
    }

    /// The error of an ordinary commit that would append to a zone of the reserve.
    pub(crate) fn kept_back(&self) -> Error {
        self.full(&self.state.lock(), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_commits_leave_it_and_those_that_free_may_take_it() {
        let reserve = Reserve::new(8);
        assert!(reserve.allows(1, 1, false), "there is none at first");
        reserve.set_units(2);
        assert!(reserve.allows(3, 1, false) && !reserve.allows(2, 1, false));
        assert!(reserve.allows(2, 2, true));
        reserve.note(5, 3, 1);
        reserve.note(6, 2, 1);
        assert_eq!((reserve.has(5), reserve.has(6)), (false, true));
        assert!(!reserve.set_freeing_only(true));
        assert!(!reserve.allows(8, 1, false) && reserve.allows(8, 1, true));
        reserve.note(5, 8, 1);
        assert!(reserve.has(5) && reserve.set_freeing_only(false));
    }
}
