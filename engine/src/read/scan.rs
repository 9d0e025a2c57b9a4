//! Ranges, a chunk at a time. Nothing is held between chunks: each is read from the view of its
//! moment, at the same LSN, into bytes of its own.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Result;
use crate::extent::BlockCache;
use crate::record::{Cursor, Kind, LSN_MAX, Lsn};
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

/// How much to read at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

/// Rows read, and whether the range is exhausted behind them.
pub(crate) type Rows = (Vec<(Bytes, Bytes)>, bool);

/// The first rows of `range` as of `at`, in ascending order. The caller holds an epoch guard.
pub(crate) fn forward(
    view: &View,
    cache: &Arc<BlockCache>,
    range: &KeyRange,
    at: Lsn,
    chunk: Chunk,
) -> Result<Rows> {
    let mut cursor = view.cursor(cache);
    cursor.seek(range.start(), LSN_MAX)?;
    let (mut rows, mut bytes) = (Vec::with_capacity(chunk.rows), 0);
    let mut decided: Option<Vec<u8>> = None;
    while let Some(entry) = cursor.entry() {
        if !range.below_upper(entry.key) {
            return Ok((rows, true));
        }
        let known = decided.as_deref() == Some(entry.key);
        if entry.seq <= at && !known && range.above_lower(entry.key) {
            if entry.kind == Kind::Put {
                if rows.len() == chunk.rows || bytes >= chunk.bytes {
                    return Ok((rows, false));
                }
                bytes += entry.key.len() + entry.value.len();
                rows.push((Bytes::copy_from_slice(entry.key), Bytes::copy_from_slice(entry.value)));
            }
            let decided = decided.get_or_insert_default();
            decided.clear();
            decided.extend_from_slice(entry.key);
        }
        cursor.next()?;
    }
    Ok((rows, true))
}

/// The last rows of `range` as of `at`, in descending order. The caller holds an epoch guard.
pub(crate) fn backward(
    view: &View,
    cache: &Arc<BlockCache>,
    range: &KeyRange,
    at: Lsn,
    chunk: Chunk,
) -> Result<Rows> {
    let mut cursor = view.cursor(cache);
    place_last(&mut cursor, range)?;
    let (mut rows, mut bytes) = (Vec::with_capacity(chunk.rows), 0);
    let mut key = Vec::new();
    while let Some(entry) = cursor.entry() {
        if !range.above_lower(entry.key) {
            return Ok((rows, true));
        }
        key.clear();
        key.extend_from_slice(entry.key);
        // Backwards the oldest version comes first: the last one that is seen counts.
        let mut newest: Option<(Kind, Bytes)> = None;
        while let Some(entry) = cursor.entry() {
            if entry.key != key.as_slice() {
                break;
            }
            if entry.seq <= at {
                newest = Some((entry.kind, Bytes::copy_from_slice(entry.value)));
            }
            cursor.prev()?;
        }
        if let Some((Kind::Put, value)) = newest {
            if rows.len() == chunk.rows || bytes >= chunk.bytes {
                return Ok((rows, false));
            }
            bytes += key.len() + value.len();
            rows.push((Bytes::copy_from_slice(&key), value));
        }
    }
    Ok((rows, true))
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
