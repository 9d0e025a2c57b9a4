//! The global index: one sorted index over all records that memtables have handed down. Feeding
//! it moves pointers, not bytes; it is drained by rotating columns.
//!
//! Source: the global index of X-Engine on persistent memory, drained by columns as MatrixKV's
//! level 0 is.
//!
//! Thread safety: readers, one feeding and one retiring thread run at once.
//!
//! Invariants:
//!
//! 1. Every record at or below D of its key may be missing; every record above D that was fed is
//!    there until a later D covers it.
//! 2. A range tombstone is there, and counts in its zone, until D covers all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ColumnBudget, Level0, Superseded};
use crate::error::Result;
use crate::memtable::{Index, Memtable, Rebuilt, Record, RecordCursor, record_at};
use crate::mvcc::{DrainedMap, KeyInterval, Tombstone, TombstoneList, Tombstones};
use crate::pm::Region;
use crate::record::{Cursor, EntryRef, Kind, LSN_MAX, Lsn};

/// The default container of level 0.
#[derive(Debug)]
pub(crate) struct GlobalIndex {
    region: Arc<Region>,
    index: Index,
    tombstones: TombstoneList,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl GlobalIndex {
    /// An empty one.
    pub(crate) fn new(region: Arc<Region>) -> GlobalIndex {
        GlobalIndex {
            index: Index::new(Arc::clone(&region)),
            region,
            tombstones: TombstoneList::default(),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// One with what was found at open.
    pub(crate) fn rebuilt(region: Arc<Region>, rebuilt: Rebuilt) -> GlobalIndex {
        let Rebuilt { index, tombstones, bytes, .. } = rebuilt;
        let records = (index.len() + tombstones.len()) as u64;
        let list = TombstoneList::default();
        list.add(tombstones);
        let (records, bytes) = (AtomicU64::new(records), AtomicU64::new(bytes));
        GlobalIndex { region, index, tombstones: list, records, bytes }
    }

    fn add(&self, record: &Record<'_>, at: u64) {
        self.index.insert(record.key, record.seq, at);
        self.count_in(record);
    }

    fn count_in(&self, record: &Record<'_>) {
        self.records.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(record.stored_len() as u64, Ordering::Relaxed);
    }

    fn count_out(&self, record: &Record<'_>) {
        self.records.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(record.stored_len() as u64, Ordering::Relaxed);
    }
}

impl GlobalIndex {
    /// Collects the versions of a key that one with `newer` supersedes.
    fn supersede(
        &self,
        key: &[u8],
        mut newer: Lsn,
        needs: &dyn Fn(Lsn, Lsn) -> bool,
        superseded: &mut Superseded,
    ) {
        while let Some((seq, at)) = newer.checked_sub(1).and_then(|at| self.index.get(key, at)) {
            if !needs(seq, newer) {
                superseded.add(&record_at(&self.region, at));
            }
            newer = seq;
        }
    }
}

impl GlobalIndex {
    /// Where range tombstones with a sequence number of at most `upto` have something left to
    /// drain in `interval`, in order. Each has the bytes of its record, but for those that reach
    /// in from the left: theirs were counted with the columns before.
    fn ranges_in(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Vec<(Vec<u8>, u64)> {
        let Some(tombstones) = self.tombstones.load() else { return Vec::new() };
        let left = |t: &Arc<Tombstone>| {
            let inside = t.interval.intersection(interval).filter(|_| t.seq <= upto)?;
            let first = drained.undrained(&inside, t.seq).into_iter().next()?;
            let starts_here = t.interval.start >= interval.start;
            let bytes = if starts_here { record_at(&self.region, t.at).stored_len() } else { 0 };
            Some((first.start, bytes as u64))
        };
        let mut ranges: Vec<_> = tombstones.iter().filter_map(left).collect();
        ranges.sort();
        ranges
    }
}

impl Level0 for GlobalIndex {
    fn feed(&self, memtable: &Memtable, needs: &dyn Fn(Lsn, Lsn) -> bool) -> Superseded {
        if let Some(tombstones) = memtable.tombstones() {
            tombstones.iter().for_each(|t| self.count_in(&record_at(&self.region, t.at)));
            self.tombstones.add(tombstones.iter().cloned().collect());
        }
        let mut superseded = Superseded::default();
        let mut cursor = RecordCursor::new(&self.region, memtable.index());
        cursor.seek_first();
        let mut newer: Option<(&[u8], Lsn)> = None;
        while let Some((at, record)) = cursor.record() {
            cursor.step();
            let is_superseded =
                newer.is_some_and(|(key, newer)| key == record.key && !needs(record.seq, newer));
            newer = Some((record.key, record.seq));
            if is_superseded {
                superseded.leave_out(&record, at);
            } else {
                self.add(&record, at);
            }
            // Of each key the last one decides on what level 0 has already.
            if cursor.record().is_none_or(|(_, next)| next.key != record.key) {
                self.supersede(record.key, record.seq, needs, &mut superseded);
            }
        }
        superseded
    }

    fn prune(&self, superseded: &Superseded) -> Vec<u64> {
        let mut gone = Vec::with_capacity(superseded.versions.len());
        // The records may be looked at until they are counted out of their zones.
        let _guard = crate::mvcc::pin();
        for (key, seq) in superseded.versions() {
            if let Some(at) = self.index.remove(key, seq) {
                self.count_out(&record_at(&self.region, at));
                gone.push(at);
            }
        }
        gone
    }

    fn holds(&self, record: &Record<'_>, at: u64) -> bool {
        match record.kind {
            Kind::RangeDelete => self.tombstones.holds(record.key, record.seq, at),
            _ => self.index.get(record.key, record.seq) == Some((record.seq, at)),
        }
    }

    fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> bool {
        match record.kind {
            Kind::RangeDelete => self.tombstones.relocate(record.key, record.seq, from, to),
            _ => self.index.relocate(record.key, record.seq, from, to),
        }
    }

    fn get(&self, key: &[u8], at_most: Lsn, drained: &DrainedMap) -> Option<Record<'_>> {
        let (seq, at) = self.index.get(key, at_most)?;
        (seq > drained.get(key)).then(|| record_at(&self.region, at))
    }

    fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a> {
        let cursor = RecordCursor::new(&self.region, &self.index);
        Box::new(Undrained { cursor, drained })
    }

    fn column(
        &self,
        from: &[u8],
        upto: Lsn,
        drained: &DrainedMap,
        budget: ColumnBudget,
    ) -> Option<KeyInterval> {
        let mut cursor = RecordCursor::new(&self.region, &self.index);
        cursor.place(from, LSN_MAX);
        let rest = KeyInterval { start: from.to_vec(), end: None };
        let ranges = self.ranges_in(&rest, upto, drained);
        let mut ranges = ranges.iter().map(|(start, bytes)| (start.as_slice(), *bytes)).peekable();
        let (mut bytes, mut last): (u64, Option<&[u8]>) = (0, None);
        loop {
            while let Some((_, record)) = cursor.record()
                && (record.seq > upto || record.seq <= drained.get(record.key))
            {
                cursor.step();
            }
            let record = cursor.record().map(|(_, r)| (r.key, r.stored_len() as u64));
            let is_range = ranges.peek().is_some_and(|range| record.is_none_or(|r| range.0 <= r.0));
            let next = if is_range { ranges.next() } else { record };
            let Some((key, len)) = next else { break };
            if bytes >= budget.bytes
                && let Some(last) = last.filter(|last| *last != key)
            {
                return Some(KeyInterval::closed(from, last));
            }
            if !is_range {
                cursor.step();
            }
            bytes += len;
            last = Some(key);
        }
        last.map(|_| rest.clone())
    }

    fn tombstones(&self) -> Option<Arc<Tombstones>> {
        self.tombstones.load()
    }

    fn tombstones_in(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Vec<Arc<Tombstone>> {
        let Some(tombstones) = self.tombstones.load() else { return Vec::new() };
        let mut parts = Vec::new();
        for whole in tombstones.iter().filter(|tombstone| tombstone.seq <= upto) {
            let Some(inside) = whole.interval.intersection(interval) else { continue };
            let undrained = drained.undrained(&inside, whole.seq).into_iter();
            parts.extend(undrained.map(|part| Arc::new(Tombstone::new(part, whole.seq))));
        }
        parts
    }

    fn bytes_in(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> u64 {
        let mut cursor = RecordCursor::new(&self.region, &self.index);
        cursor.place(&interval.start, LSN_MAX);
        let mut bytes = 0;
        while let Some((_, record)) = cursor.record().filter(|(_, r)| interval.contains(r.key)) {
            if record.seq <= upto && record.seq > drained.get(record.key) {
                bytes += record.stored_len() as u64;
            }
            cursor.step();
        }
        let ranges = self.ranges_in(interval, upto, drained);
        bytes + ranges.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn retire(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Vec<u64> {
        let mut gone = Vec::new();
        let has_moved = |tombstone: &Tombstone| {
            let rest = drained.undrained(&tombstone.interval, tombstone.seq);
            tombstone.seq <= upto && rest.iter().all(|part| interval.covers(part))
        };
        for tombstone in self.tombstones.remove(has_moved) {
            self.count_out(&record_at(&self.region, tombstone.at));
            gone.push(tombstone.at);
        }
        let mut cursor = RecordCursor::new(&self.region, &self.index);
        cursor.place(&interval.start, LSN_MAX);
        while let Some((_, record)) = cursor.record() {
            if !interval.contains(record.key) {
                break;
            }
            cursor.step();
            if record.seq > upto {
                continue;
            }
            // Where it was removed from, not where the cursor saw it: the cleaner may have moved
            // it in between, and has counted it out of its old zone then.
            if let Some(at) = self.index.remove(record.key, record.seq) {
                self.count_out(&record);
                gone.push(at);
            }
        }
        gone
    }

    fn size(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn memory(&self) -> u64 {
        self.index.memory() as u64 + self.tombstones.memory()
    }
}

/// A cursor that leaves out what D covers.
struct Undrained<'a> {
    cursor: RecordCursor<'a>,
    drained: &'a DrainedMap,
}

impl Undrained<'_> {
    fn covered(&self) -> bool {
        self.cursor.record().is_some_and(|(_, r)| r.seq <= self.drained.get(r.key))
    }

    fn skip_forward(&mut self) {
        while self.covered() {
            self.cursor.step();
        }
    }

    fn skip_back(&mut self) {
        while self.covered() {
            self.cursor.step_back();
        }
    }
}

impl Cursor for Undrained<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.cursor.place(key, seq);
        self.skip_forward();
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.cursor.seek_before(key)?;
        self.skip_back();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.cursor.step();
        self.skip_forward();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.cursor.step_back();
        self.skip_back();
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.cursor.record().map(|(_, record)| record.entry())
    }
}
