//! What level 0 finds its records by: in memory, or in persistent memory.
//!
//! Versions that a newer version of the same key replaces, for every reader from now on.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::record::{LSN_MAX, Lsn, TableId};
use crate::memtable::{Index, IndexCursor, Record};
use crate::mvcc::Readers;
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::shared::OnceLock;
use crate::pindex::forest::Forest;
use crate::pindex::tree::Tree;
use crate::pindex::versions::VersionCursor;
use crate::pm::Region;

/// A sorted index of versions: by key, the newest first. Calls that name keys, and cursors, have an
/// epoch pinned.
///
/// Where it is persistent, a call that changes it has done so durably when it returns, but for
/// versions that the index has no room for. An error of such a call poisons the database.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one a table; each look-up would follow the pointer")]
pub(super) enum Versions {
    Memory(Index),
    Persistent(PersistentVersions),
}

/// A table's index in persistent memory, and one in memory for what that has no room for. It has no
/// tree before its first record.
///
/// Invariants:
///
/// 1. Of a key, the versions in memory are newer than those in the tree. So the next opening, which
///    leaves out of the zones what is older than a version in the tree, leaves out none of them.
/// 2. The merged boundary stays below the `oldest` version in memory: the next opening finds all of
///    them in the zones.
#[derive(Debug)]
pub(super) struct PersistentVersions {
    records: Arc<Region>,
    forest: Arc<Forest>,
    table: TableId,
    tree: OnceLock<Tree>,
    in_memory: OnceLock<Index>,
    /// At most the sequence number of each version in memory. The thread that inserts sets it.
    oldest: AtomicU64,
    /// Whether the tree takes no version before the next ingestion.
    is_full: AtomicBool,
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

    /// The index in memory, if it has a version.
    fn in_memory(&self) -> Option<&Index> {
        self.in_memory.get().filter(|index| index.len() > 0)
    }

    /// As [`Versions::insert`].
    fn insert(&self, key: &[u8], seq: Lsn, at: u64) -> Result<()> {
        let goes_on = self.in_memory().is_some_and(|index| index.get(key, LSN_MAX).is_some());
        if !goes_on && !self.is_full.load(Ordering::Relaxed) {
            match self.tree().and_then(|tree| tree.insert(key, seq, at)) {
                // Nothing has changed.
                Err(error) if error.may_pass() => self.is_full.store(true, Ordering::Relaxed),
                inserted => {
                    let is_new = inserted?;
                    debug_assert!(is_new, "what an opening finds in the index is in no memtable");
                    return Ok(());
                }
            }
        }
        let index = self.in_memory.get_or_init(|| Index::new(Arc::clone(&self.records)));
        match index.len() {
            0 => self.oldest.store(seq, Ordering::Relaxed),
            _ => drop(self.oldest.fetch_min(seq, Ordering::Relaxed)),
        }
        debug_assert!(
            index.get(key, LSN_MAX).is_none_or(|(newest, _)| newest < seq),
            "the oldest first (invariant 4 of the global index)"
        );
        index.insert(key, seq, at);
        Ok(())
    }
}

impl Versions {
    /// The persistent index of a table: with the tree that was found at open, or an empty one.
    pub(super) fn persistent(
        records: &Arc<Region>,
        forest: Arc<Forest>,
        table: TableId,
    ) -> Versions {
        let tree = forest.take(table).map_or_else(OnceLock::new, OnceLock::from);
        Versions::Persistent(PersistentVersions {
            records: Arc::clone(records),
            forest,
            table,
            tree,
            in_memory: OnceLock::new(),
            oldest: AtomicU64::new(LSN_MAX),
            is_full: AtomicBool::new(false),
        })
    }

    /// Makes room for so many records that are about to be inserted, where there is some. What
    /// there is no room for goes into memory, once an insertion has met that.
    pub(super) fn make_room(&self, records: u64) -> Result<()> {
        let Versions::Persistent(index) = self else { return Ok(()) };
        index.is_full.store(false, Ordering::Relaxed);
        index.forest.reserve(records).or_else(|e| if e.may_pass() { Ok(()) } else { Err(e) })
    }

    /// Makes the record at `at` findable. It is not there yet, and no newer version of its key is.
    pub(super) fn insert(&self, key: &[u8], seq: Lsn, at: u64) -> Result<()> {
        match self {
            Versions::Memory(index) => {
                index.insert(key, seq, at);
                Ok(())
            }
            Versions::Persistent(index) => index.insert(key, seq, at),
        }
    }

    /// At most the sequence number of each version that a persistent index has in memory alone, if
    /// there is one.
    pub(super) fn oldest_in_memory(&self) -> Option<Lsn> {
        match self {
            Versions::Memory(_) => None,
            Versions::Persistent(index) => {
                index.in_memory().map(|_| index.oldest.load(Ordering::Relaxed))
            }
        }
    }

    /// Takes a version out; where its record was.
    pub(super) fn remove(&self, key: &[u8], seq: Lsn) -> Result<Option<u64>> {
        match self {
            Versions::Memory(index) => Ok(index.remove(key, seq)),
            Versions::Persistent(index) => {
                match index.in_memory().and_then(|index| index.remove(key, seq)) {
                    Some(at) => Ok(Some(at)),
                    None => index.tree.get().map_or(Ok(None), |tree| tree.remove(key, seq)),
                }
            }
        }
    }

    /// Has a version be found at `to` instead of `from`; whether it was there.
    pub(super) fn relocate(&self, key: &[u8], seq: Lsn, from: u64, to: u64) -> Result<bool> {
        match self {
            Versions::Memory(index) => Ok(index.relocate(key, seq, from, to)),
            Versions::Persistent(index) => {
                let moved = index.in_memory().is_some_and(|i| i.relocate(key, seq, from, to));
                match index.tree.get().filter(|_| !moved) {
                    Some(tree) => tree.relocate(key, seq, from, to),
                    None => Ok(moved),
                }
            }
        }
    }

    /// The newest version of `key` that is not newer than `at_most`: sequence number and offset.
    pub(super) fn get(&self, key: &[u8], at_most: Lsn) -> Result<Option<(Lsn, u64)>> {
        match self {
            Versions::Memory(index) => Ok(index.get(key, at_most)),
            Versions::Persistent(index) => {
                // What is in memory is newer.
                match index.in_memory().and_then(|index| index.get(key, at_most)) {
                    Some(found) => Ok(Some(found)),
                    None => index.tree.get().map_or(Ok(None), |tree| tree.get(key, at_most)),
                }
            }
        }
    }

    /// A cursor over what a persistent index has in memory, if that is anything.
    pub(super) fn cursor_in_memory(&self) -> Option<Position<'_>> {
        match self {
            Versions::Memory(_) => None,
            Versions::Persistent(index) => index.in_memory().map(|i| Position::Memory(i.cursor())),
        }
    }

    /// A cursor, nowhere at first. Of a persistent index it shows what is in the tree.
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
            Versions::Persistent(index) => {
                let in_memory = index.in_memory.get().map_or(0, Index::memory) as u64;
                in_memory + size_of::<Versions>() as u64
            }
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

/// Decides for which readers a superseded version is kept, given its sequence number and that of
/// the next newer version of its key. `None` lets the version go.
pub(crate) type Keep<'a> = &'a dyn Fn(Lsn, Lsn) -> Option<Readers>;

/// The version of a key that comes before one in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewerRecord {
    pub(super) seq: Lsn,
    /// Whether it has operands that go on with the next older version: then that one stays.
    pub(super) goes_on: bool,
}

impl NewerRecord {
    pub(super) fn of(record: &Record<'_>) -> NewerRecord {
        NewerRecord { seq: record.seq, goes_on: record.is_open_merge() }
    }

    /// The record that came `last`, if it has the key of `record`.
    pub(super) fn than(record: &Record<'_>, last: Option<Record<'_>>) -> Option<NewerRecord> {
        last.filter(|last| last.key == record.key).map(|last| NewerRecord::of(&last))
    }
}

/// Superseded versions, found by an ingestion or by a walk over the index.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    /// Offsets of records of the memtable that the index did not take over.
    pub(crate) left_out: Vec<u64>,
    /// Keys of versions in the index, one behind the other. They are copies, since a drain may
    /// remove the records before they are pruned.
    keys: Vec<u8>,
    versions: Vec<Version>,
    bytes: u64,
}

/// A version in the index: where its key ends in `keys`, and its sequence number.
#[derive(Clone, Copy, Debug)]
struct Version {
    key_end: usize,
    seq: Lsn,
}

impl Superseded {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.left_out.is_empty() && self.versions.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.left_out.len() + self.versions.len()
    }

    /// How many of them the index has.
    pub(super) fn versions_len(&self) -> usize {
        self.versions.len()
    }

    /// Bytes that their records take in zones.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a record of the memtable that the index did not take over.
    pub(super) fn leave_out(&mut self, record: &Record<'_>, at: u64) {
        self.left_out.push(at);
        self.bytes += record.stored_len() as u64;
    }

    /// Adds a version that the index has.
    pub(super) fn add(&mut self, record: &Record<'_>) {
        self.keys.extend_from_slice(record.key);
        debug_assert!(
            self.versions.last().is_none_or(|last| last.key_end <= self.keys.len()),
            "keys lie one behind the other"
        );
        self.versions.push(Version { key_end: self.keys.len(), seq: record.seq });
        self.bytes += record.stored_len() as u64;
    }

    /// Keys and sequence numbers of the versions that the index has.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&[u8], Lsn)> {
        debug_assert!(
            self.versions.last().is_none_or(|last| last.key_end == self.keys.len()),
            "the last key ends where all keys do"
        );
        let starts = std::iter::once(0).chain(self.versions.iter().map(|v| v.key_end));
        starts.zip(&self.versions).map(|(start, v)| (&self.keys[start..v.key_end], v.seq))
    }
}
