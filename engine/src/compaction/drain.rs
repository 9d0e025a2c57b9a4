//! Drains: one column of a table's level 0 goes to level 1.
//!
//! A drain takes every record of its column with a sequence number ≤ s, and those of runs at or
//! below s. Here s is the smaller of the table's merged boundary and F. The drain writes the
//! records into a sublevel of level 1. It installs the result with D(column) = s in the same edit.
//! From then on readers find those records in level 1 and nowhere else. An extent of a run that D
//! covers as a whole goes in that edit too.
//!
//! The sublevel is the deepest that has nothing of the column, nor has one above it: so a drain
//! writes what it moves and no more. It merges the column with extents of a sublevel only where
//! these are small, or where there is no sublevel left. A column ends, and its extents are cut, at
//! edges that other sublevels have (`shape.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Shape;
use super::choice::bytes;
use super::execute::Done;
use super::merge::{Side, merge_to_level};
use super::output::{MergeContext, ObjectOutput};
use super::ranges::{Ranges, tombstones_of};
use super::shape::{ClaimedKeys, is_claimed};
use super::shape::{ColumnEnds, best_end, cuts};
use crate::base::counters::Counter;
use crate::base::error::Result;
use crate::base::options::Failpoint;
use crate::base::record::{Cursor, Lsn, MergingCursor};
use crate::level0::ColumnWidths;
use crate::mvcc::{Horizon, KeyInterval, after};
use crate::read::view::View;
use crate::read::{BufferedCursor, clip};
use crate::sstable::{BlockCache, Extent, ReadAhead, values_of};
use crate::storage::{ExtentSink, ExtentStore};
use crate::version::{Edit, LEVEL_2, Level, Op, ReadRun, Run, SUBLEVELS, Version, VersionSet};

/// Extents of level 2 under one drain's range tombstones, so that the merge which takes those
/// further down is bounded too.
const MOST_UNDER: usize = 16;

/// A column to drain, up to `upto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) interval: KeyInterval,
    pub(crate) upto: Lsn,
}

/// Chooses the next column of a round at or after `from`, of about `bytes`. A pure function of the
/// view.
fn choose_column(
    view: &View,
    (from, upto): (&[u8], Lsn),
    bytes: u64,
    shape: &Shape,
) -> Result<Option<Column>> {
    let in_level0 = view.level0.next_column(from, upto, &view.version.drained, bytes)?;
    let in_runs = view.version.runs.iter().filter(|run| run.lsn <= upto);
    let in_runs = in_runs.filter_map(|run| columns_of_run(run, from, bytes));
    let Some(ColumnWidths([least, mut interval, wide])) = in_runs.chain(in_level0).reduce(shorter)
    else {
        return Ok(None);
    };
    let sublevel = sublevel_for(&view.version, &interval, shape);
    if view.version.overlapping(sublevel, &interval).is_empty() {
        align(&mut interval, &view.version, (sublevel, shape), (&least, &wide));
    }
    Ok(Some(bounded(view, interval, (upto, sublevel), shape.overlap)))
}

/// The column of these keys, as far as one job takes it.
fn bounded(
    view: &View,
    mut interval: KeyInterval,
    (upto, sublevel): (Lsn, u8),
    most: usize,
) -> Column {
    end_after(&mut interval, &view.version, sublevel, most);
    if view.level0.tombstones.has_undrained_in(&interval, upto, &view.version.drained) {
        end_after(&mut interval, &view.version, LEVEL_2, MOST_UNDER);
    }
    Column { interval, upto }
}

/// Ends a column of `sublevel`, which has nothing of it, at an edge that others have, between what
/// is `least` and `wide`.
fn align(
    interval: &mut KeyInterval,
    version: &Version,
    (sublevel, shape): (u8, &Shape),
    (least, wide): (&KeyInterval, &KeyInterval),
) {
    let is_fine = |end: &[u8]| {
        let grown = KeyInterval { start: interval.start.clone(), end: Some(end.to_vec()) };
        interval.covers(&grown) || sublevel_for(version, &grown, shape) == sublevel
    };
    let column = ColumnEnds { least, usual: interval, wide };
    if let Some(end) = best_end(version, sublevel, column, is_fine) {
        interval.end = Some(end);
    }
}

/// The next column at or after `from` of a run: whole extents within the bytes of each width, one
/// at least.
fn columns_of_run(run: &Run, from: &[u8], bytes: u64) -> Option<ColumnWidths> {
    let rest = run.extents.overlapping(&KeyInterval { start: from.to_vec(), end: None });
    let (_, rest) = rest.split_last()?;
    let end = |width: u64| {
        let mut bytes = 0;
        let enough = rest.iter().find(|extent| {
            bytes += u64::from(extent.meta().location.len);
            bytes >= width
        })?;
        Some(after(&enough.meta().greatest_key))
    };
    let column = |width| KeyInterval { start: from.to_vec(), end: end(width) };
    Some(ColumnWidths(ColumnWidths::budgets(bytes).map(column)))
}

/// Of columns with the same start, those that end first.
fn shorter(a: ColumnWidths, b: ColumnWidths) -> ColumnWidths {
    let is_first = |a: &KeyInterval, b: &KeyInterval| match (&a.end, &b.end) {
        (Some(a), Some(b)) => a <= b,
        (a, _) => a.is_some(),
    };
    let mut shorter = a;
    for (own, other) in shorter.0.iter_mut().zip(b.0) {
        if !is_first(own, &other) {
            *own = other;
        }
    }
    shorter
}

/// The sublevel that records of `interval` go to. Sublevels above it have nothing there, and what
/// it has there itself has to be merged with them.
fn sublevel_for(version: &Version, interval: &KeyInterval, shape: &Shape) -> u8 {
    let is_clear = |n: &u8| version.overlapping(*n, interval).is_empty();
    let clear = (1..=SUBLEVELS).take_while(is_clear).last().unwrap_or(0);
    let next = clear + 1;
    // A drain waits for no object store: what a takeover has named there stays below.
    let is_remote = |extent: &Arc<Extent>| extent.meta().location.is_object();
    let is_little = next <= SUBLEVELS && {
        let under = version.overlapping(next, interval);
        bytes(under) <= shape.little_bytes && !under.iter().any(is_remote)
    };
    if clear == 0 || is_little { next } else { clear }
}

/// A column with all that a drain of it works on, worked out once.
#[derive(Clone, Debug)]
pub(crate) struct DrainPlan {
    pub(crate) column: Column,
    /// The sublevel that its records go to.
    pub(crate) sublevel: u8,
    /// The extents of that sublevel that it is merged with.
    pub(crate) inputs: Vec<Arc<Extent>>,
    /// The keys of the column and of those extents.
    pub(crate) reach: KeyInterval,
    /// Bytes of level 0 that it moves.
    pub(crate) level0_bytes: u64,
    /// Bytes of the extents of runs that it is merged with.
    pub(crate) run_bytes: u64,
}

/// What a table has to drain.
#[derive(Debug)]
pub(crate) enum NextDrain {
    Column(DrainPlan),
    /// Nothing at or after the cursor: the round is over.
    RoundOver,
    /// Compactions work on its keys.
    Claimed,
}

impl DrainPlan {
    /// Of a column, short of its bytes.
    fn of(version: &Version, column: Column, shape: &Shape) -> DrainPlan {
        let sublevel = sublevel_for(version, &column.interval, shape);
        let inputs = version.overlapping(sublevel, &column.interval).to_vec();
        let intervals = inputs.iter().map(|extent| extent.meta().interval());
        let reach = intervals.fold(column.interval.clone(), |reach, own| reach.joined(&own));
        DrainPlan { column, sublevel, inputs, reach, level0_bytes: 0, run_bytes: 0 }
    }

    fn meets(&self, busy: &[ClaimedKeys]) -> bool {
        is_claimed(busy, self.sublevel, &self.reach)
    }

    /// The part of it that leaves what is `busy` alone: as it is, or cut off where that begins.
    /// `again` plans a shorter column.
    fn cut_before(
        mut self,
        busy: &[ClaimedKeys],
        again: impl Fn(Column) -> DrainPlan,
    ) -> Option<DrainPlan> {
        while let Some(claim) = busy.iter().find(|busy| busy.has(self.sublevel, &self.reach)) {
            let start = &claim.keys.start;
            let cut = Some(start.clone());
            // What an extent has on both sides of the cut keeps the column as it was.
            if *start <= self.column.interval.start || self.column.interval.end == cut {
                return None;
            }
            let interval = KeyInterval { start: self.column.interval.start, end: cut };
            self = again(Column { interval, ..self.column });
        }
        Some(self)
    }
}

/// Plans the drain of the next column of a round at or after `from`, of about `bytes` and with
/// records up to `upto`, but for keys that compactions have claimed. A pure function of the view.
pub(crate) fn plan_drain(
    view: &View,
    (from, upto): (&[u8], Lsn),
    bytes: u64,
    shape: &Shape,
    busy: &[ClaimedKeys],
) -> Result<NextDrain> {
    let Some(column) = choose_column(view, (from, upto), bytes, shape)? else {
        return Ok(NextDrain::RoundOver);
    };
    debug_assert!(column.interval.start.as_slice() >= from, "a round goes up");
    let plan = plan_column(view, column, shape, busy)?;
    Ok(plan.map_or(NextDrain::Claimed, NextDrain::Column))
}

/// Plans the drain of keys out of turn: of as many from the first on as one job takes, with records
/// up to `upto`. `None` where compactions have claimed them. A pure function of the view.
pub(crate) fn plan_keys(
    view: &View,
    (interval, upto): (KeyInterval, Lsn),
    shape: &Shape,
    busy: &[ClaimedKeys],
) -> Result<Option<DrainPlan>> {
    let sublevel = sublevel_for(&view.version, &interval, shape);
    plan_column(view, bounded(view, interval, (upto, sublevel), shape.overlap), shape, busy)
}

fn plan_column(
    view: &View,
    column: Column,
    shape: &Shape,
    busy: &[ClaimedKeys],
) -> Result<Option<DrainPlan>> {
    let version = &view.version;
    let mut plan = DrainPlan::of(version, column, shape);
    if plan.meets(busy) {
        match beside_claims(view, plan, shape, busy) {
            Some(free) => plan = free,
            None => return Ok(None),
        }
    }
    let Column { interval, upto } = &plan.column;
    plan.level0_bytes = view.level0.bytes_in(interval, *upto, &version.drained)?;
    plan.run_bytes = bytes(run_extents(version, &plan.column));
    Ok(Some(plan))
}

/// The part of a plan that compactions leave to a drain. What one works on is left to it, however
/// little it is: the column comes to lie over it, or would have to wait for its end.
fn beside_claims(
    view: &View,
    plan: DrainPlan,
    shape: &Shape,
    busy: &[ClaimedKeys],
) -> Option<DrainPlan> {
    let shape = Shape { little_bytes: 0, ..*shape };
    let again = |column| DrainPlan::of(&view.version, column, &shape);
    let plan = again(plan.column);
    if plan.inputs.is_empty() {
        // It comes to lie above all that they work on.
        return Some(plan);
    }
    let Column { interval, upto } = &plan.column;
    let has_ranges =
        view.level0.tombstones.has_undrained_in(interval, *upto, &view.version.drained);
    let end = interval.end.clone();
    let free = plan.cut_before(busy, again)?;
    // A range tombstone is cut behind some key, and a claim may begin in front of one.
    (free.column.interval.end == end || !has_ranges).then_some(free)
}

fn run_extents<'a>(
    version: &'a Version,
    column: &'a Column,
) -> impl Iterator<Item = &'a Arc<Extent>> {
    let runs = version.runs.iter().filter(|run| run.lsn <= column.upto);
    runs.flat_map(|run| run.extents.overlapping(&column.interval))
}

/// Ends a sparse column over much of a level behind the `most`th extent that it touches there.
fn end_after(interval: &mut KeyInterval, version: &Version, level: u8, most: usize) {
    if let [.., last, _] = version.overlapping(level, interval).get(..=most).unwrap_or_default() {
        interval.end = Some(after(&last.meta().greatest_key));
    }
}

/// Where a drain gets its extents from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainRoom {
    /// From all but the reserve.
    Ordinary,
    /// From the reserve too: what it makes room for in the region frees space.
    Reserve,
    /// The same without a promise: it may write little of what it reads, and fails where there is
    /// no room for that.
    Unpromised,
}

/// Writes a column into new extents of level 1; the edit that installs them,
/// which the caller applies once it has synced them. The caller holds the right to change the
/// table, and no epoch. What is `busy` stays, also under range tombstones that hide it. Each extent
/// counts as `written` once it is.
///
/// # Errors
///
/// As [`merge_to_level`]. Nothing has changed then.
pub(crate) fn drain(
    view: &View,
    (plan, busy): (&DrainPlan, &[ClaimedKeys]),
    (set, room): (&VersionSet, DrainRoom),
    (cache, written): (&Arc<BlockCache>, &Counter),
    horizon: &Horizon,
    shape: &Shape,
) -> Result<Done> {
    let (version, table) = (&view.version, view.version.table);
    let (column, sublevel, moved) =
        (&plan.column, plan.sublevel, plan.level0_bytes + plan.run_bytes);
    debug_assert!((1..=SUBLEVELS).contains(&sublevel), "a drain writes to level 1");
    debug_assert!(
        (1..sublevel).all(|n| version.overlapping(n, &column.interval).is_empty()),
        "what is above the sublevel of a drain has none of its keys"
    );
    let upto = (column.upto, horizon.oldest());
    let above = view.level0.tombstones.undrained_in(&column.interval, upto, &version.drained);
    let mut ranges =
        Ranges::new(version, sublevel, above, horizon, |n, keys| is_claimed(busy, n, keys));
    let inputs = ranges.without_hidden(&plan.inputs);
    ranges.tombstones.extend(tombstones_of(&inputs)?);
    let needed = bytes(&inputs) + moved;
    let promised = if room == DrainRoom::Unpromised { 0 } else { needed };
    let reservation = &set.store().reserve_space(promised, room != DrainRoom::Ordinary)?;
    let context = MergeContext {
        replaces: &inputs,
        fills: shape.fills,
        values: values_of(inputs.iter().chain(run_extents(version, column))),
        drops_tombstones: shape.drops_tombstones,
        forgets_below: shape.forgets_below,
        cuts: cuts(version, sublevel, &plan.reach, shape),
        written: Some(written),
        ..MergeContext::of((set, cache), (&ranges, horizon), shape, reservation)
    };
    let lower = Side::under(&ranges, &inputs, cache, context.reuse)?;
    let outputs = merge_to_level(upper(view, column, cache)?, lower, &context)?;
    let replaced = outputs.replaced(&inputs);
    debug_assert_eq!(
        replaced.len() + outputs.kept.len(),
        inputs.len(),
        "what is kept was an input"
    );
    let remove = |e: &Arc<Extent>| Op::RemoveExtent { table, level: sublevel, id: e.meta().id };
    let mut ops: Vec<Op> = replaced.iter().map(remove).collect();
    ops.extend(ranges.remove_hidden());
    let add = |extent| Op::AddExtent { table, level: sublevel, extent };
    ops.extend(outputs.extents.into_iter().map(add));
    // Where a placed load or a drain out of turn has raised D above it, it stays there.
    let raised = version.drained.undrained(&column.interval, column.upto);
    let drained = |interval| Op::Drained { table, seq: column.upto, interval };
    ops.extend(raised.into_iter().map(drained));
    ops.extend(drained_extents(version, column));
    Ok(Done { edit: Edit { ops }, replaced, carried_over: outputs.carried_over })
}

/// The records of level 0 and of runs that move. No epoch is pinned between its steps: a drain that
/// holds the right to change the table is the only one that takes records out of level 0.
fn upper<'a>(view: &'a View, column: &'a Column, cache: &Arc<BlockCache>) -> Result<Side<'a>> {
    let (version, drained) = (&view.version, &view.version.drained);
    let clipped = |cursor| -> Box<dyn Cursor + 'a> {
        Box::new(clip::<Box<dyn Cursor + 'a>>(cursor, column.interval.clone(), column.upto))
    };
    let ahead = ReadAhead::for_job(version.runs.len());
    let level0 = BufferedCursor::new(move || clipped(view.level0.cursor(drained)));
    let mut cursors: Vec<Box<dyn Cursor + 'a>> = vec![Box::new(level0)];
    for run in version.runs.iter().filter(|run| run.lsn <= column.upto) {
        cursors.push(clipped(Box::new(run.as_read().cursor(drained, cache, &ahead))));
    }
    Side::records(Box::new(MergingCursor::new(cursors)))
}

/// Takes extents out of runs of which D covers everything once the column is drained.
fn drained_extents(version: &Version, column: &Column) -> Vec<Op> {
    if version.runs.is_empty() {
        return Vec::new();
    }
    let (table, mut drained) = (version.table, version.drained.clone());
    drained.set(&column.interval, column.upto);
    let covered = version.runs.iter().flat_map(|run| {
        let remove = |e: &Arc<Extent>| Op::RemoveFromRun { table, run: run.id, id: e.meta().id };
        run.covered(&drained).map(remove).collect::<Vec<_>>()
    });
    covered.collect()
}

// What a table has above its levels, as of one LSN, as extents of one more level: how the records
// of the region, and runs, get into a backup.
//
// It is a drain of everything at once, for one reader, into a level above all others. Its result
// is never installed.

/// What comes of it.
#[derive(Debug, Default)]
pub(crate) struct Dumped {
    /// Sorted and disjoint; not synced.
    pub(crate) extents: Vec<Arc<Extent>>,
    /// Extents of levels of which range tombstones hide everything.
    pub(crate) hidden: BTreeSet<u64>,
}

/// At least so many bytes above the levels of `view` are to be read, up to an LSN.
pub(crate) fn bytes_to_dump(view: &View, upto: Lsn) -> u64 {
    let runs = view.runs().filter(|run| run.lsn <= upto);
    let in_runs = runs.map(|run| run.extents.bytes() + run.extents.referred());
    view.undrained_bytes() + in_runs.sum::<u64>()
}

/// Where what is dumped goes: into `store`, under ids of `set`; with `objects`, as objects there.
pub(crate) struct DumpInto<'a> {
    pub(crate) set: &'a VersionSet,
    pub(crate) store: &'a Arc<ExtentStore>,
    pub(crate) objects: Option<&'a mut dyn ExtentSink>,
    /// Asked before each extent is written, and now and then while it reads: an error ends it.
    pub(crate) check: &'a dyn Fn() -> Result<()>,
}

/// Writes what `view` shows above its levels to the one reader of `horizon`. The caller has a
/// [`Hold`](crate::mvcc::Hold) from before it loaded the view and no epoch pinned, and the levels
/// have nothing that the reader does not see.
pub(crate) fn dump(
    view: &View,
    horizon: &Horizon,
    DumpInto { set, store, objects, check }: DumpInto<'_>,
    cache: &Arc<BlockCache>,
    shape: &Shape,
) -> Result<Dumped> {
    if view.undrained_bytes() == 0 && !view.has_runs() {
        return Ok(Dumped::default());
    }
    let mut version = Version::clone(&view.version);
    version.levels.insert(0, Level::default());
    let at = horizon.newest();
    let ranges = Ranges::new(&version, 1, view.undrained_tombstones(at), horizon, |_, _| false);
    // Of the view, not of the version: a commit may be visible before its edit is made.
    let runs: Vec<ReadRun<'_>> = view.runs().filter(|run| run.lsn <= at).collect();
    let of_view = || values_of(runs.iter().flat_map(|run| run.extents.extents().iter()));
    let of_version = || values_of(version.runs.iter().flat_map(|run| run.extents.extents().iter()));
    let is_stale = set.has(Failpoint::DumpVersionRuns);
    let above = bytes_to_dump(view, at);
    // It frees nothing. What is kept for jobs that do is in the database's own store alone.
    let reservation = &store.reserve_space(above, !Arc::ptr_eq(store, set.store()))?;
    let objects = objects.map(|sink| ObjectOutput::new(sink, above));
    let context = MergeContext {
        store,
        values: if is_stale { of_version() } else { of_view() },
        // The values too have to be in the store.
        collects: &|_| true,
        objects,
        reuse: false,
        before_write: &|_| check(),
        ..MergeContext::of((set, cache), (&ranges, horizon), shape, reservation)
    };
    let cursor = view.cursor_above_levels(at, cache, &ReadAhead::for_job(runs.len()));
    let nothing = Side::extents(&[], cache, false);
    let outputs = merge_to_level(Side::records(Box::new(cursor))?, nothing, &context)?;
    let hidden = ranges.remove_hidden().filter_map(|op| match op {
        Op::RemoveExtent { id, .. } => Some(id),
        _ => None,
    });
    Ok(Dumped { extents: outputs.extents, hidden: hidden.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::execute::tests::SHAPE;

    fn keys(start: &str, end: &str) -> KeyInterval {
        KeyInterval { start: start.into(), end: Some(end.into()) }
    }

    /// Of a column that is merged with nothing.
    fn alone(column: Column) -> DrainPlan {
        DrainPlan::of(&Version::empty(1), column, &SHAPE)
    }

    #[test]
    fn a_column_ends_where_a_claim_begins() {
        let column = |start: &str, end: &str| Column { interval: keys(start, end), upto: 9 };
        let cut = |start, end, busy: &[ClaimedKeys]| {
            alone(column(start, end)).cut_before(busy, alone).map(|plan| plan.column)
        };
        let held = [ClaimedKeys::in_all_levels(keys("d", "g"))];
        assert_eq!(cut("a", "c", &held), Some(column("a", "c")));
        assert_eq!(cut("a", "z", &held), Some(column("a", "d")));
        assert_eq!(cut("d", "z", &held), None);
        assert_eq!(cut("f", "z", &held), None);
        assert_eq!(cut("g", "z", &held), Some(column("g", "z")));
        assert_eq!(cut("d", "e", &[]), Some(column("d", "e")));
        let below = [ClaimedKeys::new(keys("d", "g"), (SUBLEVELS - 5, LEVEL_2))];
        assert_eq!(alone(column("f", "z")).sublevel, SUBLEVELS);
        assert_eq!(cut("f", "z", &below), None);
        let above = [ClaimedKeys::new(keys("d", "g"), (1, SUBLEVELS - 1))];
        assert_eq!(cut("f", "z", &above), Some(column("f", "z")), "it works deeper");
    }
}
