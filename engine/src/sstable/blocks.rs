//! Walks sorted extents forward for a merge. It shows a block as a whole until the block is
//! decoded.
//!
//! Invariants:
//!
//! 1. Before an extent nothing of it is loaded: `entered` is `None`. In one it has its parts.
//! 2. In one, at the beginning of a block that has a summary, the block is not loaded: `open` is
//!    `None`. Elsewhere `open` stands on a record.
//! 3. Past the last extent, `at` is their number.

use std::sync::Arc;

use super::block::BlockCursor;
use super::reader::Parts;
use super::{BlockCache, BlockSummary, Extent, Format, InLevel, ReadAhead, WHOLE, WholeBlock};
use crate::base::error::Result;
use crate::base::record::{EntryRef, Lsn};

/// A position in sorted extents that have no key in common.
#[derive(Debug)]
pub(crate) struct BlockWalk {
    extents: Arc<[Arc<Extent>]>,
    cache: Arc<BlockCache>,
    ahead: Arc<ReadAhead>,
    /// Whether blocks are shown as wholes at all.
    by_block: bool,
    at: usize,
    entered: Option<Arc<Parts>>,
    block: usize,
    /// Of the current extent's blocks, if it has them.
    summaries: Option<Vec<BlockSummary>>,
    open: Option<BlockCursor>,
}

/// A block that the walk stands before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead<'a> {
    pub(crate) summary: &'a BlockSummary,
    pub(crate) last_key: &'a [u8],
    /// The first key of the next block in its extent.
    pub(crate) next_key: Option<&'a [u8]>,
}

impl BlockWalk {
    /// Before the first of `extents`. With `by_block` false, blocks are not shown as wholes.
    pub(crate) fn new(
        extents: &[Arc<Extent>],
        cache: &Arc<BlockCache>,
        by_block: bool,
    ) -> BlockWalk {
        BlockWalk {
            extents: extents.into(),
            cache: Arc::clone(cache),
            ahead: ReadAhead::for_job(1),
            by_block,
            at: 0,
            entered: None,
            block: 0,
            summaries: None,
            open: None,
        }
    }

    /// Enters the extent ahead, before its first block.
    pub(crate) fn enter(&mut self) -> Result<()> {
        let Some(extent) = self.extents.get(self.at).filter(|_| self.entered.is_none()) else {
            return Ok(());
        };
        self.entered = Some(extent.parts()?);
        let at = InLevel { level: &self.extents, number: self.at, share: WHOLE };
        self.ahead.goes_on(at);
        // Such blocks are not carried over as they are. Blocks of an extent with one sequence
        // number lack it, and the values that a block refers to have to be counted.
        if self.by_block && !extent.meta().one_seq && extent.values().is_empty() {
            self.summaries = Some(extent.summaries()?);
        }
        self.begin_block()
    }

    fn begin_block(&mut self) -> Result<()> {
        self.open = None;
        if self.summaries.is_some() { Ok(()) } else { self.load_block() }
    }

    fn next_block(&mut self) -> Result<()> {
        self.block += 1;
        let blocks = self.entered.as_ref().map_or(0, |parts| parts.index.entries().len());
        if self.block < blocks {
            return self.begin_block();
        }
        self.skip_extent();
        Ok(())
    }

    /// Goes on to the next extent.
    pub(crate) fn skip_extent(&mut self) {
        if let [from, to, ..] = &self.extents[self.at..] {
            self.ahead.cross(from.meta().id, to.meta().id, false);
        }
        self.at += 1;
        (self.block, self.entered, self.open, self.summaries) = (0, None, None, None);
    }

    /// Loads what the walk stands before, so that it stands on a record.
    pub(crate) fn open(&mut self) -> Result<()> {
        self.enter()?;
        if self.open.is_some() || self.at == self.extents.len() {
            return Ok(());
        }
        self.load_block()
    }

    fn load_block(&mut self) -> Result<()> {
        let (extent, n) = (&self.extents[self.at], self.block);
        let Some(parts) = &self.entered else { return Ok(()) };
        let block = extent.block_in_turn(parts, n, &self.cache, &self.ahead)?;
        let mut cursor = BlockCursor::new(block);
        cursor.first().map_err(|_| extent.bad_entry(parts, n))?;
        self.open = Some(cursor);
        Ok(())
    }

    /// The key of the record that comes next.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match (&self.open, &self.summaries) {
            (Some(cursor), _) => cursor.entry().map(|entry| entry.key),
            (None, Some(summaries)) => Some(&summaries.get(self.block)?.first_key),
            (None, None) => Some(&self.extents.get(self.at)?.meta().smallest_key),
        }
    }

    /// The record that comes next; `None` before an extent or block that is not loaded.
    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        let entry = self.open.as_ref()?.entry()?;
        let one_seq = self.extents.get(self.at).and_then(|extent| extent.meta().one_seq());
        Some(EntryRef { seq: one_seq.unwrap_or(entry.seq), ..entry })
    }

    /// Steps to the following record.
    pub(crate) fn next(&mut self) -> Result<()> {
        let Some(cursor) = &mut self.open else { return Ok(()) };
        if cursor.next().is_err()
            && let Some(parts) = &self.entered
        {
            return Err(self.extents[self.at].bad_entry(parts, self.block));
        }
        if cursor.entry().is_none() { self.next_block() } else { Ok(()) }
    }

    /// The extent that the walk stands before, if it is before one.
    pub(crate) fn extent_ahead(&self) -> Option<&Arc<Extent>> {
        self.extents.get(self.at).filter(|_| self.entered.is_none())
    }

    /// The block that the walk stands before, if it can go into an extent of this format.
    pub(crate) fn block_ahead(&self, format: Format) -> Result<Option<Ahead<'_>>> {
        let (None, Some(summaries)) = (&self.open, &self.summaries) else { return Ok(None) };
        let (Some(summary), Some(parts)) = (summaries.get(self.block), &self.entered) else {
            return Ok(None);
        };
        if !self.extents[self.at].fits(parts, self.block, summary, format) {
            return Ok(None);
        }
        let last_key = parts.index.last_key(self.block);
        let next_key = summaries.get(self.block + 1).map(|next| next.first_key.as_slice());
        Ok(Some(Ahead { summary, last_key, next_key }))
    }

    /// Steps over the block ahead if all of it is at or below `expired`; whether it is.
    pub(crate) fn skip_block(&mut self, expired: Lsn) -> Result<bool> {
        let ahead = self.summaries.as_ref().filter(|_| self.open.is_none());
        let ahead = ahead.and_then(|summaries| summaries.get(self.block));
        if ahead.is_none_or(|summary| summary.greatest_seq > expired) {
            return Ok(false);
        }
        self.next_block()?;
        Ok(true)
    }

    /// Takes the block ahead, undecoded, and steps over it.
    pub(crate) fn take_block(&mut self, format: Format) -> Result<Option<WholeBlock>> {
        let summary = self.summaries.as_ref().and_then(|summaries| summaries.get(self.block));
        let (Some(summary), Some(parts)) = (summary, &self.entered) else { return Ok(None) };
        let (extent, summary) = (&self.extents[self.at], summary.clone());
        let how = (&*self.cache, &*self.ahead);
        let block = extent.whole_block(parts, self.block, summary, format, how)?;
        self.next_block()?;
        Ok(Some(block))
    }
}
