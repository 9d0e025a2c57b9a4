//! What a transaction has written and not committed: the last value of each key, the intervals
//! that it has deleted, and what rolling back to a savepoint brings back. Beyond a limit what was
//! written to keys goes to disk (`spill`); intervals stay in memory.
//!
//! Invariants:
//!
//! 1. `bytes` of a table is what its versions in memory take; none of them was rolled back.
//! 2. What is in memory of a key is newer than what is spilled of it.
//! 3. Of a key's versions the oldest comes first, and a savepoint lies between any two.
//! 4. What was put to a key of a deleted interval was put after the deletion: it counts.
//! 5. Each version in memory that a roll-back may take has its key in `undo`.
//! 6. No key of a bare interval is put to, and none that was committed by `bare_at` is left in it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::spilled::{
    End, Epoch, Epochs, OwnKey, Spilled, Store, Version, Write, WritesAhead, Written,
};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::Lsn;
use crate::mvcc::{IntervalSet, KeyInterval};
use crate::read::KeyRange;
use crate::sstable::{BlockCache, Extent};

/// What an entry costs beside its key and its value.
const ENTRY: usize = 64;

/// What was written to one table.
#[derive(Debug, Default)]
struct OfTable {
    memory: BTreeMap<OwnKey, SmallVec<[Version; 1]>>,
    bytes: usize,
    /// The keys whose versions in memory rolling back may take, with the epochs of these, in their
    /// order; empty without a savepoint.
    undo: Vec<(Epoch, OwnKey)>,
    /// Bytes that the keys of `undo` take outside of it.
    undo_bytes: usize,
    spilled: Spilled,
    /// The intervals that are deleted.
    deleted: IntervalSet,
    /// What rolling back undoes of them, the oldest first; empty without a savepoint.
    deletions: Vec<Deletion>,
    /// Bytes that both take.
    interval_bytes: usize,
    /// Where no row is left: all that is visible at `bare_at` is deleted, and nothing put.
    bare: IntervalSet,
    bare_at: Lsn,
}

/// The deletion of an interval.
#[derive(Debug)]
struct Deletion {
    epoch: Epoch,
    /// Where the interval begins that it has become.
    start: Vec<u8>,
    /// Those that it was joined with.
    joined: Vec<KeyInterval>,
}

/// The writes of one transaction.
#[derive(Debug, Default)]
pub(super) struct WriteSet {
    tables: Vec<OfTable>,
    epochs: Epochs,
    /// The names of the epochs' savepoints.
    savepoints: Vec<String>,
}

impl WriteSet {
    /// Sets a key; `limit` is what all writes may take, in memory and on disk.
    ///
    /// # Errors
    ///
    /// `TooLarge` when it would be more than that; nothing was changed.
    pub(super) fn set(&mut self, table: usize, key: &[u8], write: Write, limit: u64) -> Result<()> {
        let (now, added) = (self.epochs.now(), taken(key, &write));
        let is_saved = self.epochs.savepoints() > 0;
        let before = self.bytes_in_memory() as u64 + self.spilled_bytes();
        self.make_table(table);
        if write.is_some() {
            self.tables[table].bare.remove_key(key);
        }
        let OfTable { memory, bytes, undo, undo_bytes, .. } = &mut self.tables[table];
        let mut note_undo = |key: &OwnKey| {
            if is_saved {
                *undo_bytes += heap_of(key);
                undo.push((now, key.clone()));
            }
        };
        let mut there = match memory.entry(OwnKey::from_slice(key)) {
            Entry::Occupied(there) => there,
            Entry::Vacant(place) => {
                check_limit(before + added as u64, limit)?;
                note_undo(place.key());
                place.insert(smallvec![(now, write)]);
                *bytes += added;
                return Ok(());
            }
        };
        let versions = there.get_mut();
        let is_gone = |(epoch, _): &&Version| !self.epochs.needs(*epoch, now);
        let kept = versions.len() - versions.iter().rev().take_while(is_gone).count();
        let freed: usize = versions[kept..].iter().map(|(_, write)| taken(key, write)).sum();
        debug_assert!(
            freed <= *bytes,
            "the bytes of a table count each of its versions in memory (invariant 1)"
        );
        check_limit(before - freed as u64 + added as u64, limit)?;
        // What takes the place of another version is taken back with the key that is noted for it.
        let is_new = kept == versions.len();
        if is_new {
            note_undo(&OwnKey::from_slice(key));
        }
        versions.truncate(kept);
        debug_assert!(
            versions.last().is_none_or(|(epoch, _)| *epoch < now),
            "a savepoint lies between two versions of a key (invariant 3)"
        );
        versions.push((now, write));
        *bytes = *bytes - freed + added;
        Ok(())
    }

    /// Deletes all keys of an interval, in which no own key has a value; `limit` is what all may
    /// take.
    pub(super) fn delete_range(
        &mut self,
        table: usize,
        interval: &KeyInterval,
        limit: u64,
    ) -> Result<()> {
        self.make_table(table);
        let others = self.bytes_in_memory() as u64 + self.spilled_bytes();
        let (now, is_saved) = (self.epochs.now(), self.epochs.savepoints() > 0);
        let own = &mut self.tables[table];
        if own.deleted.covers(interval) {
            return Ok(());
        }
        let before = own.interval_bytes;
        let joined = own.deleted.insert(interval);
        let Some(all) = own.deleted.find(&interval.start) else { return Ok(()) };
        own.interval_bytes += taken_by(&all);
        own.deletions.push(Deletion { epoch: now, start: all.start, joined });
        let limited = check_limit(others - before as u64 + own.interval_bytes as u64, limit);
        if limited.is_err() {
            own.undo_deletion();
        } else if !is_saved {
            own.forget_undo();
        }
        debug_assert!(
            limited.is_err() || own.deletes(&interval.start),
            "a deleted interval hides its keys from the moment of the deletion (invariant 4)"
        );
        limited
    }

    /// Lets go of the deletions of own keys that the one of an interval has made superfluous: those
    /// that no older version needs, here or on disk.
    pub(super) fn forget_deleted(&mut self, table: usize, interval: &KeyInterval) {
        let (epochs, now) = (&self.epochs, self.epochs.now());
        let Some(own) = self.tables.get_mut(table).filter(|own| own.spilled.is_empty()) else {
            return;
        };
        let bounds = KeyRange::from(interval.clone());
        let bounds =
            (bounds.lower.as_ref().map(Vec::as_slice), bounds.upper.as_ref().map(Vec::as_slice));
        let rows = own.memory.range::<[u8], _>(bounds);
        let all_gone = |versions: &[Version]| versions.iter().all(|(e, _)| !epochs.needs(*e, now));
        let gone = rows.filter(|(_, versions)| all_gone(versions)).map(|(key, _)| key.clone());
        for key in gone.collect::<Vec<_>>() {
            let versions = own.memory.remove(key.as_slice()).into_iter().flatten();
            own.bytes -= versions.map(|(_, write)| taken(&key, &write)).sum::<usize>();
        }
        debug_assert!(
            own.bytes == 0 || !own.memory.is_empty(),
            "deletions that were forgotten take no bytes (invariant 1)"
        );
    }

    /// Whether a key lies in an interval that was deleted.
    pub(super) fn deletes(&self, table: usize, key: &[u8]) -> bool {
        self.tables.get(table).is_some_and(|of_table| of_table.deletes(key))
    }

    /// Notes that a walk at `lsn` has found no row in an interval, and that no other transaction
    /// puts one there: it reads a snapshot, or has the interval locked.
    pub(super) fn note_bare(&mut self, table: usize, interval: &KeyInterval, lsn: Lsn) {
        if let Some(own) = self.tables.get_mut(table).filter(|_| !interval.is_empty()) {
            own.bare.insert(interval);
            own.bare_at = own.bare_at.max(lsn);
        }
    }

    /// The interval around a key in which a walk at `lsn` finds no row.
    pub(super) fn bare_around(&self, table: usize, key: &[u8], lsn: Lsn) -> Option<KeyInterval> {
        let own = self.tables.get(table).filter(|own| lsn >= own.bare_at)?;
        own.bare.find(key)
    }

    /// Whether a walk at `lsn` finds no row in an interval.
    pub(super) fn is_bare(&self, table: usize, interval: &KeyInterval, lsn: Lsn) -> bool {
        let own = self.tables.get(table).filter(|own| lsn >= own.bare_at);
        own.is_some_and(|own| own.bare.covers(interval))
    }

    /// Whether a part of an interval was deleted.
    pub(super) fn deletes_in(&self, table: usize, interval: &KeyInterval) -> bool {
        self.tables.get(table).is_some_and(|of_table| of_table.deleted.overlaps(interval))
    }

    /// The intervals that were deleted, table by table, disjoint.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (usize, KeyInterval)> {
        let tables = self.tables.iter().enumerate();
        tables.flat_map(|(table, own)| own.deleted.iter().map(move |range| (table, range)))
    }

    fn make_table(&mut self, table: usize) {
        while self.tables.len() <= table {
            self.tables.push(OfTable::default());
        }
    }

    /// Whether another write takes the writes in memory beyond `limit`, and some of them can go.
    /// Intervals never go to disk. So rows may take a quarter of the limit, however much
    /// intervals take. With less, each spill would write an extent of a few rows.
    pub(super) fn is_full(&self, key: &[u8], write: &Write, limit: usize) -> bool {
        let rows: usize = self.tables.iter().map(|of_table| of_table.bytes).sum();
        let others = self.bytes_in_memory() - rows;
        rows > 0 && rows + taken(key, write) > limit.saturating_sub(others).max(limit / 4)
    }

    /// Moves what most of memory is taken by, the writes to one table, to disk.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room, and nothing was changed; or on an I/O error.
    pub(super) fn spill(&mut self, store: Store<'_>) -> Result<()> {
        match self.tables.iter_mut().max_by_key(|of_table| of_table.bytes) {
            Some(largest) => largest.spill(store, &self.epochs),
            None => Ok(()),
        }
    }

    /// What was spilled, for each table that has it, with the rest of its writes: sorted extents
    /// that have each key once.
    pub(super) fn runs(&mut self, store: Store<'_>) -> Result<Vec<(usize, Vec<Arc<Extent>>)>> {
        let mut runs = Vec::new();
        for (table, of_table) in self.tables.iter_mut().enumerate() {
            if !of_table.spilled.is_empty() {
                of_table.spill(store, &self.epochs)?;
                let run = of_table.spilled.run(store, &self.epochs)?;
                // Empty if all of it was rolled back.
                runs.extend((!run.is_empty()).then_some((table, run)));
            }
        }
        Ok(runs)
    }

    /// What was written to a key, if it was, by itself or with an interval.
    pub(super) fn get(
        &self,
        table: usize,
        key: &[u8],
        cache: &BlockCache,
    ) -> Result<Option<Write>> {
        let Some(of_table) = self.tables.get(table) else { return Ok(None) };
        match of_table.memory.get(key).and_then(|versions| versions.last()) {
            Some((_, write)) => Ok(Some(write.clone())),
            None => {
                let spilled = of_table.spilled.get(key, &self.epochs, cache)?;
                Ok(spilled.or_else(|| of_table.deletes(key).then_some(None)))
            }
        }
    }

    /// The first key between the bounds, from one end, that was written; `ahead` is of the steps
    /// of one walk from that end.
    pub(super) fn outermost(
        &self,
        table: usize,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        end: End,
        cache: &Arc<BlockCache>,
        ahead: &mut WritesAhead,
    ) -> Result<Option<Written>> {
        let Some(of_table) = self.tables.get(table) else { return Ok(None) };
        let in_memory = of_table.outermost(bounds, end);
        if of_table.spilled.is_empty() {
            return Ok(in_memory);
        }
        let from = (&self.epochs, cache);
        let spilled = of_table.spilled.outermost(bounds, end, from, ahead)?;
        Ok(match (in_memory, spilled) {
            (Some(memory), Some(spilled)) if end.is_before(&spilled.0, &memory.0) => Some(spilled),
            (memory, spilled) => memory.or(spilled),
        })
    }

    /// What is in memory, table by table, by key: the last write of each.
    pub(super) fn in_memory(&self) -> impl Iterator<Item = (usize, &[u8], &Write)> {
        let tables = self.tables.iter().enumerate();
        tables.flat_map(|(table, of_table)| {
            let last = of_table.memory.iter().filter_map(|(key, v)| Some((key, &v.last()?.1)));
            last.map(move |(key, write)| (table, key.as_slice(), write))
        })
    }

    /// How many keys and intervals were written: keys on disk once for each time that they went
    /// there.
    pub(super) fn len(&self) -> usize {
        let in_memory = |own: &OfTable| own.memory.len() + own.deleted.len();
        let in_memory: usize = self.tables.iter().map(in_memory).sum();
        let spilled: u64 = self.tables.iter().map(|of_table| of_table.spilled.records()).sum();
        in_memory + spilled as usize
    }

    /// Bytes that the writes in memory take.
    pub(super) fn bytes_in_memory(&self) -> usize {
        let of_table = |own: &OfTable| own.bytes + own.undo_bytes + own.interval_bytes;
        self.tables.iter().map(of_table).sum()
    }

    /// Bytes that those on disk take.
    pub(super) fn spilled_bytes(&self) -> u64 {
        let bytes = |of_table: &OfTable| {
            of_table.spilled.bytes() + of_table.spilled.records() * ENTRY as u64
        };
        self.tables.iter().map(bytes).sum()
    }

    /// Sets a savepoint. One of the same name stays, hidden until this one is released.
    pub(super) fn set_savepoint(&mut self, name: &str) {
        self.savepoints.push(name.to_string());
        self.epochs.save();
        debug_assert!(self.names_each_savepoint(), "a new savepoint ends an epoch");
    }

    /// Undoes what was written since the newest savepoint `name`, which stays; those set after it
    /// go. Costs a look-up for each key in memory that it takes a version of.
    pub(super) fn roll_back_to(&mut self, name: &str) -> Result<()> {
        let at = self.savepoint(name)?;
        self.savepoints.truncate(at + 1);
        let before = self.epochs.roll_back_to(at);
        debug_assert!(
            self.names_each_savepoint(),
            "a savepoint stays after a roll-back to it, and later ones go"
        );
        for of_table in &mut self.tables {
            of_table.spilled.roll_back(before);
            of_table.bare = IntervalSet::default();
            while of_table.deletions.last().is_some_and(|last| last.epoch > before) {
                of_table.undo_deletion();
            }
            while let Some((_, key)) = of_table.undo.pop_if(|(epoch, _)| *epoch > before) {
                of_table.undo_bytes -= heap_of(&key);
                // Newer versions may have taken its place, and it may be on disk.
                let Some(versions) = of_table.memory.get_mut(&key) else { continue };
                let kept = versions.partition_point(|(epoch, _)| *epoch <= before);
                of_table.bytes -=
                    versions.drain(kept..).map(|(_, write)| taken(&key, &write)).sum::<usize>();
                if versions.is_empty() {
                    of_table.memory.remove(&key);
                }
            }
            debug_assert!(
                of_table.counts_its_bytes(),
                "writes that were rolled back take no bytes (invariant 1)"
            );
        }
        if self.tables.iter().all(|of_table| of_table.spilled.is_empty()) {
            self.epochs.forget_dead();
        }
        Ok(())
    }

    /// Forgets the newest savepoint `name` and those set after it; what was written stays.
    pub(super) fn release(&mut self, name: &str) -> Result<()> {
        let at = self.savepoint(name)?;
        self.savepoints.truncate(at);
        self.epochs.release(at);
        if self.savepoints.is_empty() {
            self.tables.iter_mut().for_each(OfTable::forget_undo);
        }
        debug_assert!(
            self.names_each_savepoint(),
            "a savepoint that is released takes the later ones along"
        );
        Ok(())
    }

    /// How many tables have writes, or had them.
    pub(super) fn tables(&self) -> usize {
        self.tables.len()
    }

    /// How many savepoints there are.
    pub(super) fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    /// Whether each savepoint has its name and its epoch.
    fn names_each_savepoint(&self) -> bool {
        self.savepoints.len() == self.epochs.savepoints()
    }

    fn savepoint(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|s| s == name).ok_or_else(|| {
            let names = &self.savepoints;
            Error::invalid(format!("there is no savepoint {name:?}; there are {names:?}"))
        })
    }
}

impl OfTable {
    fn spill(&mut self, store: Store<'_>, epochs: &Epochs) -> Result<()> {
        debug_assert!(
            self.counts_its_bytes(),
            "a spill writes as many bytes as were counted (invariant 1)"
        );
        if self.memory.is_empty() {
            return Ok(());
        }
        let keys = self.memory.iter().map(|(key, versions)| (key.as_slice(), versions.as_slice()));
        self.spilled.add(store, epochs, self.bytes as u64, keys)?;
        self.memory.clear();
        self.undo.clear();
        self.undo_bytes = 0;
        self.bytes = 0;
        Ok(())
    }

    /// Whether `bytes` is what its versions take (invariant 1). Costs a walk over all of them.
    fn counts_its_bytes(&self) -> bool {
        let of_key = |(key, versions): (&OwnKey, &SmallVec<[Version; 1]>)| {
            versions.iter().map(|(_, write)| taken(key, write)).sum::<usize>()
        };
        self.bytes == self.memory.iter().map(of_key).sum::<usize>()
    }

    /// The first key in memory between the bounds from one end. A walk that leaves its own writes
    /// behind, as one that removes rows does, asks for the last key alone.
    fn outermost(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>), end: End) -> Option<Written> {
        let (last, behind) = match end {
            End::Front => (self.memory.last_key_value()?, (bounds.0, Bound::Unbounded)),
            End::Back => (self.memory.first_key_value()?, (Bound::Unbounded, bounds.1)),
        };
        if !RangeBounds::<[u8]>::contains(&behind, last.0.as_slice()) {
            return None;
        }
        let mut range = self.memory.range::<[u8], _>(bounds);
        newest(if end == End::Front { range.next()? } else { range.next_back()? })
    }

    fn deletes(&self, key: &[u8]) -> bool {
        self.deleted.contains(key)
    }

    /// Takes the last deletion of an interval back.
    fn undo_deletion(&mut self) {
        let Some(Deletion { start, joined, .. }) = self.deletions.pop() else { return };
        let undone = self.deleted.remove(&start);
        debug_assert!(undone.is_some(), "what came after it was undone before");
        self.interval_bytes -= undone.as_ref().map_or(0, taken_by);
        for interval in &joined {
            let with = self.deleted.insert(interval);
            debug_assert!(with.is_empty(), "they were apart before they were joined");
        }
    }

    /// Nothing is left to roll back to.
    fn forget_undo(&mut self) {
        self.undo.clear();
        self.undo_bytes = 0;
        let joined = self.deletions.drain(..).flat_map(|deletion| deletion.joined);
        self.interval_bytes -= joined.map(|interval| taken_by(&interval)).sum::<usize>();
    }
}

fn newest((key, versions): (&OwnKey, &SmallVec<[Version; 1]>)) -> Option<Written> {
    Some((key.clone(), versions.last()?.1.clone()))
}

fn taken_by(interval: &KeyInterval) -> usize {
    ENTRY + interval.start.len() + interval.end.as_ref().map_or(0, Vec::len)
}

fn check_limit(bytes: u64, limit: u64) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::TooLarge,
        format!(
            "the transaction's writes would take {bytes} bytes, and its limit is {limit}; commit \
             it in parts, or begin it with a larger write_limit"
        ),
    ))
}

fn heap_of(key: &OwnKey) -> usize {
    if key.spilled() { key.len() } else { 0 }
}

fn taken(key: &[u8], write: &Write) -> usize {
    ENTRY + key.len() + write.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests;
