//! Where a level 0 has many deleted keys next to each other: what a range has to step over before
//! it finds a row. Drains take such places first (`jobs/drain_out_of_turn.rs`).
//!
//! A merge notes the places as it walks over the memtable, in the order of keys. A place is a
//! **span**: it begins and ends with a delete, and has no long row of other keys in it. The number
//! of a span is an estimate. Whether its keys are deleted is looked up again before a drain.
//!
//! Source: the window of deletes that RocksDB's `CompactOnDeletionCollector` slides over a file.
//!
//! Thread safety: every method may be called from any thread; the mutex is held for a few
//! instructions.
//!
//! Invariant: the spans ascend, and no two have a key in common.

use crate::error::Result;
use crate::mvcc::{KeyInterval, Tombstones, after, union};
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;
use crate::record::{Cursor, EntryRef, Kind, LSN_MAX};

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
            let fewest = |at: &usize| joined[*at].deletes + joined[*at + 1].deletes;
            let Some(at) = (0..joined.len() - 1).min_by_key(fewest) else { break };
            let next = joined.remove(at + 1);
            join(&mut joined[at], &next);
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
///
/// # Errors
///
/// What the cursor gives.
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
}
