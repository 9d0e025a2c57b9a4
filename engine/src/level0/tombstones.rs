//! The range tombstones of a level 0. They lie in zones whatever the container is, and hide older
//! versions by sequence number wherever those lie.
//!
//! Thread safety: as [`TombstoneList`].
//!
//! Invariant: a range tombstone is in the list, and counts in its zone, until D covers all of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::{Released, Size};
use crate::base::error::Result;
use crate::base::memory::Gauge;
use crate::base::record::{Cursor, EntryRef, Kind, LSN_MAX, Lsn};
use crate::memtable::{Record, record_len};
use crate::mvcc::{
    DrainedMap, KeyInterval, Reach, Tombstone, TombstoneList, Tombstones, after, union,
};
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;

/// The range tombstones of one table's level 0.
#[derive(Debug)]
pub(crate) struct RangeTombstones {
    list: TombstoneList,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl RangeTombstones {
    /// An empty list.
    pub(super) fn new(indexes: &Arc<Gauge>) -> RangeTombstones {
        let list = TombstoneList::counted(indexes);
        RangeTombstones { list, records: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// The set of this moment; `None` if it is empty.
    pub(crate) fn load(&self) -> Option<Arc<Tombstones>> {
        self.list.load()
    }

    /// Adds some.
    pub(crate) fn add(&self, tombstones: Vec<Arc<Tombstone>>) {
        self.records.fetch_add(tombstones.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(stored_bytes(&tombstones), Ordering::Relaxed);
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
        let wants = |reach: &Reach<'_>| reach.newest >= from && reach.oldest <= upto;
        let inside = tombstones.wanted(interval, wants).into_iter();
        for whole in inside.filter(|tombstone| (from..=upto).contains(&tombstone.seq)) {
            let Some(inside) = whole.interval.intersection(interval) else { continue };
            debug_assert!(interval.covers(&inside), "a part of a range is inside the interval");
            let undrained = drained.undrained(&inside, whole.seq).into_iter();
            parts.extend(undrained.map(|part| match part == whole.interval {
                true => Arc::clone(whole),
                false => Arc::new(Tombstone::new(part, whole.seq)),
            }));
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
            let first = drained.first_undrained(&t.interval, &interval.start, t.seq);
            first.filter(|key| t.seq <= upto && interval.ends_after(key)).map(drop)
        };
        self.list.load().is_some_and(|set| set.find_overlapping(interval, is_left).is_some())
    }

    /// The bytes of those with a sequence number of at most `upto` that begin in `interval` and
    /// have something left to drain there.
    pub(super) fn bytes_in(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> u64 {
        let Some(tombstones) = self.list.load() else { return 0 };
        let begins = tombstones.iter_from(&interval.start);
        let begins = begins.take_while(|t| interval.ends_after(&t.interval.start));
        let is_left = |t: &&Arc<Tombstone>| {
            let first = drained.first_undrained(&t.interval, &interval.start, t.seq);
            first.is_some_and(|key| interval.ends_after(key))
        };
        begins.filter(|t| t.seq <= upto).filter(is_left).map(|t| stored_len(t)).sum()
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
        let wants = |reach: &Reach<'_>| {
            let is_over =
                |(end, upto): (&Vec<u8>, Lsn)| reach.oldest <= upto || reach.has_end_by(end);
            reach.oldest <= upto && behind.is_none_or(is_over)
        };
        self.remove(interval, wants, |tombstone| {
            let (of, seq) = (&tombstone.interval, tombstone.seq);
            let first = drained.first_undrained(of, &[], seq);
            let none_in_front = || first.is_none_or(|key| key >= interval.start.as_slice());
            let end = interval.end.as_ref();
            let none_behind =
                || end.is_none_or(|end| drained.first_undrained(of, end, seq).is_none());
            seq <= upto && none_in_front() && none_behind()
        })
    }

    /// Removes all.
    pub(super) fn clear(&self) -> Released {
        self.remove(&KeyInterval::all(), |_| true, |_| true)
    }

    fn remove(
        &self,
        interval: &KeyInterval,
        wants: impl Fn(&Reach<'_>) -> bool,
        which: impl Fn(&Tombstone) -> bool,
    ) -> Released {
        let gone = self.list.remove(interval, wants, which);
        let (gone_records, gone_bytes) = (gone.len() as u64, stored_bytes(&gone));
        let records = self.records.fetch_sub(gone_records, Ordering::Relaxed);
        debug_assert!(records >= gone_records, "a range tombstone is counted in before it goes");
        let bytes = self.bytes.fetch_sub(gone_bytes, Ordering::Relaxed);
        debug_assert!(bytes >= gone_bytes, "the bytes of a range tombstone are counted once");
        Released { records: gone.iter().filter_map(|tombstone| tombstone.remove()).collect() }
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
}

/// Where range tombstones with a sequence number of at most `upto` have something left to drain
/// from `from` on, in order, with the bytes of their records. Those that begin before `from` are
/// one entry without bytes, where the first of them has: an earlier column counted them. It ends
/// with the first key behind those whose bytes are a whole `budget`. The column has that budget, so
/// it ends there at the latest.
pub(super) fn starts_from<'a>(
    tombstones: &'a Tombstones,
    from: &'a [u8],
    upto: Lsn,
    drained: &'a DrainedMap,
    budget: u64,
) -> Vec<(&'a [u8], u64)> {
    let left = |t: &'a Arc<Tombstone>| {
        drained.first_undrained(&t.interval, from, t.seq).filter(|_| t.seq <= upto)
    };
    let mut over = None::<&[u8]>;
    tombstones.find_overlapping(&KeyInterval::closed(from, from), |t| {
        let start = left(t).filter(|_| t.interval.start.as_slice() < from)?;
        over = Some(over.map_or(start, |least| least.min(start)));
        (start == from).then_some(())
    });
    let mut next: BinaryHeap<_> = over.map(|start| Reverse((start, 0))).into_iter().collect();
    let mut behind = tombstones.iter_from(from).peekable();
    let (mut starts, mut bytes) = (Vec::<(&[u8], u64)>::new(), 0);
    loop {
        // What is left of a range may begin behind the start of later ranges.
        let is_first = |t: &&'a Arc<Tombstone>| match next.peek() {
            Some(Reverse((start, _))) => t.interval.start.as_slice() <= *start,
            None => true,
        };
        if let Some(tombstone) = behind.next_if(is_first) {
            next.extend(left(tombstone).map(|at| Reverse((at, stored_len(tombstone)))));
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

/// The bytes of its record in a zone.
fn stored_len(Tombstone { interval, .. }: &Tombstone) -> u64 {
    let end = 1 + interval.end.as_ref().map_or(0, Vec::len);
    record_len(interval.start.len(), end) as u64
}

fn stored_bytes(tombstones: &[Arc<Tombstone>]) -> u64 {
    tombstones.iter().map(|tombstone| stored_len(tombstone)).sum()
}

// Where a level 0 has many deleted keys next to each other: what a range has to step over before
// it finds a row. Drains take such places first (`jobs/drain_out_of_turn.rs`).
//
// A merge notes the places as it walks over the memtable, in the order of keys. A place is a
// **span**: it begins and ends with a delete, and has no long row of other keys in it. The number
// of a span is an estimate. Whether its keys are deleted is looked up again before a drain.
//
// Source: the window of deletes that RocksDB's `CompactOnDeletionCollector` slides over a file.
//
// Thread safety: every method may be called from any thread; the mutex is held for a few
// instructions.
//
// Invariant: the spans ascend, and no two have a key in common.

/// A span ends where as many keys in a row are not deleted.
const GAP: u64 = 128;

/// A span with fewer deletes costs a range little.
const LEAST: u64 = 32;

/// One key in so many of a span is deleted, at least.
const DENSE: u64 = 4;

/// The most spans of one level 0. Neighbours are joined beyond that.
const MOST: usize = 64;

/// The most records that are looked at to learn what range tombstones hide.
const LOOK: u64 = 4096;

#[cfg(test)]
thread_local! {
    /// Spans that this thread looked at to join some of them.
    static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Keys of which many are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeletedSpan {
    pub(crate) interval: KeyInterval,
    /// About as many keys.
    pub(crate) deletes: u64,
}

/// The spans of one level 0.
#[derive(Debug, Default)]
pub(crate) struct DeletedSpans {
    spans: Mutex<Vec<DeletedSpan>>,
    /// The most deletes of any span.
    most: AtomicU64,
}

impl DeletedSpans {
    /// The most deletes of any span.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Adds spans. What overlaps becomes one.
    pub(crate) fn add(&self, spans: Vec<DeletedSpan>) {
        if spans.is_empty() {
            return;
        }
        let mut all = self.spans.lock();
        all.extend(spans);
        all.sort_by(|a, b| a.interval.start.cmp(&b.interval.start));
        let mut joined: Vec<DeletedSpan> = Vec::with_capacity(all.len());
        for next in all.drain(..) {
            match joined.last_mut() {
                Some(last) if last.interval.ends_after(&next.interval.start) => join(last, &next),
                _ => joined.push(next),
            }
        }
        while joined.len() > MOST {
            joined = with_fewer(&joined);
        }
        *all = joined;
        self.measure(&all);
    }

    /// Takes the span with the most deletes out, if it has `least`.
    pub(crate) fn take(&self, least: u64) -> Option<DeletedSpan> {
        if self.most() < least {
            return None;
        }
        let mut all = self.spans.lock();
        let most = (0..all.len()).max_by_key(|at| all[*at].deletes);
        let taken = most.filter(|at| all[*at].deletes >= least).map(|at| all.remove(at));
        self.measure(&all);
        taken
    }

    fn measure(&self, all: &[DeletedSpan]) {
        debug_assert!(
            all.windows(2).all(|w| !w[0].interval.ends_after(&w[1].interval.start)),
            "no two spans have a key in common"
        );
        debug_assert!(all.len() <= MOST, "neighbours are joined where spans are many");
        let most = all.iter().map(|span| span.deletes).max().unwrap_or(0);
        self.most.store(most, Ordering::Relaxed);
    }
}

/// The same with some pairs of neighbours joined, those with the fewest deletes: half of all pairs,
/// or as many as are too many.
fn with_fewer(spans: &[DeletedSpan]) -> Vec<DeletedSpan> {
    #[cfg(test)]
    LOOKED_AT.set(LOOKED_AT.get() + spans.len());
    let pairs = spans.chunks_exact(2);
    let mut sums: Vec<(u64, usize)> =
        pairs.map(|pair| pair[0].deletes + pair[1].deletes).zip(0..).collect();
    sums.sort_unstable();
    sums.truncate((spans.len() - MOST).min(sums.len().div_ceil(2)));
    let mut is_joined = vec![false; spans.len()];
    sums.iter().for_each(|(_, pair)| is_joined[2 * pair + 1] = true);
    let mut fewer: Vec<DeletedSpan> = Vec::with_capacity(spans.len());
    for (next, is_joined) in spans.iter().zip(is_joined) {
        match fewer.last_mut().filter(|_| is_joined) {
            Some(last) => join(last, next),
            None => fewer.push(next.clone()),
        }
    }
    fewer
}

fn join(span: &mut DeletedSpan, next: &DeletedSpan) {
    debug_assert!(
        span.interval.start <= next.interval.start,
        "spans are joined in the order of their keys"
    );
    span.interval = span.interval.joined(&next.interval);
    span.deletes += next.deletes;
}

/// The spans of records that come in the order of keys, the newest version of a key first.
pub(super) fn spans<'a>(records: impl Iterator<Item = EntryRef<'a>>) -> Vec<DeletedSpan> {
    let mut found: Vec<DeletedSpan> = Vec::new();
    let (mut open, mut last_key): (Option<Open<'a>>, Option<&[u8]>) = (None, None);
    for record in records {
        let before = last_key.replace(record.key);
        debug_assert!(
            before.is_none_or(|before| before <= record.key),
            "spans are made of records in the order of their keys"
        );
        if before == Some(record.key) {
            continue;
        }
        if record.kind == Kind::Delete {
            let span = open.get_or_insert_with(|| Open::at(record.key));
            span.others += std::mem::take(&mut span.since);
            span.last = record.key;
            span.deletes += 1;
        } else if let Some(span) = &mut open {
            span.since += 1;
            if span.since > GAP {
                found.extend(open.take().and_then(Open::close));
            }
        }
    }
    found.extend(open.and_then(Open::close));
    found
}

/// A span that may go on.
struct Open<'a> {
    first: &'a [u8],
    last: &'a [u8],
    deletes: u64,
    /// Other keys between the first and the last delete, and since the last one.
    others: u64,
    since: u64,
}

impl<'a> Open<'a> {
    fn at(key: &'a [u8]) -> Open<'a> {
        Open { first: key, last: key, deletes: 0, others: 0, since: 0 }
    }

    /// The span, if it is worth a note.
    fn close(self) -> Option<DeletedSpan> {
        let is_dense = self.deletes * DENSE >= self.deletes + self.others;
        (is_dense && self.deletes >= LEAST).then(|| DeletedSpan {
            interval: KeyInterval::closed(self.first, self.last),
            deletes: self.deletes,
        })
    }
}

/// The keys under range tombstones that hide some of the `records` of `cursor`, as far as a short
/// look tells.
pub(super) fn hidden_spans(
    tombstones: &Tombstones,
    mut cursor: impl Cursor,
    records: u64,
) -> Result<Vec<DeletedSpan>> {
    let mut spans = Vec::new();
    let mut looks = 0;
    for interval in union(tombstones.iter().map(|tombstone| tombstone.interval.clone())) {
        let (before, mut hidden) = (looks, 0);
        cursor.seek(&interval.start, LSN_MAX)?;
        while let Some(entry) = cursor.entry().filter(|entry| interval.contains(entry.key)) {
            if looks == LOOK {
                // Where most are hidden, what is left is taken to be so too.
                hidden = if 2 * hidden > looks - before { records } else { hidden };
                break;
            }
            looks += 1;
            hidden += u64::from(tombstones.newest_over(entry.key, LSN_MAX) > entry.seq);
            cursor.next()?;
        }
        if hidden > 0 {
            // A tombstone is cut behind some key.
            let interval = KeyInterval { end: interval.end.map(|end| after(&end)), ..interval };
            spans.push(DeletedSpan { interval, deletes: hidden });
        }
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::record::{Kind, encode_end};
    use crate::memtable::encode_record;

    fn key(n: u64) -> Vec<u8> {
        n.to_be_bytes().to_vec()
    }

    /// Ten thousand of three keys each, ten keys apart, and the bytes of each.
    fn many() -> (RangeTombstones, u64) {
        let ranges = RangeTombstones::new(&Arc::default());
        let one = |n| KeyInterval { start: key(n * 10), end: Some(key(n * 10 + 3)) };
        ranges.add((0..10_000).map(|n| Arc::new(Tombstone::new(one(n), n + 1))).collect());
        let bytes = ranges.size().bytes / 10_000;
        (ranges, bytes)
    }

    #[test]
    fn a_range_tombstone_knows_the_length_of_its_record() {
        for end in [None, Some(&b"later"[..])] {
            let mut bytes = Vec::new();
            encode_record(&mut bytes, 1, Kind::RangeDelete, b"key", &encode_end(end));
            let record = Record::decode(&bytes).unwrap();
            let tombstone = record.tombstone(0).unwrap();
            assert_eq!(stored_len(&tombstone), record.stored_len() as u64);
        }
    }

    /// Bug: the search for a column listed what was left of all range tombstones behind its start.
    /// Cause: it took no budget, so a round was quadratic in the tombstones.
    #[test]
    fn a_search_lists_the_range_tombstones_that_fit_its_budget() {
        let (ranges, bytes) = many();
        let mut drained = DrainedMap::default();
        let of = |from: u64, upto, drained: &DrainedMap| -> Vec<Vec<u8>> {
            let (set, from) = (ranges.load().unwrap(), key(from));
            let starts = starts_from(&set, &from, upto, drained, 3 * bytes);
            starts.into_iter().map(|(start, _)| start.to_vec()).collect()
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
        assert_eq!(of(0, 10_000, &drained), [25, 30, 40, 50, 60].map(key));
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
        let of = |from: u64, drained: &DrainedMap| -> Vec<(Vec<u8>, u64)> {
            let (set, from) = (ranges.load().unwrap(), key(from));
            let starts = starts_from(&set, &from, 20_000, drained, bytes);
            starts.into_iter().map(|(start, bytes)| (start.to_vec(), bytes)).collect()
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
        let ends = |reach: &Reach<'_>| reach.has_end_by(&key(530));
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

    mod deleted {
        use super::super::*;

        fn record(key: &[u8], kind: Kind) -> EntryRef<'_> {
            EntryRef { key, seq: 1, kind, value: b"" }
        }

        fn keys(n: u32) -> Vec<[u8; 4]> {
            (0..n).map(u32::to_be_bytes).collect()
        }

        #[test]
        fn a_span_is_from_its_first_delete_to_its_last() {
            let keys = keys(1000);
            let is_deleted = |n: usize| matches!(n, 100..200 | 500..520 | 700..800);
            let kind = |n| if is_deleted(n) { Kind::Delete } else { Kind::Put };
            let found = spans(keys.iter().enumerate().map(|(n, key)| record(key, kind(n))));
            let of = |from: usize, to: usize| DeletedSpan {
                interval: KeyInterval::closed(&keys[from], &keys[to]),
                deletes: (to - from + 1) as u64,
            };
            assert_eq!(found, [of(100, 199), of(700, 799)], "twenty cost nothing");
        }

        #[test]
        fn deletes_here_and_there_are_no_span() {
            let keys = keys(5000);
            let kind = |n| if n % 10 == 0 { Kind::Delete } else { Kind::Put };
            let found = spans(keys.iter().enumerate().map(|(n, key)| record(key, kind(n))));
            assert_eq!(found, []);
        }

        #[test]
        fn spans_join_where_they_meet_and_where_they_are_many() {
            let all = DeletedSpans::default();
            let span = |from: u32, to: u32, deletes| DeletedSpan {
                interval: KeyInterval::closed(&from.to_be_bytes(), &to.to_be_bytes()),
                deletes,
            };
            all.add(vec![span(10, 20, 5), span(30, 40, 7)]);
            all.add(vec![span(15, 25, 6)]);
            assert_eq!(all.most(), 11);
            assert_eq!(all.take(12), None);
            assert_eq!(all.take(11), Some(span(10, 25, 11)));
            assert_eq!(all.take(1), Some(span(30, 40, 7)));
            assert_eq!((all.take(1), all.most()), (None, 0));
            all.add((0..200).map(|n| span(10 * n, 10 * n + 5, 1)).collect());
            let (mut count, mut deletes) = (0, 0);
            while let Some(span) = all.take(1) {
                count += 1;
                deletes += span.deletes;
            }
            assert_eq!((count, deletes), (MOST, 200), "nothing is forgotten");
        }

        /// Bug: the end of a memtable with many spans kept an epoch pinned for seconds. Cause: of
        /// all spans the two with the fewest deletes were looked for again for each that was too
        /// many. Fix: those that are joined are chosen for many at a time.
        #[test]
        fn many_spans_are_joined_in_few_steps_and_the_largest_stays_alone() {
            let all = DeletedSpans::default();
            let span = |n: u32| DeletedSpan {
                interval: KeyInterval::closed(&n.to_be_bytes(), &n.to_be_bytes()),
                deletes: if n == 777 { 1 << 20 } else { u64::from(n % 7) },
            };
            all.add((0..10_000).map(span).collect());
            assert!(LOOKED_AT.get() < 50_000, "{} looks", LOOKED_AT.get());
            assert_eq!(all.spans.lock().len(), MOST);
            assert_eq!(all.take(1), Some(span(777)));
        }
    }
}
