//! Ranges, a chunk at a time. Each chunk is read from the view of its moment, at the same LSN, into
//! its own buffer. Nothing is held between chunks.

use std::ops::Bound;
use std::sync::Arc;

use super::AsOf;
use super::get::get;
use super::key_range::KeyRange;
use super::rows::{Chunk, Merged, Rows};
use crate::error::Result;
use crate::extent::{BlockCache, ReadAhead};
use crate::merge::MergingCursor;
use crate::record::{Cursor, EntryRef, Kind, LSN_MAX, Lsn, SeparatedValue};
use crate::view::PinnedView;

/// The first rows of `range` at a moment, in ascending order.
pub(crate) fn forward(
    view: PinnedView<'_>,
    (cache, ahead): (&Arc<BlockCache>, &Arc<ReadAhead>),
    range: &KeyRange,
    as_of: AsOf,
    chunk: Chunk,
) -> Result<Rows> {
    let AsOf { lsn: at, expired } = as_of;
    let ranges = view.range_tombstones();
    let is_hidden = |key: &[u8], seq| match &ranges {
        _ if seq <= expired => Ok(true),
        Some(ranges) => Ok(ranges.newest_over(key, at)? > seq),
        None => Ok(false),
    };
    let merged = |key: &[u8]| get(view, key, as_of);
    walk_up(&mut view.cursor(cache, ahead), range, at, (is_hidden, merged), chunk)
}

fn walk_up(
    cursor: &mut MergingCursor<'_>,
    range: &KeyRange,
    at: Lsn,
    (is_hidden, merged): (impl Fn(&[u8], Lsn) -> Result<bool>, impl Fn(&[u8]) -> Merged),
    chunk: Chunk,
) -> Result<Rows> {
    // The one key from the lower bound on that is not in the range, and the sequence number to seek
    // to.
    let (left_out, from) = match &range.lower {
        Bound::Excluded(key) => (Some(key.as_slice()), 0),
        Bound::Included(_) | Bound::Unbounded => (None, LSN_MAX),
    };
    cursor.seek(range.start(), from)?;
    let (mut rows, mut passed) = (Rows::default(), Passed::default());
    // The key whose newest visible version was seen, unless it is that of the last row.
    let mut hidden: Option<Vec<u8>> = None;
    while let Some(entry) = cursor.entry() {
        if !range.below_upper(entry.key) {
            rows.exhausted = true;
            return rows.fetch();
        }
        let known = || rows.last_key() == Some(entry.key) || hidden.as_deref() == Some(entry.key);
        if entry.seq > at || left_out == Some(entry.key) || known() {
            if passed.are_many(entry.key) {
                // Seeks to the newest version that the reader may see, or to the next key.
                let seq = if entry.seq > at { at } else { 0 };
                cursor.skip_to(&passed.key, seq)?;
                continue;
            }
        } else if is_put(&entry) && !is_hidden(entry.key, entry.seq)? {
            if entry.kind == Kind::Merge {
                rows.add_merged(entry.key, &merged, chunk)?;
            } else {
                let apart = separated(cursor, &entry)?;
                rows.add(entry.key, entry.value, apart, chunk);
            }
            if rows.is_full(chunk) {
                return rows.fetch();
            }
        } else {
            let hidden = hidden.get_or_insert_default();
            hidden.clear();
            hidden.extend_from_slice(entry.key);
        }
        cursor.next()?;
    }
    rows.exhausted = true;
    rows.fetch()
}

/// The last rows of `range` at a moment, in descending order.
pub(crate) fn backward(
    view: PinnedView<'_>,
    (cache, ahead): (&Arc<BlockCache>, &Arc<ReadAhead>),
    range: &KeyRange,
    as_of: AsOf,
    chunk: Chunk,
) -> Result<Rows> {
    let AsOf { lsn: at, expired } = as_of;
    let ranges = view.range_tombstones();
    let is_hidden = |key: &[u8], newest| {
        let over = ranges.as_ref().map_or(Ok(0), |ranges| ranges.newest_over(key, at))?;
        Ok(over > newest || newest <= expired)
    };
    let merged = |key: &[u8]| get(view, key, as_of);
    walk_down(&mut view.cursor(cache, ahead), range, at, (is_hidden, merged), chunk)
}

fn walk_down(
    cursor: &mut MergingCursor<'_>,
    range: &KeyRange,
    at: Lsn,
    (is_hidden, merged): (impl Fn(&[u8], Lsn) -> Result<bool>, impl Fn(&[u8]) -> Merged),
    chunk: Chunk,
) -> Result<Rows> {
    place_last(cursor, range)?;
    let (mut rows, mut passed) = (Rows::default(), Passed::default());
    // The key under way: how many rows came before it, its newest version so far, and whether that
    // has operands.
    let (mut key, mut under_way) = (Vec::new(), None);
    while let Some(entry) = cursor.entry() {
        let (before, newest, has_operands) = match under_way.filter(|_| entry.key == key) {
            Some(same) => same,
            None => {
                rows.finish_key(&key, under_way.take(), (&is_hidden, &merged), chunk)?;
                if !range.above_lower(entry.key) {
                    rows.exhausted = true;
                    return rows.fetch();
                }
                if rows.is_full(chunk) {
                    return rows.fetch();
                }
                key.clear();
                key.extend_from_slice(entry.key);
                (rows.len(), 0, false)
            }
        };
        under_way = Some((before, newest, has_operands));
        let are_many = passed.are_many(entry.key);
        if are_many {
            // To the newest that a reader may see.
            cursor.seek(&key, at)?;
        }
        // Backwards the oldest version comes first: each newer one takes its place.
        if let Some(entry) = cursor.entry().filter(|entry| entry.key == key && entry.seq <= at) {
            under_way = Some((before, entry.seq, entry.kind == Kind::Merge));
            rows.truncate(before);
            if entry.kind == Kind::Merge {
                // Its value comes once all versions were seen.
                rows.add(entry.key, &[], None, chunk);
            } else if is_put(&entry) {
                rows.add(entry.key, entry.value, separated(cursor, &entry)?, chunk);
            }
        }
        if are_many {
            cursor.seek_before(Some(&key))?;
        } else {
            cursor.prev()?;
        }
    }
    rows.finish_key(&key, under_way, (&is_hidden, &merged), chunk)?;
    rows.exhausted = true;
    rows.fetch()
}

/// A walk steps past this many versions of a key, and then seeks. RocksDB has the same number
/// (`max_sequential_skip_in_iterations`).
const MOST_PASSED: usize = 8;

/// Versions of one key that a walk has passed.
#[derive(Debug, Default)]
struct Passed {
    key: Vec<u8>,
    versions: usize,
}

impl Passed {
    /// Counts one more; whether there are many. Then it begins again from none.
    fn are_many(&mut self, key: &[u8]) -> bool {
        if self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.versions = 0;
        }
        self.versions += 1;
        let are_many = self.versions > MOST_PASSED;
        if are_many {
            self.versions = 0;
        }
        are_many
    }
}

/// Where the value of the entry under a cursor lies, if it lies apart.
fn separated(cursor: &impl Cursor, entry: &EntryRef<'_>) -> Result<Option<SeparatedValue>> {
    if entry.kind == Kind::Reference { cursor.separated() } else { Ok(None) }
}

/// Whether the key has a value, wherever it lies.
fn is_put(entry: &EntryRef<'_>) -> bool {
    matches!(entry.kind, Kind::Put | Kind::Reference | Kind::Merge)
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
mod tests;
