//! The handle of a table.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    BulkLoad, Existing, Keep, Range, Shared, TableBatch, TableReader, TableSlot, TableTarget,
};
use crate::base::error::{Error, Result};
use crate::base::options::Durability;
use crate::base::record::Kind;
use crate::read::{self, KeyBounds, KeyRange};
use crate::sstable::Estimate;

/// A named, ordered map from bytes to bytes.
///
/// Clones are the same table. A handle may be used from any thread and keeps its database open.
/// It follows its table through renaming and truncation; once the table is dropped, every call
/// fails with [`ErrorKind::MissingTable`](crate::ErrorKind::MissingTable).
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let users = db.table("users")?;
/// users.put("ada", "1815")?;
/// users.put("alan", "1912")?;
/// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// let names: Vec<_> = users.prefix("a").rev().map(|row| row.unwrap().0).collect();
/// assert_eq!(names, ["alan", "ada"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Table {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slot: Arc<TableSlot>,
    pub(crate) keep: Keep,
    pub(crate) durability: Durability,
}

impl Table {
    /// Its name at present.
    pub fn name(&self) -> String {
        self.slot.core().name()
    }

    /// The same table by a handle whose writes are as durable as is asked for. It costs what a
    /// clone costs, so make it once for many writes. Batches, loads and transactions have a
    /// durability of their own.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let events = db.table("events")?.durability(terrace::Durability::Relaxed);
    /// events.put("1", "seen")?;
    /// events.delete("1")?;
    /// db.sync()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn durability(&self, durability: Durability) -> Table {
        Table { durability, ..self.clone() }
    }

    /// Sets `key` to `value`, durably: once this returns, a power cut does not undo it.
    ///
    /// # Errors
    ///
    /// - `TooLarge`: the key or value is over its limit;
    /// - `MissingTable`: the table was dropped;
    /// - `Invalid`: the database is
    ///   open read-only;
    /// - `Timeout`: a transaction has had the row locked for 10 s, or the deadline of the thread
    ///   passed; nothing was written;
    /// - `Deadlock`: a transaction waits for this write, or for the transaction in whose closure it
    ///   is made, and the write for that one; nothing was written, and it can be made again;
    /// - `Full`: the region is full and cannot be drained, the disk being full;
    /// - `UnknownOutcome`: the device failed while the commit was under way;
    /// - `Unavailable`: the database stopped after an earlier failure;
    /// - `Closed`: it was closed.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Put, key.as_ref(), value.as_ref())
    }

    /// Removes `key`, durably. It is no error if the key is not there.
    ///
    /// # Errors
    ///
    /// As [`Table::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Delete, key.as_ref(), &[])
    }

    /// Removes every key in `range`, durably, at once: what is put afterwards stays. It costs one
    /// small record, whatever lies in the range, and each later read of the table a look at it
    /// until the background has done the rest.
    ///
    /// # Errors
    ///
    /// As [`Table::put`], for the bounds of the range as for keys.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let days = db.table("days")?;
    /// for day in ["2026-10-30", "2026-10-31", "2026-11-01"] {
    ///     days.put(day, "…")?;
    /// }
    /// days.delete_range(.."2026-11")?;
    /// assert_eq!(days.iter().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        self.delete_all(&KeyRange::from_bounds(&range))
    }

    /// Removes every key that begins with `prefix`. As [`Table::delete_range`].
    ///
    /// # Errors
    ///
    /// As [`Table::delete_range`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_all(&KeyRange::prefix(prefix.as_ref()))
    }

    fn delete_all(&self, range: &KeyRange) -> Result<()> {
        let mut batch = TableBatch::default();
        if let Some(interval) = range.interval() {
            let target = TableTarget::Slot(Arc::clone(&self.slot));
            batch.push_range(&target, &interval);
        }
        self.shared.write(&batch, self.durability)
    }

    fn write(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        let target = TableTarget::Slot(Arc::clone(&self.slot));
        let mut batch = TableBatch::default();
        batch.push(&target, kind, key, value);
        self.shared.write(&batch, self.durability)
    }

    /// Begins a load of keys in ascending order; `existing` says what becomes of those that the
    /// table has already. See [`BulkLoad`].
    ///
    /// # Errors
    ///
    /// `MissingTable` when it was dropped; `Invalid` when the database is open read-only;
    /// `Unavailable`; `Closed`.
    pub fn bulk_load(&self, existing: Existing) -> Result<BulkLoad> {
        BulkLoad::begin(self, existing)
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the block that would hold it is damaged; see
    ///   [`Error::damage`](crate::Error::damage);
    /// - `Unavailable`: a file could not be read;
    /// - `MissingTable`: the table was dropped;
    /// - `Closed`: the database was closed.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.reader().get(key.as_ref())
    }

    /// The values of several keys, all as of one moment, in the order of the keys. What they need
    /// of an object store is asked for together: it takes about as long as one [`Table::get`].
    ///
    /// # Errors
    ///
    /// As [`Table::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        self.reader().multi_get(&keys)
    }

    /// The keys in `range` with their values, in order from either end, as of now. Errors, those
    /// of [`Table::get`], come as items. After a truncation the range fails with `Invalid`, whether
    /// or not a row of it was taken.
    pub fn range(&self, range: impl KeyBounds) -> Range {
        Range::of_now(self, KeyRange::from_bounds(&range))
    }

    /// All keys with their values.
    pub fn iter(&self) -> Range {
        self.range(..)
    }

    /// The keys that begin with `prefix`, with their values.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        Range::of_now(self, KeyRange::prefix(prefix.as_ref()))
    }

    /// About how many keys lie in `range`. Versions, deletes and expired records that were not
    /// compacted yet count. On disk whole blocks count as blocks do on average. Of a few blocks
    /// those at the ends are counted key by key, so that a small range has as many as it has.
    ///
    /// It reads the block indexes of the extents at the ends, two for each sorted run, and of a
    /// small range the blocks there. All keys (`..`) cost no I/O.
    ///
    /// # Errors
    ///
    /// `MissingTable` when the table was dropped; otherwise as [`Table::get`].
    pub fn approximate_len(&self, range: impl KeyBounds) -> Result<u64> {
        Ok(self.estimate(&KeyRange::from_bounds(&range))?.records)
    }

    /// About how many bytes the keys and values in `range` have, before compression. As
    /// [`Table::approximate_len`].
    ///
    /// # Errors
    ///
    /// As [`Table::approximate_len`].
    pub fn approximate_size(&self, range: impl KeyBounds) -> Result<u64> {
        Ok(self.estimate(&KeyRange::from_bounds(&range))?.bytes)
    }

    fn estimate(&self, range: &KeyRange) -> Result<Estimate> {
        self.reader().read(|view, at| read::estimate(view, range, at))
    }

    /// Fails if it is of another database than `than`, whose handles share `shared`.
    #[inline]
    pub(crate) fn check_is_of(&self, shared: &Arc<Shared>, than: &str) -> Result<()> {
        if Arc::ptr_eq(&self.shared, shared) {
            return Ok(());
        }
        let name = self.name();
        Err(Error::invalid(format!("table {name:?} is of another database than {than}")))
    }

    /// Reads it as of now.
    pub(crate) fn reader(&self) -> TableReader<'_> {
        TableReader { shared: &self.shared, slot: &self.slot, snapshot: None }
    }
}

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

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.name()).finish_non_exhaustive()
    }
}
