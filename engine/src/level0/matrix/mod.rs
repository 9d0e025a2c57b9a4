//! The container of a table by its name: a global index, with row tables for a matrix or triangle.
//! A frozen memtable becomes a row table, sorted, in pages of the region. Columns across the rows
//! drain it, and pages come free one by one.
//!
//! Source: MatrixKV's matrix container in non-volatile memory, and TriangleKV's triangle container,
//! which has the same rows. Which records a column takes is the drains' business
//! (`db/jobs/drain.rs`): those of the rows from before a round began (matrix: these rows are the
//! compactor, later ones the receiver), or all that are there (triangle).
//!
//! The options of the table choose what becomes of memtables. Of a table that chose the global
//! index there are no rows, or those from before it chose so, which drain. The index has all
//! memtables of such a table. Of any other table it has those for which the region has no room, and
//! those of less than a page; and of each what an opening finds in zones. Feeding never waits for
//! room, so drains and feeding cannot wait for each other.
//!
//! | file | what |
//! |---|---|
//! | `layout.rs` | the bytes of a row table |
//! | `build.rs` | writes one |
//! | `open.rs` | checks one at an opening |
//! | `find.rs` | finds those that no edit names |
//! | `row.rs` | reads one, and lets go of its entries |
//! | `meta_pages.rs` | which pages of a row table's array and keys are in use |
//! | `walk.rs` | cursors |
//!
//! Thread safety: as [`Container`]. Readers take the list of rows without a lock. One thread at a
//! time changes it (the holder of the table's change).
//!
//! Invariants:
//!
//! 1. Rows are in the order of their LSNs, the newest first; their LSNs do not overlap.
//! 2. A row is in the list only once an edit that names it is durable.
//! 3. The pages of a row's directory are given back only after an edit that removes it is durable,
//!    and no reader from before is left. Its other pages are, when all entries in them are gone and
//!    no reader from before is left.

mod build;
mod find;
mod layout;
mod meta_pages;
mod open;
#[cfg(any(test, feature = "testing"))]
mod probe;
mod row;
mod walk;

use std::ops::Range;
use std::sync::Arc;

#[cfg(any(test, feature = "testing"))]
pub(crate) use self::probe::probe;
#[cfg(feature = "bench")]
pub(crate) use self::walk::{FOLLOWS_HINTS, SEARCH_NANOS};

use self::build::RowDraft;
use self::row::OpenRow;
use self::walk::{Pair, RowsCursor, narrow};
use super::column::{ColumnSearch, bytes_by_walk, column_by_walk};
use super::container::{Container, Keep, Released, RowTables, Size, VersionPruning, ZoneResidents};
use super::global_index::GlobalIndex;
use super::superseded::Superseded;
use crate::alloc::{PagePool, PageRange};
use crate::error::{Damage, Result};
use crate::memtable::{Index, Memtable, Rebuilt, Record};
use crate::mvcc::{DrainedMap, KeyInterval, pin};
use crate::options::Level0Container;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::ArcSwap;
use crate::pm::{PAGE, Region};
use crate::record::{Cursor, Lsn, RowTable, TableId};

/// A container of row tables, and of records in zones beside them.
#[derive(Debug)]
pub(crate) struct Matrix {
    /// What becomes of memtables, and which rows a drain takes.
    chosen: Mutex<Level0Container>,
    pages: Arc<PagePool>,
    /// The newest first (invariant 1).
    rows: ArcSwap<Vec<Arc<OpenRow>>>,
    /// Whether there are any: reads of a table without rows look no further. A merge sets it before
    /// the view drops the memtable that the first row table was made of.
    has_rows: AtomicBool,
    /// What stays in zones.
    in_zones: GlobalIndex,
}

/// A row table that was stored, and that no edit names yet.
#[derive(Debug)]
pub(crate) struct StoredRow {
    row: OpenRow,
    /// Where the records of the memtable lie in zones.
    copied: Vec<u64>,
    left_out: bool,
}

impl StoredRow {
    /// What the edit that publishes it says.
    pub(crate) fn describe(&self) -> RowTable {
        self.row.meta
    }

    /// Whether versions that no reader needs were left out.
    pub(crate) fn has_left_out(&self) -> bool {
        self.left_out
    }
}

impl Matrix {
    /// An empty one.
    pub(super) fn new(pages: Arc<PagePool>, chosen: Level0Container) -> Matrix {
        let region = Arc::clone(pages.region());
        let index = Index::new(Arc::clone(&region));
        Matrix {
            chosen: Mutex::new(chosen),
            pages,
            rows: ArcSwap::default(),
            has_rows: AtomicBool::new(false),
            in_zones: GlobalIndex::new(region, index),
        }
    }

    /// One with the row tables of `table` that an edit names, as an opening finds them, and without
    /// records in zones. The caller tells the pool of pages which are in use.
    ///
    /// # Errors
    ///
    /// `Corrupt` if one does not check out; or an I/O error.
    pub(crate) fn open(
        (pages, chosen): (Arc<PagePool>, Level0Container),
        table: TableId,
        rows: &[RowTable],
        drained: &DrainedMap,
    ) -> Result<Matrix> {
        let matrix = Matrix::new(pages, chosen);
        let open = |row: &RowTable| open::open(matrix.region(), table, row, drained).map(Arc::new);
        let mut rows = rows.iter().map(open).collect::<Result<Vec<_>>>()?;
        rows.sort_by_key(|row| std::cmp::Reverse(row.meta.upto));
        matrix.show(rows);
        Ok(matrix)
    }

    /// The same, with records in zones that an opening found.
    pub(super) fn with_records(self, rebuilt: Rebuilt) -> Matrix {
        let in_zones = GlobalIndex::rebuilt(Arc::clone(self.region()), rebuilt);
        Matrix { in_zones, ..self }
    }

    /// The pages that are in use.
    pub(crate) fn pages(&self) -> Vec<PageRange> {
        self.rows.load().iter().flat_map(|row| row.pages()).collect()
    }

    fn region(&self) -> &Arc<Region> {
        self.pages.region()
    }

    /// Shows these rows to readers, and no others.
    fn show(&self, rows: Vec<Arc<OpenRow>>) {
        let has_rows = !rows.is_empty();
        self.rows.store(Arc::new(rows));
        self.has_rows.store(has_rows, Ordering::Release);
    }

    fn has_rows(&self) -> bool {
        self.has_rows.load(Ordering::Acquire)
    }

    fn has_records_in_zones(&self) -> bool {
        self.in_zones.size().records > 0
    }

    fn rows_cursor<'a>(&'a self, drained: &'a DrainedMap) -> RowsCursor<'a> {
        RowsCursor::new(self.region(), self.rows.load_full(), drained)
    }

    /// The newest version of `key` in a row table that a read at `at_most` sees.
    fn get_in_rows(&self, key: &[u8], at_most: Lsn, drained: Lsn) -> Option<Record<'_>> {
        let (rows, region) = (self.rows.load(), self.region());
        let mut narrowed = None;
        for (n, row) in rows.iter().enumerate() {
            let bound = row.lower_bound(region, key, row.range(narrowed));
            if let Some(record) = version(row, region, (key, bound), (drained, at_most)) {
                return Some(record);
            }
            narrowed = narrow(&rows, n, bound, region);
        }
        None
    }
}

/// Checks a row table on the media, but for what D covers; the number of its pages.
///
/// # Errors
///
/// `Corrupt` if it does not check out; or an I/O error.
pub(crate) fn verify_row(
    region: &Region,
    table: TableId,
    row: &RowTable,
    drained: &DrainedMap,
) -> Result<u64> {
    let row = open::open(region, table, row, drained)?;
    Ok(row.pages().iter().map(|pages| u64::from(pages.count)).sum())
}

/// The records of a row table on the media that can be read and that D does not cover. What cannot
/// be read goes to `lost`.
///
/// # Errors
///
/// The region cannot be read.
pub(crate) fn salvage_row<'a>(
    region: &'a Region,
    table: TableId,
    row: &RowTable,
    drained: &DrainedMap,
    lost: &mut Vec<Damage>,
) -> Result<Vec<Record<'a>>> {
    open::salvage(region, table, row, drained, lost)
}

/// The row tables whose directories lie in the region outside of `zones`, in use or not, by their
/// numbers.
///
/// # Errors
///
/// The region cannot be read.
pub(crate) fn find_rows(region: &Region, zones: &[Range<u64>]) -> Result<Vec<(TableId, RowTable)>> {
    find::find(region, zones)
}

/// The first version of `key` from its lower bound on that a read between two LSNs, the first one
/// not included, finds.
fn version<'a>(
    row: &OpenRow,
    region: &'a Region,
    (key, bound): (&[u8], u32),
    (above, at_most): (Lsn, Lsn),
) -> Option<Record<'a>> {
    for n in bound..row.entries() {
        if row.is_gone(n) {
            // Another key's, or D covers it and the older ones behind it.
            return None;
        }
        let entry = row.entry(region, n);
        if row.key(region, &entry) != key || entry.seq <= above {
            return None;
        }
        if entry.seq <= at_most {
            return Some(row.record(region, &entry));
        }
    }
    None
}

impl Container for Matrix {
    fn reserve(&self, _memtable: &Memtable) -> Result<()> {
        Ok(())
    }

    fn ingest(&self, memtable: &Memtable, keep: Keep<'_>) -> Result<Superseded> {
        self.in_zones.ingest(memtable, keep)
    }

    fn get(&self, key: &[u8], at_most: Lsn, drained: &DrainedMap) -> Result<Option<Record<'_>>> {
        if !self.has_rows() {
            return self.in_zones.get(key, at_most, drained);
        }
        let in_rows = self.get_in_rows(key, at_most, drained.get(key));
        if !self.has_records_in_zones() {
            return Ok(in_rows);
        }
        let in_zones = self.in_zones.get(key, at_most, drained)?;
        Ok(in_rows.into_iter().chain(in_zones).max_by_key(|record| record.seq))
    }

    fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> Box<dyn Cursor + 'a> {
        if !self.has_rows() {
            return self.in_zones.cursor(drained);
        }
        let in_rows = Box::new(self.rows_cursor(drained));
        if !self.has_records_in_zones() {
            return in_rows;
        }
        Box::new(Pair::new(in_rows, self.in_zones.cursor(drained)))
    }

    fn next_column(&self, search: &ColumnSearch<'_>) -> Result<Option<KeyInterval>> {
        if !self.has_rows() {
            return self.in_zones.next_column(search);
        }
        column_by_walk(self.cursor(search.drained), search)
    }

    fn bytes_in(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Result<u64> {
        if !self.has_rows() {
            return self.in_zones.bytes_in(interval, upto, drained);
        }
        bytes_by_walk(self.cursor(drained), interval, upto)
    }

    fn retire(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) -> Result<Released> {
        let _guard = pin();
        let mut gone = Vec::new();
        for row in self.rows.load().iter().filter(|row| row.meta.oldest <= upto) {
            self.pages.give(row.retire(self.region(), interval, upto));
            gone.extend(row.take_out_pages(self.region(), drained));
        }
        if !gone.is_empty() {
            self.pages.give_later(move || gone);
        }
        self.in_zones.retire(interval, upto, drained)
    }

    fn clear(&self) -> Result<Released> {
        let _guard = pin();
        self.has_rows.store(false, Ordering::Release);
        for row in self.rows.swap(Arc::default()).iter() {
            self.pages.give(row.retire_all(self.region()));
            if !row.is_going.swap(true, Ordering::AcqRel) {
                self.pages.give(row.meta_pages());
            }
        }
        self.in_zones.clear()
    }

    fn size(&self) -> Size {
        let of = |row: &Arc<OpenRow>| Size { records: row.live(), bytes: row.bytes() };
        self.rows.load().iter().map(of).fold(self.in_zones.size(), |all, row| all + row)
    }

    fn memory(&self) -> u64 {
        let rows: u64 = self.rows.load().iter().map(|row| row.memory()).sum();
        rows + self.in_zones.memory()
    }

    fn as_zone_residents(&self) -> Option<&dyn ZoneResidents> {
        self.in_zones.as_zone_residents()
    }

    fn as_version_pruning(&self) -> Option<&dyn VersionPruning> {
        self.in_zones.as_version_pruning()
    }

    fn as_row_tables(&self) -> Option<&dyn RowTables> {
        Some(self)
    }
}

impl RowTables for Matrix {
    fn store(
        &self,
        memtable: &Memtable,
        keep: Keep<'_>,
        (table, id): (TableId, u64),
        (after, upto): (Lsn, Lsn),
    ) -> Result<Option<StoredRow>> {
        if memtable.bytes() < PAGE {
            return Ok(None);
        }
        let rows = self.rows.load();
        let below = rows.first();
        let mut draft = {
            let _guard = pin();
            RowDraft::of(memtable, self.region(), keep, below.map(|row| &**row))
        };
        let (copied, left_out) = (std::mem::take(&mut draft.copied), draft.left_out);
        if draft.len() == 0 {
            return Ok(None);
        }
        let number = (table, id, below.map_or(0, |row| row.meta.id));
        let row = draft.store(&self.pages, number, (after, upto))?;
        Ok(row.map(|row| StoredRow { row, copied, left_out }))
    }

    fn publish(&self, stored: StoredRow) -> Vec<u64> {
        let rows = self.rows.load();
        debug_assert!(
            rows.first().is_none_or(|newest| newest.meta.upto <= stored.row.meta.after),
            "rows ascend (invariant 1)"
        );
        let newest = std::iter::once(Arc::new(stored.row));
        self.show(newest.chain(rows.iter().cloned()).collect());
        stored.copied
    }

    fn give_up(&self, stored: StoredRow) {
        self.pages.give(stored.row.pages());
    }

    fn drained(&self) -> Vec<u64> {
        let rows = self.rows.load();
        let drained = rows.iter().filter(|row| row.live() == 0);
        drained.map(|row| row.meta.id).collect()
    }

    fn remove(&self, ids: &[u64]) {
        let rows = self.rows.load();
        let (going, staying): (Vec<_>, Vec<_>) =
            rows.iter().cloned().partition(|row| ids.contains(&row.meta.id));
        self.show(staying);
        self.pages.give_later(move || {
            debug_assert!(
                going.iter().all(|row| row.live() == 0),
                "a row table goes when all of it is drained"
            );
            let goes = |row: &&Arc<OpenRow>| !row.is_going.swap(true, Ordering::AcqRel);
            going.iter().filter(goes).flat_map(|row| row.meta_pages()).collect()
        });
    }

    fn drains_by_round(&self) -> bool {
        *self.chosen.lock() == Level0Container::Matrix
    }

    fn takes_memtables(&self) -> bool {
        *self.chosen.lock() != Level0Container::GlobalIndex
    }

    fn choose(&self, container: Level0Container) {
        *self.chosen.lock() = container;
    }
}

#[cfg(test)]
mod tests;
