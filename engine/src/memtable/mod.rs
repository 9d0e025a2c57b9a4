//! The semi-persistent memtable: records in zones of the region, an index over them in DRAM.

mod index;
mod rebuild;
mod records;

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::record::{Cursor, EntryRef, Kind, LSN_MAX, Lsn, SeparatedValue};
use crate::mvcc::{Tombstone, TombstoneList, Tombstones};
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::pm::Region;

pub(crate) use index::{Held, Records, Restart, Separator, Version, VersionLock};
pub(crate) use rebuild::{Found, Rebuilt, rebuild};
pub(crate) use records::{
    RECORD_HEADER, RECORD_KIND, Record, encode_record, record_at, record_len, records_in, set_seq,
};

/// The index over records of the region.
pub(crate) type Index = index::Index<crate::pm::Region>;
/// A position in an [`Index`].
pub(crate) type IndexCursor<'a> = index::IndexCursor<'a, crate::pm::Region>;

// One memtable of one table.
//
// Thread safety: any number of threads insert and read. Only the memtable that is its table's
// active one receives new groups; a frozen one may still receive those whose LSN lies at or
// below its boundary, until the visible watermark has passed the boundary.

/// Records in the region with an index in DRAM.
#[derive(Debug)]
pub(crate) struct Memtable {
    region: Arc<Region>,
    index: Index,
    tombstones: TombstoneList,
    records: AtomicU64,
    /// Of these, deletes of one key.
    deletes: AtomicU64,
    bytes: AtomicU64,
    /// The smallest sequence number inserted; `u64::MAX` while empty.
    oldest: AtomicU64,
}

impl Memtable {
    /// An empty memtable.
    pub(crate) fn new(region: Arc<Region>) -> Memtable {
        Memtable {
            index: Index::new(Arc::clone(&region)),
            tombstones: TombstoneList::counted(region.indexes()),
            region,
            records: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            oldest: AtomicU64::new(u64::MAX),
        }
    }

    /// One with what was found at open.
    pub(crate) fn rebuilt(region: Arc<Region>, rebuilt: Rebuilt) -> Memtable {
        let Rebuilt { index, tombstones, deletes, bytes, oldest } = rebuilt;
        let records = AtomicU64::new((index.len() + tombstones.len()) as u64);
        let (list, bytes) = (TombstoneList::counted(region.indexes()), AtomicU64::new(bytes));
        list.add(tombstones);
        let deletes = AtomicU64::new(deletes);
        let oldest = AtomicU64::new(oldest.unwrap_or(u64::MAX));
        Memtable { region, index, tombstones: list, records, deletes, bytes, oldest }
    }

    /// Makes the record at `at` findable. The inserting thread also counts it, before the group is
    /// finished.
    pub(crate) fn insert(&self, key: &[u8], seq: Lsn, at: u64) {
        self.index.insert(key, seq, at);
    }

    /// Has range tombstones hide what they cover. As [`Memtable::insert`].
    pub(crate) fn insert_ranges(&self, tombstones: Vec<Arc<Tombstone>>) {
        self.tombstones.add(tombstones);
    }

    /// Counts records of a group that were inserted, of these the deletes of one key, and the bytes
    /// that they take.
    pub(crate) fn count(&self, seq: Lsn, (records, deletes): (u64, u64), bytes: u64) {
        debug_assert!(deletes <= records, "a delete is a record");
        self.records.fetch_add(records, Ordering::Relaxed);
        if deletes > 0 {
            self.deletes.fetch_add(deletes, Ordering::Relaxed);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.oldest.fetch_min(seq, Ordering::Relaxed);
    }

    /// The newest version of `key` that is not newer than `at_most`.
    pub(crate) fn get(&self, key: &[u8], at_most: Lsn) -> Option<Record<'_>> {
        let (_, at) = self.index.get(key, at_most)?;
        Some(record_at(&self.region, at))
    }

    /// A cursor over all versions.
    pub(crate) fn cursor(&self) -> RecordCursor<'_> {
        RecordCursor::new(&self.region, &self.index)
    }

    /// The index, for a merge that moves its pointers.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Its range tombstones; `None` if it has none.
    pub(crate) fn tombstones(&self) -> Option<Arc<Tombstones>> {
        self.tombstones.load()
    }

    /// How many records were inserted.
    pub(crate) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Of these, deletes of one key.
    pub(crate) fn deletes(&self) -> u64 {
        self.deletes.load(Ordering::Relaxed)
    }

    /// How many bytes they take in zones.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that its index and range tombstones take.
    pub(crate) fn memory(&self) -> u64 {
        self.index.memory() as u64 + self.tombstones.memory()
    }

    /// Whether the record at `at` is the one that is found here.
    pub(crate) fn holds(&self, record: &Record<'_>, at: u64) -> bool {
        match record.kind {
            Kind::RangeDelete => self.tombstones.holds(record.key, record.seq, at),
            _ => self.index.get(record.key, record.seq) == Some((record.seq, at)),
        }
    }

    /// Has a record be found at `to`, where it was copied to, instead of `from`; whether it was
    /// there.
    pub(crate) fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> bool {
        match record.kind {
            Kind::RangeDelete => self.tombstones.relocate(record.key, record.seq, from, to),
            _ => self.index.relocate(record.key, record.seq, from, to),
        }
    }

    /// The smallest sequence number inserted.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        let oldest = self.oldest.load(Ordering::Relaxed);
        (oldest != u64::MAX).then_some(oldest)
    }
}

/// A [`Cursor`] over an index of records in the region.
pub(crate) struct RecordCursor<'a> {
    region: &'a Region,
    /// Decoded once a step: a merge looks at it several times.
    record: Option<(u64, Record<'a>)>,
    cursor: IndexCursor<'a>,
}

impl<'a> RecordCursor<'a> {
    /// A cursor over the records that `index` points to.
    pub(crate) fn new(region: &'a Region, index: &'a Index) -> RecordCursor<'a> {
        RecordCursor { region, record: None, cursor: index.cursor() }
    }

    fn look(&mut self) {
        self.record = self.cursor.version().map(|(_, at)| (at, record_at(self.region, at)));
    }

    /// To the first record at or after (`key`, `seq`).
    pub(crate) fn place(&mut self, key: &[u8], seq: Lsn) {
        self.cursor.seek(key, seq);
        self.look();
    }

    /// To the last record of a key smaller than `key`; of all keys without one.
    pub(crate) fn place_before(&mut self, key: Option<&[u8]>) {
        self.cursor.seek_before(key);
        self.look();
    }

    /// To the first record of all.
    pub(crate) fn seek_first(&mut self) {
        self.place(&[], LSN_MAX);
    }

    /// To the following record.
    pub(crate) fn step(&mut self) {
        self.cursor.next();
        self.look();
    }

    /// To the preceding record.
    pub(crate) fn step_back(&mut self) {
        self.cursor.prev();
        self.look();
    }

    /// The record under the cursor, with its offset.
    pub(crate) fn record(&self) -> Option<(u64, Record<'a>)> {
        self.record
    }
}

impl Cursor for RecordCursor<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.place(key, seq);
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.place_before(key);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.step();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.step_back();
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.record().map(|(_, record)| record.entry())
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        Ok(None)
    }
}
