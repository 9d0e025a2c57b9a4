//! Walks an extent, block by block.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::awaited::Lacking;
use super::block::{BadEntry, BlockCursor};
use super::reader::Parts;
use super::{BlockCache, Extent, ReadAhead};
use crate::base::error::Result;
use crate::base::record::{Cursor, EntryRef, LSN_MAX, Lsn, SeparatedValue};

/// A position in an extent. It holds one block at a time and allocates nothing per record.
#[derive(Debug)]
pub(crate) struct ExtentCursor {
    extent: Arc<Extent>,
    cache: Arc<BlockCache>,
    ahead: Arc<ReadAhead>,
    /// The sequence number of all records, where that is not in the blocks.
    one_seq: Option<Lsn>,
    /// The parts, once the cursor has looked into them: it holds them while it lives.
    parts: Option<Arc<Parts>>,
    /// The number of the block and the position in it.
    position: Option<(usize, BlockCursor)>,
}

type Placing = std::result::Result<(), BadEntry>;

impl ExtentCursor {
    pub(super) fn new(
        extent: Arc<Extent>,
        cache: Arc<BlockCache>,
        ahead: Arc<ReadAhead>,
    ) -> ExtentCursor {
        let one_seq = extent.meta().one_seq();
        ExtentCursor { extent, cache, ahead, one_seq, parts: None, position: None }
    }

    /// As part of a run, all of whose records have this sequence number.
    pub(crate) fn of_run(self, lsn: Lsn) -> ExtentCursor {
        ExtentCursor { one_seq: Some(lsn), ..self }
    }

    /// To the first record at or after (`key`, `seq`), as the blocks have it.
    fn place(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        match self.parts()?.index.find(key, seq) {
            Some(n) => self.enter(n, |block| block.seek(key, seq)),
            None => {
                self.position = None;
                Ok(())
            }
        }
    }

    /// Goes to block `n` and places the cursor in it.
    fn enter(&mut self, n: usize, place: impl FnOnce(&mut BlockCursor) -> Placing) -> Result<()> {
        let mut in_block = match self.position.take() {
            Some((at, in_block)) if at == n => in_block,
            other => {
                let parts = self.parts()?;
                let block = self.extent.block_in_turn(&parts, n, &self.cache, &self.ahead)?;
                match other {
                    Some((_, in_block)) => in_block.in_other(block),
                    None => BlockCursor::new(block),
                }
            }
        };
        if place(&mut in_block).is_err() {
            let parts = self.parts()?;
            return Err(self.extent.bad_entry(&parts, n));
        }
        self.position = Some((n, in_block));
        Ok(())
    }

    fn is_placed(&self) -> bool {
        self.entry().is_some()
    }

    /// Steps within the block.
    fn step(&mut self, step: impl FnOnce(&mut BlockCursor) -> Placing) -> Result<Option<usize>> {
        debug_assert!(self.is_placed(), "only a valid cursor steps");
        let Some((n, in_block)) = &mut self.position else { return Ok(None) };
        let n = *n;
        if step(in_block).is_err() {
            self.position = None;
            let parts = self.parts()?;
            return Err(self.extent.bad_entry(&parts, n));
        }
        Ok(Some(n))
    }

    fn parts(&mut self) -> Result<Arc<Parts>> {
        if let Some(parts) = &self.parts {
            return Ok(Arc::clone(parts));
        }
        if self.ahead.leaves()
            && let Some(end) = self.extent.missing_end()
        {
            return Err(self.ahead.leave(Lacking::Part(end)));
        }
        let parts = self.extent.parts()?;
        Ok(Arc::clone(self.parts.insert(parts)))
    }
}

impl Cursor for ExtentCursor {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        let Some(one_seq) = self.one_seq else { return self.place(key, seq) };
        self.place(key, LSN_MAX)?;
        // The one version of the key is newer than what is asked for.
        if seq < one_seq && self.entry().is_some_and(|entry| entry.key == key) {
            self.next()?;
        }
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let parts = self.parts()?;
        let index = &parts.index;
        let Some(key) = key else {
            return match index.entries().len().checked_sub(1) {
                Some(last) => self.enter(last, BlockCursor::last),
                None => Ok(()),
            };
        };
        // An extent of range tombstones alone has no block.
        let Some(n) = index.find_key(key) else { return Ok(()) };
        self.enter(n, |block| block.seek_before(key))?;
        if !self.is_placed() && n > 0 {
            self.enter(n - 1, BlockCursor::last)?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let Some(n) = self.step(BlockCursor::next)? else { return Ok(()) };
        if !self.is_placed() && n + 1 < self.parts()?.index.entries().len() {
            self.enter(n + 1, BlockCursor::first)?;
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        let Some(n) = self.step(BlockCursor::prev)? else { return Ok(()) };
        if !self.is_placed() && n > 0 {
            self.enter(n - 1, BlockCursor::last)?;
        }
        Ok(())
    }

    fn pass(
        &mut self,
        bound: Option<&[u8]>,
        take: &mut dyn FnMut(&EntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let (parts, one_seq) = (self.parts()?, self.one_seq);
        while self.is_placed()
            && let Some((n, in_block)) = &mut self.position
        {
            let n = *n;
            // In most blocks no key is compared.
            let bound = bound.filter(|bound| parts.index.last_key(n) >= *bound);
            let passed = in_block.pass(bound, |entry| {
                take(&EntryRef { seq: one_seq.unwrap_or(entry.seq), ..*entry })
            });
            let has_left = in_block.entry().is_some();
            match passed {
                Ok(ControlFlow::Continue(())) if has_left => break,
                Ok(ControlFlow::Continue(())) if n + 1 < parts.index.entries().len() => {
                    self.enter(n + 1, BlockCursor::first)?;
                }
                Ok(passed) => return Ok(passed),
                Err(BadEntry) => {
                    self.position = None;
                    return Err(self.extent.bad_entry(&parts, n));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        let entry = self.position.as_ref()?.1.entry()?;
        Some(EntryRef { seq: self.one_seq.unwrap_or(entry.seq), ..entry })
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        let at = self.entry().and_then(|entry| entry.reference());
        at.map(|at| self.extent.separated(at)).transpose()
    }
}
