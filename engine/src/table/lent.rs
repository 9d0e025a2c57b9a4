//! Reads that lend a value where it lies, or copy it into memory of the caller's.

use super::{Range, Snapshot, Table};
use crate::base::error::Result;

impl Table {
    /// What `f` makes of the value of `key`; `None` without one. It is lent the bytes where they
    /// lie: a value of a cached block, or of the memtable, is not copied, and nothing is
    /// allocated.
    ///
    /// While `f` runs, memory that readers may see is not given back: it should be short. A write
    /// inside of it, to any database of the process, fails with `Invalid`, since it could wait for
    /// this read.
    ///
    /// # Errors
    ///
    /// As [`Table::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("counters")?;
    /// table.put("visits", 41u64.to_le_bytes())?;
    /// let first = table.get_with("visits", |value| value.first().copied())?;
    /// assert_eq!(first, Some(Some(41)));
    /// assert_eq!(table.get_with("others", |value| value.len())?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_with<T>(
        &self,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.reader().get_with(key.as_ref(), f)
    }

    /// Copies the value of `key` into `into`, in place of what is there; whether there is one.
    /// Without one, `into` is empty. Allocates only if `into` has too little room.
    ///
    /// # Errors
    ///
    /// As [`Table::get`]; `into` is empty then.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("users")?;
    /// table.put("ada", "1815")?;
    /// let mut value = Vec::new();
    /// assert!(table.get_into("ada", &mut value)? && value == b"1815");
    /// assert!(!table.get_into("bob", &mut value)? && value.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        Ok(self.get_with(key, |value| into.extend_from_slice(value))?.is_some())
    }
}

impl Snapshot {
    /// What `f` makes of the value that `key` of `table` had at the snapshot. See
    /// [`Table::get_with`].
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`].
    pub fn get_with<T>(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.reader(table)?.get_with(key.as_ref(), f)
    }

    /// Copies the value that `key` of `table` had at the snapshot into `into`. See
    /// [`Table::get_into`].
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`]; `into` is empty then.
    pub fn get_into(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        into: &mut Vec<u8>,
    ) -> Result<bool> {
        into.clear();
        Ok(self.get_with(table, key, |value| into.extend_from_slice(value))?.is_some())
    }
}

impl Range {
    /// What `f` makes of the next row, of which it is lent key and value. As
    /// [`next`](Iterator::next), but nothing is allocated for a row: rows are read many
    /// at a time into one buffer. `f` may call the database.
    ///
    /// # Errors
    ///
    /// Those of [`Table::get`]. After one the range has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// table.put("a", "123")?;
    /// table.put("b", "45")?;
    /// let (mut range, mut bytes) = (table.range(..), 0);
    /// while let Some(len) = range.next_with(|_key, value| value.len()) {
    ///     bytes += len?;
    /// }
    /// assert_eq!(bytes, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_with<T>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        self.lend(self.is_reversed, f)
    }

    /// As [`Range::next_with`], from the other end.
    ///
    /// # Errors
    ///
    /// As [`Range::next_with`].
    pub fn next_back_with<T>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        self.lend(!self.is_reversed, f)
    }

    /// How many of the next rows were read already. A call that takes one of them waits for
    /// nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// table.put("a", "123")?;
    /// table.put("b", "45")?;
    /// let mut range = table.range(..);
    /// assert_eq!(range.at_hand(), 0);
    /// assert!(range.read_on()? && range.at_hand() == 2);
    /// assert_eq!(range.next().transpose()?.unwrap().0, "a");
    /// assert_eq!(range.at_hand(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn at_hand(&self) -> usize {
        self.at_hand_from(self.is_reversed)
    }

    /// Reads the next rows, unless there are some [`at_hand`](Range::at_hand); whether there is a
    /// row. It is for callers that hold something which they give up where they wait.
    ///
    /// # Errors
    ///
    /// As [`Range::next_with`].
    pub fn read_on(&mut self) -> Result<bool> {
        self.fill(self.is_reversed)?;
        Ok(self.at_hand() > 0)
    }

    fn lend<T>(&mut self, from_back: bool, f: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        let lent = self.take(from_back).map(|taken| {
            taken.map(|(rows, row)| {
                let (key, value) = rows.lent(row);
                f(key, value)
            })
        });
        lent.transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::base::options::Options;

    /// A look-up borrows its table and its view. Their counts are on lines that all threads share.
    #[test]
    fn a_look_up_counts_no_reference() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        table.put("a", "1").unwrap();
        let counts = || {
            let core = table.slot.core();
            (Arc::strong_count(&core), Arc::strong_count(&core.view()))
        };
        let (before, snapshot) = (counts(), db.snapshot().unwrap());
        assert_eq!(table.get_with("a", |_| counts()).unwrap(), Some(before));
        assert_eq!(snapshot.get_with(&table, "a", |_| counts()).unwrap(), Some(before));
    }
}
