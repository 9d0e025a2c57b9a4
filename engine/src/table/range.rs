//! Iterators over a range of keys.
//!
//! The keys alone, or the values alone, of rows.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::core::TableCore;
use super::{Keep, Shared, Table, TableSlot};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::Lsn;
use crate::mvcc::Registered;
use crate::read;
use crate::read::view::View;
use crate::read::{AsOf, Chunk, FrozenRows, KeyRange, Rows};
use crate::sstable::ReadAhead;

/// The first chunk is small, for callers that want few rows; later ones grow.
const FIRST_ROWS: usize = 16;
const MOST_ROWS: usize = 512;
const CHUNK_BYTES: usize = 256 * 1024;

/// After so many waits without an epoch, a range waits for what it still lacks with one pinned. A
/// chunk needs an end and a block of each level, and other readers may take their room meanwhile.
const MOST_WAITS: usize = 64;

/// Where all ranges together hold much already.
const SHORT_CHUNK_BYTES: usize = 16 * 1024;

/// Keys and values of a range, in order from either end, all as of one moment.
///
/// It owns what it returns and borrows nothing; it may outlive the handles it came from and move
/// between threads. Between calls it holds only its snapshot and, once it has gone on for a
/// while, what it has read ahead. Where many ranges rest like that, they give that up. All rows in
/// front of what cannot be read come before the error. After an error it ends.
///
/// Rows are read in chunks, and those of a chunk share one buffer of up to 256 KiB: copy what you
/// keep for long. If you know how many rows you want, say so with [`Range::limit`].
pub struct Range {
    shared: Arc<Shared>,
    slot: Arc<TableSlot>,
    core: Arc<TableCore>,
    /// Whether a truncation of its table was under way when it was made, and nothing of it was
    /// read: it goes on with the table that takes the place of its own. After a later truncation
    /// it fails.
    follows: bool,
    snapshot: Arc<Registered>,
    keep: Keep,
    /// All of it, for the code that moves it.
    whole: KeyRange,
    /// What has not been read yet, between the two buffers.
    rest: KeyRange,
    front: FrozenRows,
    back: FrozenRows,
    /// What was read ahead from either end.
    ahead: [Arc<ReadAhead>; 2],
    next_rows: usize,
    /// How many rows it may still return, from either end.
    left: usize,
    /// Whether nothing is left to read between the two buffers.
    exhausted: bool,
    refused: Option<Error>,
    keys_only: bool,
    /// Whether its next row is its last one.
    pub(super) is_reversed: bool,
    failed: bool,
}

impl Range {
    /// A range of what is there now.
    pub(super) fn of_now(table: &Table, range: KeyRange) -> Range {
        let now = Arc::new(table.shared.snapshots.register());
        let mut of_now = Range::new(table, range, now, || None);
        of_now.follows = of_now.core.check().is_err();
        // A truncation may have come between the snapshot and the look at the table.
        let lsn = of_now.snapshot.lsn();
        if table.slot.check_not_emptied_since(lsn).is_err() {
            of_now.renew();
        }
        of_now
    }

    /// Begins again with the table of this moment, as of now.
    fn renew(&mut self) {
        self.core = self.slot.core();
        self.snapshot = Arc::new(self.shared.snapshots.register());
        self.follows = self.core.check().is_err();
    }

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
            slot: Arc::clone(&table.slot),
            core,
            follows: false,
            snapshot,
            keep: Arc::clone(&table.keep),
            exhausted: range.is_empty(),
            rest: range.clone(),
            whole: range,
            front: FrozenRows::default(),
            back: FrozenRows::default(),
            ahead: [ReadAhead::for_user(), ReadAhead::for_user()],
            next_rows: FIRST_ROWS,
            left: usize::MAX,
            refused: refused(),
            keys_only: false,
            is_reversed: false,
            failed: false,
        }
    }

    /// Goes through it from its other end: its last row comes first.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// for n in 0..9u8 {
    ///     table.put([n], [n])?;
    /// }
    /// let newest: terrace::Result<Vec<_>> = table.range(..).rev().limit(2).keys().collect();
    /// assert_eq!(newest?, [&[8][..], &[7]]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rev(mut self) -> Range {
        self.is_reversed = !self.is_reversed;
        self
    }

    /// Goes on at `key`, as a new range would that begins there, as of the same moment: the next
    /// row is the first one at or after `key` (at or before, for a reversed one). Rows of the
    /// other end that were taken come again. A key outside of the range counts as its nearest end.
    /// A limit counts on. After an error nothing happens.
    ///
    /// It costs less than a new range: the snapshot stays, and so does what was read of extents.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// for n in 0..9u8 {
    ///     table.put([n], [n])?;
    /// }
    /// let mut range = table.range(..);
    /// for at in [7, 2, 5] {
    ///     range.seek([at]);
    ///     assert_eq!(range.next().transpose()?.unwrap().0[0], at);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.restart(self.whole.part_from(key.as_ref(), self.is_reversed));
    }

    /// The number of the last commit that it sees.
    pub(crate) fn lsn(&self) -> Lsn {
        self.snapshot.lsn()
    }

    /// Goes on with another part of it.
    pub(crate) fn restart(&mut self, rest: KeyRange) {
        if self.failed {
            return;
        }
        (self.front, self.back) = (FrozenRows::default(), FrozenRows::default());
        self.exhausted = rest.is_empty();
        self.rest = rest;
        self.next_rows = self.left.clamp(1, FIRST_ROWS);
    }

    /// Its keys, without their values. Values that lie apart from their keys are not read.
    pub fn keys(self) -> KeyIter<Range> {
        KeyIter::new(self.keys_only())
    }

    /// Its values, in the order of their keys.
    pub fn values(self) -> ValueIter<Range> {
        ValueIter::new(self)
    }

    /// Says that about so many rows will be asked for next, which are read at once then. Unlike
    /// [`Range::limit`] it ends nothing. [`Range::seek`] forgets it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// for n in 0..99u8 {
    ///     table.put([n], [n])?;
    /// }
    /// let mut page = table.range([3]..);
    /// page.expect_rows(50);
    /// assert_eq!(page.next().transpose()?.unwrap().0[0], 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn expect_rows(&mut self, rows: usize) {
        self.next_rows = rows.clamp(1, MOST_ROWS);
    }

    /// Ends after `rows` more rows, from whichever end they are taken. Unlike
    /// [`take`](Iterator::take) it is known to the reader, which reads no more rows from one end.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// for n in 0..9u8 {
    ///     table.put([n], [n])?;
    /// }
    /// assert_eq!(table.range([3]..).limit(4).count(), 4);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Range {
        self.left = self.left.min(rows);
        // More at once than that is no gain: a chunk is a search, and then a walk.
        self.next_rows = self.left.clamp(1, MOST_ROWS);
        self
    }

    /// Gives keys alone, with empty values; those that lie apart are not read.
    pub(crate) fn keys_only(mut self) -> Range {
        self.keys_only = true;
        self
    }

    fn chunk(&mut self) -> Chunk {
        let rows = self.next_rows.min(self.left);
        self.ahead.iter().for_each(|ahead| ahead.wants(self.left));
        self.next_rows = (self.next_rows * 2).min(MOST_ROWS);
        let is_short = self.shared.set.store().memory().has_many_rows();
        let bytes = if is_short { SHORT_CHUNK_BYTES } else { CHUNK_BYTES };
        Chunk { rows, bytes, keys_only: self.keys_only }
    }

    /// Reads a chunk as of the range's moment; of its first one with the next table, where it
    /// follows. It waits for parts of objects, and for values that lie apart, with no epoch
    /// pinned.
    fn read(
        &mut self,
        ahead: &ReadAhead,
        chunk: impl Fn(&Range, &View, AsOf) -> Result<Rows>,
    ) -> Result<Rows> {
        let mut waits = 0;
        loop {
            ahead.leave_where_it_waits(waits < MOST_WAITS);
            let read = self
                .shared
                .read(&self.core, Some(&self.snapshot), |view, at| chunk(self, view.view, at));
            match read {
                Err(_) if ahead.has_left() => match ahead.wait(&self.shared.cache) {
                    Ok(()) => waits += 1,
                    // It need not be the block's fault that its piece cannot be read.
                    Err(e) if e.kind() == ErrorKind::Corrupt => waits = MOST_WAITS,
                    Err(e) => return Err(e.in_table(|| self.core.name())),
                },
                Err(e) if e.is_table_gone() => {
                    self.shared.wait_for_truncation()?;
                    if Arc::ptr_eq(&self.core, &self.slot.core()) {
                        return Err(e);
                    }
                    if !self.follows {
                        self.slot.check_not_emptied_since(self.snapshot.lsn())?;
                        return Err(e);
                    }
                    self.renew();
                }
                done => {
                    self.follows = false;
                    return done?.fetch().map_err(|e| e.in_table(|| self.core.name()));
                }
            }
        }
    }

    fn fill_front(&mut self) -> Result<()> {
        let (chunk, ahead) = (self.chunk(), Arc::clone(&self.ahead[0]));
        let rows = self.read(&ahead, |range, view, at| {
            read::forward(view, (&range.shared.cache, &ahead), &range.rest, at, chunk)
        })?;
        if let Some(key) = rows.end(false) {
            debug_assert!(
                self.rest.above_lower(key) && self.rest.below_upper(key),
                "a chunk from the front ends inside what was left"
            );
            self.rest.lower = Bound::Excluded(key.to_vec());
        }
        self.front = self.take_in(rows);
        Ok(())
    }

    fn fill_back(&mut self) -> Result<()> {
        let (chunk, ahead) = (self.chunk(), Arc::clone(&self.ahead[1]));
        let rows = self.read(&ahead, |range, view, at| {
            read::backward(view, (&range.shared.cache, &ahead), &range.rest, at, chunk)
        })?;
        if let Some(key) = rows.end(true) {
            debug_assert!(
                self.rest.above_lower(key) && self.rest.below_upper(key),
                "a chunk from the back ends inside what was left"
            );
            self.rest.upper = Bound::Excluded(key.to_vec());
        }
        self.back = self.take_in(rows);
        Ok(())
    }

    fn take_in(&mut self, rows: Rows) -> FrozenRows {
        debug_assert!(rows.len() <= self.left, "a chunk has no more rows than may be returned");
        self.exhausted = rows.exhausted || self.rest.is_empty();
        let store = self.shared.set.store();
        self.ahead.iter().for_each(|ahead| ahead.rest(store, self.shared.cache.capacity()));
        rows.freeze(&store.memory().iterators)
    }

    fn fail(&mut self, error: Error) -> Error {
        (self.exhausted, self.failed) = (true, true);
        (self.front, self.back) = (FrozenRows::default(), FrozenRows::default());
        error
    }

    /// Reads a chunk from one end, unless there is one or no row is left to read or to return.
    pub(super) fn fill(&mut self, from_back: bool) -> Result<()> {
        if let Some(error) = self.refused.take() {
            return Err(self.fail(error));
        }
        // A chunk without rows has passed keys that have none.
        while self.own(from_back).is_empty() && !self.exhausted && self.left > 0 {
            let filled = if from_back { self.fill_back() } else { self.fill_front() };
            filled.map_err(|e| self.fail(e))?;
        }
        Ok(())
    }

    /// The rows that were read from one end.
    fn own(&self, from_back: bool) -> &FrozenRows {
        if from_back { &self.back } else { &self.front }
    }

    /// How many rows may be taken from one end without reading.
    pub(super) fn at_hand_from(&self, from_back: bool) -> usize {
        let (own, other) = match from_back {
            true => (&self.back, &self.front),
            false => (&self.front, &self.back),
        };
        // Where nothing is left to read, those of the other end's chunk follow.
        let read = if self.exhausted { own.len() + other.len() } else { own.len() };
        read.min(self.left)
    }

    /// Takes the row that is next from one end: the chunk that it is in, and its number there.
    pub(super) fn take(&mut self, from_back: bool) -> Result<Option<(&FrozenRows, usize)>> {
        self.fill(from_back)?;
        if self.left == 0 {
            return Ok(None);
        }
        let (own, other) = match from_back {
            true => (&mut self.back, &mut self.front),
            false => (&mut self.front, &mut self.back),
        };
        // Of the other end's chunk the last row is the nearest one.
        let taken = match own.take_first() {
            Some(row) => Some((own, row)),
            None => other.take_last().map(|row| (other, row)),
        };
        self.left -= usize::from(taken.is_some());
        Ok(taken.map(|(rows, row)| (&*rows, row)))
    }

    fn take_owned(&mut self, from_back: bool) -> Option<Result<(Bytes, Bytes)>> {
        self.take(from_back).map(|taken| taken.map(|(rows, row)| rows.row(row))).transpose()
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if self.shared.fork.is_forked() {
            // What the parent's range holds. A thread of the parent may have held a mutex of what
            // was read ahead, or have been the last that was to give up the table.
            std::mem::forget((self.ahead.clone(), Arc::clone(&self.core), Arc::clone(&self.slot)));
        }
    }
}

impl Iterator for Range {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_reversed { self.take_owned(true) } else { self.take_owned(false) }
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.is_reversed { self.take_owned(false) } else { self.take_owned(true) }
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

/// The keys of rows: see [`Range::keys`](crate::Range::keys).
#[derive(Debug)]
pub struct KeyIter<I>(I);

/// The values of rows: see [`Range::values`](crate::Range::values).
#[derive(Debug)]
pub struct ValueIter<I>(I);

impl<I> KeyIter<I> {
    pub(crate) fn new(rows: I) -> KeyIter<I> {
        KeyIter(rows)
    }
}

impl<I> ValueIter<I> {
    pub(crate) fn new(rows: I) -> ValueIter<I> {
        ValueIter(rows)
    }
}

impl<I: Iterator<Item = Result<(Bytes, Bytes)>>> Iterator for KeyIter<I> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        self.0.next().map(|row| row.map(|(key, _)| key))
    }
}

impl<I: DoubleEndedIterator<Item = Result<(Bytes, Bytes)>>> DoubleEndedIterator for KeyIter<I> {
    fn next_back(&mut self) -> Option<Result<Bytes>> {
        self.0.next_back().map(|row| row.map(|(key, _)| key))
    }
}

impl<I: Iterator<Item = Result<(Bytes, Bytes)>>> Iterator for ValueIter<I> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        self.0.next().map(|row| row.map(|(_, value)| value))
    }
}

impl<I: DoubleEndedIterator<Item = Result<(Bytes, Bytes)>>> DoubleEndedIterator for ValueIter<I> {
    fn next_back(&mut self) -> Option<Result<Bytes>> {
        self.0.next_back().map(|row| row.map(|(_, value)| value))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
