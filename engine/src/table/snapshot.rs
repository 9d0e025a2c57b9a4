//! Snapshots.

use std::sync::Arc;

use bytes::Bytes;

use super::{Keep, Range, Shared, Table, TableReader};
use crate::error::{Error, Result};
use crate::mvcc::Registered;
use crate::read::{self, KeyBounds};

/// Every table as it was at one moment.
///
/// It keeps old versions of keys from being dropped while it lives; it keeps no memory and no
/// zone of the region. A table that is dropped or truncated is gone for snapshots too.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let users = db.table("users")?;
/// users.put("ada", "1815")?;
/// let before = db.snapshot()?;
/// users.delete("ada")?;
/// assert_eq!(before.get(&users, "ada")?.as_deref(), Some(&b"1815"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) shared: Arc<Shared>,
    pub(crate) registered: Arc<Registered>,
    #[expect(dead_code, reason = "it keeps the database open")]
    pub(crate) keep: Keep,
}

impl Snapshot {
    /// The number of the last commit that it sees.
    pub fn lsn(&self) -> u64 {
        self.registered.lsn()
    }

    /// The value of `key` in `table` at the snapshot.
    ///
    /// # Errors
    ///
    /// `Invalid` when the table was dropped or is of another database; `Corrupt`, `Unavailable`
    /// or `Closed` as [`Table::get`].
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.reader(table)?.get(key.as_ref())
    }

    /// Reads a table as of the snapshot.
    pub(super) fn reader<'a>(&'a self, table: &'a Table) -> Result<TableReader<'a>> {
        debug_assert!(
            self.lsn() <= self.shared.committer.visible(),
            "a snapshot shows what was visible when it was taken"
        );
        self.check_own(table)?;
        let snapshot = Some(&*self.registered);
        Ok(TableReader { shared: &self.shared, slot: &table.slot, snapshot })
    }

    /// The keys and values of `table` in `range`, at the snapshot. See [`Table::range`].
    pub fn range(&self, table: &Table, range: impl KeyBounds) -> Range {
        let registered = Arc::clone(&self.registered);
        Range::new(table, read::KeyRange::from_bounds(&range), registered, || {
            self.check(table).err()
        })
    }

    /// The keys of `table` that begin with `prefix`, with their values, at the snapshot.
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Range {
        let registered = Arc::clone(&self.registered);
        Range::new(table, read::KeyRange::prefix(prefix.as_ref()), registered, || {
            self.check(table).err()
        })
    }

    pub(super) fn check(&self, table: &Table) -> Result<()> {
        self.check_own(table)?;
        table.slot.check_not_emptied_since(self.lsn())
    }

    fn check_own(&self, table: &Table) -> Result<()> {
        if !Arc::ptr_eq(&self.shared, &table.shared) {
            return Err(Error::invalid(format!(
                "table {:?} is of another database than the snapshot",
                table.name()
            )));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("lsn", &self.lsn()).finish_non_exhaustive()
    }
}
