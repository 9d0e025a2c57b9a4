//! What a container of level 0 does, in three traits: what every container does, what only a
//! container does whose records lie in zones, and what the collection of old versions needs.

use std::fmt::Debug;

use super::column::ColumnSearch;
use super::matrix::StoredRow;
use super::superseded::Superseded;
use crate::error::Result;
use crate::memtable::{Memtable, Record};
use crate::mvcc::{DrainedMap, KeyInterval, Readers};
use crate::options::Level0Container;
use crate::record::{Cursor, Lsn, TableId};

/// Decides for which readers a superseded version is kept, given its sequence number and that of
/// the next newer version of its key. `None` lets the version go.
pub(crate) type Keep<'a> = &'a dyn Fn(Lsn, Lsn) -> Option<Readers>;

/// The sorted records of one table between its memtables and level 1. Range tombstones are not
/// among them: [`Level0`](super::Level0) keeps those, for every container alike.
///
/// Every read takes the drained map D of the reader's view, and leaves out what D covers. That
/// makes a drain atomic for readers.
///
/// Thread safety: readers run at any time. One thread at a time ingests. Retirement, version
/// pruning and ingestion may run at once.
///
/// # Errors
///
/// A call that changes the container and fails with anything but `Full` may have done a part. The
/// caller poisons the database.
pub(crate) trait Container: Send + Sync + Debug {
    /// Makes sure that there is space for the records of a memtable.
    ///
    /// # Errors
    ///
    /// `Full`, and nothing has changed.
    fn reserve(&self, memtable: &Memtable) -> Result<()>;

    /// Takes over the records of a frozen memtable, for which space was reserved. Readers may find
    /// a record in both places meanwhile. Versions that `keep` does not want may be left out; those
    /// that the container has already stay until [`VersionPruning::prune`].
    fn ingest(&self, memtable: &Memtable, keep: Keep<'_>) -> Result<Superseded>;

    /// The newest version of `key` that is not newer than `at_most` and not drained.
    fn get(&self, key: &[u8], at_most: Lsn, drained: &DrainedMap) -> Result<Option<Record<'_>>>;

    /// A cursor over all that is not drained.
    fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a>;

    /// The interval that a drain should move next, if anything is left behind the search's start.
    fn next_column(&self, search: &ColumnSearch<'_>) -> Result<Option<KeyInterval>>;

    /// Bytes of the records in `interval` with a sequence number of at most `upto` that are not
    /// drained.
    fn bytes_in(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Result<u64>;

    /// Removes every record in `interval` with a sequence number of at most `upto`. The edit that
    /// drained them is durable, and no reader of an older view is left. `drained` is D of that
    /// edit.
    fn retire(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Result<Released>;

    /// Removes everything. The table is gone, and no reader is left.
    fn clear(&self) -> Result<Released>;

    /// Records and bytes that it holds.
    fn size(&self) -> Size;

    /// Bytes of memory that it takes.
    fn memory(&self) -> u64;

    /// The container as one whose records lie in zones, if they do. `None` means that the container
    /// has copies: zones still count their records until [`Released`] names them, but the cleaner
    /// cannot move them.
    fn as_zone_residents(&self) -> Option<&dyn ZoneResidents> {
        None
    }

    /// The container as one that can drop superseded versions before they are drained, if it can.
    fn as_version_pruning(&self) -> Option<&dyn VersionPruning> {
        None
    }

    /// The container as one that copies memtables into row tables, if it does.
    fn as_row_tables(&self) -> Option<&dyn RowTables> {
        None
    }
}

/// A container that copies memtables into row tables, which edits of the journal publish.
pub(crate) trait RowTables {
    /// Stores the records of a frozen memtable as the row table `id` of `table`, durably. The
    /// memtable has all records of the table above `after` and up to `upto`. `None` when they are
    /// to stay in zones: by [`Container::ingest`].
    ///
    /// # Errors
    ///
    /// An I/O error of the region, after which the database is poisoned.
    fn store(
        &self,
        memtable: &Memtable,
        keep: Keep<'_>,
        number: (TableId, u64),
        lsns: (Lsn, Lsn),
    ) -> Result<Option<StoredRow>>;

    /// Shows a stored row table to readers, once the edit that names it is durable. Gives the
    /// offsets of the records in zones, which no longer count once readers of older views left.
    fn publish(&self, stored: StoredRow) -> Vec<u64>;

    /// Gives a stored row table up that no edit names.
    fn give_up(&self, stored: StoredRow);

    /// The row tables of which all is drained, for an edit that removes them.
    fn drained(&self) -> Vec<u64>;

    /// Forgets row tables that a durable edit removed.
    fn remove(&self, ids: &[u64]);

    /// Whether a round of drains leaves the row tables that came after it began to the next one.
    fn drains_by_round(&self) -> bool;

    /// Whether memtables become row tables. Else the records that come stay in zones.
    fn takes_memtables(&self) -> bool;

    /// Has memtables go to another container from now on. What is there stays until it is drained.
    fn choose(&self, container: Level0Container);
}

/// A container that refers to its records where commits wrote them.
pub(crate) trait ZoneResidents {
    /// Whether the record at `at` is the one that a read finds.
    fn holds(&self, record: &Record<'_>, at: u64) -> Result<bool>;

    /// Makes a read find the record at `to`, its copy, instead of at `from`. Returns whether it was
    /// at `from`.
    fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> Result<bool>;

    /// Goes through a part of what an opening found in a persistent index, in the order of keys
    /// from the first version of `from` on. It removes what D covers and what a newer version
    /// supersedes, since no older reader is left. It counts the rest, and passes the offset of each
    /// record to `counts`. Nothing else changes the container until all of it was counted.
    fn count_live(
        &self,
        from: &[u8],
        drained: &DrainedMap,
        counts: &mut dyn FnMut(u64),
    ) -> Result<LiveCount>;

    /// For verification: an offset in the index that is not that of a record of `table` with the
    /// index's key. `end_of` gives the end of the records that an offset is among, if it is.
    fn wrong_offset(
        &self,
        table: TableId,
        end_of: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<Option<u64>>;
}

/// A container that can drop superseded versions before they are drained.
pub(crate) trait VersionPruning {
    /// An estimate of how many versions it keeps that none of `readers`, which ascend, reads. Some
    /// of the versions may be gone.
    fn obsolete(&self, readers: &[Lsn]) -> u64;

    /// Finds superseded versions, a part at a time and in order, from the first version of `from`
    /// on. Also returns the first key that is left. No ingestion runs meanwhile.
    fn superseded(&self, from: &[u8], keep: Keep<'_>) -> Result<(Superseded, Option<Vec<u8>>)>;

    /// Removes superseded versions. No reader that could need them is left.
    fn prune(&self, superseded: &Superseded) -> Result<Released>;
}

/// Records and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) records: u64,
    /// Bytes that the records take in the region.
    pub(crate) bytes: u64,
}

impl std::ops::Add for Size {
    type Output = Size;

    fn add(self, other: Size) -> Size {
        Size { records: self.records + other.records, bytes: self.bytes + other.bytes }
    }
}

/// What a container no longer keeps in the region. The caller gives the space back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// Offsets of records in zones, each of which no longer counts in its zone.
    pub(crate) records: Vec<u64>,
}

impl Released {
    /// Adds what another removal released.
    pub(crate) fn absorb(&mut self, other: Released) {
        self.records.extend(other.records);
    }
}

/// How far a count of live records came.
#[derive(Debug)]
pub(crate) struct LiveCount {
    /// The smallest sequence number in the part; the greatest there is if the part had none.
    pub(crate) oldest: Lsn,
    /// The first key that is left.
    pub(crate) next: Option<Vec<u8>>,
}
