//! Writes a row table: lays it out in memory, takes its pages, stores them, and waits once.

use super::layout::{ENTRIES, ENTRY, Entry, PageRef, Place, RowDirectory};
use super::row::OpenRow;
use crate::base::error::Result;
use crate::base::options::Failpoint;
use crate::base::record::{Lsn, RowTable, TableId, checksum, slice};
use crate::level0::versions::Keep;
use crate::level0::versions::NewerRecord;
use crate::memtable::{Memtable, Record, RecordCursor};
use crate::pm::alloc::{PagePool, PageRange};
use crate::pm::{PAGE, Region};

/// Bytes on their way to pages. What is pushed lies in one piece.
#[derive(Debug, Default)]
pub(super) struct Spool {
    bytes: Vec<u8>,
    /// Pages that have to lie in a row, one number a piece.
    pieces: Vec<u32>,
}

impl Spool {
    /// Adds bytes, and says where.
    fn push(&mut self, bytes: &[u8]) -> Place {
        if bytes.is_empty() {
            return Place::default();
        }
        let page = PAGE as usize;
        let rest = self.bytes.len().next_multiple_of(page) - self.bytes.len();
        if bytes.len() > rest {
            self.bytes.resize(self.bytes.len() + rest, 0);
            self.pieces.push(bytes.len().div_ceil(page) as u32);
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Place { page: (at / page) as u32, offset: (at % page) as u16 }
    }

    /// Fills the last page up.
    fn close(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(PAGE as usize), 0);
    }
}

/// A row table as it is to be stored.
#[derive(Debug)]
pub(super) struct RowDraft {
    entries: Vec<Entry>,
    keys: Spool,
    values: Spool,
    /// The offsets of all records of the memtable, those that were left out too.
    pub(super) copied: Vec<u64>,
    /// Whether versions that no reader needs were left out.
    pub(super) left_out: bool,
    pub(super) bytes: u64,
    oldest: Lsn,
}

/// Which row table a draft becomes: of a table, with a number, and above which other one; 0 for
/// none.
pub(super) struct RowNumber {
    pub(super) table: TableId,
    pub(super) id: u64,
    pub(super) below: u64,
}

impl RowDraft {
    /// About how many bytes of memory one of a memtable takes, while it is stored too.
    pub(super) fn memory_of(memtable: &Memtable) -> u64 {
        let of_record = size_of::<Entry>() + ENTRY + size_of::<u64>();
        memtable.bytes() + memtable.records() * of_record as u64
    }

    /// What is to be stored of a memtable. Versions that `keep` does not want are left out.
    pub(super) fn of(
        memtable: &Memtable,
        region: &Region,
        keep: Keep<'_>,
        below: Option<&OpenRow>,
    ) -> RowDraft {
        let mut draft = RowDraft {
            entries: Vec::with_capacity(memtable.records() as usize),
            keys: Spool::default(),
            values: Spool::default(),
            copied: Vec::with_capacity(memtable.records() as usize),
            left_out: false,
            bytes: 0,
            oldest: Lsn::MAX,
        };
        let mut cursor = RecordCursor::new(region, memtable.index());
        cursor.seek_first();
        let (mut last, mut hint): (Option<Record<'_>>, u32) = (None, 0);
        while let Some((at, record)) = cursor.record() {
            cursor.step();
            draft.copied.push(at);
            let newer = NewerRecord::than(&record, last.replace(record));
            let superseded = newer.filter(|newer| !newer.goes_on).map(|newer| newer.seq);
            if superseded.is_some_and(|newer| keep(record.seq, newer).is_none()) {
                draft.left_out = true;
                continue;
            }
            if let Some(below) = below {
                hint = below.advance(region, hint, record.key);
            }
            draft.add(&record, hint);
        }
        draft.keys.close();
        draft.values.close();
        draft
    }

    fn add(&mut self, record: &Record<'_>, hint: u32) {
        let key = self.keys.push(record.key);
        let value = self.values.push(record.value);
        self.entries.push(Entry {
            seq: record.seq,
            prefix: slice(record.key, 0),
            key,
            key_len: record.key.len() as u32,
            kind: record.kind,
            value,
            value_len: record.value.len() as u32,
            hint,
        });
        self.bytes += record.stored_len() as u64;
        self.oldest = self.oldest.min(record.seq);
    }

    /// How many records it has.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Stores it in pages of the pool, durably: one fence, or one sync, for all. `None` when there
    /// is no room, and nothing has changed. No edit names it yet.
    pub(super) fn store(
        self,
        pool: &PagePool,
        RowNumber { table, id, below }: RowNumber,
        (after, upto): (Lsn, Lsn),
    ) -> Result<Option<OpenRow>> {
        let array = self.array();
        let meta = [&array, &self.keys.bytes, &self.values.bytes];
        let pages = meta.iter().map(|bytes| bytes.len() / PAGE as usize).sum();
        let fences = self.fences();
        let in_directory = RowDirectory::len(pages, &fences).div_ceil(PAGE as usize) as u32;
        let entry_pages = self.entries.len().div_ceil(ENTRIES as usize) as u32;
        let mut counts = vec![in_directory];
        counts.extend(std::iter::repeat_n(1, entry_pages as usize));
        counts.extend(self.keys.pieces.iter().chain(&self.values.pieces));
        let Some(taken) = pool.take(&counts) else { return Ok(None) };
        let (directory_at, rest) = (taken[0], &taken[1..]);
        let bytes = meta.iter().flat_map(|bytes| bytes.chunks_exact(PAGE as usize));
        let numbers = rest.iter().flat_map(|pages| pages.first..pages.first + pages.count);
        let region = pool.region();
        let mut dirty = Vec::with_capacity(pages + 1);
        let mut list = Vec::with_capacity(pages);
        for (page, bytes) in numbers.zip(bytes) {
            dirty.push(region.write(u64::from(page) * PAGE, bytes));
            list.push(PageRef { page, checksum: checksum(&[id], bytes) });
        }
        debug_assert_eq!(list.len(), pages, "each page has its place");
        let entries = self.entries.len() as u32;
        let key_pages = (self.keys.bytes.len() / PAGE as usize) as u32;
        let directory = RowDirectory {
            table,
            id,
            below,
            after,
            upto,
            entries,
            entry_pages,
            key_pages,
            pages: list,
            fences,
        };
        let (bytes, sum) = directory.encode();
        dirty.push(region.write(u64::from(directory_at.first) * PAGE, &bytes));
        if region.has(Failpoint::SkipRowPersist) {
            drop(dirty);
        } else {
            region.persist(dirty)?;
        }
        let PageRange { first: page, count: pages } = directory_at;
        let meta = RowTable { id, page, pages, checksum: sum, after, upto, oldest: self.oldest };
        let row = OpenRow::new(region, meta, &directory);
        self.entries.iter().for_each(|entry| row.count_in(entry));
        (0..entry_pages as usize).for_each(|page| row.count_in_keys(region, page));
        Ok(Some(row))
    }

    /// The first key of each page of the array, and the last key.
    fn fences(&self) -> Vec<Vec<u8>> {
        let first = self.entries.iter().step_by(ENTRIES as usize);
        first.chain(self.entries.last()).map(|entry| self.key(entry).to_vec()).collect()
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        let at = entry.key.page as usize * PAGE as usize + usize::from(entry.key.offset);
        &self.keys.bytes[at..at + entry.key_len as usize]
    }

    /// The bytes of the metadata array.
    fn array(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for page in self.entries.chunks(ENTRIES as usize) {
            page.iter().for_each(|entry| entry.encode(&mut out));
            out.resize(out.len().next_multiple_of(PAGE as usize), 0);
        }
        out
    }
}
