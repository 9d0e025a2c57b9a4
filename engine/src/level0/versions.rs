//! What level 0 finds its records by: in memory, or in persistent memory.

use std::sync::Arc;

use crate::error::Result;
use crate::memtable::{Index, IndexCursor};
use crate::os::sync::shared::OnceLock;
use crate::ptree::forest::{Forest, TableTree};
use crate::ptree::versions::VersionCursor;
use crate::record::{Lsn, TableId};

/// A sorted index of versions: by key, the newest first. Calls that name keys, and cursors, have an
/// epoch pinned.
///
/// Where it is persistent, a call that changes it has done so durably when it returns.
pub(crate) trait Versions: Send + Sync + std::fmt::Debug {
    /// A position in it.
    type Cursor<'a>: Position
    where
        Self: 'a;

    /// Makes sure that there is space for so many records with so many bytes of keys.
    ///
    /// # Errors
    ///
    /// `Full`, and nothing has changed.
    fn reserve(&self, records: u64, keys: u64) -> Result<()>;

    /// Makes the record at `at`, which is not there, findable.
    ///
    /// # Errors
    ///
    /// An I/O error, after which the database is poisoned: here as in every other call.
    fn insert(&self, key: &[u8], seq: Lsn, at: u64) -> Result<()>;

    /// Takes a version out; where its record was.
    fn remove(&self, key: &[u8], seq: Lsn) -> Result<Option<u64>>;

    /// Has a version be found at `to` instead of `from`; whether it was there.
    fn relocate(&self, key: &[u8], seq: Lsn, from: u64, to: u64) -> Result<bool>;

    /// The newest version of `key` that is not newer than `at_most`: sequence number and offset.
    fn get(&self, key: &[u8], at_most: Lsn) -> Result<Option<(Lsn, u64)>>;

    /// A cursor, nowhere at first.
    fn cursor(&self) -> Self::Cursor<'_>;

    /// An offset that some version has and `leads`, which gets the first eight bytes of its key
    /// too, does not take for that of its record.
    fn wrong_offset(&self, leads: &dyn Fn(u64, u64) -> bool) -> Result<Option<u64>>;

    /// Forgets everything. No reader and no job uses it any more.
    fn clear(&self) -> Result<()>;

    /// Bytes of memory that it takes.
    fn memory(&self) -> u64;
}

/// A position in an index of versions.
pub(crate) trait Position {
    /// Goes to the first version at or behind (`key`, `seq`).
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()>;

    /// Goes to the last version before all of `key`; without one, to the last of all.
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()>;

    /// Goes to the next version.
    fn next(&mut self) -> Result<()>;

    /// Goes to the version before.
    fn prev(&mut self) -> Result<()>;

    /// The version here: sequence number and offset.
    fn version(&self) -> Option<(Lsn, u64)>;
}

impl Versions for Index {
    type Cursor<'a> = IndexCursor<'a>;

    fn reserve(&self, _records: u64, _keys: u64) -> Result<()> {
        Ok(())
    }

    fn insert(&self, key: &[u8], seq: Lsn, at: u64) -> Result<()> {
        Index::insert(self, key, seq, at);
        Ok(())
    }

    fn remove(&self, key: &[u8], seq: Lsn) -> Result<Option<u64>> {
        Ok(Index::remove(self, key, seq))
    }

    fn relocate(&self, key: &[u8], seq: Lsn, from: u64, to: u64) -> Result<bool> {
        Ok(Index::relocate(self, key, seq, from, to))
    }

    fn get(&self, key: &[u8], at_most: Lsn) -> Result<Option<(Lsn, u64)>> {
        Ok(Index::get(self, key, at_most))
    }

    fn cursor(&self) -> IndexCursor<'_> {
        Index::cursor(self)
    }

    fn wrong_offset(&self, _leads: &dyn Fn(u64, u64) -> bool) -> Result<Option<u64>> {
        // It was made of the records, and is not on the media.
        Ok(None)
    }

    fn clear(&self) -> Result<()> {
        // It goes with its owner.
        Ok(())
    }

    fn memory(&self) -> u64 {
        Index::memory(self) as u64
    }
}

impl Position for IndexCursor<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        IndexCursor::seek(self, key, seq);
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        IndexCursor::seek_before(self, key);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        IndexCursor::next(self);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        IndexCursor::prev(self);
        Ok(())
    }

    fn version(&self) -> Option<(Lsn, u64)> {
        IndexCursor::version(self)
    }
}

/// A table's index in persistent memory. It has no tree before its first record.
#[derive(Debug)]
pub(crate) struct Persistent {
    forest: Arc<Forest>,
    table: TableId,
    tree: OnceLock<TableTree>,
}

impl Persistent {
    /// The index of a table: with the tree that was found at open, or an empty one.
    pub(crate) fn new(forest: Arc<Forest>, table: TableId) -> Persistent {
        let tree = forest.take(table).map_or_else(OnceLock::new, OnceLock::from);
        Persistent { forest, table, tree }
    }

    /// The tree. One thread at a time inserts.
    fn tree(&self) -> Result<&TableTree> {
        match self.tree.get() {
            Some(tree) => Ok(tree),
            None => {
                let tree = self.forest.create(self.table)?;
                Ok(self.tree.get_or_init(|| tree))
            }
        }
    }
}

impl Versions for Persistent {
    type Cursor<'a> = Option<VersionCursor<'a>>;

    fn reserve(&self, records: u64, keys: u64) -> Result<()> {
        self.forest.reserve(records, keys)
    }

    fn insert(&self, key: &[u8], seq: Lsn, at: u64) -> Result<()> {
        let is_new = self.tree()?.insert(key, seq, at)?;
        debug_assert!(is_new, "what an opening finds in the index is in no memtable");
        Ok(())
    }

    fn remove(&self, key: &[u8], seq: Lsn) -> Result<Option<u64>> {
        self.tree.get().map_or(Ok(None), |tree| tree.remove(key, seq))
    }

    fn relocate(&self, key: &[u8], seq: Lsn, from: u64, to: u64) -> Result<bool> {
        self.tree.get().map_or(Ok(false), |tree| tree.relocate(key, seq, from, to))
    }

    fn get(&self, key: &[u8], at_most: Lsn) -> Result<Option<(Lsn, u64)>> {
        self.tree.get().map_or(Ok(None), |tree| tree.get(key, at_most))
    }

    fn cursor(&self) -> Option<VersionCursor<'_>> {
        self.tree.get().map(|tree| tree.cursor())
    }

    fn wrong_offset(&self, leads: &dyn Fn(u64, u64) -> bool) -> Result<Option<u64>> {
        self.tree.get().map_or(Ok(None), |tree| tree.wrong_offset(leads))
    }

    fn clear(&self) -> Result<()> {
        self.tree.get().map_or(Ok(()), |tree| self.forest.remove(tree))
    }

    fn memory(&self) -> u64 {
        size_of::<Self>() as u64
    }
}

impl Position for Option<VersionCursor<'_>> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.as_mut().map_or(Ok(()), |cursor| cursor.seek(key, seq))
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.as_mut().map_or(Ok(()), |cursor| cursor.seek_before(key))
    }

    fn next(&mut self) -> Result<()> {
        self.as_mut().map_or(Ok(()), VersionCursor::next)
    }

    fn prev(&mut self) -> Result<()> {
        self.as_mut().map_or(Ok(()), VersionCursor::prev)
    }

    fn version(&self) -> Option<(Lsn, u64)> {
        self.as_ref()?.version()
    }
}
