//! What look-ups need of extents that are objects, asked for side by side. A look-up alone asks for
//! one part after the other, and waits for each; many at a time wait about as long as one.

use std::sync::Arc;

use bytes::Bytes;

use super::parts::Tail;
use super::{Block, Extent, LSN_MAX, Lent, filter};
use crate::error::Result;
use crate::extent::{BlockCache, Blocks};
use crate::record::Lsn;
use crate::tier::Reading;

/// What a look-up does next, which has come to an extent.
#[derive(Debug)]
pub(crate) enum LookUpStep {
    /// The extent has no version of the key for it: it goes on below.
    Passes,
    /// The extent has one, on this machine.
    Ends,
    /// A part of the extent has to come from the object store.
    Asks(MissingPart),
}

/// A part of an object that is not on this machine.
#[derive(Clone, Debug)]
pub(crate) struct MissingPart {
    extent: Arc<Extent>,
    /// The number of a block; `None` for the end.
    block: Option<usize>,
}

/// One that is on its way.
#[derive(Debug)]
pub(crate) struct ComingPart {
    part: MissingPart,
    /// Where in the extent it begins.
    offset: u32,
    reading: Reading,
}

impl Extent {
    /// The step that a look-up of the newest version of `key` at or below `at` takes here.
    ///
    /// # Errors
    ///
    /// As [`Extent::get`].
    pub(crate) fn step(
        self: &Arc<Self>,
        key: &[u8],
        at: Lsn,
        blocks: Blocks<'_>,
    ) -> Result<LookUpStep> {
        if !self.meta.covers(key) {
            return Ok(LookUpStep::Passes);
        }
        let at = match self.meta().one_seq() {
            Some(seq) if seq > at => return Ok(LookUpStep::Passes),
            Some(_) => LSN_MAX,
            None => at,
        };
        let asks = |block| Ok(LookUpStep::Asks(MissingPart { extent: Arc::clone(self), block }));
        let is_object = self.meta.location.is_object();
        let parts = match self.parts.get(blocks.pinned) {
            Some(parts) => Lent::Here(parts),
            None if is_object => return asks(None),
            None => self.lent_parts(blocks.pinned)?,
        };
        let Some(n) = parts.index.find(key, at) else { return Ok(LookUpStep::Passes) };
        if !parts.filter.may_contain(n, filter::hash(key)) {
            return Ok(LookUpStep::Passes);
        }
        let (id, offset) = (self.meta.id, parts.index.entries()[n].offset);
        let is_below = || blocks.cache.below().is_some_and(|below| below.get(id, offset).is_some());
        let block = match self.swips(&parts.index).peek(n) {
            Some(block) => Lent::Own(block),
            None if is_object && !is_below() => return asks(Some(n)),
            None => self.block(&parts, n, blocks)?,
        };
        let found = block.find(key, at).map_err(|_| self.bad_entry(&parts, n))?;
        Ok(if found.is_some() { LookUpStep::Ends } else { LookUpStep::Passes })
    }
}

impl MissingPart {
    /// The end of an extent.
    pub(super) fn end_of(extent: &Arc<Extent>) -> MissingPart {
        MissingPart { extent: Arc::clone(extent), block: None }
    }

    /// Tells it from others: the extent, and the block of it.
    pub(crate) fn place(&self) -> (u64, Option<usize>) {
        (self.extent.meta.id, self.block)
    }

    /// Asks for it.
    ///
    /// # Errors
    ///
    /// As [`Extent::get`].
    pub(crate) fn ask(self) -> Result<ComingPart> {
        let extent = &self.extent;
        let (offset, len) = match self.block {
            None => extent.tail_span(),
            Some(n) => {
                let parts = extent.parts()?;
                let entry = &parts.index.entries()[n];
                (entry.offset, entry.len)
            }
        };
        let reading = extent.store.ask(&extent.meta.location, offset, len)?;
        Ok(ComingPart { part: self, offset, reading })
    }
}

impl ComingPart {
    /// Waits until it is here, and keeps it.
    ///
    /// # Errors
    ///
    /// As [`Extent::get`].
    pub(crate) fn keep(self, cache: &BlockCache) -> Result<()> {
        let ComingPart { part: MissingPart { extent, block }, offset, reading } = self;
        let bytes = extent.store.end_read(reading)?;
        let Some(n) = block else {
            let parts = Arc::new(extent.parts_of(&Tail::new(offset, bytes))?);
            extent.parts.fill(parts, &extent.store.memory().clock, true);
            return Ok(());
        };
        if let Some(below) = cache.below() {
            below.keep(extent.meta.id, offset, &bytes);
        }
        let parts = extent.parts()?;
        let room = cache.reserve(Block::weight_of(bytes.len()));
        let block = extent.block_of(&parts.index.entries()[n], Bytes::from(bytes))?;
        drop(cache.admit(room, (extent.swips(&parts.index), n), block));
        Ok(())
    }
}
