//! The row tables of a table whose container is a matrix or a triangle. A frozen memtable becomes a
//! row table, sorted, in pages of the region. Columns across the rows drain it, and pages come free
//! one by one.
//!
//! Source: MatrixKV's matrix container in non-volatile memory, and TriangleKV's triangle container,
//! which has the same rows. Which records a column takes is the drains' business
//! (`jobs/drain.rs`): those of the rows from before a round began (matrix: these rows are the
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
//! | `layout.rs` | the bytes of a row table, and which pages of its array and keys are in use |
//! | `build.rs` | writes one |
//! | `open.rs` | checks one at an opening, and finds those that no edit names |
//! | `row.rs` | reads one, and lets go of its entries |
//! | `walk.rs` | a cursor over all of them |
//!
//! Thread safety: as [`Level0`](super::Level0). Readers take the list of rows without a lock. One
//! thread at a time changes it (the holder of the table's change).
//!
//! Invariants:
//!
//! 1. Rows are in the order of their LSNs, the newest first; their LSNs do not overlap.
//! 2. A row is in the list only once an edit that names it is durable.
//! 3. The pages of a row's directory are given back only after an edit that removes it is durable,
//!    and no reader from before is left. Its other pages are, when all entries in them are gone and
//!    no reader from before is left.

mod build;
mod layout;
mod open;
#[cfg(any(test, feature = "testing"))]
mod probe;
mod row;
mod walk;

use std::sync::Arc;

use self::build::{RowDraft, RowNumber};
use self::row::OpenRow;
use self::walk::{RowsCursor, narrow};

use super::Size;
use super::versions::Keep;
use crate::base::error::Result;
use crate::base::memory::Gauge;
use crate::base::options::Level0Container;
use crate::base::progress::Meter;
use crate::base::record::{Cursor, Lsn, RowTable, TableId};
use crate::memtable::{Memtable, Record};
use crate::mvcc::{DrainedMap, KeyInterval, pin};
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::ArcSwap;
use crate::pm::alloc::{PagePool, PageRange};
use crate::pm::{PAGE, Region};

pub(crate) use self::open::salvage_row;
pub(crate) use open::find_rows;

#[cfg(any(test, feature = "testing"))]
pub(crate) use self::probe::probe;
#[cfg(feature = "bench")]
pub(crate) use self::walk::{FOLLOWS_HINTS, SEARCH_NANOS};

/// The row tables of one table, and what becomes of its memtables.
#[derive(Debug)]
pub(crate) struct RowTables {
    /// What becomes of memtables, and which rows a drain takes.
    chosen: Mutex<Level0Container>,
    pages: Arc<PagePool>,
    /// The newest first (invariant 1).
    rows: ArcSwap<Vec<Arc<OpenRow>>>,
    /// Whether there are any: reads of a table without rows look no further. A merge sets it before
    /// the view drops the memtable that the first row table was made of.
    has_rows: AtomicBool,
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

impl RowTables {
    /// None.
    pub(crate) fn new(pages: Arc<PagePool>, chosen: Level0Container) -> RowTables {
        let (chosen, rows) = (Mutex::new(chosen), ArcSwap::default());
        RowTables { chosen, pages, rows, has_rows: AtomicBool::new(false) }
    }

    /// Those of `table` that an edit names, as an opening finds them. The caller tells the pool of
    /// pages which are in use. `meter` counts what is read.
    pub(crate) fn open(
        (pages, chosen): (Arc<PagePool>, Level0Container),
        table: TableId,
        (rows, drained): (&[RowTable], &DrainedMap),
        meter: &Meter,
    ) -> Result<RowTables> {
        let opened = RowTables::new(pages, chosen);
        let open = |row: &RowTable| {
            open::open(opened.region(), (table, row), drained, meter).map(Arc::new)
        };
        let mut rows = rows.iter().map(open).collect::<Result<Vec<_>>>()?;
        rows.sort_by_key(|row| std::cmp::Reverse(row.meta.upto));
        opened.show(rows);
        Ok(opened)
    }

    /// The pages that are in use.
    pub(crate) fn pages(&self) -> Vec<PageRange> {
        self.rows.load().iter().flat_map(|row| row.pages()).collect()
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        self.pages.region()
    }

    /// Shows these rows to readers, and no others.
    fn show(&self, rows: Vec<Arc<OpenRow>>) {
        let has_rows = !rows.is_empty();
        self.rows.store(Arc::new(rows));
        self.has_rows.store(has_rows, Ordering::Release);
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_rows.load(Ordering::Acquire)
    }

    /// A cursor over all that is not drained.
    pub(super) fn cursor<'a>(&'a self, drained: &'a DrainedMap) -> impl Cursor + 'a {
        RowsCursor::new(self.region(), self.rows.load_full(), drained)
    }

    /// The newest version of `key` that is above `drained` and not newer than `at_most`.
    pub(super) fn get(&self, key: &[u8], at_most: Lsn, drained: Lsn) -> Option<Record<'_>> {
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
pub(crate) fn verify_row(
    region: &Region,
    row: (TableId, &RowTable),
    drained: &DrainedMap,
    meter: &Meter,
) -> Result<u64> {
    let row = open::open(region, row, drained, meter)?;
    Ok(row.pages().iter().map(|pages| u64::from(pages.count)).sum())
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

/// What drains and merges change.
impl RowTables {
    /// Removes every record in `interval` with a sequence number of at most `upto`. `drained` is D
    /// of the durable edit that drained them.
    pub(super) fn retire(&self, interval: &KeyInterval, upto: Lsn, drained: &DrainedMap) {
        let _guard = pin();
        let mut gone = Vec::new();
        for row in self.rows.load().iter().filter(|row| row.meta.oldest <= upto) {
            self.pages.give(row.retire(self.region(), interval, upto));
            gone.extend(row.take_out_pages(self.region(), drained));
        }
        if !gone.is_empty() {
            self.pages.give_later(move || gone);
        }
    }

    /// Removes everything. The table is gone, and no reader is left.
    pub(super) fn clear(&self) {
        let _guard = pin();
        self.has_rows.store(false, Ordering::Release);
        for row in self.rows.swap(Arc::default()).iter() {
            self.pages.give(row.retire_all(self.region()));
            if !row.is_going.swap(true, Ordering::AcqRel) {
                self.pages.give(row.meta_pages());
            }
        }
    }

    /// Records and bytes that they hold.
    pub(super) fn size(&self) -> Size {
        let of = |row: &Arc<OpenRow>| Size { records: row.live(), bytes: row.bytes() };
        self.rows.load().iter().map(of).fold(Size::default(), |all, row| all + row)
    }

    /// Bytes of memory that they take.
    pub(super) fn memory(&self) -> u64 {
        self.rows.load().iter().map(|row| row.memory()).sum()
    }

    /// Stores the records of a frozen memtable as the row table `id` of `table`, durably. The
    /// memtable has all records of the table above `after` and up to `upto`. `None` when they are
    /// to stay in zones: by [`Level0::ingest`](super::Level0::ingest). `jobs` counts the memory.
    pub(crate) fn store(
        &self,
        memtable: &Memtable,
        keep: Keep<'_>,
        (table, id): (TableId, u64),
        (after, upto): (Lsn, Lsn),
        jobs: &Arc<Gauge>,
    ) -> Result<Option<StoredRow>> {
        if memtable.bytes() < PAGE {
            return Ok(None);
        }
        let _held = jobs.hold(RowDraft::memory_of(memtable));
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
        let below = below.map_or(0, |row| row.meta.id);
        let row = draft.store(&self.pages, RowNumber { table, id, below }, (after, upto))?;
        Ok(row.map(|row| StoredRow { row, copied, left_out }))
    }

    /// Shows a stored row table to readers, once the edit that names it is durable. Gives the
    /// offsets of the records in zones, which no longer count once readers of older views left.
    pub(super) fn publish(&self, stored: StoredRow) -> Vec<u64> {
        let rows = self.rows.load();
        debug_assert!(
            rows.first().is_none_or(|newest| newest.meta.upto <= stored.row.meta.after),
            "rows ascend (invariant 1)"
        );
        let newest = std::iter::once(Arc::new(stored.row));
        self.show(newest.chain(rows.iter().cloned()).collect());
        stored.copied
    }

    /// Gives a stored row table up that no edit names.
    pub(crate) fn give_up(&self, stored: &StoredRow) {
        self.pages.give(stored.row.pages());
    }

    /// The row tables of which all is drained, for an edit that removes them.
    pub(crate) fn drained(&self) -> Vec<u64> {
        let rows = self.rows.load();
        let drained = rows.iter().filter(|row| row.live() == 0);
        drained.map(|row| row.meta.id).collect()
    }

    /// Forgets row tables that a durable edit removed.
    pub(crate) fn remove(&self, ids: &[u64]) {
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

    /// Whether a round of drains leaves the row tables that came after it began to the next one.
    pub(crate) fn drains_by_round(&self) -> bool {
        *self.chosen.lock() == Level0Container::Matrix
    }

    /// Whether memtables become row tables. Else the records that come stay in zones.
    pub(crate) fn takes_memtables(&self) -> bool {
        *self.chosen.lock() != Level0Container::GlobalIndex
    }

    /// Has memtables go to another container from now on. What is there stays until it is drained.
    pub(crate) fn choose(&self, container: Level0Container) {
        *self.chosen.lock() = container;
    }
}

#[cfg(test)]
mod tests;
