//! The global index: one sorted index over all records that memtables have handed down, in memory
//! or in persistent memory. Feeding it moves pointers, not bytes; it is drained by rotating
//! columns.
//!
//! Source: the global index of X-Engine on persistent memory, drained by columns as MatrixKV's
//! level 0 is.
//!
//! Thread safety: readers, one feeding and one retiring thread run at once.
//!
//! Invariants:
//!
//! 1. Every record at or below D of its key may be missing; every record above D that was fed is
//!    there until a later D covers it, or it was superseded and nobody reads it any more.
//! 2. A range tombstone is there, and counts in its zone, until D covers all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::leaving::Leaving;
use super::versions::{Position as _, Versions};
use super::walk::{Undrained, Walk};
use super::{ColumnBudget, Keep, Level0, Stock, Superseded};
use crate::error::Result;
use crate::memtable::{Index, Memtable, Rebuilt, Record, RecordCursor, record_at};
use crate::mvcc::{DrainedMap, KeptFor, KeyInterval, Tombstone, TombstoneList, Tombstones};
use crate::pm::Region;
use crate::record::{Cursor, Kind, LSN_MAX, Lsn, TableId, slice};

/// Records of which stock is taken at a time.
const STOCK: u64 = 16 * 1024;

/// The default container of level 0.
#[derive(Debug)]
pub(crate) struct GlobalIndex<I = Index> {
    region: Arc<Region>,
    index: I,
    tombstones: TombstoneList,
    records: AtomicU64,
    bytes: AtomicU64,
    leaving: Leaving,
    /// For whom superseded versions are kept; of some that have gone too, until the next walk.
    kept_for: Mutex<KeptFor>,
}

impl<I: Versions> GlobalIndex<I> {
    /// One over `index`, of which stock was not taken yet.
    pub(crate) fn new(region: Arc<Region>, index: I) -> GlobalIndex<I> {
        GlobalIndex {
            index,
            tombstones: TombstoneList::counted(region.indexes()),
            region,
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            leaving: Leaving::default(),
            kept_for: Mutex::default(),
        }
    }

    fn add(&self, record: &Record<'_>, at: u64) -> Result<()> {
        self.index.insert(record.key, record.seq, at)?;
        self.count_in(record);
        Ok(())
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
    /// One in memory with what was found at open.
    pub(crate) fn rebuilt(region: Arc<Region>, rebuilt: Rebuilt) -> GlobalIndex {
        let Rebuilt { index, tombstones, bytes, .. } = rebuilt;
        let records = (index.len() + tombstones.len()) as u64;
        let list = TombstoneList::counted(region.indexes());
        list.add(tombstones);
        let (records, bytes) = (AtomicU64::new(records), AtomicU64::new(bytes));
        let (leaving, kept_for) = (Leaving::default(), Mutex::default());
        GlobalIndex { region, index, tombstones: list, records, bytes, leaving, kept_for }
    }
}

impl<I: Versions> GlobalIndex<I> {
    /// Takes over the versions of a memtable.
    fn feed_versions(&self, memtable: &Memtable, keep: Keep<'_>) -> Result<Superseded> {
        let mut superseded = Superseded::default();
        let mut cursor = RecordCursor::new(&self.region, memtable.index());
        cursor.seek_first();
        let mut newer: Option<(&[u8], Lsn)> = None;
        while let Some((at, record)) = cursor.record() {
            cursor.step();
            let newer_seq = newer.filter(|(key, _)| *key == record.key).map(|(_, seq)| seq);
            newer = Some((record.key, record.seq));
            if newer_seq.is_some_and(|newer| !self.stays(record.seq, newer, keep)) {
                superseded.leave_out(&record, at);
            } else {
                self.add(&record, at)?;
            }
            // Of each key the last one decides on what level 0 has already.
            if cursor.record().is_none_or(|(_, next)| next.key != record.key) {
                self.supersede(record.key, record.seq, keep, &mut superseded)?;
            }
        }
        Ok(superseded)
    }

    /// Whether a version whose next newer one is `newer` is kept, for whom it notes then.
    fn stays(&self, seq: Lsn, newer: Lsn, keep: Keep<'_>) -> bool {
        let readers = keep(seq, newer);
        readers.inspect(|readers| self.kept_for.lock().add(*readers)).is_some()
    }

    /// Collects the versions of a key that one with `newer` supersedes.
    fn supersede(
        &self,
        key: &[u8],
        mut newer: Lsn,
        keep: Keep<'_>,
        superseded: &mut Superseded,
    ) -> Result<()> {
        while newer > 0
            && let Some((seq, at)) = self.index.get(key, newer - 1)?
        {
            if !self.stays(seq, newer, keep) {
                superseded.add(&record_at(&self.region, at));
            }
            newer = seq;
        }
        Ok(())
    }
}

impl<I: Versions> GlobalIndex<I> {
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

impl<I: Versions> GlobalIndex<I> {
    /// Takes superseded versions out.
    fn prune_versions(&self, superseded: &Superseded) -> Result<Vec<u64>> {
        let mut gone = Vec::with_capacity(superseded.versions.len());
        // The records may be looked at until they are counted out of their zones.
        let _guard = crate::mvcc::pin();
        for (key, seq) in superseded.versions() {
            if let Some(at) = self.index.remove(key, seq)? {
                self.count_out(&record_at(&self.region, at));
                gone.push(at);
            }
        }
        Ok(gone)
    }

    /// Takes out what a drain has moved.
    fn take_out_covered(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Result<Vec<u64>> {
        let mut gone = Vec::new();
        let has_moved = |tombstone: &Tombstone| {
            let rest = drained.undrained(&tombstone.interval, tombstone.seq);
            tombstone.seq <= upto && rest.iter().all(|part| interval.covers(part))
        };
        for tombstone in self.tombstones.remove(has_moved) {
            self.count_out(&record_at(&self.region, tombstone.at));
            gone.push(tombstone.at);
        }
        // The cursor shows records that are counted out below.
        let _guard = crate::mvcc::pin();
        let mut cursor = Walk::new(&self.region, &self.index);
        cursor.place(&interval.start, LSN_MAX)?;
        while let Some((_, record)) = cursor.record() {
            if !interval.contains(record.key) {
                break;
            }
            cursor.step()?;
            if record.seq > upto {
                continue;
            }
            // Where it was removed from, not where the cursor saw it: the cleaner may have moved
            // it in between, and has counted it out of its old zone then.
            if let Some(at) = self.index.remove(record.key, record.seq)? {
                self.count_out(&record);
                gone.push(at);
            }
        }
        Ok(gone)
    }

    /// Takes everything out. Nobody else is at it.
    fn take_out_rest(&self) -> Result<Vec<u64>> {
        let mut gone: Vec<u64> = self.tombstones.remove(|_| true).iter().map(|t| t.at).collect();
        {
            let _guard = crate::mvcc::pin();
            let mut cursor = self.index.cursor();
            cursor.seek(&[], LSN_MAX)?;
            while let Some((_, at)) = cursor.version() {
                gone.push(at);
                cursor.next()?;
            }
        }
        self.index.clear()?;
        Ok(gone)
    }
}

impl<I: Versions + 'static> Level0 for GlobalIndex<I> {
    fn reserve(&self, memtable: &Memtable) -> Result<()> {
        self.index.reserve(memtable.records(), memtable.bytes())
    }

    fn feed(&self, memtable: &Memtable, keep: Keep<'_>) -> Result<Superseded> {
        let superseded = self.feed_versions(memtable, keep)?;
        if let Some(tombstones) = memtable.tombstones() {
            self.add_tombstones(tombstones.iter().cloned().collect());
        }
        Ok(superseded)
    }

    fn needless(&self, readers: &[Lsn]) -> u64 {
        self.kept_for.lock().needless(readers)
    }

    fn superseded(&self, from: &[u8], keep: Keep<'_>) -> Result<(Superseded, Option<Vec<u8>>)> {
        if from.is_empty() {
            // Whatever is kept from here on is noted anew.
            *self.kept_for.lock() = KeptFor::default();
        }
        let mut superseded = Superseded::default();
        let mut cursor = Walk::new(&self.region, &self.index);
        cursor.place(from, LSN_MAX)?;
        let (mut seen, mut newer): (u64, Option<(&[u8], Lsn)>) = (0, None);
        while let Some((_, record)) = cursor.record() {
            let newer_seq = newer.filter(|(key, _)| *key == record.key).map(|(_, seq)| seq);
            if seen >= STOCK && newer_seq.is_none() {
                return Ok((superseded, Some(record.key.to_vec())));
            }
            cursor.step()?;
            (seen, newer) = (seen + 1, Some((record.key, record.seq)));
            if newer_seq.is_some_and(|newer| !self.stays(record.seq, newer, keep)) {
                superseded.add(&record);
            }
        }
        Ok((superseded, None))
    }

    fn prune(&self, superseded: &Superseded) -> Result<Vec<u64>> {
        self.leaving.take_out(|| self.prune_versions(superseded), || self.take_out_rest())
    }

    fn holds(&self, record: &Record<'_>, at: u64) -> Result<bool> {
        match record.kind {
            Kind::RangeDelete => Ok(self.tombstones.holds(record.key, record.seq, at)),
            _ => Ok(self.index.get(record.key, record.seq)? == Some((record.seq, at))),
        }
    }

    fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> Result<bool> {
        match record.kind {
            Kind::RangeDelete => Ok(self.tombstones.relocate(record.key, record.seq, from, to)),
            _ => self.index.relocate(record.key, record.seq, from, to),
        }
    }

    fn get(&self, key: &[u8], at_most: Lsn, drained: &DrainedMap) -> Result<Option<Record<'_>>> {
        let found = self.index.get(key, at_most)?.filter(|(seq, _)| *seq > drained.get(key));
        Ok(found.map(|(_, at)| record_at(&self.region, at)))
    }

    fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a> {
        Box::new(Undrained { walk: Walk::new(&self.region, &self.index), drained })
    }

    fn column(
        &self,
        from: &[u8],
        upto: Lsn,
        drained: &DrainedMap,
        budget: ColumnBudget,
    ) -> Result<Option<KeyInterval>> {
        let mut cursor = Walk::new(&self.region, &self.index);
        cursor.place(from, LSN_MAX)?;
        let rest = KeyInterval { start: from.to_vec(), end: None };
        let ranges = self.ranges_in(&rest, upto, drained);
        let mut ranges = ranges.iter().map(|(start, bytes)| (start.as_slice(), *bytes)).peekable();
        let (mut bytes, mut last): (u64, Option<&[u8]>) = (0, None);
        loop {
            while let Some((_, record)) = cursor.record()
                && (record.seq > upto || record.seq <= drained.get(record.key))
            {
                cursor.step()?;
            }
            let record = cursor.record().map(|(_, r)| (r.key, r.stored_len() as u64));
            let is_range = ranges.peek().is_some_and(|range| record.is_none_or(|r| range.0 <= r.0));
            let next = if is_range { ranges.next() } else { record };
            let Some((key, len)) = next else { break };
            if bytes >= budget.bytes
                && let Some(last) = last.filter(|last| *last != key)
            {
                return Ok(Some(KeyInterval::closed(from, last)));
            }
            if !is_range {
                cursor.step()?;
            }
            bytes += len;
            last = Some(key);
        }
        Ok(last.map(|_| rest.clone()))
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

    fn bytes_in(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Result<u64> {
        let mut cursor = Walk::new(&self.region, &self.index);
        cursor.place(&interval.start, LSN_MAX)?;
        let mut bytes = 0;
        while let Some((_, record)) = cursor.record().filter(|(_, r)| interval.contains(r.key)) {
            if record.seq <= upto && record.seq > drained.get(record.key) {
                bytes += record.stored_len() as u64;
            }
            cursor.step()?;
        }
        let ranges = self.ranges_in(interval, upto, drained);
        Ok(bytes + ranges.iter().map(|(_, bytes)| bytes).sum::<u64>())
    }

    fn retire(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Result<Vec<u64>> {
        let covered = || self.take_out_covered(interval, upto, drained);
        self.leaving.take_out(covered, || self.take_out_rest())
    }

    fn take_stock(
        &self,
        from: &[u8],
        drained: &DrainedMap,
        counts: &mut dyn FnMut(u64),
    ) -> Result<Stock> {
        let _guard = crate::mvcc::pin();
        let mut cursor = Walk::new(&self.region, &self.index);
        cursor.place(from, LSN_MAX)?;
        let (mut oldest, mut seen, mut last): (_, _, Option<&[u8]>) = (LSN_MAX, 0, None);
        while let Some((at, record)) = cursor.record() {
            let is_superseded = last == Some(record.key);
            if seen >= STOCK && !is_superseded {
                return Ok(Stock { oldest, next: Some(record.key.to_vec()) });
            }
            cursor.step()?;
            (seen, last) = (seen + 1, Some(record.key));
            if is_superseded || record.seq <= drained.get(record.key) {
                self.index.remove(record.key, record.seq)?;
            } else {
                self.count_in(&record);
                counts(at);
                oldest = oldest.min(record.seq);
            }
        }
        Ok(Stock { oldest, next: None })
    }

    fn add_tombstones(&self, tombstones: Vec<Arc<Tombstone>>) {
        tombstones.iter().for_each(|t| self.count_in(&record_at(&self.region, t.at)));
        self.tombstones.add(tombstones);
    }

    fn misled(&self, table: TableId, end_of: &dyn Fn(u64) -> Option<u64>) -> Result<Option<u64>> {
        let _guard = crate::mvcc::pin();
        self.index.misled(&|at, prefix| {
            let record = end_of(at).and_then(|end| Record::decode(self.region.bytes(at, end - at)));
            record.is_some_and(|r| {
                r.table == table && r.kind != Kind::RangeDelete && slice(r.key, 0) == prefix
            })
        })
    }

    fn let_go(&self) -> Result<Vec<u64>> {
        self.leaving.give_up(|| self.take_out_rest())
    }

    fn size(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn memory(&self) -> u64 {
        let kept_for = self.kept_for.lock().memory() as u64;
        self.index.memory() + self.tombstones.memory() + kept_for
    }
}
