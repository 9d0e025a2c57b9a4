//! Lays out an extent: blocks as records come, then summaries, filter, index, range tombstones and
//! footer.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block::BlockBuilder;
use super::filter::FilterBuilder;
use super::footer::{self, ContentSum, FOOTER_LEN, Footer};
use super::index::IndexBuilder;
use super::reader::CachedCopies;
use super::summary::BlockSummary;
use super::{BlockCache, Extent, ExtentMeta, ValueExtent, WholeBlock};
use super::{filter, ranges, summary};
use crate::base::error::Result;
use crate::base::memory::{Gauge, Holding};
use crate::base::options::{Compression, TableOptions};
use crate::base::record::{EntryRef, Lsn};
use crate::cache::Warmth;
use crate::mvcc::{KeptFor, Readers, Tombstone};
use crate::storage::{ExtentSink, ExtentStore};

/// The most bytes that an entry takes beyond its key and value.
const ENTRY_OVERHEAD: usize = 26;

/// How an extent is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) compression: Compression,
    /// Bytes after which a block is closed.
    pub(crate) block_bytes: usize,
    /// Bits of the filter for each key; 0 for none.
    pub(crate) filter_bits: u8,
    /// Values of at least this many bytes lie apart.
    pub(crate) large_values: Option<u32>,
}

impl Format {
    /// How extents of a table with these options are laid out, with this compression.
    pub(crate) fn of(options: TableOptions, compression: Compression) -> Format {
        let TableOptions { block_size, filter_bits, large_values, .. } = options;
        Format { compression, block_bytes: block_size as usize, filter_bits, large_values }
    }

    /// Whether a value of `len` bytes lies apart.
    pub(crate) fn is_separated(&self, len: usize) -> bool {
        self.large_values.is_some_and(|from| len >= from as usize)
    }
}

#[cfg(test)]
impl Format {
    /// What tables have that ask for nothing else.
    pub(crate) const fn new(compression: Compression) -> Format {
        Format { compression, block_bytes: 16 * 1024, filter_bits: 10, large_values: None }
    }
}

/// Collects the records of one extent, in order.
#[derive(Debug)]
pub(crate) struct ExtentBuilder {
    format: Format,
    out: Vec<u8>,
    block: BlockBuilder,
    index: IndexBuilder,
    filter: FilterBuilder,
    /// Of each user key of the block that is open.
    hashes: Vec<u64>,
    tombstones: Vec<Arc<Tombstone>>,
    /// Of each block, the open one included.
    summaries: Vec<BlockSummary>,
    cached: CachedCopies,
    /// Bytes that records refer to, by value extent.
    referred: BTreeMap<u64, u64>,
    kept_for: KeptFor,
    meta: ExtentMeta,
    last_seq: Lsn,
    /// Of the blocks that are complete.
    content: ContentSum,
}

impl ExtentBuilder {
    /// An empty extent with this id, of some size.
    #[cfg(test)]
    pub(crate) fn new(id: u64, format: Format) -> ExtentBuilder {
        ExtentBuilder::in_buffer(id, format, Vec::new())
    }

    /// An empty extent with this id, which is laid out in `buffer`: its bytes are written from
    /// there, and it is given back then. What it holds goes.
    pub(crate) fn in_buffer(id: u64, format: Format, mut buffer: Vec<u8>) -> ExtentBuilder {
        buffer.clear();
        ExtentBuilder {
            format,
            out: buffer,
            block: BlockBuilder::new(format.compression),
            index: IndexBuilder::default(),
            filter: FilterBuilder::new(format.filter_bits),
            hashes: Vec::new(),
            tombstones: Vec::new(),
            summaries: Vec::new(),
            cached: CachedCopies::default(),
            referred: BTreeMap::new(),
            kept_for: KeptFor::default(),
            meta: ExtentMeta::new(id),
            last_seq: 0,
            content: ContentSum::new(id),
        }
    }

    /// Appends a record, which sorts after all before it.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) {
        let first = self.is_empty();
        let ascends = (self.last_key(), entry.seq) < (Some(entry.key), self.last_seq);
        debug_assert!(first || ascends, "by key ascending, then by sequence number descending");
        let size = entry.key.len() + entry.value.len() + ENTRY_OVERHEAD;
        if !self.block.is_empty() && self.block.size() + size > self.format.block_bytes {
            self.finish_block();
        }
        let new_key = self.block.is_empty() || self.meta.greatest_key != entry.key;
        match self.summaries.last_mut().filter(|_| !self.block.is_empty()) {
            Some(summary) => summary.count(&entry, new_key),
            None => self.summaries.push(BlockSummary::begin(&entry, self.format.compression)),
        }
        self.block.add(&entry);
        if new_key {
            self.hashes.push(filter::hash(entry.key));
            self.meta.greatest_key.clear();
            self.meta.greatest_key.extend_from_slice(entry.key);
        }
        self.last_seq = entry.seq;
        if let Some(at) = entry.reference() {
            *self.referred.entry(at.extent).or_default() += u64::from(at.len);
        }
    }

    /// Notes that the record added last is there for `readers` alone.
    pub(crate) fn kept_for(&mut self, readers: Readers) {
        self.kept_for.add(readers);
    }

    /// Adds range tombstones, cut at the ends of the extent; once, when all records are there.
    pub(crate) fn add_tombstones(&mut self, mut tombstones: Vec<Arc<Tombstone>>) {
        if !self.block.is_empty() {
            // With the last key that it has, not the last one that a tombstone reaches.
            self.finish_block();
        }
        tombstones.sort_by(|a, b| ranges::place(a).cmp(&ranges::place(b)));
        for tombstone in &tombstones {
            self.meta.count_tombstone(tombstone);
        }
        self.tombstones = tombstones;
    }

    /// Appends a block of another extent as it is. All its keys are greater than the last one
    /// here; it has no references.
    pub(crate) fn add_block(&mut self, block: WholeBlock) {
        let first = self.is_empty();
        let WholeBlock { summary, lines, last_key, last_seq, .. } = &block;
        debug_assert!(first || self.meta.greatest_key < summary.first_key, "keys ascend");
        if !self.block.is_empty() {
            self.finish_block();
        }
        let offset = self.out.len() as u32;
        make_room(&mut self.out, block.len() as usize);
        block.seal(self.meta.id, offset, &mut self.out);
        self.content.add(&self.out[offset as usize..]);
        self.index.add(offset, self.out.len() as u32 - offset, last_key, *last_seq);
        self.filter.add_lines(lines);
        let number = self.index.blocks() as usize - 1;
        self.cached.add(number, &block);
        self.meta.count_block(summary);
        self.meta.greatest_key.clone_from(last_key);
        self.last_seq = *last_seq;
        self.summaries.push(block.summary);
    }

    /// Whether a block may be added now without leaving one behind that is much too small.
    pub(crate) fn takes_blocks(&self) -> bool {
        self.block.is_empty() || self.block.size() >= self.format.block_bytes / 4
    }

    /// The key of the last record added.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        (!self.is_empty()).then_some(self.meta.greatest_key.as_slice())
    }

    /// Bytes so far.
    pub(crate) fn size(&self) -> usize {
        self.out.len() + self.block.size() + self.index.size() + self.filter.size()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.summaries.is_empty() && self.tombstones.is_empty()
    }

    fn finish_block(&mut self) {
        let offset = self.out.len();
        make_room(&mut self.out, self.block.size());
        self.block.finish(self.meta.id, &mut self.out);
        self.content.add(&self.out[offset..]);
        let len = (self.out.len() - offset) as u32;
        self.index.add(offset as u32, len, &self.meta.greatest_key, self.last_seq);
        self.filter.add_block(&self.hashes);
        self.hashes.clear();
        if let Some(summary) = self.summaries.last() {
            self.meta.count_block(summary);
        }
    }

    /// The extent's bytes and description. It must not be empty.
    pub(crate) fn finish(mut self) -> BuiltExtent {
        debug_assert!(!self.is_empty(), "an extent holds at least one record");
        if !self.block.is_empty() {
            self.finish_block();
        }
        debug_assert_eq!(self.summaries.len(), self.index.blocks() as usize, "one a block");
        let summary = summary::encode(self.meta.id, &self.summaries);
        let filter = self.filter.finish(self.meta.id);
        let index = self.index.finish(self.meta.id);
        let ranges = ranges::encode(self.meta.id, &self.tombstones);
        let filter_offset = self.out.len() + summary.len();
        self.content.add(&ranges);
        let footer = Footer {
            summary_offset: self.out.len() as u32,
            summary_len: summary.len() as u32,
            filter_offset: filter_offset as u32,
            filter_len: filter.len() as u32,
            index_offset: (filter_offset + filter.len()) as u32,
            index_len: index.len() as u32,
            records: self.meta.records,
            blocks: self.index.blocks(),
            ranges_len: ranges.len() as u32,
            content: self.content.finish(),
        };
        let encoded = footer.encode(self.meta.id);
        self.out
            .reserve_exact(summary.len() + filter.len() + index.len() + ranges.len() + FOOTER_LEN);
        for part in [&summary, &filter, &index, &ranges, encoded.as_slice()] {
            self.out.extend_from_slice(part);
        }
        self.meta.footer_checksum = footer::checksum_of(&encoded);
        self.meta.kept = self.kept_for.count();
        debug_assert!(self.meta.is_sound(), "what is written can be read back");
        let ExtentBuilder { meta, out: bytes, cached, summaries, referred, kept_for, .. } = self;
        let values = Vec::new();
        BuiltExtent { meta, bytes, cached, summaries, kept_for, referred, values }
    }
}

/// An extent that has no place yet.
#[derive(Debug)]
pub(crate) struct BuiltExtent {
    /// The description, its location still to come.
    pub(crate) meta: ExtentMeta,
    pub(crate) bytes: Vec<u8>,
    cached: CachedCopies,
    summaries: Vec<BlockSummary>,
    kept_for: KeptFor,
    /// Bytes that its records refer to, by value extent.
    pub(super) referred: BTreeMap<u64, u64>,
    /// These value extents, once it has the list of them.
    pub(super) values: Vec<Arc<ValueExtent>>,
}

impl BuiltExtent {
    /// Bytes of the blocks taken over that are cached and that no reader has asked for.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.cached.unread_bytes()
    }

    /// Writes the extent, without a sync, for no reader.
    #[cfg(test)]
    pub(crate) fn write(self, store: &Arc<ExtentStore>) -> Result<Arc<Extent>> {
        let mut sink = &store.reserve_space(0, true)?;
        let cache = BlockCache::new(0);
        let filling: Filling<'_> = (&cache, &mut |_: &[u8], _: &[u8], _| None);
        Ok(self.write_into((store, &mut sink), Some(filling))?.0)
    }

    /// Writes the extent, without a sync, or begins to send it as an object. With `filling` its
    /// parts are in memory, and blocks enter the cache: those of which that says how warm they are,
    /// by their first and last key and the bytes that they take, and those that were taken over and
    /// are cached. Otherwise it takes no memory until it is read. The space goes back when the
    /// extent is dropped, until [`Extent::installed`] is called. Gives the buffer of its bytes
    /// back, for the next extent.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; or on an I/O error. The space is given back then. Of an
    /// object, those of its store.
    pub(crate) fn write_into(
        mut self,
        (store, sink): (&Arc<ExtentStore>, &mut dyn ExtentSink),
        filling: Option<Filling<'_>>,
    ) -> Result<(Arc<Extent>, Vec<u8>)> {
        debug_assert_eq!(self.referred.len(), self.values.len(), "it has its list");
        self.meta.location = sink.put(self.meta.id, &self.bytes)?;
        let described = (self.meta, self.values.into_boxed_slice());
        let extent = Extent::written(described, Arc::clone(store), self.kept_for);
        if let Some((cache, warmth)) = filling {
            extent.keep_parts(&self.bytes);
            // Decoded already, and the same whatever extent they are in.
            extent.take_over(&self.cached, cache);
            extent.fill((&self.bytes, &self.summaries), (cache, warmth));
        }
        Ok((extent, self.bytes))
    }
}

/// A cache, and how warm a block of a first and a last key and of about so many bytes is there, if
/// it is to enter it.
pub(crate) type Filling<'a> =
    (&'a BlockCache, &'a mut dyn FnMut(&[u8], &[u8], u64) -> Option<Warmth>);

/// While an extent is laid out, the block under way, the filter and the index lie beside it. They
/// take one part in this many of its bytes.
const BESIDE: usize = 16;

/// Room for an extent, which the next extent uses again.
#[derive(Debug)]
pub(crate) struct ExtentBuffer {
    bytes: Vec<u8>,
    held: Holding,
    most: usize,
}

impl ExtentBuffer {
    /// Room for extents that are cut at `extent_bytes`, for a writer of no more than `all` bytes;
    /// `gauge` counts it. All of it is allocated at once: a buffer that doubles as it fills takes
    /// up to twice what it holds, and three times while it grows.
    pub(crate) fn new(gauge: &Arc<Gauge>, extent_bytes: usize, all: u64) -> ExtentBuffer {
        // An extent may grow an eighth, and has summaries, filter, index and a last record.
        let whole = extent_bytes + extent_bytes / 16 * 3;
        let most = usize::try_from(all).unwrap_or(usize::MAX).min(whole);
        ExtentBuffer { bytes: Vec::new(), held: gauge.hold(0), most }
    }

    /// The room, for an extent that begins.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.reserve_exact(self.most);
        self.count(&bytes);
        bytes
    }

    /// The extent is complete. It may have grown beyond what was foreseen.
    pub(crate) fn filled(&mut self, built: &BuiltExtent) {
        self.count(&built.bytes);
    }

    /// The extent is written.
    pub(crate) fn put_back(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    fn count(&mut self, bytes: &Vec<u8>) {
        let bytes = bytes.capacity();
        self.held.set((bytes + bytes / BESIDE) as u64);
    }
}

/// Makes room for `len` bytes more at the end of an extent that has outgrown its buffer. It adds
/// little at a time, since few extents do.
fn make_room(out: &mut Vec<u8>, len: usize) {
    if out.capacity() - out.len() < len {
        out.reserve_exact(len.max(out.len() / 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sstable::tests::{Entry, sim_store};

    /// Bug: a compaction took 4 MiB for each extent of 2 MiB, and 6 MiB while its buffer grew.
    /// Cause: the buffer of an extent doubled as it filled, and each extent had a new one.
    /// Fix: one buffer for all extents of a job, taken once.
    #[test]
    fn a_job_takes_room_for_one_extent_once() {
        const EXTENT: usize = 256 * 1024;
        let (gauge, (_, store)) = (Arc::new(Gauge::default()), sim_store());
        let mut buffer = ExtentBuffer::new(&gauge, EXTENT, u64::MAX);
        let mut places = Vec::new();
        for id in 1..4u64 {
            let format = Format::new(Compression::None);
            let mut builder = ExtentBuilder::in_buffer(id, format, buffer.take());
            assert!(gauge.bytes() <= EXTENT as u64 * 13 / 10, "{}", gauge.bytes());
            let mut n = 0u64;
            while builder.size() < EXTENT + EXTENT / 8 {
                builder.add(Entry::put(&n.to_be_bytes(), 1, &[id as u8; 1000]).as_ref());
                n += 1;
            }
            let before = gauge.bytes();
            let built = builder.finish();
            buffer.filled(&built);
            assert_eq!(gauge.bytes(), before, "it has not grown");
            places.push(built.bytes.as_ptr());
            let mut sink = &store.reserve_space(0, true).unwrap();
            let (extent, bytes) = built.write_into((&store, &mut sink), None).unwrap();
            assert_eq!(extent.meta().records, n);
            buffer.put_back(bytes);
        }
        assert!(places.iter().all(|place| *place == places[0]), "the same memory");
        drop(buffer);
        assert_eq!(gauge.bytes(), 0);
        let small = ExtentBuffer::new(&gauge, EXTENT, 1000).take();
        assert!(small.capacity() < 2000, "no more than there is to write");
    }
}
