//! The range tombstones of a level 0. They lie in zones whatever the container is, and hide older
//! versions by sequence number wherever those lie.
//!
//! Thread safety: as [`TombstoneList`].
//!
//! Invariant: a range tombstone is in the list, and counts in its zone, until D covers all of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::size::{Released, Size};
use crate::memtable::{Record, record_at};
use crate::mvcc::{DrainedMap, KeyInterval, Reach, Tombstone, TombstoneList, Tombstones};
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::pm::Region;
use crate::record::Lsn;

/// The range tombstones of one table's level 0.
#[derive(Debug)]
pub(crate) struct RangeTombstones {
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
    pub(crate) fn load(&self) -> Option<Arc<Tombstones>> {
        self.list.load()
    }

    /// Adds some.
    pub(crate) fn add(&self, tombstones: Vec<Arc<Tombstone>>) {
        self.records.fetch_add(tombstones.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(self.bytes_of(&tombstones), Ordering::Relaxed);
        self.list.add(tombstones);
    }

    /// What those with a sequence number of at most `upto` say of keys in `interval` that are not
    /// drained, to readers at `oldest` or later: one that covers the interval for all of them
    /// leaves nothing to those before it.
    pub(crate) fn undrained_in(
        &self,
        interval: &KeyInterval,
        (upto, oldest): (Lsn, Lsn),
        drained: &DrainedMap,
    ) -> Vec<Arc<Tombstone>> {
        let Some(tombstones) = self.list.load() else { return Vec::new() };
        let mut parts = Vec::new();
        let from = tombstones.newest_covering(interval, upto.min(oldest));
        let wants = |reach: &Reach| reach.newest >= from && reach.oldest <= upto;
        let inside = tombstones.wanted(interval, wants).into_iter();
        for whole in inside.filter(|tombstone| (from..=upto).contains(&tombstone.seq)) {
            let Some(inside) = whole.interval.intersection(interval) else { continue };
            let undrained = drained.undrained(&inside, whole.seq).into_iter();
            debug_assert!(interval.covers(&inside), "a part of a range is inside the interval");
            parts.extend(undrained.map(|part| Arc::new(Tombstone::new(part, whole.seq))));
        }
        parts
    }

    /// Whether any with a sequence number of at most `upto` says something of keys in `interval`
    /// that are not drained.
    pub(crate) fn has_undrained_in(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> bool {
        let is_left = |t: &Arc<Tombstone>| {
            let inside = t.interval.intersection(interval).filter(|_| t.seq <= upto)?;
            (!drained.undrained(&inside, t.seq).is_empty()).then_some(())
        };
        self.list.load().is_some_and(|set| set.find_overlapping(interval, is_left).is_some())
    }

    /// Where those with a sequence number of at most `upto` have something left to drain from
    /// `from` on, in order, with the bytes of their records. Those that begin before `from` are one
    /// entry without bytes, where the first of them has: an earlier column counted them. It ends
    /// with the first key behind those whose bytes are a whole `budget`. The column has that
    /// budget, so it ends there at the latest.
    pub(super) fn starts_from(
        &self,
        from: &[u8],
        upto: Lsn,
        drained: &DrainedMap,
        budget: u64,
    ) -> Vec<(Vec<u8>, u64)> {
        let Some(tombstones) = self.list.load() else { return Vec::new() };
        let rest = KeyInterval { start: from.to_vec(), end: None };
        let left = |t: &Arc<Tombstone>| {
            let inside = t.interval.intersection(&rest).filter(|_| t.seq <= upto)?;
            Some(drained.undrained(&inside, t.seq).into_iter().next()?.start)
        };
        let mut over = None::<Vec<u8>>;
        tombstones.find_overlapping(&KeyInterval::closed(from, from), |t| {
            let start = left(t).filter(|_| t.interval.start < rest.start)?;
            let is_at_from = start == from;
            let least = over.take().unwrap_or_else(|| start.clone());
            over = Some(least.min(start));
            is_at_from.then_some(())
        });
        let mut next: BinaryHeap<_> = over.map(|start| Reverse((start, 0))).into_iter().collect();
        let mut behind = tombstones.iter_from(from).peekable();
        let (mut starts, mut bytes) = (Vec::<(Vec<u8>, u64)>::new(), 0);
        loop {
            // What is left of a range may begin behind the start of later ranges.
            let is_first = |t: &&Arc<Tombstone>| match next.peek() {
                Some(Reverse((start, _))) => t.interval.start <= *start,
                None => true,
            };
            if let Some(tombstone) = behind.next_if(is_first) {
                next.extend(left(tombstone).map(|at| Reverse((at, self.stored_len(tombstone)))));
                continue;
            }
            let Some(Reverse((start, len))) = next.pop() else { break };
            let is_enough = bytes >= budget;
            let is_new = starts.last().is_none_or(|(last, _)| *last != start);
            bytes += len;
            starts.push((start, len));
            if is_enough && is_new {
                break;
            }
        }
        debug_assert!(starts.is_sorted_by_key(|(start, _)| start), "starts come in order");
        starts
    }

    /// The bytes of those with a sequence number of at most `upto` that begin in `interval` and
    /// have something left to drain there.
    pub(super) fn bytes_in(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> u64 {
        let Some(tombstones) = self.list.load() else { return 0 };
        let begins = tombstones.iter_from(&interval.start);
        let begins = begins.take_while(|t| interval.ends_after(&t.interval.start));
        let is_left = |t: &&Arc<Tombstone>| {
            let inside = t.interval.intersection(interval);
            inside.is_some_and(|inside| !drained.undrained(&inside, t.seq).is_empty())
        };
        begins.filter(|t| t.seq <= upto).filter(is_left).map(|t| self.stored_len(t)).sum()
    }

    /// Removes those with a sequence number of at most `upto` of which every part is in `interval`
    /// or covered by `drained`.
    pub(super) fn retire(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Released {
        // Of one that goes on behind the interval, D covers the first key there.
        let behind = interval.end.as_ref().map(|end| (end, drained.get(end)));
        let wants = |reach: &Reach| {
            let is_over =
                |(end, upto): (&Vec<u8>, Lsn)| reach.oldest <= upto || reach.has_end_by(end);
            reach.oldest <= upto && behind.is_none_or(is_over)
        };
        self.remove(interval, wants, |tombstone| {
            let rest = drained.undrained(&tombstone.interval, tombstone.seq);
            tombstone.seq <= upto && rest.iter().all(|part| interval.covers(part))
        })
    }

    /// Removes all.
    pub(super) fn clear(&self) -> Released {
        self.remove(&KeyInterval::all(), |_| true, |_| true)
    }

    fn remove(
        &self,
        interval: &KeyInterval,
        wants: impl Fn(&Reach) -> bool,
        which: impl Fn(&Tombstone) -> bool,
    ) -> Released {
        let gone = self.list.remove(interval, wants, which);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::{encode_record, set_seq};
    use crate::record::Kind;
    use terrace_testkit::Machine;

    fn key(n: u64) -> Vec<u8> {
        n.to_be_bytes().to_vec()
    }

    /// Ten thousand of three keys each, ten keys apart, and the bytes of each.
    fn many() -> (RangeTombstones, u64) {
        let region = Region::of_machine(&Machine::with_memory(), 1 << 20).unwrap();
        let mut record = Vec::new();
        encode_record(&mut record, 1, Kind::RangeDelete, &key(0), &[&[1], &key(3)[..]].concat());
        set_seq(&mut record, 1);
        region.persist([region.write(0, &record)]).unwrap();
        let ranges = RangeTombstones::new(region);
        let one = |n| KeyInterval { start: key(n * 10), end: Some(key(n * 10 + 3)) };
        ranges.add((0..10_000).map(|n| Arc::new(Tombstone::new(one(n), n + 1))).collect());
        let bytes = ranges.size().bytes / 10_000;
        (ranges, bytes)
    }

    /// Bug: the search for a column listed what was left of all range tombstones behind its start.
    /// Cause: it took no budget, so a round was quadratic in the tombstones.
    #[test]
    fn a_search_lists_the_range_tombstones_that_fit_its_budget() {
        let (ranges, bytes) = many();
        let mut drained = DrainedMap::default();
        let of = |from: u64, upto, drained: &DrainedMap| -> Vec<Vec<u8>> {
            let starts = ranges.starts_from(&key(from), upto, drained, 3 * bytes);
            starts.into_iter().map(|(start, _)| start).collect()
        };
        assert_eq!(of(0, 10_000, &drained), [key(0), key(10), key(20), key(30)]);
        // The one that begins before the start counts nothing.
        assert_eq!(of(52, 10_000, &drained), [52, 60, 70, 80, 90].map(key));
        assert_eq!(of(53, 10_000, &drained), [60, 70, 80, 90].map(key));
        assert_eq!(of(0, 2, &drained), [key(0), key(10)]);
        // What is left of one may begin behind the start of the next.
        let wide = KeyInterval { start: key(1), end: None };
        ranges.add(vec![Arc::new(Tombstone::new(wide, 9000))]);
        drained.set(&KeyInterval { start: key(0), end: Some(key(25)) }, 10_000);
        assert_eq!(of(0, 10_000, &drained), [25, 30, 40, 50].map(key));
        assert_eq!(of(99_995, 10_000, &drained), [key(99_995)]);
    }

    /// Bug: a round over range deletes that all begin at the first key was quadratic. Cause: the
    /// search for each column listed every one that goes on beyond its start.
    #[test]
    fn a_search_lists_range_tombstones_from_before_its_start_once() {
        let (ranges, bytes) = many();
        let one = |n| KeyInterval { start: Vec::new(), end: Some(key(n * 10 + 3)) };
        ranges.add((0..10_000).map(|n| Arc::new(Tombstone::new(one(n), n + 10_001))).collect());
        let mut drained = DrainedMap::default();
        let of = |from: u64, drained: &DrainedMap| {
            ranges.starts_from(&key(from), 20_000, drained, bytes)
        };
        let own = |n: u64| (key(n), bytes);
        assert_eq!(of(55, &drained), [(key(55), 0), own(60), own(70)]);
        // Where they have nothing left at the start, the first that has something left says where.
        drained.set(&KeyInterval { start: Vec::new(), end: Some(key(68)) }, 20_000);
        assert_eq!(of(55, &drained), [(key(68), 0), own(70), own(80)]);
    }

    /// Bug: a round over range deletes that all begin at the first key was quadratic. Cause: what a
    /// column drains, and what it takes out, was searched among all that overlap it.
    #[test]
    fn a_column_looks_at_the_range_tombstones_that_end_in_it() {
        let (ranges, bytes) = many();
        let one = |n| KeyInterval { start: Vec::new(), end: Some(key(n * 10 + 3)) };
        ranges.add((0..10_000).map(|n| Arc::new(Tombstone::new(one(n), n + 10_001))).collect());
        let mut drained = DrainedMap::default();
        drained.set(&KeyInterval { start: Vec::new(), end: Some(key(500)) }, 20_000);
        let column = KeyInterval { start: key(500), end: Some(key(530)) };
        // The newest covers the column for all readers, and hides what any other one does.
        let left = ranges.undrained_in(&column, (20_000, 20_000), &drained);
        assert_eq!(left.iter().map(|t| t.seq).collect::<Vec<_>>(), [20_000]);
        assert_eq!(ranges.undrained_in(&column, (20_000, 5), &drained).len(), 10_000 - 50 + 3);
        assert_eq!(ranges.bytes_in(&column, 20_000, &drained), 3 * bytes);
        drained.set(&column, 20_000);
        let ends = |reach: &Reach| reach.has_end_by(&key(530));
        let looked_at = ranges.load().unwrap().wanted(&column, ends).len();
        assert!(looked_at < 100, "{looked_at} of 9,953 that overlap it");
        assert_eq!(ranges.retire(&column, 20_000, &drained).records.len(), 3 + 3);
        let rest = KeyInterval { start: key(530), end: None };
        drained.set(&rest, 15_000);
        assert_eq!(ranges.retire(&rest, 15_000, &drained).records.len(), 9_947 + 4_947);
    }

    #[test]
    fn what_is_left_of_some_keys_is_that_of_the_whole_list() {
        let (ranges, bytes) = many();
        let mut drained = DrainedMap::default();
        drained.set(&KeyInterval { start: key(0), end: Some(key(1002)) }, 10_000);
        let column = KeyInterval { start: key(990), end: Some(key(1022)) };
        let left = ranges.undrained_in(&column, (10_000, 0), &drained);
        let starts: Vec<_> = left.iter().map(|t| t.interval.start.clone()).collect();
        assert_eq!(starts, [1002, 1010, 1020].map(key));
        assert_eq!(ranges.bytes_in(&column, 10_000, &drained), 3 * bytes);
        assert!(ranges.has_undrained_in(&column, 10_000, &drained));
        assert!(!ranges.has_undrained_in(&column, 100, &drained));
        drained.set(&column, 10_000);
        assert!(!ranges.has_undrained_in(&column, 10_000, &drained));
        let released = ranges.retire(&column, 10_000, &drained);
        assert_eq!(released.records.len(), 3, "99 and 100, and 101; 102 ends behind the column");
    }
}
