//! A container of copies, for tests: each ingestion adds a run of rows, sorted and copied out of
//! the zones. It shows that the traits do not ask a container for anything that only records in
//! zones have. It is slow: a cursor sorts all rows.
//!
//! Zones go on counting the records until they are released, since the copies are in memory alone
//! and the next opening reads the zones.
//!
//! Thread safety: as [`Container`]. Runs are appended and never moved, so that rows can be lent for
//! as long as the container lives.

use std::cmp::Reverse;
use std::sync::Arc;

use super::column::{ColumnSearch, bytes_by_walk, column_by_walk};
use super::container::{Container, Keep, Released, Size};
use super::superseded::Superseded;
use crate::error::Result;
use crate::memtable::{Index, Memtable, Rebuilt, Record, RecordCursor};
use crate::mvcc::{DrainedMap, KeyInterval};
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::shared::OnceLock;
use crate::pm::Region;
use crate::record::{Cursor, EntryRef, LSN_MAX, Lsn, SeparatedValue};

/// A copy of a record.
#[derive(Debug)]
struct Row {
    bytes: Vec<u8>,
    /// Where the record lies, to release it.
    at: u64,
    is_gone: AtomicBool,
}

impl Row {
    fn record(&self) -> Record<'_> {
        let record = Record::decode(&self.bytes);
        record.unwrap_or_else(|| unreachable!("it was decoded before it was copied"))
    }

    fn is_here(&self) -> bool {
        !self.is_gone.load(Ordering::Acquire)
    }
}

/// What one ingestion brought, sorted, and the runs of later ones.
#[derive(Debug, Default)]
struct Run {
    rows: Vec<Row>,
    later: OnceLock<Box<Run>>,
}

/// A container of level 0 that copies what it ingests.
#[derive(Debug)]
pub(super) struct SortedCopy {
    region: Arc<Region>,
    first: Run,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl SortedCopy {
    /// An empty one.
    pub(super) fn new(region: Arc<Region>) -> SortedCopy {
        let (records, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        SortedCopy { region, first: Run::default(), records, bytes }
    }

    /// One with what an opening found.
    pub(super) fn rebuilt(region: Arc<Region>, rebuilt: &Rebuilt) -> SortedCopy {
        let copy = SortedCopy::new(region);
        copy.append(&rebuilt.index);
        copy
    }

    /// Copies the records that an index leads to into a run.
    fn append(&self, index: &Index) {
        let _guard = crate::mvcc::pin();
        let mut cursor = RecordCursor::new(&self.region, index);
        cursor.seek_first();
        let mut rows = Vec::new();
        while let Some((at, record)) = cursor.record() {
            let len = record.stored_len() as u64;
            self.records.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(len, Ordering::Relaxed);
            let bytes = self.region.bytes(at, len).to_vec();
            rows.push(Row { bytes, at, is_gone: AtomicBool::new(false) });
            cursor.step();
        }
        let mut run = Box::new(Run { rows, later: OnceLock::new() });
        let mut last = &self.first;
        loop {
            match last.later.set(run) {
                Ok(()) => return,
                Err(back) => run = back,
            }
            last = last.later.get().unwrap_or_else(|| unreachable!("it was set"));
        }
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        std::iter::successors(Some(&self.first), |run| run.later.get().map(|run| &**run))
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.runs().flat_map(|run| &run.rows).filter(|row| row.is_here())
    }

    fn remove(&self, which: impl Fn(&Record<'_>) -> bool) -> Released {
        let mut released = Released::default();
        for row in self.rows().filter(|row| which(&row.record())) {
            if !row.is_gone.swap(true, Ordering::AcqRel) {
                self.records.fetch_sub(1, Ordering::Relaxed);
                self.bytes.fetch_sub(row.bytes.len() as u64, Ordering::Relaxed);
                released.records.push(row.at);
            }
        }
        released
    }

    fn walk(&self, drained: &DrainedMap) -> SortedWalk<'_> {
        let records = self.rows().map(Row::record);
        let mut rows: Vec<_> = records.filter(|r| r.seq > drained.get(r.key)).collect();
        rows.sort_by_key(|record| (record.key, Reverse(record.seq)));
        SortedWalk { rows, at: None }
    }
}

impl Container for SortedCopy {
    fn reserve(&self, _memtable: &Memtable) -> Result<()> {
        Ok(())
    }

    fn ingest(&self, memtable: &Memtable, _keep: Keep<'_>) -> Result<Superseded> {
        self.append(memtable.index());
        Ok(Superseded::default())
    }

    fn get(&self, key: &[u8], at_most: Lsn, drained: &DrainedMap) -> Result<Option<Record<'_>>> {
        // A row that is gone does not count: D may have forgotten what removed it.
        let in_run = |run: &'_ Run| -> Option<usize> {
            let rows = run.rows.iter().map(Row::record).enumerate();
            let first = run.rows.partition_point(|row| {
                let record = row.record();
                (record.key, Reverse(record.seq)) < (key, Reverse(at_most))
            });
            let mut of_key = rows.skip(first).take_while(|(_, record)| record.key == key);
            of_key.find(|(n, _)| run.rows[*n].is_here()).map(|(n, _)| n)
        };
        let found = self.runs().filter_map(|run| Some(run.rows[in_run(run)?].record()));
        let newest = found.max_by_key(|record| record.seq);
        Ok(newest.filter(|record| record.seq > drained.get(key)))
    }

    fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a> {
        Box::new(self.walk(drained))
    }

    fn next_column(&self, search: &ColumnSearch<'_>) -> Result<Option<KeyInterval>> {
        column_by_walk(self.walk(search.drained), search)
    }

    fn bytes_in(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Result<u64> {
        bytes_by_walk(self.walk(drained), interval, upto)
    }

    fn retire(&self, interval: &KeyInterval, upto: Lsn, _drained: &DrainedMap) -> Result<Released> {
        Ok(self.remove(|record| record.seq <= upto && interval.contains(record.key)))
    }

    fn clear(&self) -> Result<Released> {
        Ok(self.remove(|_| true))
    }

    fn size(&self) -> Size {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Size { records: of(&self.records), bytes: of(&self.bytes) }
    }

    fn memory(&self) -> u64 {
        self.runs().flat_map(|run| &run.rows).map(|row| row.bytes.len() as u64).sum()
    }
}

/// A cursor over sorted records.
struct SortedWalk<'a> {
    rows: Vec<Record<'a>>,
    at: Option<usize>,
}

impl SortedWalk<'_> {
    fn first_at(&self, key: &[u8], seq: Lsn) -> usize {
        self.rows.partition_point(|row| (row.key, Reverse(row.seq)) < (key, Reverse(seq)))
    }
}

impl Cursor for SortedWalk<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.at = Some(self.first_at(key, seq));
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let behind = key.map_or(self.rows.len(), |key| self.first_at(key, LSN_MAX));
        self.at = behind.checked_sub(1);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at = self.at.map(|at| at + 1);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.at = self.at.and_then(|at| at.checked_sub(1));
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.rows.get(self.at?).map(|record| record.entry())
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        Ok(None)
    }
}
