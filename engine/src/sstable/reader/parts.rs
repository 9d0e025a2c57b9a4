//! All of an extent but its blocks. It lies together at the extent's end.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::Extent;
use crate::base::error::{Findings, Mismatch, Result};
use crate::base::memory::{Gauge, Holding};
use crate::base::record::Lsn;
use crate::cache::Borrowed;
use crate::mvcc::{EpochGuard, KeyInterval, Tombstones};
use crate::sstable::filter::{self, Filter};
use crate::sstable::footer::{ContentSum, FOOTER_LEN, Footer};
use crate::sstable::index::{Index, IndexEntry};
use crate::sstable::ranges;

/// One part in this many of an extent is read at its end at once, within bounds. Of most extents
/// that is all parts.
const TAIL: u32 = 16;
const SHORTEST_TAIL: u32 = 4 * 1024;
const LONGEST_TAIL: u32 = 64 * 1024;

/// The end of an extent, or all of it, as it was read or is to be written.
#[derive(Debug)]
pub(in crate::sstable) struct Tail<'a> {
    pub(super) offset: u32,
    pub(super) bytes: Cow<'a, [u8]>,
}

impl Tail<'_> {
    /// Bytes of the extent, if it has them.
    pub(in crate::sstable) fn part(&self, offset: u32, len: u32) -> Option<&[u8]> {
        let from = offset.checked_sub(self.offset)? as usize;
        self.bytes.get(from..from.checked_add(len as usize)?)
    }

    pub(in crate::sstable) fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_owned()
    }
}

/// Filter, index and range tombstones, checked. By default, of nothing.
#[derive(Debug, Default)]
pub(in crate::sstable) struct Parts {
    pub(in crate::sstable) filter: Filter,
    pub(in crate::sstable) index: Index,
    pub(in crate::sstable) ranges: Tombstones,
    held: Holding,
}

impl Parts {
    /// Checked parts, which `gauge` counts as long as they are referenced.
    fn new(filter: Filter, index: Index, ranges: Tombstones, gauge: &Arc<Gauge>) -> Parts {
        let mut parts = Parts { filter, index, ranges, held: gauge.hold(0) };
        parts.held.set(parts.memory() as u64);
        parts
    }

    /// The block that has the newest version of `key` at or below `at`, if any has: the first
    /// record at or after (`key`, `at`) is in that one.
    #[inline]
    pub(super) fn block_with(&self, key: &[u8], at: Lsn) -> Option<usize> {
        let n = self.index.find(key, at)?;
        self.filter.may_contain(n, filter::hash(key)).then_some(n)
    }

    /// Bytes of memory that they take.
    pub(in crate::sstable) fn memory(&self) -> usize {
        self.filter.memory() + self.index.memory() + self.ranges.memory()
    }
}

impl Extent {
    /// All but the blocks, loaded where they are not there, while an epoch is pinned.
    #[inline]
    pub(in crate::sstable) fn borrowed_parts<'g>(
        &self,
        pinned: &'g EpochGuard,
    ) -> Result<Borrowed<'g, Parts>> {
        match self.parts.get(pinned) {
            Some(parts) => Ok(Borrowed::Here(parts)),
            None => self.read_parts().map(Borrowed::Own),
        }
    }

    /// All but the blocks, loaded where they are not there, to keep for long.
    pub(in crate::sstable) fn parts(&self) -> Result<Arc<Parts>> {
        match self.parts.get_shared() {
            Some(parts) => Ok(parts),
            None => self.read_parts(),
        }
    }

    fn read_parts(&self) -> Result<Arc<Parts>> {
        let parts = Arc::new(self.load_parts()?);
        Ok(self.parts.fill(parts, &self.store.memory().clock, true))
    }

    /// As [`verified`](crate::storage::ExtentStore::verified).
    pub(in crate::sstable) fn verified(
        &self,
        report: &mut Findings,
        verify: impl Fn(&mut Findings) -> u64,
    ) -> u64 {
        self.store.verified(&self.meta.location, report, verify)
    }

    /// As [`or_again`](crate::storage::ExtentStore::or_again).
    pub(in crate::sstable) fn or_again<T>(
        &self,
        made: Result<T>,
        again: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.store.or_again(&self.meta.location, made, again)
    }

    fn load_parts(&self) -> Result<Parts> {
        self.of_end(|tail| self.parts_of(tail))
    }

    /// What is made of the end.
    pub(super) fn of_end<T>(&self, make: impl Fn(&Tail<'_>) -> Result<T>) -> Result<T> {
        self.or_again(make(&self.load_tail()?), || make(&self.load_tail()?))
    }

    /// What a `check` makes of the bytes of a block.
    pub(super) fn checked<T>(
        &self,
        entry: &IndexEntry,
        bytes: Bytes,
        check: impl Fn(Bytes) -> std::result::Result<T, Mismatch>,
    ) -> Result<T> {
        let check = |bytes| check(bytes).map_err(|e| self.corrupt(entry.offset, "block", e));
        self.or_again(check(bytes), || {
            check(Bytes::from(self.load_bytes(entry.offset, entry.len)?))
        })
    }

    /// The parts, of which the end or all was read.
    pub(super) fn parts_of(&self, tail: &Tail<'_>) -> Result<Parts> {
        let footer = self.footer(tail)?;
        let filter = self.load_filter(tail, &footer)?;
        let index = self.load_index(tail, &footer)?;
        let ranges = self.load_ranges(tail, &footer)?;
        let gauge = &self.store.memory().parts;
        Ok(Parts::new(filter, index, ranges, gauge))
    }

    /// The end of the extent, from the store.
    pub(in crate::sstable) fn load_tail(&self) -> Result<Tail<'static>> {
        let (offset, len) = self.tail_span();
        Ok(Tail { offset, bytes: self.load_bytes(offset, len)?.into() })
    }

    /// All of the extent, from the store.
    pub(in crate::sstable) fn load_whole(&self) -> Result<Tail<'static>> {
        Ok(Tail { offset: 0, bytes: self.load_bytes(0, self.meta.location.len)?.into() })
    }

    /// Where the end lies that is read at once: its offset, and how many bytes.
    pub(super) fn tail_span(&self) -> (u32, u32) {
        let all = self.meta.location.len;
        let offset = all.saturating_sub((all / TAIL).clamp(SHORTEST_TAIL, LONGEST_TAIL));
        (offset, all - offset)
    }

    /// A part, from what was read of the end, or from the store if there is more of it.
    pub(in crate::sstable) fn part(
        &self,
        tail: &Tail<'_>,
        offset: u32,
        len: u32,
    ) -> Result<Vec<u8>> {
        match tail.part(offset, len) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => self.load_bytes(offset, len),
        }
    }

    pub(in crate::sstable) fn footer(&self, tail: &Tail<'_>) -> Result<Footer> {
        let (id, len) = (self.meta.id, self.meta.location.len);
        let offset = len.saturating_sub(FOOTER_LEN as u32);
        let bytes = self.part(tail, offset, len - offset)?;
        let footer = Footer::decode(id, len, self.meta.footer_checksum, &bytes)
            .map_err(|mismatch| self.corrupt(offset, "extent footer", mismatch))?;
        if footer.records != self.meta.records {
            let expected = format!("{} records, as the journal has it", self.meta.records);
            let mismatch = Mismatch::new(expected, format!("{}", footer.records));
            return Err(self.corrupt(offset, "extent footer", mismatch));
        }
        Ok(footer)
    }

    pub(in crate::sstable) fn load_filter(
        &self,
        tail: &Tail<'_>,
        footer: &Footer,
    ) -> Result<Filter> {
        let bytes = self.part(tail, footer.filter_offset, footer.filter_len)?;
        let filter = Filter::decode(self.meta.id, bytes).and_then(|filter| {
            let fits = filter.covers_blocks(footer.blocks as usize);
            let expected = || format!("a filter over {} blocks", footer.blocks);
            if fits { Ok(filter) } else { Err(Mismatch::new(expected(), "another")) }
        });
        filter.map_err(|mismatch| self.corrupt(footer.filter_offset, "extent filter", mismatch))
    }

    pub(in crate::sstable) fn load_index(&self, tail: &Tail<'_>, footer: &Footer) -> Result<Index> {
        let bytes = self.part(tail, footer.index_offset, footer.index_len)?;
        let index = Index::decode(self.meta.id, bytes)
            .map_err(|mismatch| self.corrupt(footer.index_offset, "extent index", mismatch))?;
        let (blocks, end) = (index.entries().len(), index.blocks_end());
        if blocks as u64 != u64::from(footer.blocks) || end != footer.summary_offset {
            let expected = format!("{} blocks in {} bytes", footer.blocks, footer.summary_offset);
            let mismatch = Mismatch::new(expected, format!("{blocks} in {end}"));
            return Err(self.corrupt(footer.index_offset, "extent index", mismatch));
        }
        Ok(index)
    }

    pub(in crate::sstable) fn load_ranges(
        &self,
        tail: &Tail<'_>,
        footer: &Footer,
    ) -> Result<Tombstones> {
        let (offset, len) = (footer.ranges_offset(), footer.ranges_len);
        let bytes = self.part(tail, offset, len)?;
        let ranges = ranges::decode(self.meta.id, &bytes)
            .map_err(|mismatch| self.corrupt(offset, "range tombstones", mismatch))?;
        if ranges.len() as u64 != u64::from(self.meta.tombstones) {
            let expected = format!("{} tombstones, as the journal has it", self.meta.tombstones);
            let mismatch = Mismatch::new(expected, format!("{}", ranges.len()));
            return Err(self.corrupt(offset, "range tombstones", mismatch));
        }
        Ok(ranges)
    }

    /// The checksum of the content, of which `blocks` has the seals of the blocks.
    pub(in crate::sstable) fn content_of(
        &self,
        mut blocks: ContentSum,
        tail: &Tail<'_>,
        footer: &Footer,
    ) -> Result<u32> {
        let len = footer.ranges_len.min(4);
        if len > 0 {
            blocks.add(&self.part(tail, footer.ranges_offset(), len)?);
        }
        Ok(blocks.finish())
    }

    /// About how many of its records lie in `interval`: those of whole blocks. It reads the block
    /// index where that is not in memory, and no block.
    ///
    /// # Errors
    ///
    /// `Corrupt` if what has to be read does not check out; or on an I/O error.
    pub(crate) fn records_within(&self, interval: &KeyInterval) -> Result<u64> {
        if interval.covers(&self.meta.interval()) {
            return Ok(self.meta.records);
        }
        let parts = self.parts()?;
        let index = &parts.index;
        let blocks = index.entries().len();
        let from = index.find_key(&interval.start).unwrap_or(0);
        let to = interval.end.as_deref().and_then(|end| index.find_key(end)).unwrap_or(blocks);
        Ok(self.meta.records * to.saturating_sub(from) as u64 / blocks.max(1) as u64)
    }
}
