//! Level 0: the sorted level in persistent memory under the memtables. One trait; each room
//! (container) is fed by frozen memtables and drained to level 1 in bounded columns.

mod global_index;

pub(crate) use global_index::GlobalIndex;

use crate::memtable::{Memtable, Record};
use crate::mvcc::{DrainedMap, KeyInterval};
use crate::record::{Cursor, Lsn};

/// How large a column may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnBudget {
    /// Bytes of records in level 0 that one drain may move, by which the column is cut.
    pub(crate) bytes: u64,
}

/// A container of level 0, of one table.
///
/// Every read takes the drained map D of the reader's view and leaves out what D says has moved
/// to level 1: that is what makes a drain atomic for readers.
pub(crate) trait Level0: Send + Sync + std::fmt::Debug {
    /// Takes over all records of a frozen memtable, without copying them. Readers may find a
    /// record in both while this runs.
    fn feed(&self, memtable: &Memtable);

    /// The newest version of `key` that is not newer than `at_most` and not drained.
    fn get(&self, key: &[u8], at_most: Lsn, drained: &DrainedMap) -> Option<Record<'_>>;

    /// A cursor over all that is not drained.
    fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a>;

    /// The next column at or after `from`, in turn: an interval whose records with a sequence
    /// number of at most `upto` fit the budget. `None` when level 0 holds none at or after `from`.
    fn column(
        &self,
        from: &[u8],
        upto: Lsn,
        drained: &DrainedMap,
        budget: ColumnBudget,
    ) -> Option<KeyInterval>;

    /// Lets go of every record in `interval` with a sequence number of at most `upto`, after the
    /// edit that drained them is durable and no reader of an older view is left. Returns the
    /// offsets of the records, whose zones they no longer keep.
    fn retire(&self, interval: &KeyInterval, upto: Lsn) -> Vec<u64>;

    /// Records and bytes it holds.
    fn size(&self) -> (u64, u64);
}
