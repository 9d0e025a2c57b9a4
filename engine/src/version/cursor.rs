//! Walks the extents of one level as one sequence of records.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::record::{Cursor, EntryRef, LSN_MAX, Lsn, SeparatedValue};
use crate::sstable::{BlockCache, Extent, ExtentCursor, InLevel, ReadAhead, WHOLE};

/// A position in sorted extents that have no key in common. It opens an extent when it gets there.
#[derive(Debug)]
pub(crate) struct LevelCursor {
    extents: Arc<[Arc<Extent>]>,
    cache: Arc<BlockCache>,
    ahead: Arc<ReadAhead>,
    /// How much of what the reader wants comes from this level, of [`WHOLE`].
    share: u32,
    /// The sequence number of all records of a run.
    of_run: Option<Lsn>,
    /// The number of the extent and the position in it.
    position: Option<(usize, ExtentCursor)>,
}

impl LevelCursor {
    /// A cursor over `extents`, which are sorted and disjoint, for the reader that `ahead` is of.
    pub(crate) fn new(
        extents: Arc<[Arc<Extent>]>,
        cache: Arc<BlockCache>,
        ahead: Arc<ReadAhead>,
    ) -> LevelCursor {
        let disjoint = |w: &[Arc<Extent>]| w[0].meta().greatest_key < w[1].meta().smallest_key;
        debug_assert!(extents.windows(2).all(disjoint), "the invariant of a level");
        LevelCursor { extents, cache, ahead, share: WHOLE, of_run: None, position: None }
    }

    /// It is one of several levels that the reader walks in.
    pub(super) fn with_share(self, share: u32) -> LevelCursor {
        LevelCursor { share, ..self }
    }

    /// It is a run of this LSN, whatever stands in its blocks.
    pub(super) fn of_run(self, lsn: Lsn) -> LevelCursor {
        LevelCursor { of_run: Some(lsn), ..self }
    }

    fn enter(
        &mut self,
        n: usize,
        place: impl FnOnce(&mut ExtentCursor) -> Result<()>,
    ) -> Result<()> {
        let mut cursor = match self.position.take() {
            Some((at, cursor)) if at == n => cursor,
            _ => match self.extents.get(n) {
                Some(extent) => {
                    let (level, share) = (&self.extents, self.share);
                    self.ahead.goes_on(InLevel { level, number: n, share });
                    let cursor = extent.cursor(&self.cache, &self.ahead);
                    match self.of_run {
                        Some(lsn) => cursor.of_run(lsn),
                        None => cursor,
                    }
                }
                None => return Ok(()),
            },
        };
        place(&mut cursor)?;
        self.position = Some((n, cursor));
        Ok(())
    }

    /// Tells the reader that it goes on from one extent to a neighbour.
    fn cross(&self, from: usize, to: usize) {
        if let (Some(a), Some(b)) = (self.extents.get(from), self.extents.get(to)) {
            self.ahead.cross(a.meta().id, b.meta().id, to < from);
        }
    }

    /// Goes on to the next extent when this one is walked off.
    fn enter_next(&mut self) -> Result<()> {
        while let Some((n, cursor)) = &self.position
            && cursor.entry().is_none()
        {
            let n = *n;
            self.cross(n, n + 1);
            self.enter(n + 1, |cursor| cursor.seek(b"", LSN_MAX))?;
        }
        Ok(())
    }

    fn enter_previous(&mut self) -> Result<()> {
        while let Some((n, cursor)) = &self.position
            && cursor.entry().is_none()
        {
            match n.checked_sub(1) {
                Some(before) => {
                    self.cross(before + 1, before);
                    self.enter(before, |cursor| cursor.seek_before(None))?;
                }
                None => self.position = None,
            }
        }
        Ok(())
    }
}

impl Cursor for LevelCursor {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        let n = self.extents.partition_point(|e| e.meta().greatest_key.as_slice() < key);
        self.enter(n, |cursor| cursor.seek(key, seq))?;
        self.enter_next()
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let n = match key {
            Some(key) => self.extents.partition_point(|e| e.meta().smallest_key.as_slice() < key),
            None => self.extents.len(),
        };
        match n.checked_sub(1) {
            Some(last) => self.enter(last, |cursor| cursor.seek_before(key))?,
            None => self.position = None,
        }
        self.enter_previous()
    }

    fn next(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.position {
            cursor.next()?;
        }
        self.enter_next()
    }

    fn prev(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.position {
            cursor.prev()?;
        }
        self.enter_previous()
    }

    fn pass(
        &mut self,
        bound: Option<&[u8]>,
        take: &mut dyn FnMut(&EntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        while let Some((_, cursor)) = &mut self.position {
            let passed = cursor.pass(bound, take)?;
            if passed.is_break() || cursor.entry().is_some() {
                return Ok(passed);
            }
            self.enter_next()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.position.as_ref()?.1.entry()
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        self.position.as_ref().map_or(Ok(None), |(_, cursor)| cursor.separated())
    }
}

#[cfg(test)]
mod tests;
