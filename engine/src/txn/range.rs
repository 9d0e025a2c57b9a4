//! A range as a transaction sees it: committed rows of one moment, and over them what the
//! transaction has written, as it is when each row is asked for.
//!
//! Thread safety: it may move between threads, and be used beside its transaction.
//!
//! Invariants:
//!
//! 1. Rows come from the keys strictly between what was returned in front and at the back. A
//!    committed row that was read ahead and not returned lies between them too.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::spilled::{End, WritesAhead};
use super::state::{Inner, Running};
use crate::base::error::Result;
use crate::base::record::Lsn;
use crate::mvcc::KeyInterval;
use crate::read::{self, KeyRange};
use crate::table::{Keep, KeyIter, Range, TableReader, ValueIter};

/// A key with its value.
pub(super) type Row = (Bytes, Bytes);

/// Keys and values of a range in a transaction, in order from either end.
///
/// It owns what it returns and borrows nothing. The transaction may write under it: rows that it
/// has not reached yet come as they were written by then. Once the transaction has ended, it fails
/// with [`ErrorKind::Closed`](crate::ErrorKind::Closed).
pub struct TxnRange {
    inner: Arc<Inner>,
    #[expect(dead_code, reason = "it keeps the database open")]
    keep: Keep,
    table: usize,
    /// All of it, for the code that moves it.
    whole: KeyRange,
    /// What is left (invariant 1).
    rest: KeyRange,
    committed: Range,
    /// Committed rows that were read ahead, one from each end.
    ahead: [Option<Row>; 2],
    /// Own writes on disk that were read ahead, from each end.
    own_ahead: [WritesAhead; 2],
    /// Whether rows are locked one by one, and left out if another owner has them.
    skip_locked: bool,
    /// Whether rows come without their values.
    keys_only: bool,
    /// Whether no other transaction changes what it shows: it shows a snapshot of the transaction,
    /// or its range was locked before its moment.
    is_fixed: bool,
    /// Whether its next row is its last one.
    is_reversed: bool,
    /// How many rows it may still return.
    left: usize,
    failed: bool,
}

/// A walk that passes so many keys without a row notes that they have none.
const MOST_PASSED: usize = 16;

impl TxnRange {
    pub(super) fn new(
        (inner, keep): (Arc<Inner>, Keep),
        table: usize,
        rest: KeyRange,
        committed: Range,
        (skip_locked, is_fixed): (bool, bool),
    ) -> TxnRange {
        TxnRange {
            inner,
            keep,
            table,
            whole: rest.clone(),
            rest,
            committed,
            ahead: <_>::default(),
            own_ahead: <_>::default(),
            skip_locked,
            keys_only: false,
            is_fixed: is_fixed && !skip_locked,
            is_reversed: false,
            left: usize::MAX,
            failed: false,
        }
    }

    /// Goes through it from its other end, as [`Range::rev`].
    #[must_use]
    pub fn rev(mut self) -> TxnRange {
        self.is_reversed = !self.is_reversed;
        self
    }

    /// Ends after `rows` more rows, from whichever end they are taken. Rows beyond them are neither
    /// read nor, where rows are locked one by one, locked.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> TxnRange {
        self.left = self.left.min(rows);
        self.expect_rows(self.left);
        self
    }

    /// Reads so many rows ahead, as [`Range::expect_rows`] says.
    #[doc(hidden)]
    pub fn expect_rows(&mut self, rows: usize) {
        self.committed.expect_rows(rows);
    }

    /// Reads one row ahead, and more once it goes on.
    pub(super) fn by_the_row(mut self) -> TxnRange {
        self.expect_rows(1);
        self
    }

    /// Whether no row is in front of what is left of it from `end`: what it has returned last has
    /// been removed, and so has all in front of that.
    pub(super) fn has_passed_no_row(&self, running: &Running, end: End) -> bool {
        let bound = if end == End::Front { &self.rest.lower } else { &self.rest.upper };
        let Bound::Excluded(key) = bound else { return false };
        let passed = end.up_to(key).interval();
        passed.is_some_and(|passed| running.writes.is_bare(self.table, &passed, self.lsn()))
    }

    /// Goes on at `key`, as [`Range::seek`] does.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.restart(self.whole.part_from(key.as_ref(), self.is_reversed));
    }

    /// Goes on at its beginning, as of the same moment.
    #[doc(hidden)]
    pub fn rewind(&mut self) {
        self.restart(self.whole.clone());
    }

    fn restart(&mut self, rest: KeyRange) {
        if self.failed {
            return;
        }
        (self.ahead, self.own_ahead) = <_>::default();
        self.committed.restart(rest.clone());
        self.rest = rest;
    }

    /// Its keys, without their values.
    pub fn keys(self) -> KeyIter<TxnRange> {
        KeyIter(self.keys_only())
    }

    /// Gives committed rows without their values; those that lie apart are not read.
    #[doc(hidden)]
    #[must_use]
    pub fn keys_only(mut self) -> TxnRange {
        self.keys_only = true;
        self.committed = self.committed.keys_only();
        self
    }

    /// Its values, in the order of their keys.
    pub fn values(self) -> ValueIter<TxnRange> {
        ValueIter(self)
    }

    /// The next committed row from `end`, which stays where it is.
    fn peek(&mut self, end: End) -> Result<Option<&Row>> {
        let [front, back] = &mut self.ahead;
        let (own, other) = if end == End::Front { (front, back) } else { (back, front) };
        if own.is_none() {
            let next = match end {
                End::Front => self.committed.next(),
                End::Back => self.committed.next_back(),
            };
            *own = next.transpose()?.or_else(|| other.take());
        }
        debug_assert!(
            self.ahead[0].as_ref().zip(self.ahead[1].as_ref()).is_none_or(|(a, b)| a.0 < b.0),
            "rows that both ends have read ahead do not cross (invariant 1)"
        );
        Ok(self.ahead[end as usize].as_ref())
    }

    /// The next key from `end`, with its value if it has one; it counts as returned.
    fn step(&mut self, running: &mut Running, end: End) -> Result<Option<(Bytes, Option<Bytes>)>> {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
        let bounds = self.rest.bounds();
        let cache = &self.inner.shared.cache;
        let own = match self.rest.is_empty() {
            true => None,
            false => {
                let ahead = &mut self.own_ahead[end as usize];
                running.writes.outermost(self.table, bounds, end, cache, ahead)?
            }
        };
        let committed = self.peek(end)?.map(|(key, _)| key.clone());
        let own_first = match (&own, &committed) {
            (Some((own, _)), Some(committed)) => !end.is_before(committed, own),
            (own, _) => own.is_some(),
        };
        let same = own.as_ref().map(|(key, _)| key.as_slice()) == committed.as_deref();
        let row = if own_first && !same {
            own.map(|(key, value)| (Bytes::copy_from_slice(&key), value))
        } else {
            self.ahead[end as usize].take().map(|(key, committed)| match own {
                Some((_, value)) if same => (key, value),
                _ if running.writes.deletes(self.table, &key) => (key, None),
                _ => (key, Some(committed)),
            })
        };
        let Some((key, value)) = row else { return Ok(None) };
        debug_assert!(
            self.rest.above_lower(&key) && self.rest.below_upper(&key),
            "a row lies between what both ends have returned (invariant 1)"
        );
        let returned = Bound::Excluded(key.to_vec());
        match end {
            End::Front => self.rest.lower = returned,
            End::Back => self.rest.upper = returned,
        }
        let value = if self.skip_locked { self.lock(running, &key)? } else { value };
        Ok(Some((key, value)))
    }

    /// Locks a row, and reads it then; none if another owner has it.
    fn lock(&self, running: &mut Running, key: &[u8]) -> Result<Option<Bytes>> {
        if !running.own_if_free(&self.inner, self.table, key)? {
            return Ok(None);
        }
        let (shared, slot) = (&self.inner.shared, &running.tables[self.table].slot);
        let snapshot = running.snapshot.as_deref();
        let _fetched = TableReader { shared, slot, snapshot }.fetch(&[key])?;
        if !self.keys_only || running.has_written(&self.inner, self.table, key)? {
            return running.read(&self.inner, self.table, key);
        }
        let core = &running.tables[self.table].pinned.core;
        let is_there = shared.read(core, snapshot, |view, at| read::contains(view, key, at))?;
        Ok(is_there.then(Bytes::new))
    }

    /// The next row from `end`, inside of a call of its transaction.
    pub(super) fn next_row(&mut self, running: &mut Running, end: End) -> Result<Option<Row>> {
        // The keys without a row that were passed: the first, the last, how many.
        let (mut passed, mut found) = (None::<(Bytes, Bytes, usize)>, None);
        while self.left > 0 {
            match self.step(running, end)? {
                Some((key, Some(value))) => {
                    self.left -= 1;
                    found = Some((key, value));
                    break;
                }
                Some((key, None)) => {
                    self.inner.check_call()?;
                    self.skip_bare(running, &key, end);
                    let (first, count) = match passed {
                        Some((first, _, count)) => (first, count + 1),
                        None => (key.clone(), 1),
                    };
                    passed = Some((first, key, count));
                }
                None => break,
            }
        }
        if let Some((first, last, count)) = passed
            && count >= MOST_PASSED
            && self.is_fixed
        {
            let (first, last) = if end == End::Front { (first, last) } else { (last, first) };
            running.writes.note_bare(self.table, &KeyInterval::closed(&first, &last), self.lsn());
        }
        Ok(found)
    }

    /// The number of the last commit that it sees.
    pub(super) fn lsn(&self) -> Lsn {
        self.committed.lsn()
    }

    /// Goes on behind an interval without rows, if the key that was passed last lies in one.
    fn skip_bare(&mut self, running: &Running, key: &[u8], end: End) {
        let lsn = self.lsn();
        let Some(bare) = running.writes.bare_around(self.table, key, lsn) else { return };
        match end {
            End::Front => match bare.end {
                Some(end) => self.rest.lower = Bound::Included(end),
                None => self.rest.upper = self.rest.lower.clone(),
            },
            End::Back => self.rest.upper = Bound::Excluded(bare.start),
        }
        self.ahead = <_>::default();
        self.committed.restart(self.rest.clone());
    }

    fn take(&mut self, end: End) -> Option<Result<Row>> {
        if self.failed || self.left == 0 {
            return None;
        }
        let inner = Arc::clone(&self.inner);
        let row = inner.call(|running| self.next_row(running, end));
        self.failed = row.is_err();
        row.transpose()
    }
}

impl Iterator for TxnRange {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(if self.is_reversed { End::Back } else { End::Front })
    }
}

impl DoubleEndedIterator for TxnRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(if self.is_reversed { End::Front } else { End::Back })
    }
}

impl std::fmt::Debug for TxnRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxnRange").field("transaction", &self.inner.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
thread_local! {
    /// Steps of ranges of this thread.
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::STEPS;
    use crate::base::options::Options;
    use crate::table::WriteBatch;
    use crate::txn::{Isolation, TxnOptions};

    /// Bug: in a transaction that had deleted many rows each `first` and each pop passed all of
    /// them: pops took time in the square of their number. Cause: a walk forgot what it had passed.
    /// Fix: it notes where no row is left. Counted are the keys that are passed.
    #[test]
    fn deleted_rows_are_passed_once() {
        const ROWS: u16 = 3000;
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        let mut batch = WriteBatch::new();
        for n in 0..ROWS {
            batch.put(&table, n.to_be_bytes(), "v");
        }
        db.write(batch).unwrap();
        let level = |isolation| TxnOptions::new().isolation(isolation);
        let levels = [
            level(Isolation::ReadCommitted),
            level(Isolation::Snapshot),
            level(Isolation::Snapshot).optimistic(),
            level(Isolation::Serializable),
            level(Isolation::Serializable).optimistic(),
        ];
        for options in levels {
            let txn = db.begin_with(options).unwrap();
            let key = |row: Option<(bytes::Bytes, bytes::Bytes)>| {
                row.map(|(key, _)| u16::from_be_bytes(key[..].try_into().unwrap()))
            };
            // The range is its own, so that each level may rely on what it has seen.
            drop(txn.range_for_update(&table, ..).unwrap());
            for n in 0..1000 {
                txn.delete(&table, (1000 + n as u16).to_be_bytes()).unwrap();
            }
            STEPS.set(0);
            for n in 0..1000 {
                assert_eq!(key(txn.pop_first(&table).unwrap()), Some(n));
                assert_eq!(key(txn.pop_last(&table).unwrap()), Some(ROWS - 1 - n));
            }
            assert!(STEPS.get() <= 6 * 2000, "{} steps of pops", STEPS.get());
            assert_eq!(key(txn.pop_first(&table).unwrap()), None);
            STEPS.set(0);
            for _ in 0..100 {
                assert_eq!(
                    txn.range_for_update(&table, ..).unwrap().next().transpose().unwrap(),
                    None
                );
            }
            assert!(STEPS.get() <= 300 + 1000, "{} steps over deleted rows", STEPS.get());
            // What is put or comes back there is seen.
            txn.set_savepoint("s").unwrap();
            txn.put(&table, 1500u16.to_be_bytes(), "own").unwrap();
            assert_eq!(key(txn.first(&table).unwrap()), Some(1500));
            txn.roll_back_to("s").unwrap();
            assert_eq!(key(txn.last(&table).unwrap()), None);
        }
    }

    /// Bug: a thread that ended the waits of a transaction waited for a call of it that waits for
    /// nothing, and so did the server's timers. Cause: it looked again until the call was over.
    /// Fix: it raises a mark, and the call looks at it.
    #[test]
    fn a_call_that_passes_many_keys_is_ended_from_outside() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(8 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        (0..100_u32).for_each(|n| table.put(n.to_be_bytes(), "").unwrap());
        let txn = db.begin().unwrap();
        (0..100_u32).for_each(|n| txn.delete(&table, n.to_be_bytes()).unwrap());
        assert!(db.end_lock_wait(txn.id()));
        STEPS.set(0);
        let error = txn.first(&table).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Timeout, "{error}");
        assert_eq!(STEPS.get(), 1, "it ends at the first key that it passes");
        txn.put(&table, "k", "calls that do neither go on").unwrap();
        txn.allow_waits();
        assert!(txn.first(&table).unwrap().is_some());
        let id = txn.id();
        txn.commit().unwrap();
        assert!(!db.end_lock_wait(id), "it has ended");
    }
}
