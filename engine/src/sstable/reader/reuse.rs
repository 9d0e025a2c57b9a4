//! Copies blocks from one extent into another as they are. The seal is checked and made again for
//! the new place. The records are neither decompressed nor decoded. The block's summary and its
//! lines of the filter hold all that the new extent has to know of them.
//!
//! Copies whole extents to another place too, under the same id.

use std::sync::Arc;

use bytes::Bytes;

use super::{Extent, Parts, Tail};
use crate::base::error::Result;
use crate::base::record::Lsn;
use crate::sstable::footer::Footer;
use crate::sstable::frame::{check_seal, reseal};
use crate::sstable::summary::{self, BlockSummary};
use crate::sstable::{BlockCache, BlockSwips, ExtentMeta, Format, ReadAhead};
use crate::storage::SpaceReservation;

/// A block of another extent, with what is known of it.
#[derive(Debug)]
pub(crate) struct WholeBlock {
    bytes: Bytes,
    pub(in crate::sstable) summary: BlockSummary,
    pub(in crate::sstable) last_key: Vec<u8>,
    pub(in crate::sstable) last_seq: Lsn,
    /// Its lines of the filter.
    pub(in crate::sstable) lines: Vec<u8>,
    /// Which block it is, if that is in the cache.
    cached_as: Option<CachedBlock>,
}

/// A block in the cache: which one of which extent.
#[derive(Clone, Debug)]
struct CachedBlock {
    swips: BlockSwips,
    number: usize,
}

/// Blocks of an extent that were taken over and are cached, each by its number, with the one that
/// it was.
#[derive(Debug, Default)]
pub(in crate::sstable) struct CachedCopies(Vec<(usize, CachedBlock)>);

impl CachedCopies {
    /// Adds the block as the one of a number, if it is cached.
    pub(in crate::sstable) fn add(&mut self, number: usize, block: &WholeBlock) {
        self.0.extend(block.cached_as.clone().map(|was| (number, was)));
    }

    /// Bytes of those that no reader has asked for.
    pub(in crate::sstable) fn unread_bytes(&self) -> u64 {
        self.0.iter().map(|(_, was)| was.swips.unread_bytes(was.number)).sum()
    }

    /// Has the blocks with these swips lead to the frames of those that they are copies of.
    pub(in crate::sstable) fn share(&self, swips: &BlockSwips, cache: &BlockCache) {
        for (n, was) in &self.0 {
            cache.share((&was.swips, was.number), (swips, *n));
        }
    }
}

impl WholeBlock {
    /// Appends the block to `out`, as the one at `offset` of `extent`.
    pub(in crate::sstable) fn seal(&self, extent: u64, offset: u32, out: &mut Vec<u8>) {
        debug_assert_eq!(offset as usize, out.len(), "sealed for where it is put");
        reseal(&self.bytes, extent, out);
    }

    /// Bytes on the tier.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The key of its first record.
    pub(crate) fn first_key(&self) -> &[u8] {
        &self.summary.first_key
    }
}

impl Extent {
    /// The same extent in another place, which no edit names yet. `bytes` are all of it.
    pub(crate) fn copied(&self, bytes: &[u8], to: &SpaceReservation) -> Result<Arc<Extent>> {
        let meta = ExtentMeta { location: to.write_new(bytes)?, ..self.meta().clone() };
        let described = (meta, self.values.clone());
        let copied = Extent::written(described, Arc::clone(&self.store), self.kept_for.clone());
        copied.keep_parts(bytes);
        Ok(copied)
    }

    /// The summaries of its blocks.
    ///
    /// # Errors
    ///
    /// `Corrupt` if they do not check out; or on an I/O error.
    pub(in crate::sstable) fn summaries(&self) -> Result<Vec<BlockSummary>> {
        self.of_end(|tail| self.summaries_of(tail, &self.footer(tail)?))
    }

    /// As [`summaries`](Self::summaries), of what was read already.
    pub(in crate::sstable) fn summaries_of(
        &self,
        tail: &Tail<'_>,
        footer: &Footer,
    ) -> Result<Vec<BlockSummary>> {
        let bytes = self.part(tail, footer.summary_offset, footer.summary_len)?;
        let blocks = footer.blocks as usize;
        let summaries = summary::decode(self.meta().id, blocks, &bytes);
        summaries.map_err(|e| self.corrupt(footer.summary_offset, "block summaries", e))
    }

    /// Whether block `n` can go into an extent of this format as it is.
    pub(in crate::sstable) fn fits(
        &self,
        parts: &Parts,
        n: usize,
        summary: &BlockSummary,
        format: Format,
    ) -> bool {
        // A block that is much smaller than others had better grow when it is written again.
        summary.raw_bytes as usize >= format.block_bytes / 2
            && parts.index.entries()[n].len as usize <= 2 * format.block_bytes
            && summary.has_compression(format.compression)
            && parts.filter.lines_for(n, format.filter_bits).is_some()
    }

    /// Block `n`, read, with its seal checked. It [`fits`](Self::fits).
    pub(in crate::sstable) fn whole_block(
        &self,
        parts: &Parts,
        n: usize,
        summary: BlockSummary,
        format: Format,
        (cache, ahead): (&BlockCache, &ReadAhead),
    ) -> Result<WholeBlock> {
        let (id, entry) = (self.meta().id, &parts.index.entries()[n]);
        let bytes = self.bytes_in_turn(&parts.index, n, Some(cache), ahead)?;
        let sound = |bytes: Bytes| check_seal(id, entry.offset, &bytes).map(|_| bytes);
        let bytes = self.checked(entry, bytes, sound)?;
        let lines = parts.filter.lines_for(n, format.filter_bits).unwrap_or_default().to_vec();
        let swips = self.swips(&parts.index);
        let cached_as = swips.has(n).then(|| CachedBlock { swips: swips.clone(), number: n });
        let (last_key, last_seq) = (parts.index.last_key(n).to_vec(), entry.last_seq);
        Ok(WholeBlock { bytes, summary, last_key, last_seq, lines, cached_as })
    }
}
