//! Reads that are made of others: of a table as it is now, and as a snapshot has it.
//!
//! Snapshots.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;

use super::{Keep, Range, Shared, Table, TableSlot};
use crate::base::error::Result;
use crate::base::operations::OperationKind;
use crate::base::options::TableOptions;
use crate::base::record::{LSN_MAX, Lsn};
use crate::mvcc::Registered;
use crate::read;
use crate::read::view::PinnedView;
use crate::read::{AsOf, AskedParts, KeyBounds, LentValue, Lookups, MissingParts};
use crate::sstable::Fetched;

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

// Look-ups in a table, as of now or of a snapshot.
//
// Where cold levels lie in an object store, what a look-up needs of it comes first, while no epoch
// is pinned: no zone is released before a pinned epoch has passed, so writers would wait for the
// store too.
//
// Then the look-up runs as always, and finds all of that on this machine: it holds the blocks
// ([`Fetched`]). Values that lie apart in objects are read behind it. A look-up holds the space of
// what it reads then.

/// What look-ups of one table go through.
#[derive(Clone, Copy)]
pub(crate) struct TableReader<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) slot: &'a TableSlot,
    /// `None` reads as of now.
    pub(crate) snapshot: Option<&'a Registered>,
}

impl TableReader<'_> {
    /// Runs `f` with the view of this moment; again as long as the table is truncated meanwhile,
    /// which ends the reads of a snapshot.
    #[inline]
    pub(crate) fn read<T>(self, f: impl Fn(PinnedView<'_>, AsOf) -> Result<T>) -> Result<T> {
        self.shared.with_table(self.slot, |core| {
            if let Some(snapshot) = self.snapshot {
                // The table of this moment came first: emptied after that, it fails by itself.
                self.slot.check_not_emptied_since(snapshot.lsn())?;
            }
            self.shared.read(core, self.snapshot, &f)
        })
    }

    /// Runs a look-up, which may be slow.
    #[inline]
    fn time<T>(self, look_up: impl FnOnce() -> T) -> T {
        self.shared.events.time(OperationKind::Get, || Some(self.slot.core().name()), look_up)
    }

    /// The value of `key`.
    pub(super) fn get(self, key: &[u8]) -> Result<Option<Bytes>> {
        self.time(|| {
            let local = self.read(|view, at| read::local(view, || read::get(view, key, at)))?;
            local.map_or_else(|| Ok(self.multi_get_remote(&[key])?.pop().flatten()), Ok)
        })
    }

    /// Whether there is `key`.
    fn contains_key(self, key: &[u8]) -> Result<bool> {
        self.time(|| self.contains_key_now(key))
    }

    fn contains_key_now(self, key: &[u8]) -> Result<bool> {
        let contains = |view: PinnedView<'_>, at| read::contains(view, key, at);
        let local = self.read(|view, at| read::local(view, || contains(view, at)))?;
        if let Some(local) = local {
            return Ok(local);
        }
        let _brought = self.fetch(&[key])?;
        self.read(contains)
    }

    /// What `f` makes of the value of `key`, which it is lent where it lies.
    pub(super) fn get_with<T>(self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.time(|| self.get_with_now(key, f))
    }

    #[inline]
    fn get_with_now<T>(self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        // The table may turn out to be emptied, and is looked into again then. `f` has not run.
        let f = Cell::new(Some(f));
        let make = |value: &[u8]| f.take().map(|f| f(value));
        let local =
            self.read(|view, at| read::local(view, || read::lend(view, (key, at), make)))?;
        if let Some(local) = local {
            debug_assert!(!matches!(local, Some(None)), "a value is lent once");
            return Ok(local.flatten());
        }
        let _brought = self.fetch(&[key])?;
        match self.read(|view, at| read::borrow_local(view, (key, at), make))? {
            LentValue::Made(made) => Ok(made.flatten()),
            LentValue::Found(found) => {
                let mut one = Lookups::with_capacity(1);
                one.add(Some(found));
                let value = self.values_of(one)?.pop().flatten();
                Ok(value.and_then(|value| make(&value)))
            }
        }
    }

    /// The values of some keys, all as of one moment.
    pub(super) fn multi_get<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        self.time(|| self.multi_get_now(keys))
    }

    fn multi_get_now<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        // No epoch stays pinned over many keys: it would hold back space in every database.
        if self.snapshot.is_some() || read::together(keys).nth(1).is_some() {
            return self.multi_get_remote(keys);
        }
        let local = self.read(|view, at| read::local(view, || read::find_many(view, keys, at)))?;
        local.map_or_else(|| self.multi_get_remote(keys), |found| self.values_of(found))
    }

    /// The same of a table that is far, or of many keys.
    pub(crate) fn multi_get_remote<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        if self.snapshot.is_some() || self.side_by_side(keys).nth(1).is_none() {
            return self.some_at_a_time(keys);
        }
        loop {
            // All of them are as of one moment, with no truncation after it.
            let now = self.shared.snapshots.register();
            match (TableReader { snapshot: Some(&now), ..self }).some_at_a_time(keys) {
                Err(e) if e.is_truncated() => {}
                done => return done,
            }
        }
    }

    /// The values of keys, of as many at a time as ask side by side.
    fn some_at_a_time<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let mut values = Vec::with_capacity(keys.len());
        for all in read::together(keys) {
            let mut asked = self.ask_ahead(all)?;
            for some in self.side_by_side(all) {
                let _brought = self.fetch_beside(some, &mut asked)?;
                values.extend(
                    self.values_of(self.read(|view, at| read::find_many(view, some, at))?)?,
                );
            }
        }
        Ok(values)
    }

    /// The values of look-ups, of which those that are far are read now.
    pub(crate) fn values_of(self, found: Lookups) -> Result<Vec<Option<Bytes>>> {
        let values = found.into_values().inspect_err(|e| self.shared.events.damage(e));
        values.map_err(|e| e.in_table(|| self.slot.core().name()))
    }

    /// Whether a look-up may need something of an object store.
    pub(crate) fn is_remote(self) -> Result<bool> {
        // Without an object store nothing is far.
        Ok(self.has_objects() && self.read(|view, _| Ok(view.is_remote))?)
    }

    fn has_objects(self) -> bool {
        self.shared.set.store().objects().is_some()
    }

    /// Brings to this machine what look-ups of keys need of an object store.
    pub(crate) fn fetch<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Fetched> {
        self.fetch_beside(keys, &mut AskedParts::default())
    }

    /// Brings what [`read::newest_above`] needs.
    pub(crate) fn fetch_above(self, key: &[u8], since: Lsn) -> Result<Fetched> {
        if !self.has_objects() {
            return Ok(Fetched::default());
        }
        let missing = || self.read(|view, _| read::missing(view, &[key], (since, LSN_MAX)));
        let fetched = read::fetch(&self.shared.cache, &mut AskedParts::default(), missing);
        fetched.inspect_err(|e| self.shared.events.damage(e))
    }

    /// The same, beside what was asked for before.
    pub(crate) fn fetch_beside<K: AsRef<[u8]>>(
        self,
        keys: &[K],
        before: &mut AskedParts,
    ) -> Result<Fetched> {
        if !self.has_objects() {
            return Ok(Fetched::default());
        }
        let fetched = read::fetch(&self.shared.cache, before, || self.missing(keys));
        fetched.inspect_err(|e| self.shared.events.damage(e))
    }

    /// Asks for what look-ups of all of these keys need, if they are looked up some at a time.
    pub(crate) fn ask_ahead<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<AskedParts> {
        let are_some_later = self.side_by_side(keys).nth(1).is_some();
        if !are_some_later || !self.has_objects() {
            return Ok(AskedParts::default());
        }
        read::ask_ahead(&self.shared.cache, self.missing(keys)?)
    }

    fn missing<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<MissingParts> {
        self.read(|view, at| read::missing(view, keys, (0, at.lsn)))
    }

    /// As many keys at a time as have room in the cache for their blocks.
    pub(crate) fn side_by_side<'k, K>(
        self,
        keys: &'k [K],
    ) -> impl Iterator<Item = &'k [K]> + use<'k, K> {
        read::side_by_side(keys, (&self.shared.cache, self.slot.block_size()))
    }
}

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
    /// `MissingTable` when the table was dropped; `Invalid` if it is of another database;
    /// `Corrupt`, `Unavailable` or `Closed` as [`Table::get`].
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.reader(table)?.get(key.as_ref())
    }

    /// Reads a table as of the snapshot.
    pub(super) fn reader<'a>(&'a self, table: &'a Table) -> Result<TableReader<'a>> {
        debug_assert!(
            self.lsn() <= self.shared.committer.visible(),
            "a snapshot shows what was visible when it was taken"
        );
        table.check_is_of(&self.shared, "the snapshot")?;
        let snapshot = Some(&*self.registered);
        Ok(TableReader { shared: &self.shared, slot: &table.slot, snapshot })
    }

    /// The keys and values of `table` in `range`, at the snapshot. See [`Table::range`].
    pub fn range(&self, table: &Table, range: impl KeyBounds) -> Range {
        self.iterate(table, read::KeyRange::from_bounds(&range))
    }

    /// The keys of `table` that begin with `prefix`, with their values, at the snapshot.
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Range {
        self.iterate(table, read::KeyRange::prefix(prefix.as_ref()))
    }

    fn iterate(&self, table: &Table, range: read::KeyRange) -> Range {
        Range::new(table, range, Arc::clone(&self.registered), || self.check(table).err())
    }

    pub(super) fn check(&self, table: &Table) -> Result<()> {
        table.check_is_of(&self.shared, "the snapshot")?;
        table.slot.check_not_emptied_since(self.lsn())
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("lsn", &self.lsn()).finish_non_exhaustive()
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
