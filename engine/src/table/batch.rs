//! Write batches.

use std::borrow::Cow;
use std::sync::Arc;

use super::Table;
use super::core::{TableBatch, TableTarget};
use crate::error::{Error, Result};
use crate::read::{KeyBounds, KeyRange};
use crate::record::Kind;
use crate::table::Shared;

/// Operations on any tables of one database that become visible and durable together, or not at
/// all. Commit it with [`Database::write`](crate::Database::write).
///
/// Of several operations on one key the last counts, range deletes included. A batch is in memory
/// until it is committed. One that does not fit in the region's largest zone (16 MiB less 64 bytes
/// at the default size) goes to extents, and is always durable; its range deletes have to fit.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let (users, emails) = (db.table("users")?, db.table("emails")?);
/// let mut batch = terrace::WriteBatch::new();
/// batch.put(&users, "ada", "ada@example.org").put(&emails, "ada@example.org", "ada");
/// db.write(batch)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    pub(super) batch: TableBatch,
    database: Option<Arc<Shared>>,
    mixed: bool,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets `key` to `value` in `table`. A key or value over its limit makes the commit fail.
    pub fn put(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut WriteBatch {
        self.push(table, Kind::Put, key.as_ref(), value.as_ref())
    }

    /// Removes `key` from `table`; nothing happens if it is not there.
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> &mut WriteBatch {
        self.push(table, Kind::Delete, key.as_ref(), &[])
    }

    /// Removes every key of `table` in `range`: those that are there when the batch is committed,
    /// and those that the batch has put before. Keys that it puts afterwards stay. A bound over the
    /// limit of keys makes the commit fail.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let users = db.table("users")?;
    /// let mut batch = terrace::WriteBatch::new();
    /// batch.put(&users, "ada", "1815").delete_range(&users, "a".."b").put(&users, "alan", "1912");
    /// db.write(batch)?;
    /// assert_eq!(users.iter().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&mut self, table: &Table, range: impl KeyBounds) -> &mut WriteBatch {
        if let Some(interval) = KeyRange::from_bounds(&range).interval() {
            let target = self.target(table);
            self.batch.push_range(&target, &interval);
        }
        self
    }

    /// Removes every key of `table` that begins with `prefix`. As [`WriteBatch::delete_range`].
    pub fn delete_prefix(&mut self, table: &Table, prefix: impl AsRef<[u8]>) -> &mut WriteBatch {
        let KeyRange { lower, upper } = KeyRange::prefix(prefix.as_ref());
        self.delete_range(table, (lower, upper))
    }

    /// Makes the whole batch fail at commit.
    pub(super) fn refuse(&mut self, message: String) -> &mut WriteBatch {
        self.batch.refuse(message);
        self
    }

    /// Adds an operation as a record has it.
    pub(crate) fn push(
        &mut self,
        table: &Table,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> &mut WriteBatch {
        let target = self.target(table);
        self.batch.push(&target, kind, key, value);
        self
    }

    /// Sets the commit's blob: up to 4 KiB of the caller's, a position in another log for example,
    /// which [`Database::last_blob`](crate::Database::last_blob) gives back once the commit is
    /// visible, and after a restart, until a later commit brings another one. One over its limit
    /// makes the commit fail.
    pub fn set_blob(&mut self, blob: impl AsRef<[u8]>) -> &mut WriteBatch {
        self.batch.set_blob(blob.as_ref());
        self
    }

    fn target(&mut self, table: &Table) -> TableTarget {
        let database = self.database.get_or_insert_with(|| Arc::clone(&table.shared));
        self.mixed |= !Arc::ptr_eq(database, &table.shared);
        TableTarget::Slot(Arc::clone(&table.slot))
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes of the region it will take at most.
    pub fn stored_bytes(&self) -> usize {
        self.batch.stored_len()
    }

    /// Forgets all operations.
    pub fn clear(&mut self) {
        *self = WriteBatch::default();
    }

    /// Its operations, for a commit in a database.
    ///
    /// # Errors
    ///
    /// `Invalid` if it has tables of another one; otherwise those of merging rows.
    pub(crate) fn check<'a>(
        batch: Cow<'a, WriteBatch>,
        shared: &Arc<Shared>,
    ) -> Result<Cow<'a, TableBatch>> {
        let foreign = batch.database.as_ref().is_some_and(|d| !Arc::ptr_eq(d, shared));
        if batch.mixed || foreign {
            return Err(Error::invalid(
                "the batch holds tables of another database; use a batch for each",
            ));
        }
        let mut batch = match batch {
            Cow::Owned(batch) => Cow::Owned(batch.batch),
            Cow::Borrowed(batch) => Cow::Borrowed(&batch.batch),
        };
        // A batch that the caller keeps is copied only if its operations change.
        if !matches!(&batch, Cow::Borrowed(batch) if batch.merges().is_empty()) {
            shared.merge_deep_rows(batch.to_mut())?;
        }
        Ok(batch)
    }
}
