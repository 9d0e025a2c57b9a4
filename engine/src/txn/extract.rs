//! Rows that a transaction removes by what they are: each one that a closure names.

use bytes::Bytes;

use super::{Transaction, TxnRange};
use crate::base::error::Result;
use crate::read::KeyBounds;
use crate::table::Table;

/// Rows that [`Transaction::extract_if`] removes, each when it is asked for.
#[must_use = "rows are removed when they are asked for"]
pub struct ExtractIf<'a, F> {
    txn: &'a Transaction,
    table: &'a Table,
    rows: TxnRange,
    goes: F,
}

impl<F> std::fmt::Debug for ExtractIf<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExtractIf").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<F: FnMut(&[u8], &[u8]) -> bool> ExtractIf<'_, F> {
    /// Removes a row if it goes.
    fn take(&mut self, row: Result<(Bytes, Bytes)>) -> Option<Result<(Bytes, Bytes)>> {
        let (key, value) = match row {
            Ok(row) => row,
            error => return Some(error),
        };
        let goes = (self.goes)(&key, &value);
        goes.then(|| self.txn.remove_own(self.table, &key).map(|()| (key, value)))
    }
}

impl<F: FnMut(&[u8], &[u8]) -> bool> Iterator for ExtractIf<'_, F> {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let row = self.rows.next()?;
            if let Some(taken) = self.take(row) {
                return Some(taken);
            }
        }
    }
}

impl<F: FnMut(&[u8], &[u8]) -> bool> DoubleEndedIterator for ExtractIf<'_, F> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let row = self.rows.next_back()?;
            if let Some(taken) = self.take(row) {
                return Some(taken);
            }
        }
    }
}

impl Transaction {
    /// Removes the rows in `range` for which `goes` is true, and returns them, in order from either
    /// end. A row goes when it is asked for: what the iterator has not reached stays. The range is
    /// locked at the call, as by [`range_for_update`](Transaction::range_for_update). One look at
    /// each row, one delete a row that goes.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let jobs = db.table("jobs")?;
    /// for (id, state) in [("1", "done"), ("2", "open"), ("3", "done")] {
    ///     jobs.put(id, state)?;
    /// }
    /// let txn = db.begin()?;
    /// let done: Vec<_> = txn.extract_if(&jobs, .., |_, state| state == b"done")?.collect();
    /// assert_eq!(done.len(), 2);
    /// txn.commit()?;
    /// assert_eq!(jobs.iter().keys().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Transaction::range_for_update`]. Those of reading and of [`Transaction::delete`] come
    /// as items; the row of such an item is still there.
    pub fn extract_if<'a, F: FnMut(&[u8], &[u8]) -> bool>(
        &'a self,
        table: &'a Table,
        range: impl KeyBounds,
        goes: F,
    ) -> Result<ExtractIf<'a, F>> {
        let rows = self.range_for_update(table, range)?;
        Ok(ExtractIf { txn: self, table, rows, goes })
    }

    /// Removes the rows in `range` for which `stays` is false; how many. As
    /// [`extract_if`](Transaction::extract_if), of which it returns no row.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range_for_update`] and [`Transaction::delete`]: rows in front of the
    /// failure are removed, unless the transaction is rolled back.
    pub fn retain(
        &self,
        table: &Table,
        range: impl KeyBounds,
        mut stays: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<u64> {
        let mut removed = 0;
        for row in self.extract_if(table, range, |key, value| !stays(key, value))? {
            row?;
            removed += 1;
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use crate::Options;

    /// Rows that were written, changed and removed by the transaction itself count as it sees them;
    /// what is not reached stays; a savepoint brings rows back.
    #[test]
    fn rows_that_are_named_go_as_the_transaction_sees_them() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        for n in 0..100_u8 {
            table.put([n], [n % 3]).unwrap();
        }
        let txn = db.begin().unwrap();
        txn.put(&table, [200], [0]).unwrap();
        txn.put(&table, [3], [1]).unwrap();
        txn.delete(&table, [6]).unwrap();
        txn.set_savepoint("all").unwrap();
        let mut gone = txn.extract_if(&table, .., |_, value| value == [0]).unwrap();
        let key =
            |row: Option<crate::Result<(bytes::Bytes, bytes::Bytes)>>| row.unwrap().unwrap().0[0];
        assert_eq!((key(gone.next()), key(gone.next()), key(gone.next_back())), (0, 9, 200));
        drop(gone);
        assert_eq!(txn.iter(&table).unwrap().count(), 97, "those that were asked for");
        txn.roll_back_to("all").unwrap();
        let removed = txn.retain(&table, ..&[50][..], |_, value| value != [0]).unwrap();
        assert_eq!(removed, 15, "17 less the changed and the removed one");
        txn.commit().unwrap();
        assert_eq!(table.iter().count(), 101 - 1 - 15);
        let other = db.begin().unwrap();
        let held = other.extract_if(&table, .., |_, _| false).unwrap();
        let refused = crate::os::with_deadline(std::time::Instant::now(), || table.put([7], [7]))
            .unwrap_err();
        assert_eq!(refused.kind(), crate::ErrorKind::Timeout, "the range is locked: {refused}");
        drop(held);
    }
}
