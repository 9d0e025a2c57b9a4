//! Rows that a range has read.

use std::sync::Arc;

use bytes::Bytes;

use super::many::read_separated;
use crate::base::error::Result;
use crate::base::memory::{Gauge, Holding};
use crate::base::operator::TableOperator;
use crate::base::record::{
    Cursor, EntryRef, Kind, Lsn, MergingCursor, SeparatedValue, is_open_chain,
};
use crate::sstable::ReadAhead;

/// How much to read at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// Without their values, which are empty then.
    pub(crate) keys_only: bool,
}

/// A value that a range has passed.
#[derive(Debug)]
pub(super) enum PassedValue {
    Here(Bytes),
    Apart(SeparatedValue),
}

/// Rows in the order in which they were read, one after the other in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    bytes: Vec<u8>,
    /// Where each row's key ends and its value begins, and where that ends.
    ends: Vec<(usize, usize)>,
    /// Whether the range has nothing beyond them.
    pub(crate) exhausted: bool,
    /// Values that are still to be read, and where each begins.
    separated: Vec<(usize, SeparatedValue)>,
    /// A key that the walk has passed and that has no row.
    passed: Option<Vec<u8>>,
}

impl Rows {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Adds a row. Its value is `value`, or lies `apart`. A chunk of keys only gets the key alone.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        value: &[u8],
        separated: Option<SeparatedValue>,
        chunk: Chunk,
    ) {
        if self.ends.is_empty() {
            self.make_room(key.len() + if chunk.keys_only { 0 } else { value.len() }, chunk);
        }
        match separated {
            _ if chunk.keys_only => self.push(key, &[]),
            Some(separated) => self.push_separated(key, separated),
            None => self.push(key, value),
        }
    }

    /// Makes room for a chunk of rows that are as long as the first.
    fn make_room(&mut self, row: usize, chunk: Chunk) {
        self.bytes.reserve(chunk.rows.saturating_mul(row).min(chunk.bytes));
        self.ends.reserve(chunk.rows);
    }

    /// Drops all rows but the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        if len == self.len() {
            return;
        }
        self.bytes.truncate(self.start(len));
        self.ends.truncate(len);
        while self.separated.pop_if(|(start, _)| *start >= self.bytes.len()).is_some() {}
    }

    /// Drops the last row; the value that it had.
    pub(super) fn pop_value(&mut self) -> Option<PassedValue> {
        let (key_end, end) = *self.ends.last()?;
        let apart = self.separated.pop_if(|(start, _)| *start == key_end);
        let value = match apart {
            Some((_, apart)) => PassedValue::Apart(apart),
            None => PassedValue::Here(Bytes::copy_from_slice(&self.bytes[key_end..end])),
        };
        self.truncate(self.len() - 1);
        Some(value)
    }

    /// Leaves room for a value that lies apart.
    fn push_separated(&mut self, key: &[u8], separated: SeparatedValue) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.resize(key_end + separated.at.value_len as usize, 0);
        self.ends.push((key_end, self.bytes.len()));
        self.separated.push((key_end, separated));
    }

    /// The walk has passed a key that has no row.
    pub(super) fn pass(&mut self, key: &[u8]) {
        let passed = self.passed.get_or_insert_default();
        passed.clear();
        passed.extend_from_slice(key);
    }

    /// The walk up has passed all keys up to this one, if it has not come further.
    pub(super) fn pass_up_to(&mut self, key: &[u8]) {
        if self.end(false).is_none_or(|end| key > end) {
            self.pass(key);
        }
    }

    /// Whether the newest visible version of a key was seen: it is that of the last row, or the
    /// last one that the walk has passed without a row.
    pub(super) fn knows(&self, key: &[u8]) -> bool {
        // Keys that follow one another mostly differ in their last byte.
        let is_it = |other: &[u8]| other.last() == key.last() && other == key;
        self.last_key().is_some_and(is_it) || self.passed.as_deref().is_some_and(is_it)
    }

    /// The last key that the walk has passed, in its direction.
    pub(crate) fn end(&self, is_backward: bool) -> Option<&[u8]> {
        match (self.last_key(), self.passed.as_deref()) {
            (Some(row), Some(passed)) if is_backward => Some(row.min(passed)),
            (Some(row), Some(passed)) => Some(row.max(passed)),
            (row, passed) => row.or(passed),
        }
    }

    /// Reads the values that lie apart. Where one cannot be read, these are the rows in front of
    /// it. The caller pins no epoch.
    pub(crate) fn fetch(mut self) -> Result<Rows> {
        let mut separated = std::mem::take(&mut self.separated);
        let Err(error) = self.read_values(&mut separated) else { return Ok(self) };
        // Values are read many at a time: which one it was shows when they are read one by one.
        separated.sort_unstable_by_key(|(start, _)| *start);
        let fails = |one| self.read_values(std::slice::from_mut(one)).is_err();
        let Some(bad) = separated.iter_mut().position(fails) else { return Ok(self) };
        let row = self.ends.partition_point(|(key_end, _)| *key_end < separated[bad].0);
        if row == 0 {
            return Err(error);
        }
        self.truncate(row);
        (self.passed, self.exhausted) = (None, false);
        Ok(self)
    }

    fn read_values(&mut self, separated: &mut [(usize, SeparatedValue)]) -> Result<()> {
        read_separated(separated, |start, value| {
            self.bytes[start..start + value.len()].copy_from_slice(&value);
        })
    }

    pub(super) fn is_full(&self, chunk: Chunk) -> bool {
        self.ends.len() == chunk.rows || self.bytes.len() >= chunk.bytes
    }

    fn start(&self, row: usize) -> usize {
        row.checked_sub(1).map_or(0, |before| self.ends[before].1)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The key of the last row.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        let last = self.ends.len().checked_sub(1)?;
        Some(&self.bytes[self.start(last)..self.ends[last].0])
    }

    /// The rows, each a pair of slices of the one buffer. `gauge` counts the buffer until its last
    /// slice is dropped.
    pub(crate) fn freeze(mut self, gauge: &Arc<Gauge>) -> FrozenRows {
        if self.ends.is_empty() {
            return FrozenRows::default();
        }
        if self.bytes.capacity() - self.bytes.len() > MOST_SPARE {
            self.bytes.shrink_to_fit();
        }
        let taken = self.bytes.capacity() + self.ends.capacity() * size_of::<(usize, usize)>();
        let held = gauge.hold(taken as u64);
        let bytes = Bytes::from_owner(Counted { bytes: self.bytes, _held: held });
        FrozenRows { rows: 0..self.ends.len(), ends: self.ends, bytes }
    }
}

/// Bytes of a buffer that may be left over.
const MOST_SPARE: usize = 16 * 1024;

/// The buffer of some rows, counted.
struct Counted {
    bytes: Vec<u8>,
    _held: Holding,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Rows that are handed out one by one, from either end.
#[derive(Debug, Default)]
pub(crate) struct FrozenRows {
    bytes: Bytes,
    ends: Vec<(usize, usize)>,
    rows: std::ops::Range<usize>,
}

impl FrozenRows {
    /// Whether none is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many are left.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Takes the first row in the order in which they were read; its number.
    pub(crate) fn take_first(&mut self) -> Option<usize> {
        self.rows.next()
    }

    /// Takes the last one.
    pub(crate) fn take_last(&mut self) -> Option<usize> {
        self.rows.next_back()
    }

    /// Where the key of a row begins and ends, and where its value ends.
    fn bounds(&self, row: usize) -> (usize, usize, usize) {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (key_end, end) = self.ends[row];
        (start, key_end, end)
    }

    /// A row that was taken, sharing the buffer.
    pub(crate) fn row(&self, row: usize) -> (Bytes, Bytes) {
        let (start, key_end, end) = self.bounds(row);
        (self.bytes.slice(start..key_end), self.bytes.slice(key_end..end))
    }

    /// A row that was taken, where it lies.
    pub(crate) fn lent(&self, row: usize) -> (&[u8], &[u8]) {
        let (start, key_end, end) = self.bounds(row);
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }
}

// The versions that make the value of a key with operands, taken from a cursor as a range passes
// them.
//
// Upwards the newest version comes first, and the last one that counts is met on the way.
// Downwards the oldest comes first: whether it counts is known once all newer ones were seen.

/// Records of operands of one key, and the value below them.
///
/// Invariant: only the oldest record has a base of its own, and then there is no value below.
#[derive(Debug, Default)]
pub(super) struct PassedOperands {
    /// One order for both: the newest first, or, while a walk goes down, the oldest.
    seqs: Vec<Lsn>,
    versions: Vec<Bytes>,
    below: Option<(Lsn, PassedValue)>,
}

impl PassedOperands {
    /// Those from the version on that `cursor` stands on, which a reader sees. It stands behind
    /// the last one that counts then.
    pub(super) fn newest_first(
        cursor: &mut MergingCursor<'_>,
        key: &[u8],
        is_hidden: impl Fn(&[u8], Lsn) -> Result<bool>,
    ) -> Result<PassedOperands> {
        let mut operands = PassedOperands::default();
        while let Some(entry) = cursor.entry().filter(|entry| entry.key == key) {
            if !is_put(&entry) || is_hidden(key, entry.seq)? {
                break;
            }
            if entry.kind != Kind::Merge {
                let value = match separated(cursor, &entry)? {
                    Some(apart) => PassedValue::Apart(apart),
                    None => PassedValue::Here(Bytes::copy_from_slice(entry.value)),
                };
                operands.below = Some((entry.seq, value));
                break;
            }
            let goes_on = is_open_chain(entry.value);
            operands.push(entry.seq, entry.value);
            cursor.next()?;
            if !goes_on {
                break;
            }
        }
        Ok(operands)
    }

    /// The same in the order of a walk down.
    pub(super) fn oldest_first(
        cursor: &mut MergingCursor<'_>,
        key: &[u8],
        is_hidden: impl Fn(&[u8], Lsn) -> Result<bool>,
    ) -> Result<PassedOperands> {
        let mut operands = PassedOperands::newest_first(cursor, key, is_hidden)?;
        operands.seqs.reverse();
        operands.versions.reverse();
        Ok(operands)
    }

    /// Takes the next newer record of operands of a walk down. `below` is the value that lies
    /// below the first one.
    pub(super) fn add_newer(&mut self, entry: &EntryRef<'_>, below: Option<(Lsn, PassedValue)>) {
        debug_assert!(
            self.seqs.last().is_none_or(|last| *last < entry.seq),
            "downwards versions of a key come in ascending order"
        );
        if !is_open_chain(entry.value) {
            self.clear();
        } else if below.is_some() {
            debug_assert!(self.versions.is_empty(), "a value is taken with the first record");
            self.below = below;
        }
        self.push(entry.seq, entry.value);
    }

    /// A walk down has seen all versions of the key: leaves out what is hidden, and all below it.
    pub(super) fn turn(
        &mut self,
        key: &[u8],
        is_hidden: impl Fn(&[u8], Lsn) -> Result<bool>,
    ) -> Result<()> {
        self.seqs.reverse();
        self.versions.reverse();
        let below = self.below.as_ref().map(|(seq, _)| *seq);
        for (at, seq) in self.seqs.iter().copied().chain(below).enumerate() {
            if is_hidden(key, seq)? {
                self.seqs.truncate(at);
                self.versions.truncate(at);
                self.below = None;
                break;
            }
        }
        Ok(())
    }

    /// The value that they make, the newest first.
    pub(super) fn value(
        &self,
        key: &[u8],
        (operator, ahead): (&TableOperator, &ReadAhead),
    ) -> Result<Vec<u8>> {
        debug_assert!(self.seqs.is_sorted_by(|newer, older| newer > older), "the newest first");
        let below = match &self.below {
            None => None,
            Some((_, PassedValue::Here(value))) => Some(value.clone()),
            Some((_, PassedValue::Apart(apart))) => Some(ahead.value(apart)?),
        };
        operator.resolve(key, &self.versions, below.as_deref())
    }

    /// Forgets all, for the next key.
    pub(super) fn clear(&mut self) {
        self.seqs.clear();
        self.versions.clear();
        self.below = None;
    }

    fn push(&mut self, seq: Lsn, record: &[u8]) {
        self.seqs.push(seq);
        self.versions.push(Bytes::copy_from_slice(record));
    }
}

/// Where the value of the entry under a cursor lies, if it lies apart.
pub(super) fn separated(
    cursor: &impl Cursor,
    entry: &EntryRef<'_>,
) -> Result<Option<SeparatedValue>> {
    if entry.kind == Kind::Reference { cursor.separated() } else { Ok(None) }
}

/// Whether the key has a value, wherever it lies.
pub(super) fn is_put(entry: &EntryRef<'_>) -> bool {
    matches!(entry.kind, Kind::Put | Kind::Reference | Kind::Merge)
}
