//! What look-ups need of extents that are objects, asked for side by side. A look-up alone asks for
//! one part after the other, and waits for each; many at a time wait about as long as one.

use std::sync::Arc;

use bytes::Bytes;

use super::parts::Tail;
use super::{Block, Borrowed, Extent, Parts};
use crate::base::error::Result;
use crate::base::memory::Holding;
use crate::base::record::{Kind, Lsn, is_open_chain};
use crate::cache::BufferFrame;
use crate::sstable::{BlockCache, Blocks};
use crate::storage::Reading;

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
    /// Counts it, if it is asked for long before it is kept.
    _held: Option<Holding>,
}

/// Blocks that a look-up holds from when they came until it has read them, under an epoch. The
/// cache may have had no room for them, or have it no more: it would wait for the store again.
#[derive(Debug, Default)]
#[must_use = "it holds blocks for the look-up behind it"]
pub(crate) struct Fetched(Vec<(Arc<Extent>, usize)>);

impl Drop for Fetched {
    fn drop(&mut self) {
        for (extent, n) in &self.0 {
            let mut fetched = extent.fetched.lock();
            // Of several that look-ups hold, each is the same.
            let at = fetched.iter().position(|(held, _)| held == n);
            let block = at.map(|at| fetched.swap_remove(at));
            drop(fetched);
            drop(block);
        }
    }
}

impl Extent {
    /// Block `n`, if a look-up holds it.
    pub(super) fn fetched(&self, n: usize) -> Option<Arc<BufferFrame<Block>>> {
        if !self.meta.location.is_object() {
            return None;
        }
        let fetched = self.fetched.lock();
        fetched.iter().find(|(held, _)| *held == n).map(|(_, block)| Arc::clone(block))
    }

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
        let Some(at) = self.sought_in_blocks(key, at) else { return Ok(LookUpStep::Passes) };
        let asks = |block| Ok(LookUpStep::Asks(MissingPart { extent: Arc::clone(self), block }));
        let is_object = self.meta.location.is_object();
        let parts = match self.parts.get(blocks.pinned) {
            Some(parts) => Borrowed::Here(parts),
            // From an end that is kept here it goes on at once, so that it asks for its block in
            // the round of others.
            None if is_object && !self.store.keeps_end_of(&self.meta.location) => {
                return asks(None);
            }
            None => self.borrowed_parts(blocks.pinned)?,
        };
        let Some(n) = parts.block_with(key, at) else { return Ok(LookUpStep::Passes) };
        let block = match self.swips(&parts.index).peek(n).or_else(|| self.fetched(n)) {
            Some(block) => Borrowed::Own(block),
            None if !self.has_at_hand(&parts, n, blocks.cache) => return asks(Some(n)),
            None => self.block(&parts, n, blocks)?,
        };
        let found = block.find(key, at).map_err(|_| self.bad_entry(&parts, n))?;
        match found {
            None => Ok(LookUpStep::Passes),
            // Operands go on with what is older, here or below.
            Some(found)
                if found.kind == Kind::Merge && is_open_chain(block.value(found.value.clone())) =>
            {
                self.step(key, found.seq - 1, blocks)
            }
            Some(_) => Ok(LookUpStep::Ends),
        }
    }

    /// Whether a look-up of block `n` waits for no store.
    pub(super) fn has_at_hand(&self, parts: &Parts, n: usize, cache: &BlockCache) -> bool {
        let (id, offset) = (self.meta.id, parts.index.entries()[n].offset);
        let is_below = || cache.below().is_some_and(|below| below.get(id, offset).is_some());
        let is_cached = self.swips(&parts.index).peek(n).or_else(|| self.fetched(n)).is_some();
        is_cached || !self.meta.location.is_object() || is_below()
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
        let span = self.span()?;
        self.ask_span(span, None)
    }

    /// Asks for it if so much may be held until it is kept, beside a cache.
    ///
    /// # Errors
    ///
    /// As [`Extent::get`].
    pub(crate) fn ask_ahead(self, cache: &BlockCache) -> Result<Option<ComingPart>> {
        let (offset, len) = self.span()?;
        let memory = self.extent.store.memory();
        let held = memory.hold_ahead(u64::from(len), (cache.capacity(), true));
        held.map(|held| self.ask_span((offset, len), Some(held))).transpose()
    }

    /// Where in the extent it lies, and how many bytes it has.
    fn span(&self) -> Result<(u32, u32)> {
        let Some(n) = self.block else { return Ok(self.extent.tail_span()) };
        let parts = self.extent.parts()?;
        let entry = &parts.index.entries()[n];
        Ok((entry.offset, entry.len))
    }

    fn ask_span(self, (offset, len): (u32, u32), held: Option<Holding>) -> Result<ComingPart> {
        let extent = &self.extent;
        let reading = extent.store.ask(&extent.meta.location, offset, len)?;
        Ok(ComingPart { part: self, offset, reading, _held: held })
    }
}

impl ComingPart {
    /// Waits until it is here, and keeps it; a block for as long as `fetched` lives, at least.
    ///
    /// # Errors
    ///
    /// As [`Extent::get`].
    pub(crate) fn keep(self, cache: &BlockCache, fetched: &mut Fetched) -> Result<()> {
        let ComingPart { part: MissingPart { extent, block }, offset, reading, _held } = self;
        let bytes = extent.store.end_read(reading)?;
        let Some(n) = block else {
            let Ok(parts) = extent.parts_of(&Tail { offset, bytes: bytes.into() }) else {
                return extent.parts().map(drop);
            };
            extent.parts.fill(Arc::new(parts), &extent.store.memory().clock, true);
            return Ok(());
        };
        if let Some(below) = cache.below() {
            below.keep(extent.meta.id, offset, &bytes);
        }
        let parts = extent.parts()?;
        let room = cache.reserve(Block::weight_of(bytes.len()));
        let block = extent.block_of(&parts.index.entries()[n], Bytes::from(bytes))?;
        let block = cache.admit(room, (extent.swips(&parts.index), n), block);
        extent.fetched.lock().push((n, block));
        fetched.0.push((extent, n));
        Ok(())
    }
}
