//! Iterators over a range of keys.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::core::TableCore;
use super::{Keep, Shared, Table};
use crate::error::{Error, Result};
use crate::mvcc::Registered;
use crate::read::{self, Chunk, KeyRange};

/// The first chunk is small, for those who want few rows; later ones grow.
const FIRST_ROWS: usize = 8;
const MOST_ROWS: usize = 512;
const CHUNK_BYTES: usize = 256 * 1024;

/// Keys and values of a range, in order from either end, all as of one moment.
///
/// It owns what it returns and borrows nothing; it may outlive the handles it came from and move
/// between threads. Between calls it holds only its snapshot. After an error it ends.
pub struct Range {
    shared: Arc<Shared>,
    core: Arc<TableCore>,
    snapshot: Arc<Registered>,
    keep: Keep,
    /// What has not been read yet, between the two buffers.
    rest: KeyRange,
    front: VecDeque<(Bytes, Bytes)>,
    back: VecDeque<(Bytes, Bytes)>,
    next_rows: usize,
    exhausted: bool,
    refused: Option<Error>,
}

impl Range {
    pub(crate) fn new(
        table: &Table,
        range: KeyRange,
        snapshot: Arc<Registered>,
        refused: impl FnOnce() -> Option<Error>,
    ) -> Range {
        // The table of this moment first: emptied after that, it fails by itself.
        let core = table.slot.core();
        Range {
            shared: Arc::clone(&table.shared),
            core,
            snapshot,
            keep: Arc::clone(&table.keep),
            exhausted: range.is_empty(),
            rest: range,
            front: VecDeque::new(),
            back: VecDeque::new(),
            next_rows: FIRST_ROWS,
            refused: refused(),
        }
    }

    fn chunk(&mut self) -> Chunk {
        let rows = self.next_rows;
        self.next_rows = (rows * 4).min(MOST_ROWS);
        Chunk { rows, bytes: CHUNK_BYTES }
    }

    fn fill_front(&mut self) -> Result<()> {
        let chunk = self.chunk();
        let (rows, end) = self.shared.read(&self.core, Some(&self.snapshot), |view, at| {
            read::forward(view, &self.shared.cache, &self.rest, at, chunk)
        })?;
        if let Some((key, _)) = rows.last() {
            self.rest.lower = Bound::Excluded(key.to_vec());
        }
        self.exhausted = end || self.rest.is_empty();
        self.front.extend(rows);
        Ok(())
    }

    fn fill_back(&mut self) -> Result<()> {
        let chunk = self.chunk();
        let (rows, end) = self.shared.read(&self.core, Some(&self.snapshot), |view, at| {
            read::backward(view, &self.shared.cache, &self.rest, at, chunk)
        })?;
        if let Some((key, _)) = rows.last() {
            self.rest.upper = Bound::Excluded(key.to_vec());
        }
        self.exhausted = end || self.rest.is_empty();
        self.back.extend(rows);
        Ok(())
    }

    fn fail(&mut self, error: Error) -> Option<Result<(Bytes, Bytes)>> {
        self.exhausted = true;
        self.front.clear();
        self.back.clear();
        Some(Err(error))
    }
}

impl Iterator for Range {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.refused.take() {
            return self.fail(error);
        }
        if self.front.is_empty()
            && !self.exhausted
            && let Err(e) = self.fill_front()
        {
            return self.fail(e);
        }
        self.front.pop_front().or_else(|| self.back.pop_back()).map(Ok)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.refused.take() {
            return self.fail(error);
        }
        if self.back.is_empty()
            && !self.exhausted
            && let Err(e) = self.fill_back()
        {
            return self.fail(e);
        }
        self.back.pop_front().or_else(|| self.front.pop_back()).map(Ok)
    }
}

impl std::iter::FusedIterator for Range {}

impl std::fmt::Debug for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range")
            .field("table", &self.core.name())
            .field("lsn", &self.snapshot.lsn())
            .field("exhausted", &self.exhausted)
            .field("open", &Arc::strong_count(&self.keep))
            .finish_non_exhaustive()
    }
}
