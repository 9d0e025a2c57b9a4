//! Versions that a newer version of the same key replaces, for every reader from now on.

use crate::memtable::Record;
use crate::mvcc::Readers;
use crate::record::Lsn;

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
