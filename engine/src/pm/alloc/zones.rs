//! The pool of zones: which stream has which, and how many records in each still count.
//!
//! A zone is one unit or two, four … in a row, and goes by the number of the first. The entries of
//! the others stay free: what is durable of a zone's size is its header.
//!
//! Thread safety: every method takes `&self`. The free list is behind one mutex that is held for
//! a few instructions and never across a persist; the counts of live records are atomics.
//!
//! Invariants:
//!
//! 1. A unit is in exactly one state: free, part of a zone that is being linked or released (owned
//!    by that call), or of one that is linked.
//! 2. A linked zone has a sound header and a persistent entry of the same generation on the
//!    media before a caller gets its number.
//! 3. A zone is released only when its live count is 0, it is sealed, and no guard from before
//!    its last record died is left. Its generation is raised on the media before its units are
//!    free.

mod reserve;

use std::sync::{Arc, Weak};

pub(crate) use reserve::Frees;
use reserve::Reserve;

use super::pages::Buddies;
use super::segments::{Pool, PoolEntry};
use super::zone::{Found, Salts, Seal, ZoneHeader, ZoneScan, scan, scan_readable};
use crate::base::error::{Damage, Result};
use crate::os::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::os::sync::locks::{Mutex, MutexGuard};
use crate::os::sync::shared::OnceLock;
use crate::pm::{Dirty, Durable, Geometry, Region, Span};

/// The pool of zones of one region.
#[derive(Debug)]
pub(crate) struct ZonePool {
    region: Arc<Region>,
    /// As it was when the pool was opened, but for the units.
    geometry: Geometry,
    /// Units that exist. Only rises.
    units: AtomicU32,
    /// The region could not grow the last time that it tried.
    is_stuck: AtomicBool,
    /// Units that zones have given back since it was opened.
    released: AtomicU64,
    state: Mutex<State>,
    /// Per zone: records that an index points to, or that recovery would still need.
    live: Box<[AtomicU64]>,
    /// Per zone: records that were ever appended.
    appended: Box<[AtomicU64]>,
    /// Per zone: the generation of its entry, for threads that do not take the mutex.
    generations: Box<[AtomicU32]>,
    /// Per zone: the salt of what is appended to it, for threads that do not take the mutex.
    in_effect: Box<[AtomicU64]>,
    pub(crate) salts: Salts,
    /// Per unit: the zone that it is part of, or was last.
    zones: Box<[AtomicU32]>,
    /// Whether the counts of live records are whole.
    counted: AtomicBool,
    /// Units that only commits which free space may take.
    reserve: Reserve,
    /// The component that keeps volatile data in free units.
    borrower: OnceLock<Weak<dyn Borrower>>,
}

/// A component that keeps volatile data in units that no zone has.
pub(crate) trait Borrower: Send + Sync + std::fmt::Debug {
    /// Gives some of them back; whether it had any.
    fn give_back(&self) -> bool;
}

/// A zone that records are or will be appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) number: u32,
    /// Its bytes.
    pub(crate) len: u64,
}

/// What is linked to a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) stream: u32,
    /// Its place in the stream's chain.
    pub(crate) ordinal: u64,
    pub(crate) incarnation: u64,
    /// Units that it should have: a power of two. It gets fewer where so many are not in one piece.
    pub(crate) units: u32,
    /// Units that it has to have: a power of two.
    pub(crate) least: u32,
    /// It is for a commit that frees space, which may take the reserve.
    pub(crate) frees: Frees,
}

#[derive(Debug)]
struct State {
    /// By unit.
    entries: Vec<PoolEntry>,
    free: Buddies,
    /// Units that are free but for volatile things.
    lent: u32,
    /// Zones that wait for lent units: nothing is lent meanwhile.
    reclaims: u32,
    /// Linked zones: their headers, by zone.
    linked: Vec<Option<Linked>>,
}

/// A linked zone as a part of its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamZone {
    pub(crate) number: u32,
    pub(crate) header: ZoneHeader,
    /// Where its sub-entries end, if it is sealed.
    pub(crate) end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Linked {
    header: ZoneHeader,
    sealed: bool,
    /// As the seal says.
    end: u64,
    /// No LSN in the zone is smaller.
    oldest: u64,
    /// The greatest LSN in the zone, known once it is sealed.
    greatest: u64,
}

impl ZonePool {
    /// Writes the index of a new region: every zone free.
    pub(crate) fn format(region: &Region, geometry: Geometry) -> Vec<Dirty> {
        (0..geometry.zone_slots)
            .map(|zone| {
                let word = PoolEntry::default().encode(Pool::Zones, zone);
                region.store_word(Geometry::zone_entry(zone), word)
            })
            .collect()
    }

    /// Reads the index and the headers of the taken zones. Leaks (taken entries without a sound
    /// header, from an opening that was cut while linking) are returned beside the pool.
    pub(crate) fn open(
        region: &Arc<Region>,
        geometry: Geometry,
    ) -> Result<(ZonePool, Vec<ZoneScan>, Vec<u32>)> {
        let Found { entries, zones: scans, leaks, free } = scan(region, geometry)?;
        let slots = geometry.zone_slots;
        let mut state =
            State { entries, free: Buddies::default(), lent: 0, reclaims: 0, linked: Vec::new() };
        state.linked.resize(slots as usize, None);
        free.iter().for_each(|unit| state.free.give(*unit, 1));
        let zones: Box<[AtomicU32]> = (0..slots).map(AtomicU32::new).collect();
        for scan in &scans {
            let (sealed, end) = (scan.seal.is_some(), scan.seal.map_or(0, |it| u64::from(it.0)));
            state.linked[scan.zone as usize] =
                Some(Linked { header: scan.header, sealed, end, oldest: 0, greatest: 0 });
            name_units(&zones, scan.zone, scan.header.units);
        }
        let counts = || (0..slots).map(|_| AtomicU64::new(0)).collect();
        let pool = ZonePool {
            region: Arc::clone(region),
            geometry,
            units: AtomicU32::new(geometry.units),
            is_stuck: AtomicBool::new(false),
            released: AtomicU64::new(0),
            generations: state.entries.iter().map(|e| AtomicU32::new(e.generation)).collect(),
            state: Mutex::new(state),
            live: counts(),
            appended: counts(),
            in_effect: counts(),
            salts: Salts::default(),
            zones,
            counted: AtomicBool::new(true),
            reserve: Reserve::new(slots),
            borrower: OnceLock::new(),
        };
        Ok((pool, scans, leaks))
    }

    /// The zones in use whose headers can be read, for a salvage; what cannot goes to `lost`.
    pub(crate) fn scan_readable(
        region: &Region,
        geometry: Geometry,
        lost: &mut Vec<Damage>,
    ) -> Result<Vec<ZoneScan>> {
        scan_readable(region, geometry, lost)
    }

    /// The geometry of the region.
    pub(crate) fn geometry(&self) -> Geometry {
        let units = self.units.load(Ordering::Relaxed);
        Geometry { units, target: self.geometry.target.max(units), ..self.geometry }
    }

    /// Units that no zone has.
    pub(crate) fn free(&self) -> u32 {
        let state = self.state.lock();
        state.free.units() + state.lent
    }

    /// Units that zones have given back since it was opened.
    pub(crate) fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Units in the largest piece that is free.
    pub(crate) fn largest_free(&self) -> u32 {
        self.state.lock().free.largest()
    }

    /// The zone that holds an offset.
    pub(crate) fn zone_of(&self, at: u64) -> u32 {
        self.zones[self.geometry.unit_of(at) as usize].load(Ordering::Relaxed)
    }

    /// Links free units to a stream, durably: entry and header in one persist, whatever the size.
    pub(crate) fn link(&self, link: &Link) -> Result<Zone> {
        let (zone, units, entry) = self.get(link)?;
        let Link { stream, ordinal, incarnation, .. } = *link;
        let salt = self.salts.draw(incarnation);
        let generation = entry.generation;
        let header = ZoneHeader { generation, stream, ordinal, incarnation, units, salt };
        self.in_effect[zone as usize].store(salt, Ordering::Relaxed);
        debug_assert_eq!(self.live(zone), 0, "a free zone has no live records (invariant 3)");
        debug_assert!(!entry.persistent, "zone {zone} is free (invariant 1)");
        let committed = PoolEntry { persistent: true, ..entry };
        let at = self.geometry.zone(zone);
        self.region.will_write(Span { at, len: self.geometry.zone_len(units) });
        // What lies behind the header was stored before the salt was drawn, so none of it checks
        // out as a sub-entry of this use of the zone.
        let linked = self.region.persist([
            self.region.write(at, &header.encode(zone)),
            self.store_entry(zone, committed),
        ]);
        let mut state = self.state.lock();
        state.entries[zone as usize] = committed;
        state.linked[zone as usize] =
            Some(Linked { header, sealed: false, end: 0, oldest: u64::MAX, greatest: 0 });
        // A thread looks up an offset only after another thread took the mutex and published it.
        name_units(&self.zones, zone, units);
        linked.map(|_| Zone { number: zone, len: self.geometry.zone_len(units) })
    }

    /// Takes as many units as `link` should have, or the next best.
    fn get(&self, link: &Link) -> Result<(u32, u32, PoolEntry)> {
        let Link { units, least, frees, .. } = *link;
        debug_assert!(units >= least, "a zone of {units} units that has to have {least}");
        let mut state = self.reclaim(units);
        let free = state.free.units() + state.lent;
        let sizes = std::iter::successors(Some(units), |units| Some(units / 2));
        for units in sizes.take_while(|units| *units >= least) {
            // Of the reserve no more than has to be.
            let frees = if units == least { frees } else { Frees::Nothing };
            let is_allowed = self.reserve.allows(free, units, frees);
            if let Some(zone) = is_allowed.then(|| state.free.take(units)).flatten() {
                self.reserve.note(zone, free, units);
                return Ok((zone, units, state.entries[zone as usize]));
            }
        }
        self.reserve.note_wanted(least, frees);
        if frees > Frees::Nothing {
            self.note_freeing();
        }
        Err(self.full(&state, least, frees))
    }

    /// Has lent units given back until so many are free in one piece, or none is lent.
    fn reclaim(&self, units: u32) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.reclaims += 1;
        while state.free.largest() < units && state.lent > 0 {
            drop(state);
            let gave_back = self.borrower.get().and_then(Weak::upgrade).map(|b| b.give_back());
            state = self.state.lock();
            if gave_back != Some(true) {
                break;
            }
        }
        state.reclaims -= 1;
        state
    }

    /// Has `borrower` asked for units back when a zone needs them.
    pub(crate) fn set_borrower(&self, borrower: Weak<dyn Borrower>) {
        let is_first = self.borrower.set(borrower).is_ok();
        debug_assert!(is_first, "one borrower a pool");
    }

    /// Lends free units, in one piece; `None` when there are not as many. Nothing is stored: they
    /// count as free, and are after a restart.
    pub(crate) fn borrow(&self, units: u32) -> Option<u32> {
        let mut state = self.state.lock();
        if state.reclaims > 0 {
            return None;
        }
        let unit = state.free.take(units)?;
        state.lent += units;
        Some(unit)
    }

    /// Takes back what was lent.
    pub(crate) fn take_back(&self, unit: u32, units: u32) {
        let mut state = self.state.lock();
        state.lent -= units;
        state.free.give(unit, units);
    }

    /// Marks the switch from `full` (used up to `len`, greatest LSN `greatest`) to `next`. The
    /// words must be on the media before, or in the same sync as, the first sub-entry in `next`.
    pub(crate) fn switch(&self, full: u32, len: u64, greatest: u64, next: u32) -> [Dirty; 2] {
        let mut state = self.state.lock();
        let sealed = self.seal_zone(&mut state, full, len, greatest);
        [sealed, self.use_zone(&mut state, next, greatest + 1)]
    }

    /// Seals the zone that a stream leaves without another one. The word must be on the media
    /// before the stream gets its next zone.
    pub(crate) fn seal(&self, full: u32, len: u64, greatest: u64) -> Dirty {
        self.seal_zone(&mut self.state.lock(), full, len, greatest)
    }

    fn seal_zone(&self, state: &mut State, full: u32, len: u64, greatest: u64) -> Dirty {
        let word = match &mut state.linked[full as usize] {
            Some(linked) => {
                debug_assert!(!linked.sealed, "zone {full} is sealed once");
                (linked.sealed, linked.end) = (true, len);
                linked.greatest = greatest;
                Seal(len as u32).encode(full, linked.header.generation)
            }
            None => unreachable!("a stream's zone is linked (invariant 2)"),
        };
        self.region.store_word(self.geometry.zone(full) + Seal::AT, word)
    }

    /// Seals a zone at open, where recovery found that it ends.
    pub(crate) fn reseal(&self, zone: u32, len: u64) -> Dirty {
        let mut state = self.state.lock();
        let generation = state.entries[zone as usize].generation;
        if let Some(linked) = &mut state.linked[zone as usize] {
            (linked.sealed, linked.end) = (true, len);
        }
        let word = Seal(len as u32).encode(zone, generation);
        self.region.store_word(self.geometry.zone(zone) + Seal::AT, word)
    }

    /// How many units a linked zone has; 0 if it is none.
    pub(crate) fn units_of(&self, zone: u32) -> u32 {
        self.state.lock().linked[zone as usize].map_or(0, |linked| linked.header.units)
    }

    /// How many units linked zones have together.
    pub(crate) fn units_in(&self, zones: impl IntoIterator<Item = u32>) -> u32 {
        let state = self.state.lock();
        let units = |zone: u32| state.linked[zone as usize].map_or(0, |it| it.header.units);
        zones.into_iter().map(units).sum()
    }

    /// The generation of a linked zone.
    pub(crate) fn generation(&self, zone: u32) -> u32 {
        self.generations[zone as usize].load(Ordering::Relaxed)
    }

    /// The salt of what is appended to a linked zone.
    pub(crate) fn salt(&self, zone: u32) -> u64 {
        self.in_effect[zone as usize].load(Ordering::Relaxed)
    }

    /// Draws a new salt for what opening `incarnation` appends to a zone that it found open.
    pub(crate) fn draw_salt(&self, zone: u32, incarnation: u64) -> u64 {
        let salt = self.salts.draw(incarnation);
        self.in_effect[zone as usize].store(salt, Ordering::Relaxed);
        salt
    }

    /// Marks the first use, by `lsn`, of a zone that follows no other.
    pub(crate) fn first_use(&self, zone: u32, lsn: u64) -> Dirty {
        self.use_zone(&mut self.state.lock(), zone, lsn)
    }

    fn use_zone(&self, state: &mut State, zone: u32, oldest: u64) -> Dirty {
        if let Some(linked) = &mut state.linked[zone as usize] {
            linked.oldest = oldest;
        }
        let entry = &mut state.entries[zone as usize];
        debug_assert!(entry.persistent, "only linked zones are used (invariant 2)");
        entry.in_use = true;
        self.store_entry(zone, *entry)
    }

    fn store_entry(&self, zone: u32, entry: PoolEntry) -> Dirty {
        self.region.store_word(Geometry::zone_entry(zone), entry.encode(Pool::Zones, zone))
    }

    /// Tells the pool what recovery found in a zone: the smallest sequence number, the greatest
    /// LSN, how many records.
    pub(crate) fn set_found(&self, zone: u32, oldest: u64, greatest: u64, records: u64) {
        self.appended[zone as usize].store(records, Ordering::Relaxed);
        if let Some(linked) = &mut self.state.lock().linked[zone as usize] {
            linked.oldest = oldest;
            linked.greatest = greatest;
        }
    }

    /// No record in any zone has a smaller LSN.
    pub(crate) fn oldest(&self) -> u64 {
        let state = self.state.lock();
        state.linked.iter().flatten().map(|l| l.oldest).min().unwrap_or(u64::MAX)
    }

    /// Tells the pool that moved records were put into a zone, the oldest of which has this
    /// sequence number.
    pub(crate) fn lower_oldest(&self, zone: u32, oldest: u64) {
        if let Some(linked) = &mut self.state.lock().linked[zone as usize] {
            linked.oldest = linked.oldest.min(oldest);
        }
    }

    /// Sealed zones with few live records, at most one in `share` of those that were appended,
    /// whose every LSN is at most `floor`: the oldest first.
    pub(crate) fn mostly_dead(&self, floor: u64, share: u64) -> Vec<u32> {
        if !self.is_counted() {
            return Vec::new();
        }
        let state = self.state.lock();
        let is_mostly_dead = |zone: u32| {
            let (live, appended) =
                (self.live(zone), self.appended[zone as usize].load(Ordering::Relaxed));
            live > 0 && live * share <= appended
        };
        let linked = (0..).zip(&state.linked).filter_map(|(zone, l)| Some((zone, (*l)?)));
        let mut found: Vec<(u64, u32)> = linked
            .filter(|(zone, l)| l.sealed && l.greatest <= floor && is_mostly_dead(*zone))
            .map(|(zone, l)| (l.oldest, zone))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, zone)| zone).collect()
    }

    /// Units of zones that records may still be appended to, spare ones included.
    pub(crate) fn open_units(&self) -> u32 {
        self.count_units(|_, linked| !linked.sealed)
    }

    /// Units of sealed zones without a live record: readers, or the floor, still keep them.
    pub(crate) fn pinned_units(&self) -> u32 {
        self.count_units(|zone, linked| linked.sealed && self.live(zone) == 0)
    }

    /// Units of zones with a live record.
    pub(crate) fn live_units(&self) -> u32 {
        self.count_units(|zone, _| self.live(zone) > 0)
    }

    fn count_units(&self, counts: impl Fn(u32, &Linked) -> bool) -> u32 {
        let state = self.state.lock();
        let linked = (0..).zip(&state.linked).filter_map(|(zone, l)| Some((zone, (*l)?)));
        linked.filter(|(zone, l)| counts(*zone, l)).map(|(_, l)| l.header.units).sum()
    }

    /// How many zones there are, and how many of these without a live record.
    pub(crate) fn linked(&self) -> (u32, u32) {
        let state = self.state.lock();
        let linked = (0..).zip(&state.linked).filter_map(|(zone, l)| l.map(|_| zone));
        linked.fold((0, 0), |(all, empty), zone| (all + 1, empty + u32::from(self.live(zone) == 0)))
    }

    /// Sealed zones without a live record whose every LSN is at most `floor`: they can be
    /// released once no reader is left that could hold an offset into them (invariant 3).
    pub(crate) fn dead(&self, floor: u64) -> Vec<u32> {
        if !self.is_counted() {
            return Vec::new();
        }
        let state = self.state.lock();
        let dead = |zone: &u32| {
            let linked = state.linked[*zone as usize];
            linked.is_some_and(|l| l.sealed && l.greatest <= floor) && self.live(*zone) == 0
        };
        (0..self.geometry().units).filter(dead).collect()
    }

    /// Units of sealed zones without a live record whose greatest LSN lies above `from`, and not
    /// above `upto`.
    pub(crate) fn dead_units(&self, (from, upto): (u64, u64)) -> u32 {
        let is_between = |linked: &Linked| linked.greatest > from && linked.greatest <= upto;
        let is_dead = |zone| self.is_counted() && self.live(zone) == 0;
        self.count_units(|zone, linked| linked.sealed && is_between(linked) && is_dead(zone))
    }

    /// Zones that may have an LSN of at least `from`, by their streams and their places there.
    pub(crate) fn zones_from(&self, from: u64) -> Vec<StreamZone> {
        let state = self.state.lock();
        let linked = (0..).zip(&state.linked).filter_map(|(zone, l)| Some((zone, (*l)?)));
        let found = linked.filter(|(_, l)| !l.sealed || l.greatest >= from);
        let mut found: Vec<StreamZone> = found
            .map(|(number, Linked { header, end, .. })| StreamZone { number, header, end })
            .collect();
        found.sort_unstable_by_key(|zone| (zone.header.stream, zone.header.ordinal));
        found
    }

    /// The greatest LSN in any of `zones`.
    pub(crate) fn greatest(&self, zones: &[u32]) -> u64 {
        let state = self.state.lock();
        let of = |zone: &u32| state.linked[*zone as usize].map_or(0, |linked| linked.greatest);
        zones.iter().map(of).max().unwrap_or(0)
    }

    /// Releases zones: each generation is raised on the media, in one persist for all, and only
    /// then are they free (invariant 3).
    pub(crate) fn release(&self, zones: &[u32]) -> Result<Option<Durable>> {
        if zones.is_empty() {
            return Ok(None);
        }
        let mut dirty = Vec::with_capacity(zones.len());
        let mut pieces = Vec::with_capacity(zones.len());
        {
            let mut state = self.state.lock();
            for &zone in zones {
                debug_assert_eq!(self.live(zone), 0, "zone {zone} has live records (invariant 3)");
                let entry = state.entries[zone as usize].released();
                state.entries[zone as usize] = entry;
                // The next thread that links the zone takes the mutex first.
                self.generations[zone as usize].store(entry.generation, Ordering::Relaxed);
                // A leak was never linked; it is one unit, which its number names.
                let linked = state.linked[zone as usize].take();
                pieces.push((zone, linked.map_or(1, |linked| linked.header.units)));
                self.appended[zone as usize].store(0, Ordering::Relaxed);
                dirty.push(self.store_entry(zone, entry));
            }
        }
        let durable = self.region.persist(dirty)?;
        let mut state = self.state.lock();
        pieces.iter().for_each(|(zone, units)| state.free.give(*zone, *units));
        let units: u64 = pieces.iter().map(|(_, units)| u64::from(*units)).sum();
        self.released.fetch_add(units, Ordering::Relaxed);
        Ok(Some(durable))
    }

    /// Counts records that were appended to a zone, and count.
    pub(crate) fn append(&self, zone: u32, records: u64) {
        self.appended[zone as usize].fetch_add(records, Ordering::Relaxed);
        self.add_live(zone, records);
    }

    /// Counts records that begin to count in a zone.
    pub(crate) fn add_live(&self, zone: u32, records: u64) {
        self.live[zone as usize].fetch_add(records, Ordering::Relaxed);
    }

    /// Counts records that no longer count.
    pub(crate) fn sub_live(&self, zone: u32, records: u64) {
        let before = self.live[zone as usize].fetch_sub(records, Ordering::Release);
        debug_assert!(before >= records, "zone {zone} counted {before} live, lost {records}");
    }

    /// Says whether the counts of live records are whole: until they are, no zone is dead.
    pub(crate) fn set_counted(&self, counted: bool) {
        self.counted.store(counted, Ordering::Release);
    }

    /// Whether they are.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.load(Ordering::Acquire)
    }

    /// How many records count in a zone.
    pub(crate) fn live(&self, zone: u32) -> u64 {
        self.live[zone as usize].load(Ordering::Acquire)
    }

    /// How many records count in all zones.
    pub(crate) fn live_records(&self) -> u64 {
        self.live.iter().map(|l| l.load(Ordering::Relaxed)).sum()
    }
}

fn name_units(zones: &[AtomicU32], zone: u32, units: u32) {
    let own = &zones[zone as usize..(zone + units) as usize];
    own.iter().for_each(|unit| unit.store(zone, Ordering::Relaxed));
}

#[cfg(test)]
mod tests;
