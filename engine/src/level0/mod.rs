//! Level 0: the sorted level in persistent memory under the memtables. Frozen memtables feed it;
//! bounded columns of it drain to level 1.
//!
//! [`Level0`] is what the rest of the engine sees. It joins a [`Container`], which has the records
//! of keys, with the range tombstones, which every container shares.
//!
//! | file | what |
//! |---|---|
//! | `container.rs` | the traits of a container |
//! | `global_index.rs` | the default container: one index over records that stay in zones |
//! | `matrix/` | the matrix and the triangle container: row tables of copies |
//! | `versions.rs`, `walk.rs` | the index of the default container, and walks over its records |
//! | `tombstones.rs` | range tombstones |
//! | `column.rs` | which keys a drain moves next |
//! | `deleted.rs` | where many deleted keys lie next to each other |
//! | `superseded.rs`, `clearing.rs` | versions that can go early; removal beside a drop |

mod clearing;
mod column;
mod container;
mod deleted;
mod global_index;
mod matrix;
#[cfg(any(test, feature = "testing"))]
mod sorted_copy;
mod superseded;
mod tombstones;
mod versions;
mod walk;

use std::sync::Arc;

use crate::alloc::PagePool;
use crate::error::Result;
use crate::memtable::{Memtable, Rebuilt, Record};
use crate::mvcc::{DrainedMap, KeyInterval, Tombstone, Tombstones, pin};
use crate::options::ContainerKind;
use crate::pm::Region;
use crate::ptree::forest::Forest;
use crate::record::{Cursor, Kind, LSN_MAX, Lsn, TableId};

use clearing::Clearing;
pub(crate) use column::{ColumnBudget, ColumnSearch};
pub(crate) use container::{Container, Keep, LiveCount, Released, RowTables, Size};
use container::{VersionPruning, ZoneResidents};
pub(crate) use deleted::DeletedSpan;
use deleted::{DeletedSpans, hidden_spans, spans};
use global_index::GlobalIndex;
#[cfg(any(test, feature = "testing"))]
pub(crate) use matrix::probe;
#[cfg(feature = "bench")]
pub(crate) use matrix::{FOLLOWS_HINTS, SEARCH_NANOS};
pub(crate) use matrix::{Matrix, StoredRow, find_rows, salvage_row, verify_row};
#[cfg(any(test, feature = "testing"))]
use sorted_copy::SortedCopy;
pub(crate) use superseded::Superseded;
use tombstones::RangeTombstones;
use versions::Persistent;

/// What a persistent index that an opening found counts for: enough to be looked at while there is
/// time, and too little while there is not.
const UNKNOWN: u64 = 2048;

/// The level 0 of one table: a container, and range tombstones beside it.
///
/// Thread safety: as [`Container`].
///
/// Invariants:
///
/// 1. Every record above D of its key that was ingested is found until a later D covers it, or
///    until it was superseded and no reader needs it. A record at or below D may be missing.
/// 2. A range tombstone is found, and counts in its zone, until D covers all of it.
/// 3. Each offset is released once.
#[derive(Debug)]
pub(crate) struct Level0<C: Container + ?Sized = dyn Container> {
    tombstones: RangeTombstones,
    clearing: Clearing,
    deleted: DeletedSpans,
    container: C,
}

impl Level0 {
    /// An empty one.
    pub(crate) fn new(pages: &Arc<PagePool>, kind: ContainerKind) -> Arc<Level0> {
        let region = Arc::clone(pages.region());
        match kind {
            ContainerKind::Named(chosen) => {
                Level0::over(Matrix::new(Arc::clone(pages), chosen), region)
            }
            #[cfg(any(test, feature = "testing"))]
            ContainerKind::SortedCopy => Level0::over(SortedCopy::new(Arc::clone(&region)), region),
        }
    }

    /// One whose index lies in persistent memory, with what an opening found there. Its records are
    /// to be counted.
    pub(crate) fn persistent(
        region: Arc<Region>,
        forest: Arc<Forest>,
        table: TableId,
    ) -> Arc<Level0> {
        let index = Persistent::new(forest, table);
        let level0 = Level0::over(GlobalIndex::new(Arc::clone(&region), index), region);
        level0.note_unknown();
        level0
    }

    /// One with the row tables that an opening found, and with what it found in zones beside them.
    pub(crate) fn with_rows(
        region: &Arc<Region>,
        rows: Matrix,
        rebuilt: Option<Rebuilt>,
    ) -> Arc<Level0> {
        let Some(mut rebuilt) = rebuilt else {
            let level0 = Level0::over(rows, Arc::clone(region));
            level0.note_unknown();
            return level0;
        };
        let tombstones = std::mem::take(&mut rebuilt.tombstones);
        let level0 = Level0::over(rows.with_records(rebuilt), Arc::clone(region));
        level0.add_tombstones(tombstones);
        level0.note_unknown();
        level0
    }

    /// One with what an opening found in the zones.
    ///
    /// # Errors
    ///
    /// What the container gives.
    pub(crate) fn rebuilt(
        pages: &Arc<PagePool>,
        mut rebuilt: Rebuilt,
        kind: ContainerKind,
    ) -> Arc<Level0> {
        let region = Arc::clone(pages.region());
        let (tombstones, deletes) = (std::mem::take(&mut rebuilt.tombstones), rebuilt.deletes);
        let level0 = match kind {
            ContainerKind::Named(chosen) => {
                let container = Matrix::new(Arc::clone(pages), chosen);
                Level0::over(container.with_records(rebuilt), region)
            }
            #[cfg(any(test, feature = "testing"))]
            ContainerKind::SortedCopy => {
                Level0::over(SortedCopy::rebuilt(Arc::clone(&region), &rebuilt), region)
            }
        };
        level0.add_tombstones(tombstones);
        if deletes > 0 {
            // Where they are is looked up when there is time.
            level0.note_deleted(DeletedSpan { interval: KeyInterval::all(), deletes });
        }
        level0
    }

    fn over<C: Container + 'static>(container: C, region: Arc<Region>) -> Arc<Level0> {
        let tombstones = RangeTombstones::new(region);
        let (clearing, deleted) = (Clearing::default(), DeletedSpans::default());
        Arc::new(Level0 { tombstones, clearing, deleted, container })
    }
}

/// Reading.
impl Level0 {
    /// As [`Container::get`].
    pub(crate) fn get(
        &self,
        key: &[u8],
        at_most: Lsn,
        drained: &DrainedMap,
    ) -> Result<Option<Record<'_>>> {
        self.container.get(key, at_most, drained)
    }

    /// As [`Container::cursor`].
    pub(crate) fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a> {
        self.container.cursor(drained)
    }

    /// Its range tombstones, drained or not; `None` if it has none.
    pub(crate) fn tombstones(&self) -> Option<Arc<Tombstones>> {
        self.tombstones.load()
    }

    /// What its range tombstones with a sequence number of at most `upto` say of keys in `interval`
    /// that are not drained, to readers at `oldest` or later.
    pub(crate) fn tombstones_in(
        &self,
        interval: &KeyInterval,
        (upto, oldest): (Lsn, Lsn),
        drained: &DrainedMap,
    ) -> Vec<Arc<Tombstone>> {
        self.tombstones.undrained_in(interval, (upto, oldest), drained)
    }

    /// Whether [`Level0::tombstones_in`] gives any.
    pub(crate) fn has_tombstones_in(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> bool {
        self.tombstones.has_undrained_in(interval, upto, drained)
    }

    /// Records and bytes that it holds, range tombstones included.
    pub(crate) fn size(&self) -> Size {
        self.container.size() + self.tombstones.size()
    }

    /// Bytes of memory that it takes, to the byte.
    pub(crate) fn memory(&self) -> u64 {
        self.container.memory() + self.tombstones.memory()
    }
}

/// Ingestion.
impl Level0 {
    /// As [`Container::reserve`].
    ///
    /// # Errors
    ///
    /// `Full`, and nothing has changed.
    pub(crate) fn reserve(&self, memtable: &Memtable) -> Result<()> {
        self.container.reserve(memtable)
    }

    /// As [`Container::ingest`], with the range tombstones of the memtable.
    ///
    /// # Errors
    ///
    /// An I/O error; a part may have been done.
    pub(crate) fn ingest(&self, memtable: &Memtable, keep: Keep<'_>) -> Result<Superseded> {
        let superseded = self.container.ingest(memtable, keep)?;
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
            let (cursor, size) = (self.container.cursor(&drained), self.container.size());
            self.deleted.add(hidden_spans(&tombstones, cursor, size.records)?);
            self.add_tombstones(tombstones.iter().cloned().collect());
        }
        Ok(())
    }

    /// The container as one that copies memtables into row tables, if it does.
    pub(crate) fn row_tables(&self) -> Option<&dyn RowTables> {
        self.container.as_row_tables()
    }

    /// As [`RowTables::publish`], with the range tombstones of the memtable, which stay in zones.
    ///
    /// # Errors
    ///
    /// An I/O error; a part may have been done.
    pub(crate) fn publish(&self, memtable: &Memtable, stored: StoredRow) -> Result<Vec<u64>> {
        let copied = self.row_tables().map_or_else(Vec::new, |rows| rows.publish(stored));
        self.take_ranges(memtable)?;
        Ok(copied)
    }

    /// Adds range tombstones that an opening found.
    pub(crate) fn add_tombstones(&self, tombstones: Vec<Arc<Tombstone>>) {
        self.tombstones.add(tombstones);
    }
}

/// Deleted keys.
impl Level0 {
    /// The most deleted keys that lie next to each other, as far as is known.
    pub(crate) fn most_deleted(&self) -> u64 {
        self.deleted.most()
    }

    /// Takes the note of the keys of which most are deleted, if these are `least`.
    pub(crate) fn take_deleted(&self, least: u64) -> Option<DeletedSpan> {
        self.deleted.take(least)
    }

    /// Notes that nothing is known of what was deleted: all is looked at once.
    fn note_unknown(&self) {
        self.note_deleted(DeletedSpan { interval: KeyInterval::all(), deletes: UNKNOWN });
    }

    /// Notes keys of which many are deleted.
    pub(crate) fn note_deleted(&self, span: DeletedSpan) {
        self.deleted.add(vec![span]);
    }
}

/// Draining.
impl Level0 {
    /// The next column at or after `from`, in turn; `None` when nothing is left there. See
    /// [`Container::next_column`].
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn next_column(
        &self,
        from: &[u8],
        upto: Lsn,
        drained: &DrainedMap,
        budget: ColumnBudget,
    ) -> Result<Option<KeyInterval>> {
        let ranges = self.tombstones.starts_from(from, upto, drained, budget.bytes);
        let search = ColumnSearch { from, upto, drained, budget, ranges: &ranges };
        let column = self.container.next_column(&search)?;
        let begins = |column: &KeyInterval| column.start == from;
        debug_assert!(column.as_ref().is_none_or(begins), "columns leave no key between them");
        debug_assert!(
            column.as_ref().is_none_or(|column| !column.is_empty()),
            "a column has a key, so that each drain goes on in its round"
        );
        Ok(column)
    }

    /// Bytes of the records in `interval` with a sequence number of at most `upto` that are not
    /// drained, range tombstones included.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn bytes_in(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Result<u64> {
        debug_assert!(!interval.is_empty(), "a drain asks for keys");
        let records = self.container.bytes_in(interval, upto, drained)?;
        Ok(records + self.tombstones.bytes_in(interval, upto, drained))
    }

    /// Removes what a drain moved, once its edit is durable and no reader of an older view is left.
    /// That is every record in `interval` with a sequence number of at most `upto`. It is also each
    /// range tombstone all of which is in `interval` or covered by `drained`.
    ///
    /// # Errors
    ///
    /// An I/O error; a part may have been done.
    pub(crate) fn retire(
        &self,
        interval: &KeyInterval,
        upto: Lsn,
        drained: &DrainedMap,
    ) -> Result<Released> {
        let covered = || {
            let mut released = self.tombstones.retire(interval, upto, drained);
            released.absorb(self.container.retire(interval, upto, drained)?);
            Ok(released)
        };
        self.clearing.remove(covered, || self.clear_rest())
    }

    /// Removes everything, of a table that is gone, when no reader is left. If another thread is
    /// about to remove some, that thread removes the rest and returns it.
    ///
    /// # Errors
    ///
    /// An I/O error; a part may have been done.
    pub(crate) fn clear(&self) -> Result<Released> {
        self.clearing.clear(|| self.clear_rest())
    }

    fn clear_rest(&self) -> Result<Released> {
        let mut released = self.tombstones.clear();
        released.absorb(self.container.clear()?);
        Ok(released)
    }
}

/// Records in zones.
impl Level0 {
    fn residents(&self) -> Option<&dyn ZoneResidents> {
        self.container.as_zone_residents()
    }

    /// As [`ZoneResidents::holds`]. A container of copies holds no record of a zone.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn holds(&self, record: &Record<'_>, at: u64) -> Result<bool> {
        if record.kind == Kind::RangeDelete {
            return Ok(self.tombstones.holds(record, at));
        }
        self.residents().map_or(Ok(false), |residents| residents.holds(record, at))
    }

    /// As [`ZoneResidents::relocate`].
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn relocate(&self, record: &Record<'_>, from: u64, to: u64) -> Result<bool> {
        debug_assert_ne!(from, to, "a copy has an offset of its own (invariant 3)");
        if record.kind == Kind::RangeDelete {
            return Ok(self.tombstones.relocate(record, from, to));
        }
        self.residents().map_or(Ok(false), |residents| residents.relocate(record, from, to))
    }

    /// As [`ZoneResidents::count_live`]. A container of copies has nothing to count.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn count_live(
        &self,
        from: &[u8],
        drained: &DrainedMap,
        counts: &mut dyn FnMut(u64),
    ) -> Result<LiveCount> {
        let nothing = || Ok(LiveCount { oldest: LSN_MAX, next: None });
        self.residents().map_or_else(nothing, |it| it.count_live(from, drained, counts))
    }

    /// As [`ZoneResidents::wrong_offset`].
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn wrong_offset(
        &self,
        table: TableId,
        end_of: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<Option<u64>> {
        self.residents().map_or(Ok(None), |residents| residents.wrong_offset(table, end_of))
    }
}

/// Versions that no reader needs.
impl Level0 {
    fn pruning(&self) -> Option<&dyn VersionPruning> {
        self.container.as_version_pruning()
    }

    /// As [`VersionPruning::obsolete`].
    pub(crate) fn obsolete(&self, readers: &[Lsn]) -> u64 {
        self.pruning().map_or(0, |pruning| pruning.obsolete(readers))
    }

    /// As [`VersionPruning::superseded`].
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn superseded(
        &self,
        from: &[u8],
        keep: Keep<'_>,
    ) -> Result<(Superseded, Option<Vec<u8>>)> {
        let nothing = || Ok((Superseded::default(), None));
        self.pruning().map_or_else(nothing, |pruning| pruning.superseded(from, keep))
    }

    /// Removes superseded versions, and releases those that an ingestion left out.
    ///
    /// # Errors
    ///
    /// An I/O error; a part may have been done.
    pub(crate) fn prune(&self, superseded: Superseded) -> Result<Released> {
        let some = || match self.pruning() {
            Some(pruning) => pruning.prune(&superseded),
            None => {
                debug_assert_eq!(superseded.versions_len(), 0, "such a container names none");
                Ok(Released::default())
            }
        };
        let mut released = self.clearing.remove(some, || self.clear_rest())?;
        released.absorb(Released { records: superseded.left_out });
        Ok(released)
    }
}
