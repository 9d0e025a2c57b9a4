//! The reserve of the region: units that only commits which free space may take, so that a full
//! region does not stop deletes. `docs/internals/full-disk.md` has the rule.
//!
//! Thread safety: every method may be called from any thread. All is in atomics. A thread that
//! links a zone decides under the zone pool's mutex.
//!
//! Invariants:
//!
//! 1. An ordinary commit takes no zone that leaves fewer units free than the reserve has. One that
//!    deletes single keys leaves half of the reserve.
//! 2. Neither appends to a zone that came out of what it leaves, until as much is free again.
//!
//! Units that the pages of row tables take. No entry of the index and no header speaks of them.
//! Edits of the journal name what lies in them. An opening takes the units of those pages out of
//! the free ones ([`PagePool`](crate::pm::alloc::PagePool)).
//!
//! A pool whose region grows: the units that come by it, and zones that have to wait for them.

use super::{State, ZonePool};
use crate::base::error::{Error, ErrorKind};
use crate::os::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// How much space comes free by a commit, and so how much of the reserve it may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Frees {
    /// An ordinary commit: none of it.
    #[default]
    Nothing,
    /// Single keys are deleted, which may lie far apart: half of it.
    Keys,
    /// A range, a table, or what a prepared transaction keeps: all of it.
    Much,
}

impl Frees {
    const ALL: [Frees; 3] = [Frees::Nothing, Frees::Keys, Frees::Much];
}

/// What the pool keeps back.
#[derive(Debug)]
pub(super) struct Reserve {
    /// Units; 0 until an opening sets it.
    units: AtomicU32,
    /// Only commits that free space go on: extents have used their own reserve.
    freeing_only: AtomicBool,
    /// A commit that frees space was made, or waits, since an ordinary one found none.
    freed: AtomicBool,
    /// One more than the greatest [`Frees`] of commits that were kept from a zone of the reserve,
    /// and may wait; 0 without any.
    kept_back: AtomicU8,
    /// Per [`Frees`]: units in one piece that commits which free so much asked for in vain, at
    /// most, and may wait for; 0 without any.
    wanted: [AtomicU32; 3],
    /// Per zone: the least [`Frees`] of commits that may append to it while the reserve is in use.
    zones: Box<[AtomicU8]>,
}

impl Reserve {
    /// None, for a pool of so many zones.
    pub(super) fn new(zones: u32) -> Reserve {
        Reserve {
            units: AtomicU32::new(0),
            freeing_only: AtomicBool::new(false),
            freed: AtomicBool::new(false),
            kept_back: AtomicU8::new(0),
            wanted: <_>::default(),
            zones: (0..zones).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    pub(super) fn units(&self) -> u32 {
        self.units.load(Ordering::Relaxed)
    }

    /// How many they were before.
    fn set_units(&self, units: u32) -> u32 {
        self.units.swap(units, Ordering::Relaxed)
    }

    fn is_freeing_only(&self) -> bool {
        self.freeing_only.load(Ordering::Relaxed)
    }

    /// Whether it was so before.
    fn set_freeing_only(&self, on: bool) -> bool {
        self.freeing_only.swap(on, Ordering::Relaxed)
    }

    /// Whether a commit may take `units` of `free` ones.
    pub(super) fn allows(&self, free: u32, units: u32, frees: Frees) -> bool {
        match frees {
            Frees::Nothing => free >= units + self.units() && !self.is_freeing_only(),
            Frees::Keys => free >= units + self.units() / 2,
            Frees::Much => true,
        }
    }

    /// Notes out of which part of the reserve a zone is that takes `units` of `free` ones, if any.
    pub(super) fn note(&self, zone: u32, free: u32, units: u32) {
        let least = Frees::ALL.into_iter().find(|least| self.allows(free, units, *least));
        self.zones[zone as usize].store(least.unwrap_or_default() as u8, Ordering::Relaxed);
    }

    /// Whether a zone came out of what commits leave that free so much.
    pub(super) fn has(&self, zone: u32, frees: Frees) -> bool {
        self.zones[zone as usize].load(Ordering::Relaxed) > frees as u8
    }

    /// Notes that a commit which frees so much found no zone of so many units, and may wait.
    pub(super) fn note_wanted(&self, units: u32, frees: Frees) {
        self.wanted[frees as usize].fetch_max(units, Ordering::Relaxed);
    }

    /// What commits found no zone of, and may wait for.
    fn wanted(&self) -> impl Iterator<Item = (u32, Frees)> {
        let units = self.wanted.iter().map(|units| units.load(Ordering::Relaxed));
        units.zip(Frees::ALL).filter(|(units, _)| *units != 0)
    }
}

impl ZonePool {
    /// Whether so many units are free in one piece for a commit that frees so much.
    pub(super) fn has(&self, state: &State, units: u32, frees: Frees) -> bool {
        let free = state.free.units() + state.lent;
        state.free.largest() >= units && self.reserve.allows(free, units, frees)
    }

    /// Sets how many units only commits that free space may take.
    pub(crate) fn keep_reserve(&self, units: u32) {
        let is_opening = self.reserve.set_units(units) == 0;
        // What is in use of it lies in zones that records are appended to: which ones is on no
        // medium.
        if is_opening && self.is_in_reserve() {
            let state = self.state.lock();
            let all = state.linked.iter().zip(&self.reserve.zones);
            let open = all.filter(|(linked, _)| linked.is_some_and(|linked| !linked.sealed));
            open.for_each(|(_, zone)| zone.store(Frees::Much as u8, Ordering::Relaxed));
        }
    }

    /// Whether less than the reserve is free.
    pub(crate) fn is_in_reserve(&self) -> bool {
        self.free() < self.reserve.units()
    }

    /// Notes that a commit which frees space was made or waits. It counts where a commit has found
    /// no zone.
    pub(crate) fn note_freeing(&self) {
        if self.reserve.wanted().next().is_some() {
            self.reserve.freed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether drains make room for the sake of what frees space: the reserve is in use, or commits
    /// that free have been made beside ones that find no zone.
    pub(crate) fn serves_freeing(&self) -> bool {
        let freed = self.reserve.freed.load(Ordering::Relaxed);
        self.is_in_reserve() || self.is_freeing_only() || (freed && self.lacks_wanted())
    }

    /// Only commits that free space go on, or all again; whether it was so before.
    pub(crate) fn set_freeing_only(&self, on: bool) -> bool {
        self.reserve.set_freeing_only(on)
    }

    /// Whether only commits that free space go on.
    pub(crate) fn is_freeing_only(&self) -> bool {
        self.reserve.is_freeing_only()
    }

    /// Whether commits that free so much may not append to a zone: it came out of what they leave,
    /// which is not whole.
    pub(crate) fn is_kept_back(&self, zone: u32, frees: Frees) -> bool {
        self.reserve.has(zone, frees) && !self.reserve.allows(self.free(), 0, frees)
    }

    /// The error of a commit that finds no zone.
    pub(super) fn full(&self, state: &State, least: u32, frees: Frees) -> Error {
        let unit = self.geometry.unit >> 10;
        let kept = match frees {
            Frees::Nothing => Some((self.reserve.units(), "delete, delete_range")),
            Frees::Keys => Some((self.reserve.units() / 2, "delete_range")),
            Frees::Much => None,
        };
        let kept = kept.map(|(units, others)| {
            let all = match frees == Frees::Nothing && self.is_freeing_only() {
                true => ": all of them while the disk is full",
                false => "",
            };
            format!(", of which {units} are kept for {others}, truncate_table and drop_table{all}")
        });
        let message = format!(
            "a zone of {} KiB is needed, and of {} units of {unit} KiB of {} {} are free, at most \
             {} in one piece{}",
            u64::from(least) * unit,
            self.geometry().units,
            self.region.path().display(),
            state.free.units() + state.lent,
            state.free.largest(),
            kept.unwrap_or_default(),
        );
        Error::new(ErrorKind::Full, message)
    }

    /// The error of a commit that would append to a zone of the reserve which it may not use.
    pub(crate) fn kept_back(&self, frees: Frees) -> Error {
        self.reserve.kept_back.fetch_max(1 + frees as u8, Ordering::Relaxed);
        self.full(&self.state.lock(), 1, frees)
    }
}

impl ZonePool {
    /// Takes free units for pages, in one piece and never out of the reserve: `wanted`, a power of
    /// two, or the next smaller piece that is there, of `least` units at least. The first unit and
    /// how many they are; `None` when there is no such piece.
    pub(crate) fn take_units(&self, wanted: u32, least: u32) -> Option<(u32, u32)> {
        let mut state = self.reclaim(wanted);
        let free = state.free.units() + state.lent;
        let sizes = std::iter::successors(Some(wanted), |units| Some(units / 2));
        for units in sizes.take_while(|units| *units >= least && *units > 0) {
            if self.reserve.allows(free, units, Frees::Nothing)
                && let Some(unit) = state.free.take(units)
            {
                return Some((unit, units));
            }
        }
        None
    }

    /// Takes one unit out of the free ones, at an opening: pages that the journal names lie in it.
    /// Whether it was free.
    pub(crate) fn claim_unit(&self, unit: u32) -> bool {
        self.state.lock().free.take_at(unit)
    }

    /// Takes units back that have no page in use. What lies in them means nothing from here on.
    pub(crate) fn give_units(&self, unit: u32, units: u32) {
        let mut state = self.state.lock();
        state.free.give_each(unit, unit + units);
        self.released.fetch_add(u64::from(units), Ordering::Relaxed);
    }
}

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
        let wanted = self.reserve.wanted().map(|(units, _)| units).max();
        wanted.is_some_and(|units| !self.has(&self.state.lock(), units, Frees::Nothing))
    }

    /// The same where the region does not grow: something has to be freed.
    pub(crate) fn lacks_wanted(&self) -> bool {
        self.is_asked_for() && !self.grows()
    }

    /// Whether commits may wait for space of a region that does not grow.
    pub(crate) fn keeps_waiting(&self) -> bool {
        self.reserve.kept_back.load(Ordering::Relaxed) != 0 || self.lacks_wanted()
    }

    /// Whether the space of a request that failed is free by now, or the reserve's zones are no
    /// longer kept back, for the commits that leave the least of it. It returns true once, so that
    /// the caller wakes the waiting writers once. Those that wait on say so again.
    pub(crate) fn finds_wanted(&self) -> bool {
        let Reserve { kept_back, freed, .. } = &self.reserve;
        let kept = kept_back.load(Ordering::Relaxed).checked_sub(1).map(usize::from);
        if kept.is_none() && self.reserve.wanted().next().is_none() {
            return false;
        }
        // A stream that asks in vain says so under the mutex.
        let state = self.state.lock();
        let is_over = kept.is_some_and(|kept| self.has(&state, 0, Frees::ALL[kept]));
        let is_over = is_over && kept_back.swap(0, Ordering::Relaxed) != 0;
        let is_there = self.reserve.wanted().any(|(units, frees)| self.has(&state, units, frees));
        if !is_there {
            return is_over;
        }
        let most = self.reserve.wanted().map(|(units, _)| units).max();
        if most.is_some_and(|units| self.has(&state, units, Frees::Nothing)) {
            freed.store(false, Ordering::Relaxed);
        }
        self.reserve.wanted.iter().for_each(|units| units.store(0, Ordering::Relaxed));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_leave_what_is_kept_for_those_that_free_more() {
        let reserve = Reserve::new(8);
        let allowed = |free, units| Frees::ALL.map(|frees| reserve.allows(free, units, frees));
        assert!(allowed(1, 1)[0], "there is none at first");
        assert_eq!(reserve.set_units(2), 0);
        assert_eq!(allowed(3, 1), [true, true, true]);
        assert_eq!(allowed(2, 1), [false, true, true]);
        assert_eq!(allowed(2, 2), [false, false, true]);
        let noted = |free| {
            reserve.note(5, free, 1);
            Frees::ALL.map(|frees| reserve.has(5, frees))
        };
        assert_eq!(noted(3), [false, false, false]);
        assert_eq!(noted(2), [true, false, false]);
        assert_eq!(noted(1), [true, true, false]);
        assert!(!reserve.set_freeing_only(true));
        assert_eq!(allowed(8, 1), [false, true, true]);
        assert_eq!(noted(8), [true, false, false]);
        assert!(reserve.set_freeing_only(false));
    }
}
