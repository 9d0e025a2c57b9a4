//! A cursor over the extents of one level, or of any sorted, disjoint run of them.

use std::sync::Arc;

use crate::cache::BlockCache;
use crate::error::Result;
use crate::extent::{Extent, ExtentCursor};
use crate::record::{Cursor, EntryRef, LSN_MAX, Lsn};

/// Walks extents one after the other, opening one at a time.
pub(crate) struct LevelCursor<'a> {
    extents: &'a [Arc<Extent>],
    cache: &'a Arc<BlockCache>,
    /// Whether blocks read on the way go into the cache.
    fill: bool,
    at: usize,
    cursor: Option<ExtentCursor>,
}

impl<'a> LevelCursor<'a> {
    /// A cursor over `extents`, sorted by key and disjoint.
    pub(crate) fn new(
        extents: &'a [Arc<Extent>],
        cache: &'a Arc<BlockCache>,
        fill: bool,
    ) -> LevelCursor<'a> {
        debug_assert!(
            extents.windows(2).all(|w| w[0].meta().greatest_key < w[1].meta().smallest_key),
            "extents of a level are sorted and disjoint"
        );
        LevelCursor { extents, cache, fill, at: 0, cursor: None }
    }

    fn open(&mut self, at: usize) -> Option<&mut ExtentCursor> {
        self.at = at;
        self.cursor = self.extents.get(at).map(|e| e.cursor(self.cache, self.fill));
        self.cursor.as_mut()
    }

    fn is_placed(&self) -> bool {
        self.cursor.as_ref().is_some_and(|c| c.entry().is_some())
    }
}

impl Cursor for LevelCursor<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        let at = self.extents.partition_point(|e| e.meta().greatest_key.as_slice() < key);
        if let Some(cursor) = self.open(at) {
            cursor.seek(key, seq)?;
        }
        if !self.is_placed()
            && at < self.extents.len()
            && let Some(cursor) = self.open(at + 1)
        {
            // All versions of the last key of the extent were newer than `seq`.
            cursor.seek(&[], LSN_MAX)?;
        }
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let after = match key {
            Some(key) => self.extents.partition_point(|e| e.meta().smallest_key.as_slice() < key),
            None => self.extents.len(),
        };
        self.cursor = None;
        if after > 0
            && let Some(cursor) = self.open(after - 1)
        {
            cursor.seek_before(key)?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            cursor.next()?;
        }
        if !self.is_placed()
            && let Some(cursor) = self.open(self.at + 1)
        {
            cursor.seek(&[], LSN_MAX)?;
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            cursor.prev()?;
        }
        if !self.is_placed() {
            match self.at.checked_sub(1) {
                Some(before) => {
                    if let Some(cursor) = self.open(before) {
                        cursor.seek_before(None)?;
                    }
                }
                None => self.cursor = None,
            }
        }
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.cursor.as_ref().and_then(|c| c.entry())
    }
}
