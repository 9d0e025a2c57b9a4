//! The global index: one sorted index over all records that memtables have handed down. Feeding
//! it moves pointers, not bytes; it is drained by rotating columns.
//!
//! Source: the global index of X-Engine on persistent memory, drained by columns as MatrixKV's
//! level 0 is.
//!
//! Thread safety: readers, one feeding and one retiring thread run at once.
//!
//! Invariants:
//!
//! 1. Every record at or below D of its key may be missing; every record above D that was fed is
//!    there until a later D covers it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ColumnBudget, Level0};
use crate::error::Result;
use crate::memtable::{Index, Memtable, Rebuilt, Record, RecordCursor, record_at};
use crate::mvcc::{DrainedMap, KeyInterval};
use crate::pm::Region;
use crate::record::{Cursor, EntryRef, LSN_MAX, Lsn};

/// The default container of level 0.
#[derive(Debug)]
pub(crate) struct GlobalIndex {
    region: Arc<Region>,
    index: Index,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl GlobalIndex {
    /// An empty one.
    pub(crate) fn new(region: Arc<Region>) -> GlobalIndex {
        GlobalIndex {
            index: Index::new(Arc::clone(&region)),
            region,
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// One with what was found at open.
    pub(crate) fn rebuilt(region: Arc<Region>, rebuilt: Rebuilt) -> GlobalIndex {
        let Rebuilt { index, bytes, .. } = rebuilt;
        let (records, bytes) = (AtomicU64::new(index.len() as u64), AtomicU64::new(bytes));
        GlobalIndex { region, index, records, bytes }
    }

    fn add(&self, record: &Record<'_>, at: u64) {
        self.index.insert(record.key, record.seq, at);
        self.records.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(record.stored_len() as u64, Ordering::Relaxed);
    }
}

impl Level0 for GlobalIndex {
    fn feed(&self, memtable: &Memtable) {
        let mut cursor = RecordCursor::new(&self.region, memtable.index());
        cursor.seek_first();
        while let Some((at, record)) = cursor.record() {
            self.add(&record, at);
            cursor.step();
        }
    }

    fn get(&self, key: &[u8], at_most: Lsn, drained: &DrainedMap) -> Option<Record<'_>> {
        let (seq, at) = self.index.get(key, at_most)?;
        (seq > drained.get(key)).then(|| record_at(&self.region, at))
    }

    fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a> {
        let cursor = RecordCursor::new(&self.region, &self.index);
        Box::new(Undrained { cursor, drained })
    }

    fn column(
        &self,
        from: &[u8],
        upto: Lsn,
        drained: &DrainedMap,
        budget: ColumnBudget,
    ) -> Option<KeyInterval> {
        let mut cursor = RecordCursor::new(&self.region, &self.index);
        cursor.place(from, LSN_MAX);
        let (mut bytes, mut last): (u64, Option<&[u8]>) = (0, None);
        while let Some((_, record)) = cursor.record() {
            let counts = record.seq <= upto && record.seq > drained.get(record.key);
            if bytes >= budget.bytes && last != Some(record.key) {
                return Some(KeyInterval { start: from.to_vec(), end: Some(record.key.to_vec()) });
            }
            if counts {
                bytes += record.stored_len() as u64;
                last = Some(record.key);
            }
            cursor.step();
        }
        last.map(|_| KeyInterval { start: from.to_vec(), end: None })
    }

    fn retire(&self, interval: &KeyInterval, upto: Lsn) -> Vec<u64> {
        let mut gone = Vec::new();
        let mut cursor = RecordCursor::new(&self.region, &self.index);
        cursor.place(&interval.start, LSN_MAX);
        while let Some((at, record)) = cursor.record() {
            if !interval.contains(record.key) {
                break;
            }
            cursor.step();
            if record.seq <= upto && self.index.remove(record.key, record.seq).is_some() {
                self.records.fetch_sub(1, Ordering::Relaxed);
                self.bytes.fetch_sub(record.stored_len() as u64, Ordering::Relaxed);
                gone.push(at);
            }
        }
        gone
    }

    fn size(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// A cursor that leaves out what D covers.
struct Undrained<'a> {
    cursor: RecordCursor<'a>,
    drained: &'a DrainedMap,
}

impl Undrained<'_> {
    fn covered(&self) -> bool {
        self.cursor.record().is_some_and(|(_, r)| r.seq <= self.drained.get(r.key))
    }

    fn skip_forward(&mut self) {
        while self.covered() {
            self.cursor.step();
        }
    }

    fn skip_back(&mut self) {
        while self.covered() {
            self.cursor.step_back();
        }
    }
}

impl Cursor for Undrained<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.cursor.place(key, seq);
        self.skip_forward();
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.cursor.seek_before(key)?;
        self.skip_back();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.cursor.step();
        self.skip_forward();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.cursor.step_back();
        self.skip_back();
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.cursor.record().map(|(_, record)| record.entry())
    }
}
