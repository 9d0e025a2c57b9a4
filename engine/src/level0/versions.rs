//! What level 0 finds its records by: in memory, or in persistent memory.

use std::sync::Arc;

use crate::error::Result;
use crate::memtable::{Index, IndexCursor};
use crate::os::sync::shared::OnceLock;
use crate::ptree::forest::Forest;
use crate::ptree::tree::Tree;
use crate::ptree::versions::VersionCursor;
use crate::record::{Lsn, TableId};

/// A sorted index of versions: by key, the newest first. Calls that name keys, and cursors, have an
/// epoch pinned.
///
/// Where it is persistent, a call that changes it has done so durably when it returns. An error of
/// such a call poisons the database, but for [`Versions::reserve`].
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one a table; each look-up would follow the pointer")]
pub(super) enum Versions {
    Memory(Index),
    Persistent(PersistentVersions),
}

/// A table's index in persistent memory. It has no tree before its first record.
#[derive(Debug)]
pub(super) struct PersistentVersions {
    forest: Arc<Forest>,
    table: TableId,
    tree: OnceLock<Tree>,
}

impl PersistentVersions {
    /// The tree. One thread at a time inserts.
    fn tree(&self) -> Result<&Tree> {
        match self.tree.get() {
            Some(tree) => Ok(tree),
            None => {
                let tree = self.forest.create(self.table)?;
                Ok(self.tree.get_or_init(|| tree))
            }
        }
    }
}

impl Versions {
    /// The persistent index of a table: with the tree that was found at open, or an empty one.
    pub(super) fn persistent(forest: Arc<Forest>, table: TableId) -> Versions {
        let tree = forest.take(table).map_or_else(OnceLock::new, OnceLock::from);
        Versions::Persistent(PersistentVersions { forest, table, tree })
    }

    /// Makes sure that there is space for so many records with so many bytes of keys. With `Full`
    /// nothing has changed.
    pub(super) fn reserve(&self, records: u64, keys: u64) -> Result<()> {
        match self {
            Versions::Memory(_) => Ok(()),
            Versions::Persistent(index) => index.forest.reserve(records, keys),
        }
    }

    /// Makes the record at `at`, which is not there, findable.
    pub(super) fn insert(&self, key: &[u8], seq: Lsn, at: u64) -> Result<()> {
        match self {
            Versions::Memory(index) => index.insert(key, seq, at),
            Versions::Persistent(index) => {
                let is_new = index.tree()?.insert(key, seq, at)?;
                debug_assert!(is_new, "what an opening finds in the index is in no memtable");
            }
        }
        Ok(())
    }

    /// Takes a version out; where its record was.
    pub(super) fn remove(&self, key: &[u8], seq: Lsn) -> Result<Option<u64>> {
        match self {
            Versions::Memory(index) => Ok(index.remove(key, seq)),
            Versions::Persistent(index) => {
                index.tree.get().map_or(Ok(None), |tree| tree.remove(key, seq))
            }
        }
    }

    /// Has a version be found at `to` instead of `from`; whether it was there.
    pub(super) fn relocate(&self, key: &[u8], seq: Lsn, from: u64, to: u64) -> Result<bool> {
        match self {
            Versions::Memory(index) => Ok(index.relocate(key, seq, from, to)),
            Versions::Persistent(index) => {
                index.tree.get().map_or(Ok(false), |tree| tree.relocate(key, seq, from, to))
            }
        }
    }

    /// The newest version of `key` that is not newer than `at_most`: sequence number and offset.
    pub(super) fn get(&self, key: &[u8], at_most: Lsn) -> Result<Option<(Lsn, u64)>> {
        match self {
            Versions::Memory(index) => Ok(index.get(key, at_most)),
            Versions::Persistent(index) => {
                index.tree.get().map_or(Ok(None), |tree| tree.get(key, at_most))
            }
        }
    }

    /// A cursor, nowhere at first.
    pub(super) fn cursor(&self) -> Position<'_> {
        match self {
            Versions::Memory(index) => Position::Memory(index.cursor()),
            Versions::Persistent(index) => {
                Position::Persistent(index.tree.get().map(|tree| tree.cursor()))
            }
        }
    }

    /// An offset that some version has and `leads`, which gets the first eight bytes of its key
    /// too, does not take for that of its record. An index in memory was made of the records.
    pub(super) fn wrong_offset(&self, leads: &dyn Fn(u64, u64) -> bool) -> Result<Option<u64>> {
        match self {
            Versions::Memory(_) => Ok(None),
            Versions::Persistent(index) => {
                index.tree.get().map_or(Ok(None), |tree| tree.wrong_offset(leads))
            }
        }
    }

    /// Forgets everything. No reader and no job uses it any more. An index in memory goes with its
    /// owner.
    pub(super) fn clear(&self) -> Result<()> {
        match self {
            Versions::Memory(_) => Ok(()),
            Versions::Persistent(index) => {
                index.tree.get().map_or(Ok(()), |tree| index.forest.remove(tree))
            }
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        match self {
            Versions::Memory(index) => index.memory() as u64,
            Versions::Persistent(_) => size_of::<Versions>() as u64,
        }
    }
}

/// A position in an index of versions. A persistent one without a tree has none.
#[expect(clippy::large_enum_variant, reason = "a walk that is kept is boxed as a whole")]
pub(super) enum Position<'a> {
    Memory(IndexCursor<'a>),
    Persistent(Option<VersionCursor<'a>>),
}

impl<'a> Position<'a> {
    fn go(
        &mut self,
        in_memory: impl FnOnce(&mut IndexCursor<'a>),
        in_tree: impl FnOnce(&mut VersionCursor<'a>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Position::Memory(cursor) => in_memory(cursor),
            Position::Persistent(Some(cursor)) => in_tree(cursor)?,
            Position::Persistent(None) => {}
        }
        Ok(())
    }

    /// Goes to the first version at or behind (`key`, `seq`).
    pub(super) fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.go(|cursor| cursor.seek(key, seq), |cursor| cursor.seek(key, seq))
    }

    /// Goes to the last version before all of `key`; without one, to the last of all.
    pub(super) fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.go(|cursor| cursor.seek_before(key), |cursor| cursor.seek_before(key))
    }

    /// Goes to the next version.
    pub(super) fn next(&mut self) -> Result<()> {
        self.go(IndexCursor::next, VersionCursor::next)
    }

    /// Goes to the version before.
    pub(super) fn prev(&mut self) -> Result<()> {
        self.go(IndexCursor::prev, VersionCursor::prev)
    }

    /// The version here: sequence number and offset.
    pub(super) fn version(&self) -> Option<(Lsn, u64)> {
        match self {
            Position::Memory(cursor) => cursor.version(),
            Position::Persistent(cursor) => cursor.as_ref()?.version(),
        }
    }
}
