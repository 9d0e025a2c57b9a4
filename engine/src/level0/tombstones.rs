//! The range tombstones of a level 0. They lie in zones whatever the container is, and hide older
//! versions by sequence number wherever those lie.
//!
//! Thread safety: as [`TombstoneList`].
//!
//! Invariant: a range tombstone is in the list, and counts in its zone, until D covers all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::container::{Released, Size};
use crate::memtable::{Record, record_at};
use crate::mvcc::{DrainedMap, KeyInterval, Tombstone, TombstoneList, Tombstones};
use crate::pm::Region;
use crate::record::Lsn;

/// The range tombstones of one table's level 0.
#[derive(Debug)]
pub(super) struct RangeTombstones {
    region: Arc<Region>,
    list: TombstoneList,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl RangeTombstones {
    /// An empty list.
    pub(super) fn new(region: Arc<Region>) -> RangeTombstones {
        let list = TombstoneList::counted(region.indexes());
        RangeTombstones { region, list, records: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// The set of this moment; `None` if it is empty.
    pub(super) fn load(&self) -> Option<Arc<Tombstones>> {
        self.list.load()
    }

    /// Adds some.
    pub(super) fn add(&self, tombstones: Vec<Arc<Tombstone>>) {
        self.records.fetch_add(tombstones.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(self.bytes_of(&tombstones), Ordering::Relaxed);
        self.list.add(tombstones);
    }

    /// What those with a sequence number of at most `upto` say of keys in `interval` that are not
    /// drained.
    pub(super) fn undrained_in(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Vec<Arc<Tombstone>> {
        let Some(tombstones) = self.list.load() else { return Vec::new() };
        let mut parts = Vec::new();
        for whole in tombstones.iter().filter(|tombstone| tombstone.seq <= upto) {
            let Some(inside) = whole.interval.intersection(interval) else { continue };
            let undrained = drained.undrained(&inside, whole.seq).into_iter();
            debug_assert!(interval.covers(&inside), "a part of a range is inside the interval");
            parts.extend(undrained.map(|part| Arc::new(Tombstone::new(part, whole.seq))));
        }
        parts
    }

    /// Where those with a sequence number of at most `upto` have something left to drain in
    /// `interval`, in order. Each has the bytes of its record, but for those that begin before
    /// `interval`: an earlier column counted theirs.
    pub(super) fn starts_in(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Vec<(Vec<u8>, u64)> {
        let Some(tombstones) = self.list.load() else { return Vec::new() };
        let left = |t: &Arc<Tombstone>| {
            let inside = t.interval.intersection(interval).filter(|_| t.seq <= upto)?;
            let first = drained.undrained(&inside, t.seq).into_iter().next()?;
            let starts_here = t.interval.start >= interval.start;
            Some((first.start, if starts_here { self.stored_len(t) } else { 0 }))
        };
        let mut starts: Vec<_> = tombstones.iter().filter_map(left).collect();
        starts.sort();
        debug_assert!(
            starts.iter().all(|(start, _)| interval.contains(start)),
            "what is left to drain of a range begins inside the interval"
        );
        starts
    }

    /// Removes those with a sequence number of at most `upto` of which every part is in `interval`
    /// or covered by `drained`.
    pub(super) fn retire(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Released {
        self.remove(|tombstone| {
            let rest = drained.undrained(&tombstone.interval, tombstone.seq);
            tombstone.seq <= upto && rest.iter().all(|part| interval.covers(part))
        })
    }

    /// Removes all.
    pub(super) fn clear(&self) -> Released {
        self.remove(|_| true)
    }

    fn remove(&self, which: impl Fn(&Tombstone) -> bool) -> Released {
        let gone = self.list.remove(which);
        let (gone_records, gone_bytes) = (gone.len() as u64, self.bytes_of(&gone));
        let records = self.records.fetch_sub(gone_records, Ordering::Relaxed);
        debug_assert!(records >= gone_records, "a range tombstone is counted in before it goes");
        let bytes = self.bytes.fetch_sub(gone_bytes, Ordering::Relaxed);
        debug_assert!(bytes >= gone_bytes, "the bytes of a range tombstone are counted once");
        Released { records: gone.iter().map(|tombstone| tombstone.at).collect() }
    }

    /// Whether the range tombstone at `at` is in the list.
    pub(super) fn holds(&self, record: &Record<'_>, at: u64) -> bool {
        self.list.holds(record.key, record.seq, at)
    }

    /// Makes the list name `to`, a copy, instead of `from`; whether it named `from`.
    pub(super) fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> bool {
        self.list.relocate(record.key, record.seq, from, to)
    }

    /// How many there are, and their bytes in zones.
    pub(super) fn size(&self) -> Size {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Size { records: of(&self.records), bytes: of(&self.bytes) }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        self.list.memory()
    }

    fn stored_len(&self, tombstone: &Tombstone) -> u64 {
        record_at(&self.region, tombstone.at).stored_len() as u64
    }

    fn bytes_of(&self, tombstones: &[Arc<Tombstone>]) -> u64 {
        tombstones.iter().map(|tombstone| self.stored_len(tombstone)).sum()
    }
}
