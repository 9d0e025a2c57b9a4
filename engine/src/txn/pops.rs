//! Pops: the outermost row of a table from either end is removed and returned, with what is in
//! front of it locked.
//!
//! Invariants:
//!
//! 1. Where a walk of pops goes on, no row is in front of it: all that it has returned is removed,
//!    and the transaction has put nothing there since. What is bare in its writes says so.

use bytes::Bytes;

use super::Transaction;
use super::options::Isolation;
use super::range::Row;
use super::spilled::End;
use super::state::{Inner, Running};
use crate::base::error::{Error, Result};
use crate::base::options::Failpoint;
use crate::base::record::Lsn;
use crate::locks::Mode;
use crate::read::KeyRange;
use crate::table::Table;

impl Transaction {
    /// Removes the row with the least key and returns it. The keys up to it are locked. A
    /// serializable transaction that finds no row locks the whole table.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range_for_update`] and [`Transaction::delete`].
    pub fn pop_first(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.pop(table, End::Front)
    }

    /// Removes the row with the greatest key and returns it. The keys from it on are locked.
    ///
    /// # Errors
    ///
    /// As [`Transaction::pop_first`].
    pub fn pop_last(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.pop(table, End::Back)
    }

    /// What is returned is what is removed, beside calls of other threads and other transactions:
    /// all of it is one call.
    fn pop(&self, table: &Table, end: End) -> Result<Option<Row>> {
        self.on(table, |running, at| match running.snapshot {
            Some(_) => self.pop_from_snapshot(running, (table, at), end),
            None => self.pop_from_now(running, (table, at), end),
        })
    }

    /// Locks the keys up to the outermost row and finds them unchanged since the snapshot: so it is
    /// the outermost one still. The next pop from the same end goes on behind it.
    fn pop_from_snapshot(
        &self,
        running: &mut Running,
        (table, at): (&Table, usize),
        end: End,
    ) -> Result<Option<Row>> {
        let (inner, all) = (self.inner(), KeyRange::from_bounds(&(..)));
        let kept = running.tables[at].pops[end as usize].take();
        let mut rows = match kept.filter(|rows| rows.has_passed_no_row(running, end)) {
            Some(rows) => rows,
            None => {
                Box::new(self.cursor(running, None, (table, at), all.clone(), false).by_the_row())
            }
        };
        let Some(row) = rows.next_row(running, end)? else {
            running.about_to_scan(inner, at, &all)?;
            return Ok(None);
        };
        running.own_range(inner, (at, &end.up_to(&row.0)), Mode::Exclusive)?;
        running.remove_outermost(inner, (at, end), &row.0, rows.lsn())?;
        running.tables[at].pops[end as usize] = Some(rows);
        Ok(Some(row))
    }

    /// Removes a row of a range that was made its own.
    pub(super) fn remove_own(&self, table: &Table, key: &[u8]) -> Result<()> {
        self.on(table, |running, at| running.remove_own(self.inner(), at, key))
    }

    fn pop_from_now(
        &self,
        running: &mut Running,
        (table, at): (&Table, usize),
        end: End,
    ) -> Result<Option<Row>> {
        let inner = self.inner();
        let outermost = |running: &mut Running, range: KeyRange| {
            let mut rows = self.cursor(running, None, (table, at), range, false).limit(1);
            Ok::<_, Error>((rows.next_row(running, end)?, rows.lsn()))
        };
        let all = KeyRange::from_bounds(&(..));
        let mut relies_on_none = inner.options.isolation != Isolation::Serializable;
        loop {
            let (Some((key, value)), _) = outermost(running, all.clone())? else {
                if relies_on_none {
                    return Ok(None);
                }
                // The lock may be waited for, and a row be there then.
                running.about_to_scan(inner, at, &all)?;
                relies_on_none = true;
                continue;
            };
            let to_key = end.up_to(&key);
            running.own_range(inner, (at, &to_key), Mode::Exclusive)?;
            if inner.shared.region.has(Failpoint::PopUnlockedRow) {
                running.write(inner, at, &key, None)?;
                return Ok(Some((key, value)));
            }
            // Another transaction may have removed it, or put a row in front of it.
            let (found, lsn) = outermost(running, to_key)?;
            if let Some(row) = found {
                running.remove_outermost(inner, (at, end), &row.0, lsn)?;
                return Ok(Some(row));
            }
        }
    }
}

impl Running {
    /// Removes a row that is its own already, by itself or in a range.
    fn remove_own(&mut self, inner: &Inner, table: usize, key: &[u8]) -> Result<()> {
        inner.shared.check_writable()?;
        self.keep(inner, table, key, None)
    }

    /// Removes the outermost row from `end`, which it owns with all in front of it. The next pop
    /// need not pass what this one and those before it have removed.
    fn remove_outermost(
        &mut self,
        inner: &Inner,
        (table, end): (usize, End),
        key: &[u8],
        lsn: Lsn,
    ) -> Result<()> {
        self.remove_own(inner, table, key)?;
        if let Some(gone) = end.up_to(key).interval() {
            self.writes.note_bare(table, &gone, lsn);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use std::collections::BTreeMap;

    use crate::base::error::ErrorKind;
    use crate::base::options::Options;
    use crate::table::WriteBatch;
    use crate::txn::{Isolation, LockWait, TxnOptions};

    type Rows = BTreeMap<u8, u8>;

    /// Pops from both ends among all that a transaction may do to the rows meanwhile, at all
    /// levels, beside a map that does the same.
    #[test]
    fn pops_give_the_outermost_row_whatever_was_written_before() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let mut state = 7_u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % bound
        };
        let levels = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
        let mut popped = 0;
        for round in 0..60_usize {
            let table = db.table(&format!("t{round}")).unwrap();
            let (mut batch, mut rows) = (WriteBatch::new(), Rows::new());
            for key in (0..200_u8).filter(|_| below(3) > 0) {
                batch.put(&table, [key], [key]);
                rows.insert(key, key);
            }
            db.write(batch).unwrap();
            let options = TxnOptions::new().isolation(levels[round % 3]);
            let is_optimistic = round % 3 > 0 && round % 2 == 0;
            let options = if is_optimistic { options.optimistic() } else { options };
            let txn = db.begin_with(options).unwrap();
            let mut saved: Vec<Rows> = Vec::new();
            for _ in 0..300 {
                let (key, value) = (below(220) as u8, below(256) as u8);
                let mut found = None;
                match below(24) {
                    0..8 => found = Some((txn.pop_first(&table), rows.pop_first())),
                    8..16 => found = Some((txn.pop_last(&table), rows.pop_last())),
                    16..19 => {
                        txn.put(&table, [key], [value]).unwrap();
                        rows.insert(key, value);
                    }
                    19 => {
                        txn.delete(&table, [key]).unwrap();
                        rows.remove(&key);
                    }
                    20 => {
                        let end = key.saturating_add(9);
                        txn.delete_range(&table, [key]..[end]).unwrap();
                        rows.retain(|other, _| !(key..end).contains(other));
                    }
                    21 => {
                        txn.set_savepoint("s").unwrap();
                        saved.push(rows.clone());
                    }
                    22 if !saved.is_empty() => {
                        txn.roll_back_to("s").unwrap();
                        rows.clone_from(saved.last().unwrap());
                    }
                    23 if !saved.is_empty() => {
                        txn.release_savepoint("s").unwrap();
                        saved.pop();
                    }
                    _ => {}
                }
                if let Some((row, meant)) = found {
                    let row = row.unwrap().map(|(key, value)| (key[0], value[0]));
                    assert_eq!(row, meant, "round {round}");
                    popped += usize::from(meant.is_some());
                }
            }
            txn.commit().unwrap();
            let left: Rows =
                table.iter().map(|row| row.unwrap()).map(|(k, v)| (k[0], v[0])).collect();
            assert_eq!(left, rows, "round {round}");
        }
        assert!(popped > 3000, "{popped}");
    }

    /// A pop that does not get its lock has removed nothing: the next one finds the same row.
    #[test]
    fn a_pop_that_was_refused_passes_no_row() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        (0..9_u8).for_each(|n| table.put([n], [n]).unwrap());
        for isolation in [Isolation::ReadCommitted, Isolation::Snapshot] {
            let options = TxnOptions::new().isolation(isolation).lock_wait(LockWait::NoWait);
            let txn = db.begin_with(options).unwrap();
            let first = || txn.pop_first(&table).map(|row| row.unwrap().0[0]);
            assert_eq!((first().unwrap(), first().unwrap()), (0, 1));
            let other = db.begin().unwrap();
            other.get_for_update(&table, [2]).unwrap();
            for _ in 0..2 {
                assert_eq!(first().unwrap_err().kind(), ErrorKind::Timeout);
            }
            other.roll_back();
            assert_eq!((first().unwrap(), first().unwrap()), (2, 3));
            txn.roll_back();
        }
    }

    /// Bug: each pop of a transaction searched the table twice and looked for changes in it, so a
    /// pop cost 60 times one of redb. Cause: a pop forgot where the one before it had been. Fix: it
    /// goes on there. Counted are the chunks of rows that are read.
    #[test]
    fn pops_go_on_where_the_ones_before_them_were() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        let mut batch = WriteBatch::new();
        for n in 0..4000_u16 {
            batch.put(&table, n.to_be_bytes(), "v");
        }
        db.write(batch).unwrap();
        let txn = db.begin().unwrap();
        let read = || crate::table::CHUNKS.get();
        let before = read();
        for _ in 0..1000 {
            txn.pop_first(&table).unwrap().unwrap();
            txn.pop_last(&table).unwrap().unwrap();
        }
        assert!(read() - before < 40, "{} chunks for 2,000 pops", read() - before);
    }
}
