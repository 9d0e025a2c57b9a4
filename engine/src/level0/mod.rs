//! Level 0: the sorted level in persistent memory under the memtables. Frozen memtables feed it;
//! bounded columns of it drain to level 1.
//!
//! [`Level0`] is what the rest of the engine sees. It joins the records that lie in zones with the
//! row tables of a matrix or triangle, and with the range tombstones.
//!
//! | file | what |
//! |---|---|
//! | `global_index.rs` | one index over records that stay in zones: all of the default container |
//! | `matrix/` | the matrix and the triangle container: row tables of copies |
//! | `versions.rs` | the index over records in zones, and which versions can go early |
//! | `walk.rs` | walks over records in zones: which keys a drain moves next |
//! | `tombstones.rs` | range tombstones, and where many deleted keys lie next to each other |

mod global_index;
mod matrix;
mod tombstones;
mod versions;
mod walk;

use std::sync::Arc;

use global_index::GlobalIndex;
use tombstones::{DeletedSpans, RangeTombstones, hidden_spans, spans, starts_from};
use versions::Versions;
use walk::{ColumnSearch, bytes_by_walk, column_by_walk};

use crate::base::error::Result;
use crate::base::record::{Cursor, Kind, Lsn, MergingCursor, TableId};
use crate::memtable::{Index, Memtable, Rebuilt, Record};
use crate::mvcc::{DrainedMap, KeyInterval, pin};
use crate::os::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::pindex::forest::Forest;
use crate::pm::Region;

pub(crate) use matrix::{RowTables, StoredRow, find_rows, salvage_row, verify_row};
pub(crate) use tombstones::DeletedSpan;
pub(crate) use versions::{Keep, Superseded};
pub(crate) use walk::ColumnWidths;

#[cfg(any(test, feature = "testing"))]
pub(crate) use matrix::probe;
#[cfg(feature = "bench")]
pub(crate) use matrix::{FOLLOWS_HINTS, SEARCH_NANOS};

/// What a persistent index or row tables that an opening found count for: enough to be looked at
/// while there is time, and too little while there is not.
const UNKNOWN: u64 = 2048;

/// The level 0 of one table: the sorted records between its memtables and level 1, and range
/// tombstones beside them.
///
/// Every read takes the drained map D of the reader's view, and leaves out what D covers. That
/// makes a drain atomic for readers.
///
/// Thread safety: readers run at any time. One thread at a time ingests. Retirement, version
/// pruning and ingestion may run at once.
///
/// Invariants:
///
/// 1. Every record above D of its key that was ingested is found until a later D covers it, or
///    until it was superseded and no reader needs it. A record at or below D may be missing.
/// 2. A range tombstone is found, and counts in its zone, until D covers all of it.
/// 3. Each offset is released once.
///
/// # Errors
///
/// A call that changes it and fails may have done a part. The caller poisons the database.
#[derive(Debug)]
pub(crate) struct Level0 {
    pub(crate) in_zones: GlobalIndex,
    /// Tables that hold rows copied out of memtables. With a persistent index there are none.
    pub(crate) rows: Option<RowTables>,
    pub(crate) tombstones: RangeTombstones,
    /// Where many deleted keys lie next to each other, as far as is known.
    pub(crate) deleted: DeletedSpans,
    clearing: Clearing,
}

impl Level0 {
    /// One with these row tables and nothing in zones.
    pub(crate) fn new(rows: RowTables) -> Arc<Level0> {
        let region = Arc::clone(rows.region());
        let index = Versions::Memory(Index::new(Arc::clone(&region)));
        let unknown = if rows.is_empty() { 0 } else { UNKNOWN };
        Level0::over(
            GlobalIndex::new(Arc::clone(&region), index),
            Some(rows),
            RangeTombstones::new(region.indexes()),
            unknown,
        )
    }

    /// One whose index lies in persistent memory, with what an opening found there. Its records are
    /// to be counted.
    pub(crate) fn persistent(
        region: Arc<Region>,
        forest: Arc<Forest>,
        table: TableId,
    ) -> Arc<Level0> {
        let index = Versions::persistent(&region, forest, table);
        let tombstones = RangeTombstones::new(region.indexes());
        let in_zones = GlobalIndex::new(region, index);
        Level0::over(in_zones, None, tombstones, UNKNOWN)
    }

    /// One with these row tables and with what an opening found in the zones.
    pub(crate) fn rebuilt(rows: RowTables, mut rebuilt: Rebuilt) -> Arc<Level0> {
        let region = Arc::clone(rows.region());
        let tombstones = RangeTombstones::new(region.indexes());
        tombstones.add(std::mem::take(&mut rebuilt.tombstones));
        rebuilt.bytes -= tombstones.size().bytes;
        // Where deleted keys are is looked up when there is time.
        let deletes = if rows.is_empty() { rebuilt.deletes } else { UNKNOWN };
        let in_zones = GlobalIndex::rebuilt(region, rebuilt);
        Level0::over(in_zones, Some(rows), tombstones, deletes)
    }

    /// One with so many deletes, at any key.
    fn over(
        in_zones: GlobalIndex,
        rows: Option<RowTables>,
        tombstones: RangeTombstones,
        deletes: u64,
    ) -> Arc<Level0> {
        let (clearing, deleted) = (Clearing::default(), DeletedSpans::default());
        if deletes > 0 {
            deleted.add(vec![DeletedSpan { interval: KeyInterval::all(), deletes }]);
        }
        Arc::new(Level0 { in_zones, rows, tombstones, deleted, clearing })
    }
}

/// Reading.
impl Level0 {
    /// The row tables, if there are any.
    pub(crate) fn shown_rows(&self) -> Option<&RowTables> {
        self.rows.as_ref().filter(|rows| !rows.is_empty())
    }

    /// The newest version of `key` that is not newer than `at_most` and not drained.
    pub(crate) fn get(
        &self,
        key: &[u8],
        at_most: Lsn,
        drained: &DrainedMap,
    ) -> Result<Option<Record<'_>>> {
        let Some(rows) = self.shown_rows() else {
            return self.in_zones.get(key, at_most, drained);
        };
        let in_rows = rows.get(key, at_most, drained.get(key));
        if self.in_zones.is_empty() {
            return Ok(in_rows);
        }
        let in_zones = self.in_zones.get(key, at_most, drained)?;
        Ok(in_rows.into_iter().chain(in_zones).max_by_key(|record| record.seq))
    }

    /// A cursor over all that is not drained.
    pub(crate) fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a> {
        let Some(rows) = self.shown_rows() else { return self.in_zones.cursor(drained) };
        let in_rows = Box::new(rows.cursor(drained));
        if self.in_zones.is_empty() {
            return in_rows;
        }
        Box::new(MergingCursor::new(vec![in_rows, self.in_zones.cursor(drained)]))
    }

    /// Records and bytes that it holds, range tombstones included.
    pub(crate) fn size(&self) -> Size {
        let in_rows = self.rows.as_ref().map_or_else(Size::default, RowTables::size);
        in_rows + self.in_zones.size() + self.tombstones.size()
    }

    /// Bytes of memory that it takes, to the byte.
    pub(crate) fn memory(&self) -> u64 {
        let in_rows = self.rows.as_ref().map_or(0, RowTables::memory);
        in_rows + self.in_zones.memory() + self.tombstones.memory()
    }
}

/// Ingestion.
impl Level0 {
    /// Takes over the records and range tombstones of a frozen memtable. Readers may find a record
    /// in both places meanwhile. Versions that `keep` does not want may be left out; those that are
    /// there already stay until [`Level0::prune`].
    pub(crate) fn ingest(&self, memtable: &Memtable, keep: Keep<'_>) -> Result<Superseded> {
        let superseded = self.in_zones.ingest(memtable, keep)?;
        debug_assert!(
            superseded.left_out.len() as u64 <= memtable.records(),
            "an ingestion leaves out only records of its memtable (invariant 1)"
        );
        self.take_ranges(memtable)?;
        Ok(superseded)
    }

    /// Takes over the range tombstones of a memtable whose records it has, and notes where it
    /// deleted much.
    fn take_ranges(&self, memtable: &Memtable) -> Result<()> {
        let _guard = pin();
        if memtable.deletes() > 0 {
            let mut cursor = memtable.cursor();
            cursor.seek_first();
            self.deleted.add(spans(std::iter::from_fn(|| {
                let (_, record) = cursor.record()?;
                cursor.step();
                Some(record.entry())
            })));
        }
        if let Some(tombstones) = memtable.tombstones() {
            let drained = DrainedMap::default();
            let records = self.size().records - self.tombstones.size().records;
            self.deleted.add(hidden_spans(&tombstones, self.cursor(&drained), records)?);
            self.tombstones.add(tombstones.iter().cloned().collect());
        }
        Ok(())
    }

    /// As [`RowTables::publish`], with the range tombstones of the memtable, which stay in zones.
    pub(crate) fn publish(&self, memtable: &Memtable, stored: StoredRow) -> Result<Vec<u64>> {
        let copied = self.rows.as_ref().map_or_else(Vec::new, |rows| rows.publish(stored));
        self.take_ranges(memtable)?;
        Ok(copied)
    }
}

/// Draining.
impl Level0 {
    /// Where the next column at or after `from` may end, in turn; `None` when nothing is left
    /// there. It has about `bytes`.
    pub(crate) fn next_column(
        &self,
        from: &[u8],
        upto: Lsn,
        drained: &DrainedMap,
        bytes: u64,
    ) -> Result<Option<ColumnWidths>> {
        let tombstones = self.tombstones.load().unwrap_or_default();
        let widths = ColumnWidths::budgets(bytes);
        let ranges = starts_from(&tombstones, from, upto, drained, widths[2]);
        let search = ColumnSearch { from, upto, widths, ranges: &ranges };
        let columns = column_by_walk(self.cursor(drained), &search)?;
        debug_assert!(
            columns.iter().flat_map(|columns| &columns.0).all(|column| column.start == from),
            "columns leave no key between them"
        );
        debug_assert!(
            columns.iter().flat_map(|columns| &columns.0).all(|column| !column.is_empty()),
            "a column has a key, so that each drain goes on in its round"
        );
        Ok(columns)
    }

    /// Bytes of the records in `interval` with a sequence number of at most `upto` that are not
    /// drained, range tombstones included.
    pub(crate) fn bytes_in(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Result<u64> {
        debug_assert!(!interval.is_empty(), "a drain asks for keys");
        let records = bytes_by_walk(self.cursor(drained), interval, upto)?;
        Ok(records + self.tombstones.bytes_in(interval, upto, drained))
    }

    /// Removes what a drain moved, once its edit is durable and no reader of an older view is left.
    /// That is every record in `interval` with a sequence number of at most `upto`. It is also each
    /// range tombstone all of which is in `interval` or covered by `drained`.
    pub(crate) fn retire(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Result<Released> {
        let covered = || {
            let mut released = self.tombstones.retire(interval, upto, drained);
            if let Some(rows) = &self.rows {
                rows.retire(interval, upto, drained);
            }
            released.absorb(self.in_zones.retire(interval, upto)?);
            Ok(released)
        };
        self.clearing.remove(covered, || self.clear_rest())
    }

    /// Removes everything, of a table that is gone, when no reader is left. If another thread is
    /// about to remove some, that thread removes the rest and returns it.
    pub(crate) fn clear(&self) -> Result<Released> {
        self.clearing.clear(|| self.clear_rest())
    }

    fn clear_rest(&self) -> Result<Released> {
        let mut released = self.tombstones.clear();
        if let Some(rows) = &self.rows {
            rows.clear();
        }
        released.absorb(self.in_zones.clear()?);
        Ok(released)
    }
}

/// Records in zones.
impl Level0 {
    /// Whether the record at `at` is the one that a read finds.
    pub(crate) fn holds(&self, record: &Record<'_>, at: u64) -> Result<bool> {
        match record.kind {
            Kind::RangeDelete => Ok(self.tombstones.holds(record, at)),
            _ => self.in_zones.holds(record, at),
        }
    }

    /// Makes a read find the record at `to`, its copy, instead of at `from`. Returns whether it was
    /// at `from`.
    pub(crate) fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> Result<bool> {
        debug_assert_ne!(from, to, "a copy has an offset of its own (invariant 3)");
        match record.kind {
            Kind::RangeDelete => Ok(self.tombstones.relocate(record, from, to)),
            _ => self.in_zones.relocate(record, from, to),
        }
    }

    /// Removes superseded versions, and releases those that an ingestion left out. No reader that
    /// could need them is left.
    pub(crate) fn prune(&self, superseded: Superseded) -> Result<Released> {
        let some = || self.in_zones.prune(&superseded);
        let mut released = self.clearing.remove(some, || self.clear_rest())?;
        released.absorb(Released { records: superseded.left_out });
        Ok(released)
    }
}

/// Records and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) records: u64,
    /// Bytes that the records take in the region.
    pub(crate) bytes: u64,
}

impl std::ops::Add for Size {
    type Output = Size;

    fn add(self, other: Size) -> Size {
        Size { records: self.records + other.records, bytes: self.bytes + other.bytes }
    }
}

/// What level 0 no longer keeps in the region. The caller gives the space back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// Offsets of records in zones, each of which no longer counts in its zone.
    pub(crate) records: Vec<u64>,
}

impl Released {
    /// Adds what another removal released.
    pub(crate) fn absorb(&mut self, other: Released) {
        self.records.extend(other.records);
    }
}

/// How far a count of live records came.
#[derive(Debug)]
pub(crate) struct LiveCount {
    /// The smallest sequence number in the part; the greatest there is if the part had none.
    pub(crate) oldest: Lsn,
    /// The first key that is left.
    pub(crate) next: Option<Vec<u8>>,
}

// Removal of records from a level 0 that may be cleared meanwhile, because its table was dropped.
//
// Removals are deferred, each on its own. They run at any time, beside and within one another, so
// none can wait for another. The removal that leaves last after the clearing began removes the
// rest: no other removal runs then, and none follows.
//
// Thread safety: a removal counts itself in first, and then looks whether the clearing began. The
// clearing begins inside a removal. All of it is in one order (sequentially consistent), so a
// removal that still removes some keeps the count above zero.

/// Orders removals and the clearing of one level 0.
#[derive(Debug, Default)]
struct Clearing {
    /// Removals under way.
    inside: AtomicUsize,
    has_begun: AtomicBool,
    is_done: AtomicBool,
}

impl Clearing {
    /// Removes `some`, unless the clearing began, and the `rest` if this removal leaves last after
    /// that. Returns what was released.
    fn remove(
        &self,
        some: impl FnOnce() -> Result<Released>,
        rest: impl FnOnce() -> Result<Released>,
    ) -> Result<Released> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let has_begun = || self.has_begun.load(Ordering::SeqCst);
        let released = if has_begun() { Ok(Released::default()) } else { some() };
        debug_assert!(
            released.as_ref().is_ok_and(|released| released.records.is_empty())
                || !self.is_done.load(Ordering::SeqCst),
            "the rest is removed after each removal that still removes some"
        );
        let is_last = self.inside.fetch_sub(1, Ordering::SeqCst) == 1 && has_begun();
        let mut released = released?;
        if is_last && !self.is_done.swap(true, Ordering::SeqCst) {
            released.absorb(rest()?);
        }
        Ok(released)
    }

    /// Begins the clearing.
    fn clear(&self, rest: impl FnOnce() -> Result<Released>) -> Result<Released> {
        let begin = || {
            self.has_begun.store(true, Ordering::SeqCst);
            Ok(Released::default())
        };
        self.remove(begin, rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;

    use super::*;

    fn released(records: &[u64]) -> Result<Released> {
        Ok(Released { records: records.to_vec() })
    }

    #[test]
    fn the_removal_that_leaves_last_removes_the_rest() {
        let clearing = Clearing::default();
        let rest = || released(&[7, 8]);
        let of = |result: Result<Released>| result.unwrap().records;
        assert_eq!(of(clearing.remove(|| released(&[1]), rest)), [1]);
        let within = || {
            assert_eq!(of(clearing.clear(rest)), [0_u64; 0], "a removal is under way");
            let after = clearing.remove(|| released(&[3]), rest);
            assert_eq!(of(after), [0_u64; 0], "the clearing began");
            released(&[2])
        };
        assert_eq!(of(clearing.remove(within, rest)), [2, 7, 8]);
        assert_eq!(of(clearing.remove(|| released(&[4]), rest)), [0_u64; 0]);
        assert_eq!(of(clearing.clear(rest)), [0_u64; 0]);
    }

    #[test]
    fn each_is_released_once_from_any_thread() {
        for _ in 0..50 {
            let clearing = Clearing::default();
            let left = Mutex::new((0..64).collect::<BTreeSet<_>>());
            let gone = Mutex::new(Vec::new());
            let rest = || {
                Ok(Released { records: std::mem::take(&mut *left.lock()).into_iter().collect() })
            };
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (clearing, left, gone, rest) = (&clearing, &left, &gone, &rest);
                    scope.spawn(move || {
                        for _ in 0..20 {
                            let one = || left.lock().pop_first().into_iter().collect();
                            let some = || Ok(Released { records: one() });
                            gone.lock().extend(clearing.remove(some, rest).unwrap().records);
                        }
                        if thread == 0 {
                            gone.lock().extend(clearing.clear(rest).unwrap().records);
                        }
                    });
                }
            });
            let mut gone = gone.into_inner();
            gone.sort_unstable();
            assert_eq!(gone, (0..64).collect::<Vec<u64>>());
        }
    }
}
