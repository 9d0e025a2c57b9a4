//! Walks over the records of level 0.
//!
//! Columns: the key intervals that drains move, one after the other.

use super::versions::{Position, Versions};
use crate::base::error::Result;
use crate::base::record::{Cursor, EntryRef, LSN_MAX, Lsn, SeparatedValue};
use crate::memtable::{Record, record_at, record_len};
use crate::mvcc::KeyInterval;
use crate::pm::Region;

/// A position among the records that an index leads to.
pub(super) struct Walk<'a> {
    region: &'a Region,
    /// Decoded once a step: a merge looks at it several times.
    record: Option<(u64, Record<'a>)>,
    position: Position<'a>,
}

impl<'a> Walk<'a> {
    /// One over `index`, nowhere at first.
    pub(super) fn new(region: &'a Region, index: &'a Versions) -> Walk<'a> {
        Walk::at(region, index.cursor())
    }

    /// One from a position on, nowhere at first.
    pub(super) fn at(region: &'a Region, position: Position<'a>) -> Walk<'a> {
        Walk { region, record: None, position }
    }

    /// Whether it is at a version at or behind (`key`, `seq`), or at the end.
    fn is_at_or_behind(&self, key: &[u8], seq: Lsn) -> bool {
        let is = |record: &Record<'_>| record.key > key || record.key == key && record.seq <= seq;
        self.record.as_ref().is_none_or(|(_, record)| is(record))
    }

    fn look(&mut self) {
        self.record = self.position.version().map(|(_, at)| (at, record_at(self.region, at)));
    }

    /// The record here, with its offset.
    pub(super) fn record(&self) -> Option<(u64, Record<'a>)> {
        self.record
    }
}

impl Cursor for Walk<'_> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.position.seek(key, seq)?;
        self.look();
        debug_assert!(self.is_at_or_behind(key, seq), "a search lands at or behind its key");
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.position.seek_before(key)?;
        self.look();
        debug_assert!(
            key.is_none_or(|key| self.record.is_none_or(|(_, record)| record.key < key)),
            "a search backwards lands before its key"
        );
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.position.next()?;
        self.look();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.position.prev()?;
        self.look();
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.record.as_ref().map(|(_, record)| record.entry())
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        Ok(None)
    }
}

/// All records that an index leads to, from a place on: of a persistent one those that it has in
/// memory too.
pub(super) struct WalkUp<'a> {
    sides: [Option<Walk<'a>>; 2],
}

impl<'a> WalkUp<'a> {
    /// One over `index`, from the first version at or behind (`key`, `seq`) on.
    pub(super) fn from(
        region: &'a Region,
        index: &'a Versions,
        (key, seq): (&[u8], Lsn),
    ) -> Result<WalkUp<'a>> {
        let in_memory = index.cursor_in_memory().map(|position| Walk::at(region, position));
        let mut sides = [Some(Walk::new(region, index)), in_memory];
        for side in sides.iter_mut().flatten() {
            side.seek(key, seq)?;
        }
        Ok(WalkUp { sides })
    }

    /// The record here, with its offset.
    pub(super) fn record(&self) -> Option<(u64, Record<'a>)> {
        let here = self.sides.iter().flatten().filter_map(Walk::record);
        here.min_by(|(_, a), (_, b)| a.key.cmp(b.key).then(b.seq.cmp(&a.seq)))
    }

    /// Goes to the next record.
    pub(super) fn next(&mut self) -> Result<()> {
        let here = self.record().map(|(at, _)| at);
        let is_here = |side: &&mut Walk<'a>| side.record().map(|(at, _)| at) == here;
        self.sides.iter_mut().flatten().find(is_here).map_or(Ok(()), Cursor::next)
    }
}

/// Columns with the same start: the one that ends first, the one of the budget that a drain has,
/// and the one that ends last.
#[derive(Clone, Debug)]
pub(crate) struct ColumnWidths(pub(crate) [KeyInterval; 3]);

impl ColumnWidths {
    /// Bytes of records in level 0 that each of them may have, where a drain moves about `bytes`.
    pub(crate) fn budgets(bytes: u64) -> [u64; 3] {
        [bytes / 2, bytes, bytes.saturating_mul(2)]
    }
}

/// What the next column is chosen by.
#[derive(Debug)]
pub(super) struct ColumnSearch<'a> {
    /// The first key that the column may have.
    pub(super) from: &'a [u8],
    /// The greatest sequence number that the drain moves.
    pub(super) upto: Lsn,
    /// The bytes of each width, ascending.
    pub(super) widths: [u64; 3],
    /// Where range tombstones have something left to drain behind `from`, in order, each with the
    /// bytes of its record.
    pub(super) ranges: &'a [(&'a [u8], u64)],
}

/// The next column, by one walk over the records that are not drained: for each width an interval
/// from `search.from` on whose records and range tombstones fit its bytes, and one key at least.
/// The interval ends right after a key that it has, so the keys of the extents that come of it are
/// known to the last. It has no end if nothing is left behind it. `None` when nothing is left at
/// all.
pub(super) fn column_by_walk(
    mut cursor: impl Cursor,
    search: &ColumnSearch<'_>,
) -> Result<Option<ColumnWidths>> {
    cursor.seek(search.from, LSN_MAX)?;
    debug_assert!(search.ranges.is_sorted(), "a search has its range tombstones in order");
    let mut ranges = search.ranges.iter().copied().peekable();
    let (mut bytes, mut last) = (0, None::<Vec<u8>>);
    let rest = || KeyInterval { start: search.from.to_vec(), end: None };
    let (mut columns, mut ended) = ([rest(), rest(), rest()], 0);
    loop {
        while cursor.entry().is_some_and(|entry| entry.seq > search.upto) {
            cursor.next()?;
        }
        let record = cursor.entry().map(|entry| (entry.key, stored_len(entry.key, entry.value)));
        let range = ranges.peek().copied();
        let is_range = range.is_some_and(|range| record.is_none_or(|record| range.0 <= record.0));
        let Some((key, len)) = (if is_range { range } else { record }) else { break };
        debug_assert!(key >= search.from, "a column has no key before the start of its search");
        debug_assert!(
            last.as_deref().is_none_or(|last| last <= key),
            "a column is found by a walk that goes up"
        );
        if last.as_deref() != Some(key) {
            let full = search.widths[ended..].iter().take_while(|width| bytes >= **width).count();
            if let (1.., Some(last)) = (full, &last) {
                columns[ended..][..full].fill(KeyInterval::closed(search.from, last));
                ended += full;
            }
            if ended == columns.len() {
                break;
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        bytes += len;
        if is_range {
            ranges.next();
        } else {
            cursor.next()?;
        }
    }
    Ok(last.map(|_| ColumnWidths(columns)))
}

/// Bytes of the records in `interval` with a sequence number of at most `upto`, by a walk over the
/// records that are not drained.
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
