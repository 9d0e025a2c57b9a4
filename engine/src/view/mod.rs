//! What a reader pins: one consistent set of memtables, level 0, and a version with its D.

mod ranges;

use std::sync::Arc;

use crate::extent::BlockCache;
use crate::level0::Level0;
use crate::levels::Version;
use crate::memtable::{Memtable, Record};
use crate::merge::MergingCursor;
use crate::record::{Cursor, Lsn};

/// A memtable that takes no new groups.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) memtable: Arc<Memtable>,
    /// The greatest LSN it can hold. All of it is there once the visible watermark has passed.
    pub(crate) boundary: Lsn,
}

/// An immutable view of one table. Replaced as a whole, never changed.
///
/// Invariants:
///
/// 1. Newer comes first: active, frozen from the newest, level 0, level 1, …: the first of them
///    that has a version of a key at or below a read's LSN has the right one.
/// 2. A record of level 0 counts if and only if its sequence number is above D of its key, and
///    then it is in no level of the version.
/// 3. A range tombstone hides every older version of its keys, wherever either lies; it lies in
///    no deeper place than they do.
/// 4. Versions that only reads below `pruned` could need may be missing, unless a registered
///    snapshot needs them.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// The newest first.
    pub(crate) frozen: Vec<Frozen>,
    pub(crate) level0: Arc<dyn Level0>,
    pub(crate) version: Arc<Version>,
    pub(crate) pruned: Lsn,
}

impl View {
    /// One cursor over everything in the view. The caller holds an epoch guard while it lives.
    pub(crate) fn cursor<'a>(&'a self, cache: &'a Arc<BlockCache>) -> MergingCursor<'a> {
        let mut inputs: Vec<Box<dyn Cursor + 'a>> = Vec::with_capacity(4 + self.frozen.len());
        inputs.push(Box::new(self.active.cursor()));
        for frozen in &self.frozen {
            inputs.push(Box::new(frozen.memtable.cursor()));
        }
        inputs.push(self.level0.cursor(&self.version.drained));
        for level in self.version.cursors(cache, true) {
            inputs.push(Box::new(level));
        }
        MergingCursor::new(inputs)
    }

    /// Records in memtables that are not in level 0 yet.
    pub(crate) fn memtable_records(&self) -> u64 {
        let frozen: u64 = self.frozen.iter().map(|f| f.memtable.records()).sum();
        self.active.records() + frozen
    }

    /// Range tombstones in memtables and level 0.
    pub(crate) fn range_deletes(&self) -> u64 {
        let memtables = self.memtables().filter_map(|memtable| memtable.tombstones());
        memtables.chain(self.level0.tombstones()).map(|set| set.len() as u64).sum()
    }

    fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.frozen.iter().map(|f| &f.memtable).chain([&self.active])
    }

    /// Whether a read can find the record at `at`.
    pub(crate) fn holds(&self, record: &Record<'_>, at: u64) -> bool {
        self.level0.holds(record, at) || self.memtables().any(|m| m.holds(record, at))
    }

    /// Has a record be found at `to`, where it was copied to, instead of `from`; whether it was
    /// there. No merge may run meanwhile.
    pub(crate) fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> bool {
        self.level0.relocate(record, from, to)
            || self.memtables().any(|m| m.relocate(record, from, to))
    }

    /// Bytes of memory that the indexes of memtables and level 0 take.
    pub(crate) fn index_memory(&self) -> u64 {
        self.level0.memory() + self.memtables().map(|m| m.memory()).sum::<u64>()
    }

    /// Bytes in the region of what is not drained.
    pub(crate) fn undrained_bytes(&self) -> u64 {
        self.level0.size().1 + self.memtables().map(|m| m.bytes()).sum::<u64>()
    }

    /// The smallest sequence number in a memtable.
    pub(crate) fn oldest_in_memtables(&self) -> Option<Lsn> {
        self.memtables().filter_map(|m| m.oldest()).min()
    }
}
