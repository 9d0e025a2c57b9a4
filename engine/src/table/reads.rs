//! Reads that are made of others: of a table as it is now, and as a snapshot has it.

use bytes::Bytes;

use super::{Range, Snapshot, Table};
use crate::error::Result;
use crate::options::TableOptions;
use crate::read::KeyBounds;

/// What can be read of tables, whatever they are read through: a database as it is now, a snapshot,
/// a transaction. For code that works with any of them; each has these calls itself, too.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// use terrace::{ReadTables, Result, Table};
///
/// fn has_both(through: &impl ReadTables, table: &Table) -> Result<bool> {
///     Ok(through.contains_key(table, "a")? && through.contains_key(table, "b")?)
/// }
///
/// let table = db.table("t")?;
/// table.put("a", "1")?;
/// let before = db.snapshot()?;
/// let txn = db.begin()?;
/// txn.put(&table, "b", "2")?;
/// assert!(has_both(&txn, &table)?);
/// txn.commit()?;
/// assert!(has_both(&db, &table)?);
/// assert!(!has_both(&before, &table)?);
/// # Ok(())
/// # }
/// ```
pub trait ReadTables {
    /// Rows in the order of their keys, from either end.
    type Rows: DoubleEndedIterator<Item = Result<(Bytes, Bytes)>>;

    /// The value of `key` in `table`.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`]; of a transaction as [`Transaction::get`](crate::Transaction::get).
    fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>>;

    /// The rows of `table` in `range`.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::get`]; those of reading come as items.
    fn range(&self, table: &Table, range: impl KeyBounds) -> Result<Self::Rows>;

    /// The rows of `table` whose keys begin with `prefix`.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::range`].
    fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<Self::Rows>;

    /// Whether `table` has `key`.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::get`].
    fn contains_key(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool>;

    /// The values of several keys, in the order of the keys.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::get`].
    fn multi_get<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>>;

    /// The row with the least key.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::range`].
    fn first(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>>;

    /// The row with the greatest key.
    ///
    /// # Errors
    ///
    /// As [`ReadTables::range`].
    fn last(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>>;
}

impl Table {
    /// Whether it has `key`. As [`Table::get`], but a value that lies apart from its key
    /// ([`TableOptions::large_values`]) is not read.
    ///
    /// # Errors
    ///
    /// As [`Table::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader().contains_key(key.as_ref())
    }

    /// The row with the least key.
    ///
    /// # Errors
    ///
    /// As [`Table::get`].
    pub fn first(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.range(..).limit(1).next().transpose()
    }

    /// The row with the greatest key.
    ///
    /// # Errors
    ///
    /// As [`Table::get`].
    pub fn last(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.range(..).rev().limit(1).next().transpose()
    }

    /// What it was created with, or changed to since by
    /// [`Database::set_table_options`](crate::Database::set_table_options) or
    /// [`Database::set_ttl`](crate::Database::set_ttl).
    pub fn options(&self) -> TableOptions {
        self.slot.core().view().version.options
    }
}

impl Snapshot {
    /// Whether `table` had `key` at the snapshot. As [`Table::contains_key`].
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`].
    pub fn contains_key(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader(table)?.contains_key(key.as_ref())
    }

    /// The values that several keys of `table` had at the snapshot, in the order of the keys.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let values = self.reader(table)?.multi_get(&keys)?;
        debug_assert_eq!(values.len(), keys.len(), "each key has an answer");
        Ok(values)
    }

    /// The row of `table` with the least key, at the snapshot.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`].
    pub fn first(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.range(table, ..).limit(1).next().transpose()
    }

    /// The row of `table` with the greatest key, at the snapshot.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`].
    pub fn last(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.range(table, ..).rev().limit(1).next().transpose()
    }

    /// All rows of `table`, at the snapshot.
    pub fn iter(&self, table: &Table) -> Range {
        self.range(table, ..)
    }
}

impl ReadTables for Snapshot {
    type Rows = Range;

    fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        Snapshot::get(self, table, key)
    }

    fn range(&self, table: &Table, range: impl KeyBounds) -> Result<Range> {
        self.check(table)?;
        Ok(Snapshot::range(self, table, range))
    }

    fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.check(table)?;
        Ok(Snapshot::prefix(self, table, prefix))
    }

    fn contains_key(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        Snapshot::contains_key(self, table, key)
    }

    fn multi_get<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        Snapshot::multi_get(self, table, keys)
    }

    fn first(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        Snapshot::first(self, table)
    }

    fn last(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        Snapshot::last(self, table)
    }
}
