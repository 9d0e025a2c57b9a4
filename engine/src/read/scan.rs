//! Ranges, a chunk at a time. Nothing is held between chunks: each is read from the view of its
//! moment, at the same LSN, into bytes of its own.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::extent::{BlockCache, ReadAhead};
use crate::limits::MAX_KEY_LEN;
use crate::memory::{Gauge, Holding};
use crate::mvcc::{KeyInterval, after};
use crate::read::AsOf;
use crate::record::{Apart, Cursor, EntryRef, Kind, LSN_MAX, Lsn};
use crate::view::View;

/// A range of keys with owned bounds.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// The range that Rust's range syntax describes.
    pub(crate) fn from_bounds<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> KeyRange {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        KeyRange { lower: owned(bounds.start_bound()), upper: owned(bounds.end_bound()) }
    }

    /// All keys that begin with `prefix`.
    pub(crate) fn prefix(prefix: &[u8]) -> KeyRange {
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        let upper = match end.last_mut() {
            None => Bound::Unbounded,
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
        };
        KeyRange { lower: Bound::Included(prefix.to_vec()), upper }
    }

    /// The keys inside; `None` if no key can be.
    pub(crate) fn interval(&self) -> Option<KeyInterval> {
        let start = match &self.lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => next_key(key)?,
        };
        let end = match &self.upper {
            Bound::Unbounded => None,
            Bound::Excluded(key) => Some(key.clone()),
            Bound::Included(key) => next_key(key),
        };
        Some(KeyInterval { start, end }).filter(|interval| !interval.is_empty())
    }

    /// Whether no key can lie inside.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a >= b
            }
            _ => false,
        }
    }

    /// Bytes of its two ends.
    pub(crate) fn bound_bytes(&self) -> usize {
        let len = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        len(&self.lower) + len(&self.upper)
    }

    /// Whether every key lies inside.
    pub(crate) fn is_everything(&self) -> bool {
        self.lower == Bound::Unbounded && self.upper == Bound::Unbounded
    }

    pub(crate) fn below_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
    }

    pub(crate) fn above_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => key >= lower.as_slice(),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// The first key that may lie inside, for seeking.
    pub(crate) fn start(&self) -> &[u8] {
        match &self.lower {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        }
    }
}

impl From<KeyInterval> for KeyRange {
    fn from(KeyInterval { start, end }: KeyInterval) -> KeyRange {
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        KeyRange { lower: Bound::Included(start), upper }
    }
}

/// The least key within the limits that is greater; `None` if there is none.
fn next_key(key: &[u8]) -> Option<Vec<u8>> {
    if key.len() < MAX_KEY_LEN {
        return Some(after(key));
    }
    let last = key.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = key[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// How much to read at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// Without their values, which are empty then.
    pub(crate) keys_only: bool,
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
    apart: Vec<(usize, Apart)>,
}

impl Rows {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Adds a row of which the value is here, or `apart`; or the key alone.
    fn add(&mut self, key: &[u8], value: &[u8], apart: Option<Apart>, chunk: Chunk) {
        if self.ends.is_empty() {
            self.make_room(key.len() + if chunk.keys_only { 0 } else { value.len() }, chunk);
        }
        match apart {
            _ if chunk.keys_only => self.push(key, &[]),
            Some(apart) => self.push_apart(key, apart),
            None => self.push(key, value),
        }
    }

    /// Makes room for a chunk of rows that are as long as the first.
    fn make_room(&mut self, row: usize, chunk: Chunk) {
        self.bytes.reserve(chunk.rows.saturating_mul(row).min(chunk.bytes));
        self.ends.reserve(chunk.rows);
    }

    /// Drops all rows but the first `len`.
    fn truncate(&mut self, len: usize) {
        if len == self.len() {
            return;
        }
        self.bytes.truncate(self.start(len));
        self.ends.truncate(len);
        while self.apart.pop_if(|(start, _)| *start >= self.bytes.len()).is_some() {}
    }

    /// Drops the row of a key, of which all versions were seen, if it is hidden: `under_way` is
    /// how many rows came before it, and its newest version.
    fn settle(
        &mut self,
        key: &[u8],
        under_way: Option<(usize, Lsn)>,
        is_hidden: impl Fn(&[u8], Lsn) -> Result<bool>,
    ) -> Result<()> {
        if let Some((before, newest)) = under_way
            && self.len() > before
            && is_hidden(key, newest)?
        {
            self.truncate(before);
        }
        Ok(())
    }

    /// Leaves room for a value that lies apart.
    fn push_apart(&mut self, key: &[u8], apart: Apart) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.resize(key_end + apart.at.value_len as usize, 0);
        self.ends.push((key_end, self.bytes.len()));
        self.apart.push((key_end, apart));
    }

    /// Reads the values that lie apart, those that are near each other at once.
    fn fetch(mut self) -> Result<Rows> {
        let mut apart = std::mem::take(&mut self.apart);
        apart.sort_unstable_by_key(|(_, apart)| (apart.at.extent, apart.at.offset));
        for of_one in apart.chunk_by(|(_, a), (_, b)| a.at.extent == b.at.extent) {
            let places: Vec<_> = of_one.iter().map(|(_, apart)| apart.at).collect();
            let values = of_one[0].1.from.read_values(&places)?;
            for ((start, _), value) in of_one.iter().zip(values) {
                self.bytes[*start..start + value.len()].copy_from_slice(&value);
            }
        }
        Ok(self)
    }

    fn is_full(&self, chunk: Chunk) -> bool {
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

    /// The rows, each a pair of slices of the one buffer, which `gauge` counts until the last slice
    /// of it is gone.
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

    /// The first row in the order in which they were read.
    pub(crate) fn take_first(&mut self) -> Option<(Bytes, Bytes)> {
        self.rows.next().map(|row| self.row(row))
    }

    /// The last one.
    pub(crate) fn take_last(&mut self) -> Option<(Bytes, Bytes)> {
        self.rows.next_back().map(|row| self.row(row))
    }

    fn row(&self, row: usize) -> (Bytes, Bytes) {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (key_end, end) = self.ends[row];
        (self.bytes.slice(start..key_end), self.bytes.slice(key_end..end))
    }
}

/// The first rows of `range` at a moment, in ascending order. The caller holds an epoch guard.
pub(crate) fn forward(
    view: &View,
    (cache, ahead): (&Arc<BlockCache>, &Arc<ReadAhead>),
    range: &KeyRange,
    AsOf { lsn: at, expired }: AsOf,
    chunk: Chunk,
) -> Result<Rows> {
    let mut cursor = view.cursor(cache, ahead);
    cursor.seek(range.start(), LSN_MAX)?;
    // The one key from there on that does not lie above the lower bound.
    let left_out = match &range.lower {
        Bound::Excluded(key) => Some(key.as_slice()),
        Bound::Included(_) | Bound::Unbounded => None,
    };
    let ranges = view.range_tombstones();
    let is_hidden = |key: &[u8], seq| match &ranges {
        _ if seq <= expired => Ok(true),
        Some(ranges) => Ok(ranges.newest_over(key, at)? > seq),
        None => Ok::<_, Error>(false),
    };
    let mut rows = Rows::default();
    // The key whose newest visible version was seen, unless it is that of the last row.
    let mut hidden: Option<Vec<u8>> = None;
    while let Some(entry) = cursor.entry() {
        if !range.below_upper(entry.key) {
            rows.exhausted = true;
            return rows.fetch();
        }
        let known = || rows.last_key() == Some(entry.key) || hidden.as_deref() == Some(entry.key);
        if entry.seq <= at && left_out != Some(entry.key) && !known() {
            if is_put(&entry) && !is_hidden(entry.key, entry.seq)? {
                let apart = apart(&cursor, &entry)?;
                rows.add(entry.key, entry.value, apart, chunk);
                if rows.is_full(chunk) {
                    return rows.fetch();
                }
            } else {
                let hidden = hidden.get_or_insert_default();
                hidden.clear();
                hidden.extend_from_slice(entry.key);
            }
        }
        cursor.next()?;
    }
    rows.exhausted = true;
    rows.fetch()
}

/// The last rows of `range` at a moment, in descending order. The caller holds an epoch guard.
pub(crate) fn backward(
    view: &View,
    (cache, ahead): (&Arc<BlockCache>, &Arc<ReadAhead>),
    range: &KeyRange,
    AsOf { lsn: at, expired }: AsOf,
    chunk: Chunk,
) -> Result<Rows> {
    let mut cursor = view.cursor(cache, ahead);
    place_last(&mut cursor, range)?;
    let ranges = view.range_tombstones();
    let is_hidden = |key: &[u8], newest| {
        let over = ranges.as_ref().map_or(Ok(0), |ranges| ranges.newest_over(key, at))?;
        Ok::<_, Error>(over > newest || newest <= expired)
    };
    let mut rows = Rows::default();
    // The key under way: how many rows came before it, and its newest version so far.
    let (mut key, mut under_way) = (Vec::new(), None);
    while let Some(entry) = cursor.entry() {
        let (before, newest) = match under_way.filter(|_| entry.key == key) {
            Some(same) => same,
            None => {
                rows.settle(&key, under_way.take(), is_hidden)?;
                if !range.above_lower(entry.key) {
                    rows.exhausted = true;
                    return rows.fetch();
                }
                if rows.is_full(chunk) {
                    return rows.fetch();
                }
                key.clear();
                key.extend_from_slice(entry.key);
                (rows.len(), 0)
            }
        };
        under_way = Some((before, newest));
        // Backwards the oldest version comes first: each newer one takes its place.
        if entry.seq <= at {
            under_way = Some((before, entry.seq));
            rows.truncate(before);
            if is_put(&entry) {
                rows.add(entry.key, entry.value, apart(&cursor, &entry)?, chunk);
            }
        }
        cursor.prev()?;
    }
    rows.settle(&key, under_way, is_hidden)?;
    rows.exhausted = true;
    rows.fetch()
}

/// Where the value of the entry under a cursor lies, if it lies apart.
fn apart(cursor: &impl Cursor, entry: &EntryRef<'_>) -> Result<Option<Apart>> {
    if entry.kind == Kind::Reference { cursor.apart() } else { Ok(None) }
}

/// Whether the key has a value, wherever it lies.
fn is_put(entry: &EntryRef<'_>) -> bool {
    matches!(entry.kind, Kind::Put | Kind::Reference)
}

fn place_last(cursor: &mut impl Cursor, range: &KeyRange) -> Result<()> {
    match &range.upper {
        Bound::Unbounded => cursor.seek_before(None),
        Bound::Excluded(upper) => cursor.seek_before(Some(upper)),
        Bound::Included(upper) => {
            // The least key greater than `upper`.
            let mut after = upper.clone();
            after.push(0);
            cursor.seek_before(Some(&after))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_where_they_should() {
        assert_eq!(KeyRange::prefix(b"ab").upper, Bound::Excluded(b"ac".to_vec()));
        assert_eq!(KeyRange::prefix(b"a\xff\xff").upper, Bound::Excluded(b"b".to_vec()));
        assert_eq!(KeyRange::prefix(b"\xff").upper, Bound::Unbounded);
        assert_eq!(KeyRange::prefix(b"").upper, Bound::Unbounded);
    }

    #[test]
    fn empty_ranges_are_seen() {
        let range = |lower, upper| KeyRange { lower, upper };
        let key = |k: &str| k.as_bytes().to_vec();
        assert!(range(Bound::Included(key("b")), Bound::Excluded(key("b"))).is_empty());
        assert!(range(Bound::Included(key("b")), Bound::Included(key("a"))).is_empty());
        assert!(!range(Bound::Included(key("b")), Bound::Included(key("b"))).is_empty());
        assert!(!range(Bound::Unbounded, Bound::Excluded(key("a"))).is_empty());
    }
}
