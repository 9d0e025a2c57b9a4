//! Level 0: the sorted level in persistent memory under the memtables. One trait; each room
//! (container) is fed by frozen memtables and drained to level 1 in bounded columns.

mod global_index;
mod leaving;
mod versions;
mod walk;

pub(crate) use global_index::GlobalIndex;
pub(crate) use versions::Persistent;

use crate::error::Result;
use crate::memtable::{Memtable, Record};
use crate::mvcc::{DrainedMap, KeyInterval, Readers, Tombstone, Tombstones};
use std::sync::Arc;

use crate::record::{Cursor, Lsn, TableId};

/// For whom a superseded version is kept, if it is: by its sequence number and the next newer
/// one's.
pub(crate) type Keep<'a> = &'a dyn Fn(Lsn, Lsn) -> Option<Readers>;

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
    /// Makes sure that there is space to take over a memtable.
    ///
    /// # Errors
    ///
    /// `Full`, and nothing has changed.
    fn reserve(&self, memtable: &Memtable) -> Result<()>;

    /// Takes over the records of a frozen memtable, without copying them, but for those that are
    /// superseded; what is superseded in level 0 itself stays until [`Level0::prune`]. Readers may
    /// find a record in both while this runs. `keep` is as for [`Level0::superseded`]. Space was
    /// made sure of.
    ///
    /// # Errors
    ///
    /// An I/O error, here as from every other call; the database is to be poisoned then, since a
    /// part may have been done.
    fn feed(&self, memtable: &Memtable, keep: Keep<'_>) -> Result<Superseded>;

    /// How many versions it keeps for readers alone, of whom none is among `readers`, which ascend.
    /// Some may have gone.
    fn needless(&self, readers: &[Lsn]) -> u64;

    /// Looks for superseded versions, a part at a time and in order, from the first version of a
    /// key on; also the first key that is left. `keep` says for whom a version has to stay, given
    /// its sequence number and that of the next newer one of its key. No merge runs meanwhile.
    fn superseded(&self, from: &[u8], keep: Keep<'_>) -> Result<(Superseded, Option<Vec<u8>>)>;

    /// Lets go of superseded versions, once no reader is left who could need them. Returns the
    /// offsets of the records, whose zones they no longer keep.
    fn prune(&self, superseded: &Superseded) -> Result<Vec<u64>>;

    /// Whether the record at `at` is the one that is found here.
    fn holds(&self, record: &Record<'_>, at: u64) -> Result<bool>;

    /// Has a record be found at `to`, where it was copied to, instead of `from`; whether it was
    /// there.
    fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> Result<bool>;

    /// The newest version of `key` that is not newer than `at_most` and not drained.
    fn get(&self, key: &[u8], at_most: Lsn, drained: &DrainedMap) -> Result<Option<Record<'_>>>;

    /// A cursor over all that is not drained.
    fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a>;

    /// Its range tombstones, drained or not; `None` if it has none.
    fn tombstones(&self) -> Option<Arc<Tombstones>>;

    /// What its range tombstones with a sequence number of at most `upto` say of keys in `interval`
    /// and is not drained.
    fn tombstones_in(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Vec<Arc<Tombstone>>;

    /// The next column at or after `from`, in turn: an interval whose records with a sequence
    /// number of at most `upto` fit the budget. Its end, if it has one, is the first key after one
    /// of them, so that the keys of what comes of it are known to the last. `None` when level 0
    /// holds none at or after `from`.
    fn column(
        &self,
        from: &[u8],
        upto: Lsn,
        drained: &DrainedMap,
        budget: ColumnBudget,
    ) -> Result<Option<KeyInterval>>;

    /// Lets go of every record in `interval` with a sequence number of at most `upto`, after the
    /// edit that drained them is durable and no reader of an older view is left. A range tombstone
    /// goes once all of it is in `interval` or in what `drained` says has moved. Returns the
    /// offsets of the records, whose zones they no longer keep.
    fn retire(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Result<Vec<u64>>;

    /// Takes stock of what an opening found in the index, a part at a time and in order, from the
    /// first version of a key on: what D covers is taken out, and so is what a newer version
    /// supersedes, as no reader is left who was older; the rest is counted, and `counts` is told
    /// where each record is. Nothing else changes level 0 before all of it was counted.
    fn take_stock(
        &self,
        from: &[u8],
        drained: &DrainedMap,
        counts: &mut dyn FnMut(u64),
    ) -> Result<Stock>;

    /// Adds range tombstones that an opening found.
    fn add_tombstones(&self, tombstones: Vec<Arc<Tombstone>>);

    /// For verification: an offset that the index has and that is not that of a record of `table`
    /// with such a key. `end_of` says where the records end that an offset is among, if it is.
    fn misled(&self, table: TableId, end_of: &dyn Fn(u64) -> Option<u64>) -> Result<Option<u64>>;

    /// Lets go of everything, of a table that is no more, when no reader is left. Returns the
    /// offsets of the records, whose zones they no longer keep; or somebody else does, who is about
    /// to prune or to retire some.
    fn let_go(&self) -> Result<Vec<u64>>;

    /// Bytes of the records in `interval` with a sequence number of at most `upto` that are not
    /// drained.
    fn bytes_in(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Result<u64>;

    /// Records and bytes it holds.
    fn size(&self) -> (u64, u64);

    /// Bytes of memory that it takes, to the byte.
    fn memory(&self) -> u64;
}

/// How far stock was taken.
#[derive(Debug)]
pub(crate) struct Stock {
    /// The smallest sequence number in the part; the greatest there is if it had none.
    pub(crate) oldest: Lsn,
    /// The first key that is left.
    pub(crate) next: Option<Vec<u8>>,
}

/// Versions that a newer one has taken the place of, for every reader from now on.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    /// Offsets of records of the memtable, which were not taken over.
    pub(crate) left_out: Vec<u64>,
    /// Keys of versions in level 0, one behind the other: the records may be gone before they
    /// are let go of, by way of a drain.
    keys: Vec<u8>,
    versions: Vec<Version>,
    bytes: u64,
}

/// A version in level 0: where its key ends in `keys`, and its sequence number.
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

    /// Bytes that their records take in zones.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn leave_out(&mut self, record: &Record<'_>, at: u64) {
        self.left_out.push(at);
        self.bytes += record.stored_len() as u64;
    }

    fn add(&mut self, record: &Record<'_>) {
        self.keys.extend_from_slice(record.key);
        self.versions.push(Version { key_end: self.keys.len(), seq: record.seq });
        self.bytes += record.stored_len() as u64;
    }

    /// Keys and sequence numbers of the versions in level 0.
    fn versions(&self) -> impl Iterator<Item = (&[u8], Lsn)> {
        let starts = std::iter::once(0).chain(self.versions.iter().map(|v| v.key_end));
        starts.zip(&self.versions).map(|(start, v)| (&self.keys[start..v.key_end], v.seq))
    }
}
