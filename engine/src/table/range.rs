//! Iterators over a range of keys.
//!
//! The keys alone, or the values alone, of rows.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::core::TableCore;
use super::{Keep, Shared, Table, TableSlot};
use crate::base::error::{Error, Result};
use crate::base::operations::OperationKind;
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
    ends: [FrozenRows; 2],
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
    is_reversed: bool,
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
            ends: <_>::default(),
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
        self.ends = <_>::default();
        self.exhausted = rest.is_empty();
        self.rest = rest;
        self.next_rows = self.left.clamp(1, FIRST_ROWS);
    }

    /// Its keys, without their values. Values that lie apart from their keys are not read.
    pub fn keys(self) -> KeyIter<Range> {
        KeyIter(self.keys_only())
    }

    /// Its values, in the order of their keys.
    pub fn values(self) -> ValueIter<Range> {
        ValueIter(self)
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
    #[doc(hidden)]
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
        #[cfg(test)]
        CHUNKS.set(CHUNKS.get() + 1);
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
        loop {
            let read = ahead.read_apart_from_waits(&self.shared.cache, || {
                self.shared
                    .read(&self.core, Some(&self.snapshot), |view, at| chunk(self, view.view, at))
            });
            match read.map_err(|e| e.in_table(|| self.core.name())) {
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
                    let rows = done?.fetch().inspect_err(|e| self.shared.events.damage(e));
                    return rows.map_err(|e| e.in_table(|| self.core.name()));
                }
            }
        }
    }

    fn read_on_from(&mut self, from_back: bool) -> Result<()> {
        let (chunk, ahead) = (self.chunk(), Arc::clone(&self.ahead[usize::from(from_back)]));
        let rows = self.read(&ahead, |range, view, at| {
            let cached = (&range.shared.cache, &ahead);
            read::rows(view, cached, (&range.rest, from_back), at, chunk)
        })?;
        if let Some(key) = rows.end(from_back) {
            debug_assert!(
                self.rest.above_lower(key) && self.rest.below_upper(key),
                "a chunk ends inside what was left"
            );
            let end = if from_back { &mut self.rest.upper } else { &mut self.rest.lower };
            *end = Bound::Excluded(key.to_vec());
        }
        self.ends[usize::from(from_back)] = self.take_in(rows);
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
        self.ends = <_>::default();
        error
    }

    /// Reads a chunk from one end, unless there is one or no row is left to read or to return.
    fn fill(&mut self, from_back: bool) -> Result<()> {
        if let Some(error) = self.refused.take() {
            return Err(self.fail(error));
        }
        // A chunk without rows has passed keys that have none.
        while self.own(from_back).is_empty() && !self.exhausted && self.left > 0 {
            let timed = self.shared.events.begin(OperationKind::Range);
            let read = self.read_on_from(from_back);
            self.shared.events.end(timed, || Some(self.core.name()));
            read.map_err(|e| self.fail(e))?;
        }
        Ok(())
    }

    /// The rows that were read from one end.
    fn own(&self, from_back: bool) -> &FrozenRows {
        &self.ends[usize::from(from_back)]
    }

    /// How many rows may be taken from one end without reading.
    fn at_hand_from(&self, from_back: bool) -> usize {
        let own = self.own(from_back).len();
        // Where nothing is left to read, those of the other end's chunk follow.
        let read = if self.exhausted { own + self.own(!from_back).len() } else { own };
        read.min(self.left)
    }

    /// Takes the row that is next from one end: the chunk that it is in, and its number there.
    fn take(&mut self, from_back: bool) -> Result<Option<(&FrozenRows, usize)>> {
        if self.left == 0 || self.own(from_back).is_empty() {
            self.fill(from_back)?;
        }
        if self.left == 0 {
            return Ok(None);
        }
        let [front, back] = &mut self.ends;
        let (own, other) = if from_back { (back, front) } else { (front, back) };
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

impl Range {
    /// What `f` makes of the next row, of which it is lent key and value. As
    /// [`next`](Iterator::next), but nothing is allocated for a row: rows are read many
    /// at a time into one buffer. `f` may call the database.
    ///
    /// # Errors
    ///
    /// Those of [`Table::get`]. After one the range has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// table.put("a", "123")?;
    /// table.put("b", "45")?;
    /// let (mut range, mut bytes) = (table.range(..), 0);
    /// while let Some(len) = range.next_with(|_key, value| value.len()) {
    ///     bytes += len?;
    /// }
    /// assert_eq!(bytes, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_with<T>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        self.lend(self.is_reversed, f)
    }

    /// As [`Range::next_with`], from the other end.
    ///
    /// # Errors
    ///
    /// As [`Range::next_with`].
    pub fn next_back_with<T>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        self.lend(!self.is_reversed, f)
    }

    /// How many of the next rows were read already. A call that takes one of them waits for
    /// nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// table.put("a", "123")?;
    /// table.put("b", "45")?;
    /// let mut range = table.range(..);
    /// assert_eq!(range.at_hand(), 0);
    /// assert!(range.read_on()? && range.at_hand() == 2);
    /// assert_eq!(range.next().transpose()?.unwrap().0, "a");
    /// assert_eq!(range.at_hand(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(hidden)]
    pub fn at_hand(&self) -> usize {
        self.at_hand_from(self.is_reversed)
    }

    /// Reads the next rows, unless there are some [`at_hand`](Range::at_hand); whether there is a
    /// row. It is for callers that hold something which they give up where they wait.
    ///
    /// # Errors
    ///
    /// As [`Range::next_with`].
    #[doc(hidden)]
    pub fn read_on(&mut self) -> Result<bool> {
        self.fill(self.is_reversed)?;
        Ok(self.at_hand() > 0)
    }

    fn lend<T>(&mut self, from_back: bool, f: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        let lent = self.take(from_back).map(|taken| {
            taken.map(|(rows, row)| {
                let (key, value) = rows.lent(row);
                f(key, value)
            })
        });
        lent.transpose()
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

macro_rules! parts_of_rows {
    ($($(#[$about:meta])+ $name:ident($part:expr);)+) => {$(
        $(#[$about])+
        #[derive(Debug)]
        pub struct $name<I>(pub(crate) I);

        impl<I: Iterator<Item = Result<(Bytes, Bytes)>>> Iterator for $name<I> {
            type Item = Result<Bytes>;

            fn next(&mut self) -> Option<Result<Bytes>> {
                self.0.next().map(|row| row.map($part))
            }
        }

        impl<I: DoubleEndedIterator<Item = Result<(Bytes, Bytes)>>> DoubleEndedIterator
            for $name<I>
        {
            fn next_back(&mut self) -> Option<Result<Bytes>> {
                self.0.next_back().map(|row| row.map($part))
            }
        }
    )+};
}

parts_of_rows! {
    /// The keys of rows: see [`Range::keys`](crate::Range::keys).
    KeyIter(|(key, _)| key);

    /// The values of rows: see [`Range::values`](crate::Range::values).
    ValueIter(|(_, value)| value);
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;

#[cfg(test)]
thread_local! {
    /// Chunks that ranges of this thread have read.
    pub(crate) static CHUNKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
