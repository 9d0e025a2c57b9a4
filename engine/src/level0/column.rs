//! Columns: the key intervals that drains move, one after the other.

use crate::error::Result;
use crate::memtable::record_len;
use crate::mvcc::KeyInterval;
use crate::record::{Cursor, LSN_MAX, Lsn};

/// How large a column may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnBudget {
    /// Bytes of records in level 0 that one drain may move.
    pub(crate) bytes: u64,
}

/// What the next column is chosen by.
#[derive(Debug)]
pub(super) struct ColumnSearch<'a> {
    /// The first key that the column may have.
    pub(super) from: &'a [u8],
    /// The greatest sequence number that the drain moves.
    pub(super) upto: Lsn,
    pub(super) budget: ColumnBudget,
    /// Where range tombstones have something left to drain behind `from`, in order, each with the
    /// bytes of its record.
    pub(super) ranges: &'a [(Vec<u8>, u64)],
}

/// The next column, by a walk over the records that are not drained: an interval from `search.from`
/// on whose records and range tombstones fit the budget, and one key at least. The interval ends
/// right after a key that it has, so the keys of the extents that come of it are known to the last.
/// It has no end if nothing is left behind it. `None` when nothing is left at all.
///
/// # Errors
///
/// What the cursor gives.
pub(super) fn column_by_walk(
    mut cursor: impl Cursor,
    search: &ColumnSearch<'_>,
) -> Result<Option<KeyInterval>> {
    cursor.seek(search.from, LSN_MAX)?;
    let mut ranges = search.ranges.iter().map(|(start, bytes)| (start.as_slice(), *bytes));
    debug_assert!(search.ranges.is_sorted(), "a search has its range tombstones in order");
    let mut range = ranges.next();
    let (mut bytes, mut last) = (0, None::<Vec<u8>>);
    loop {
        while cursor.entry().is_some_and(|entry| entry.seq > search.upto) {
            cursor.next()?;
        }
        let record = cursor.entry().map(|entry| (entry.key, stored_len(entry.key, entry.value)));
        let is_range = range.is_some_and(|range| record.is_none_or(|record| range.0 <= record.0));
        let Some((key, len)) = (if is_range { range } else { record }) else { break };
        debug_assert!(key >= search.from, "a column has no key before the start of its search");
        debug_assert!(
            last.as_deref().is_none_or(|last| last <= key),
            "a column is found by a walk that goes up"
        );
        let is_new = last.as_deref() != Some(key);
        if bytes >= search.budget.bytes
            && let Some(last) = last.as_deref().filter(|_| is_new)
        {
            return Ok(Some(KeyInterval::closed(search.from, last)));
        }
        if is_new {
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        bytes += len;
        if is_range {
            range = ranges.next();
        } else {
            cursor.next()?;
        }
    }
    Ok(last.map(|_| KeyInterval { start: search.from.to_vec(), end: None }))
}

/// Bytes of the records in `interval` with a sequence number of at most `upto`, by a walk over the
/// records that are not drained.
///
/// # Errors
///
/// What the cursor gives.
pub(super) fn bytes_by_walk(
    mut cursor: impl Cursor,
    interval: &KeyInterval,
    upto: Lsn,
) -> Result<u64> {
    cursor.seek(&interval.start, LSN_MAX)?;
    let mut bytes = 0;
    debug_assert!(
        cursor.entry().is_none_or(|entry| entry.key >= interval.start.as_slice()),
        "a search lands at or behind the key that it looks for"
    );
    while let Some(entry) = cursor.entry().filter(|entry| interval.contains(entry.key)) {
        if entry.seq <= upto {
            bytes += stored_len(entry.key, entry.value);
        }
        cursor.next()?;
    }
    Ok(bytes)
}

fn stored_len(key: &[u8], value: &[u8]) -> u64 {
    record_len(key.len(), value.len()) as u64
}
