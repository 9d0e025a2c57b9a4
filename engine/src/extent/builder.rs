//! Lays out an extent: blocks as records come, then filter, index, range tombstones and footer.

use std::sync::Arc;

use super::block::BlockBuilder;
use super::footer::{FOOTER_LEN, Footer};
use super::index::IndexBuilder;
use super::{Extent, ExtentMeta, filter, ranges};
use crate::error::{Error, ErrorKind, Result};
use crate::mvcc::Tombstone;
use crate::options::Compression;
use crate::record::{EntryRef, Kind, Lsn};
use crate::tier::{ExtentStore, Location};

/// Bytes after which a block is closed.
const BLOCK_LEN: usize = 16 * 1024;

/// The most bytes that an entry takes beyond its key and value.
const ENTRY_OVERHEAD: usize = 26;

/// Collects the records of one extent, in order.
#[derive(Debug)]
pub(crate) struct ExtentBuilder {
    compression: Compression,
    out: Vec<u8>,
    block: BlockBuilder,
    index: IndexBuilder,
    /// Of each user key.
    hashes: Vec<u64>,
    tombstones: Vec<Arc<Tombstone>>,
    meta: ExtentMeta,
    last_seq: Lsn,
}

impl ExtentBuilder {
    /// An empty extent with this id, whose blocks are compressed like this.
    pub(crate) fn new(id: u64, compression: Compression) -> ExtentBuilder {
        let meta = ExtentMeta {
            id,
            location: Location { file: 0, offset: 0, len: 0 },
            records: 0,
            deletes: 0,
            tombstones: 0,
            smallest_seq: Lsn::MAX,
            greatest_seq: 0,
            raw_bytes: 0,
            smallest_key: Vec::new(),
            greatest_key: Vec::new(),
            footer_checksum: 0,
        };
        ExtentBuilder {
            compression,
            out: Vec::new(),
            block: BlockBuilder::default(),
            index: IndexBuilder::default(),
            hashes: Vec::new(),
            tombstones: Vec::new(),
            meta,
            last_seq: 0,
        }
    }

    /// Appends a record, which sorts after all before it.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) {
        let first = self.is_empty();
        let ascends = (self.last_key(), entry.seq) < (Some(entry.key), self.last_seq);
        debug_assert!(first || ascends, "by key ascending, then by sequence number descending");
        let size = entry.key.len() + entry.value.len() + ENTRY_OVERHEAD;
        if !self.block.is_empty() && self.block.size() + size > BLOCK_LEN {
            self.finish_block();
        }
        self.block.add(&entry);
        if first {
            self.meta.smallest_key = entry.key.to_vec();
        }
        if first || self.meta.greatest_key != entry.key {
            self.hashes.push(filter::hash(entry.key));
            self.meta.greatest_key.clear();
            self.meta.greatest_key.extend_from_slice(entry.key);
        }
        self.last_seq = entry.seq;
        self.meta.records += 1;
        self.meta.deletes += u64::from(entry.kind == Kind::Delete);
        self.meta.smallest_seq = self.meta.smallest_seq.min(entry.seq);
        self.meta.greatest_seq = self.meta.greatest_seq.max(entry.seq);
        self.meta.raw_bytes += (entry.key.len() + entry.value.len()) as u64;
    }

    /// Adds range tombstones, cut at the ends of the extent; once, when all records are there.
    pub(crate) fn add_tombstones(&mut self, mut tombstones: Vec<Arc<Tombstone>>) {
        if !self.block.is_empty() {
            // With the last key that it has, not the last one that a tombstone reaches.
            self.finish_block();
        }
        tombstones.sort_by(|a, b| ranges::place(a).cmp(&ranges::place(b)));
        for tombstone in &tombstones {
            let (start, last) = (&tombstone.interval.start, tombstone.interval.last_key());
            let last = last.unwrap_or_default();
            let meta = &mut self.meta;
            if meta.records == 0 || *start < meta.smallest_key {
                meta.smallest_key.clone_from(start);
            }
            if meta.records == 0 || last > meta.greatest_key.as_slice() {
                meta.greatest_key = last.to_vec();
            }
            meta.records += 1;
            meta.deletes += 1;
            meta.tombstones += 1;
            meta.smallest_seq = meta.smallest_seq.min(tombstone.seq);
            meta.greatest_seq = meta.greatest_seq.max(tombstone.seq);
            meta.raw_bytes += tombstone.raw_bytes() as u64;
        }
        self.tombstones = tombstones;
    }

    /// The key of the last record added.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        (!self.is_empty()).then_some(self.meta.greatest_key.as_slice())
    }

    /// Bytes so far.
    pub(crate) fn size(&self) -> usize {
        self.out.len() + self.block.size() + self.index.size()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.meta.records == 0
    }

    fn finish_block(&mut self) {
        let offset = self.out.len();
        self.block.finish(self.meta.id, self.compression, &mut self.out);
        let len = (self.out.len() - offset) as u32;
        self.index.add(offset as u32, len, &self.meta.greatest_key, self.last_seq);
    }

    /// The extent's bytes and description. It must not be empty.
    pub(crate) fn finish(mut self) -> BuiltExtent {
        debug_assert!(!self.is_empty(), "an extent holds at least one record");
        if !self.block.is_empty() {
            self.finish_block();
        }
        let filter = filter::encode(self.meta.id, &self.hashes);
        let index = self.index.finish(self.meta.id);
        let ranges = ranges::encode(self.meta.id, &self.tombstones);
        let footer = Footer {
            filter_offset: self.out.len() as u32,
            filter_len: filter.len() as u32,
            index_offset: (self.out.len() + filter.len()) as u32,
            index_len: index.len() as u32,
            records: self.meta.records,
            blocks: self.index.blocks(),
            ranges_len: ranges.len() as u32,
        }
        .encode(self.meta.id);
        self.out.reserve_exact(filter.len() + index.len() + ranges.len() + FOOTER_LEN);
        self.out.extend_from_slice(&filter);
        self.out.extend_from_slice(&index);
        self.out.extend_from_slice(&ranges);
        self.out.extend_from_slice(&footer);
        self.meta.footer_checksum = Footer::checksum_of(&footer);
        debug_assert!(self.meta.is_sound(), "what is written can be read back");
        BuiltExtent { meta: self.meta, bytes: self.out }
    }
}

/// An extent that has no place yet.
#[derive(Debug)]
pub(crate) struct BuiltExtent {
    /// The description, its location still to come.
    pub(crate) meta: ExtentMeta,
    pub(crate) bytes: Vec<u8>,
}

impl BuiltExtent {
    /// As [`write_filling`](Self::write_filling), filling nothing.
    #[cfg(test)]
    pub(crate) fn write(self, store: &Arc<ExtentStore>) -> Result<Arc<Extent>> {
        self.write_filling(store, |_, _| {})
    }

    /// Reserves space and writes the extent, without a sync, then shows it with its bytes to
    /// `fill`, which may put blocks into a cache. The space goes back when the extent is dropped,
    /// until [`Extent::installed`] is called.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; or on an I/O error. The space is given back then.
    pub(crate) fn write_filling(
        mut self,
        store: &Arc<ExtentStore>,
        fill: impl FnOnce(&Extent, &[u8]),
    ) -> Result<Arc<Extent>> {
        let len = u32::try_from(self.bytes.len()).map_err(|_| {
            let message = format!("an extent of {} bytes is beyond 4 GiB", self.bytes.len());
            Error::new(ErrorKind::Full, message)
        })?;
        let reserved = store.reserve(len)?;
        store.write(&reserved.location(), &self.bytes)?;
        self.meta.location = reserved.keep();
        let extent = Extent::written(self.meta, Arc::clone(store), &self.bytes);
        fill(&extent, &self.bytes);
        Ok(extent)
    }
}
