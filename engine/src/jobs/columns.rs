//! Columns on their way to level 1, in the turn of a round or out of it: what drains do with a
//! table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::context::{DrainedBytes, JobContext};
use super::ops::{AddedExtents, DrainedRows, edit_is_of, install};
use crate::base::error::{ErrorKind, Result};
use crate::base::events::DrainInfo;
use crate::base::options::Failpoint;
use crate::base::record::{Cursor, Kind, LSN_MAX, Lsn, TableId};
use crate::compaction::{self, ClaimedKeys, Done, DrainPlan, DrainRoom, Shape};
use crate::level0::Released;
use crate::memtable::record_len;
use crate::mvcc::{DrainedMap, Horizon, KeyInterval, pin};
use crate::os::time;
use crate::read::view::View;
use crate::sstable::Extent;
use crate::storage::Location;
use crate::table::{Change, DrainRound, Shared, TableCore};
use crate::version::{Edit, Op, Room, Version};

/// A column that was merged with level 1, short of its edit.
pub(super) struct Drained<'a> {
    pub(super) table: &'a Arc<TableCore>,
    pub(super) change: Change<'a>,
    pub(super) plan: DrainPlan,
    pub(super) done: Done,
    /// Whether it is the next one of its table's round. Else the round goes on where it was.
    pub(super) is_in_turn: bool,
}

impl Drained<'_> {
    /// Bytes that were merged. What comes of them, no more, is on disk beside them until the edit.
    pub(super) fn bytes(&self) -> u64 {
        let replaced = self.done.replaced.iter().map(|e| u64::from(e.meta().location.len));
        self.plan.level0_bytes + self.plan.run_bytes + replaced.sum::<u64>()
    }

    /// Bytes that level 1 has more for it.
    fn added(&self) -> u64 {
        let len = |extent: &Arc<Extent>| u64::from(extent.meta().location.len);
        let gone: u64 = self.done.replaced.iter().map(len).sum();
        AddedExtents::of(&self.done.edit).bytes.saturating_sub(gone)
    }

    /// Bytes that it has written: extents, and values that lie apart.
    fn written(&self) -> u64 {
        let before: BTreeSet<_> = places_of_values(self.done.replaced.iter()).collect();
        let added = self.done.edit.ops.iter().filter_map(|op| match op {
            Op::AddExtent { extent, .. } => Some(extent),
            _ => None,
        });
        let values: BTreeSet<_> = places_of_values(added).collect();
        let values = values.difference(&before).map(|place| u64::from(place.len));
        AddedExtents::of(&self.done.edit).bytes + values.sum::<u64>()
    }

    fn info(&self) -> DrainInfo {
        let added = AddedExtents::of(&self.done.edit);
        DrainInfo {
            table: self.table.name(),
            level0_bytes: self.plan.level0_bytes,
            extents_out: added.count,
            bytes_out: self.written(),
            ..DrainInfo::default()
        }
    }

    /// Extents of runs that it uses up.
    fn used_up(&self) -> u64 {
        let is_one = |op: &&Op| matches!(op, Op::RemoveFromRun { .. });
        self.done.edit.ops.iter().filter(is_one).count() as u64
    }
}

/// How often a drain is tried at a quarter of its size, as long as the disk has no room for it.
const MOST_QUARTERINGS: u32 = 3;

/// How much a drain takes at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrainSize {
    /// Bytes that a job merges, beyond which no more columns are added to it.
    pub(super) budget: u64,
    pub(super) shape: Shape,
    /// Operations that its edit has already.
    pub(super) ops: usize,
    /// As [`DrainInfo::reason`].
    reason: &'static str,
}

impl DrainSize {
    /// What is left of it beside a column.
    pub(super) fn beside(&self, column: &Drained<'_>) -> DrainSize {
        let budget = self.budget.saturating_sub(column.bytes());
        DrainSize { budget, ops: self.ops + column.done.edit.ops.len(), ..*self }
    }
}

/// Runs a drain at ever smaller sizes, as long as the disk has no room for it. `reason` is as
/// [`DrainInfo::reason`].
pub(super) fn drain_in_room<T>(
    ctx: &JobContext,
    reason: &'static str,
    mut drain: impl FnMut(&DrainSize) -> Result<T>,
) -> Result<T> {
    let mut size = DrainSize { budget: drain_budget(ctx), shape: ctx.shape(), ops: 0, reason };
    for _ in 0..MOST_QUARTERINGS {
        match drain(&size) {
            Err(e) if e.kind() == ErrorKind::Full => {}
            done => return done,
        }
        size.budget /= 4;
        size.shape.overlap = (size.shape.overlap / 4).max(1);
        size.shape.little_bytes = 0;
    }
    drain(&size)
}

/// Bytes that a job merges, beyond which no more columns are added to it.
fn drain_budget(ctx: &JobContext) -> u64 {
    (ctx.shared.zones.region_len() / 16).clamp(1 << 18, 4 << 20)
}

/// The LSN up to which a drain in turn takes records, which is at most `upto`. Of a matrix it is
/// where the round began: later row tables wait for the next one.
pub(super) fn in_round(view: &View, round: &DrainRound, upto: Lsn) -> Lsn {
    let by_round = view.level0.rows.as_ref().is_some_and(|rows| rows.drains_by_round());
    round.began.filter(|_| by_round).map_or(upto, |began| began.min(upto))
}

/// Merges a column with level 1, short of its edit. `has_deletes` says that many of its keys are
/// deleted: it writes little, and what frees space may wait for it.
pub(super) fn merge(
    ctx: &JobContext,
    view: &View,
    plan: &DrainPlan,
    (horizon, busy): (&Horizon, &[ClaimedKeys]),
    (size, has_deletes): (&DrainSize, bool),
) -> Result<Done> {
    debug_assert!(
        !busy.iter().any(|claim| claim.has(plan.sublevel, &plan.reach)) || plan.inputs.is_empty(),
        "a drain merges with nothing that a compaction works on"
    );
    let (cache, zones) = (&ctx.shared.cache, &ctx.shared.zones);
    let run = |room| {
        // Without room for the edit all would be in vain. It is not kept.
        let frees = room != DrainRoom::Ordinary || zones.serves_freeing();
        let edit_room = if frees { Room::Freeing } else { Room::Ordinary };
        ctx.set.look_for_room(edit_bytes(plan, size), edit_room)?;
        let cache = (cache, &ctx.metrics.drained_bytes);
        compaction::drain(view, (plan, busy), (&ctx.set, room), cache, horizon, &size.shape)
    };
    let is_full = |done: &Result<Done>| done.as_ref().is_err_and(|e| e.kind() == ErrorKind::Full);
    let (interval, upto, drained) =
        (&plan.column.interval, plan.column.upto, &view.version.drained);
    // What an older reader needs is written all the same.
    let has_deletes = || {
        upto <= horizon.oldest()
            && (has_deletes || view.level0.tombstones.has_undrained_in(interval, upto, drained))
    };
    let mut done = run(DrainRoom::Ordinary);
    // A drain without deletes leaves the reserve to compactions that free space.
    if is_full(&done) && (zones.serves_freeing() || zones.lacks_wanted()) && has_deletes() {
        done = run(DrainRoom::Reserve);
        if is_full(&done) {
            done = run(DrainRoom::Unpromised);
        }
        if done.is_ok() {
            zones.set_freeing_only(true);
        }
    }
    let mut done = done?;
    debug_assert!(edit_is_of(&done.edit, view.version.table), "a drain changes its own table");
    if ctx.options.has(Failpoint::ForgetDrained) {
        done.edit.ops.retain(|op| !matches!(op, Op::Drained { .. }));
    }
    Ok(done)
}

/// Bytes of an operation beside its keys, at most as a rule.
const OPERATION: usize = 128;

/// About the bytes of the edit that is to come.
fn edit_bytes(plan: &DrainPlan, size: &DrainSize) -> u64 {
    let read = plan.inputs.iter().map(|extent| u64::from(extent.meta().location.len));
    let written = read.sum::<u64>() + plan.level0_bytes + plan.run_bytes;
    // The last extent, and what rises D.
    let ops = written as usize / size.shape.extent_bytes + plan.inputs.len() + size.ops + 2;
    let KeyInterval { start, end } = &plan.reach;
    (ops * (OPERATION + start.len() + end.as_ref().map_or(0, Vec::len))) as u64
}

/// What came of keys that were drained out of turn.
#[derive(Debug)]
pub(super) struct OutOfTurn {
    /// The keys, as many from the first on as one job takes.
    pub(super) interval: KeyInterval,
    /// Bytes of level 0 that it moved.
    pub(super) level0_bytes: u64,
}

/// Drains keys of a table out of turn, as many from the first on as one job takes: up to its merged
/// boundary or `floor`, whichever is lower. `None` where compactions have claimed them. The round
/// of the table goes on where it was: what it finds drained costs it nothing.
pub(super) fn drain_out_of_turn(
    ctx: &JobContext,
    (table, change): (&Arc<TableCore>, Change<'_>),
    (interval, floor): (KeyInterval, Lsn),
    size: &DrainSize,
) -> Result<Option<OutOfTurn>> {
    let from = time::now();
    #[cfg(any(test, feature = "testing"))]
    let _phase = crate::testing::InPhase::enter(crate::testing::Phase::Drain);
    let horizon = ctx.shared.snapshots.horizon();
    let (plan, done) = {
        let view = table.view();
        let upto = table.merged().min(floor).min(view.drains_below() - 1);
        let busy = ctx.claims.of(table.id());
        let plan = {
            let _guard = pin();
            compaction::plan_keys(&view, (interval, upto), &size.shape, &busy)?
        };
        let Some(plan) = plan else { return Ok(None) };
        let done = merge(ctx, &view, &plan, (&horizon, &busy), (size, true))?;
        (plan, done)
    };
    let interval = plan.column.interval.clone();
    let drained = Drained { table, change, plan, done, is_in_turn: false };
    let DrainedBytes { level0, .. } =
        install_all(ctx, vec![Box::new(drained)], &horizon, (from, size))?;
    // Compactions have new deletes to serve.
    table.allow_large_jobs();
    ctx.shared.pace.report(None);
    ctx.memory.balance();
    Ok(Some(OutOfTurn { interval, level0_bytes: level0 }))
}

/// Applies one edit for all columns, and shows it.
pub(super) fn install_all(
    ctx: &JobContext,
    columns: Vec<Box<Drained<'_>>>,
    horizon: &Horizon,
    (from, size): (Instant, &DrainSize),
) -> Result<DrainedBytes> {
    debug_assert!(!columns.is_empty(), "a drain has a column");
    debug_assert!(tables_are_distinct(&columns), "a drain has one column of each table");
    debug_assert!(
        columns_are_durable(&columns, ctx.shared.committer.floor_there()),
        "a drain moves what is at or below the floor on the media"
    );
    debug_assert!(columns_are_merged(&columns), "a drain moves what is merged into level 0");
    if !is_installed_early(ctx, &columns) {
        ctx.set.sync_extents()?;
    }
    let ops = columns.iter().flat_map(|drained| drained.done.edit.ops.iter().cloned());
    let tables = columns.iter().map(|drained| drained.table);
    let rows: Vec<_> = tables.map(|table| DrainedRows::of(table)).collect();
    let ops = ops.chain(rows.iter().flat_map(DrainedRows::ops));
    let versions = apply(ctx, Edit { ops: ops.collect() }, &columns)?;
    rows.iter().for_each(|rows| rows.remove(ctx));
    let (mut level0, mut runs, mut added) = (0, 0, 0);
    for drained in columns {
        level0 += drained.plan.level0_bytes;
        runs += drained.plan.run_bytes;
        added += drained.added();
        ctx.metrics.spilled_extents.add(drained.used_up());
        let info = ctx.options.events.prepare(|| drained.info());
        install_one(ctx, *drained, &versions, horizon);
        ctx.metrics.drains.add(1);
        if let Some(info) = info {
            let (reason, ms) = (size.reason, time::since(from).as_secs_f64() * 1e3);
            ctx.options.events.send(|| DrainInfo { reason, ms, ..info });
        }
    }
    let took = time::since(from);
    ctx.metrics.drained_level0_bytes.add(level0);
    ctx.options.events.times().drains.add(took);
    ctx.metrics.drain_micros.add(took.as_micros() as u64);
    Ok(DrainedBytes { level0, runs, added, took })
}

/// Where the values lie that extents have apart.
fn places_of_values<'a>(
    extents: impl Iterator<Item = &'a Arc<Extent>>,
) -> impl Iterator<Item = Location> {
    extents.flat_map(|extent| extent.values()).map(|values| values.meta().location)
}

/// A table has one column in a drain: its edit raises D of each column once.
fn tables_are_distinct(columns: &[Box<Drained<'_>>]) -> bool {
    let is_first = |n: usize| columns[..n].iter().all(|c| c.table.id() != columns[n].table.id());
    (0..columns.len()).all(is_first)
}

/// What a drain moves is at or below the floor on the media: no power cut takes it back.
fn columns_are_durable(columns: &[Box<Drained<'_>>], floor: Lsn) -> bool {
    columns.iter().all(|drained| drained.plan.column.upto <= floor)
}

/// A drain takes only what is merged: memtables have the rest.
fn columns_are_merged(columns: &[Box<Drained<'_>>]) -> bool {
    columns.iter().all(|drained| drained.plan.column.upto <= drained.table.merged())
}

/// Shows a column's part of the edit, and goes on in its round.
fn install_one(
    ctx: &JobContext,
    drained: Drained<'_>,
    versions: &[(TableId, Arc<Version>)],
    horizon: &Horizon,
) {
    let Drained { table, mut change, plan, done, is_in_turn } = drained;
    let column = plan.column;
    ctx.metrics.count_reused(&done.carried_over);
    let own = versions.iter().filter(|(id, _)| *id == table.id()).cloned();
    let d = || table.view().version.drained.get(&column.interval.start);
    let before = d();
    install(table, &mut change, own.collect(), horizon.newest());
    debug_assert!(d() >= before || d() == 0, "D never falls, but where it is forgotten");
    done.replaced.iter().for_each(|extent| extent.evict());
    if is_in_turn {
        go_on(&mut change.round, &column.interval, column.upto);
    }
    drop(change);
    retire_later(ctx, table, column.interval, column.upto);
}

/// A round goes on behind a column with records up to `upto`.
fn go_on(round: &mut DrainRound, column: &KeyInterval, upto: Lsn) {
    round.began.get_or_insert(upto);
    debug_assert!(round.cursor <= column.start, "a round goes on where it was, or behind");
    match &column.end {
        Some(end) => {
            debug_assert!(*end > round.cursor, "a round goes up");
            round.cursor.clone_from(end);
        }
        None => {
            round.cursor.clear();
            // A merge into an empty level 0 may have raised it beyond where the round began.
            round.low = round.low.max(round.began.take().unwrap_or(upto));
        }
    }
}

/// Takes drained records out of level 0 once every reader has a view that hides them.
fn retire_later(ctx: &JobContext, table: &Arc<TableCore>, interval: KeyInterval, upto: Lsn) {
    let table = Arc::clone(table);
    let (level0, drained) = {
        let view = table.view();
        (Arc::clone(&view.level0), planted_drained(ctx, &view.version.drained, upto))
    };
    let forgets = ctx.options.has(Failpoint::CountDrained);
    let retire = move |shared: &Shared| {
        shared.count_out(|| {
            let released = level0.retire(&interval, upto, &drained)?;
            Ok(if forgets { Released::default() } else { released })
        });
        table.mark_changed();
    };
    match ctx.options.has(Failpoint::RetireAtOnce) {
        true => retire(&ctx.shared),
        false => ctx.shared.defer(retire),
    }
}

/// What level 0 takes for drained when it removes range tombstones.
fn planted_drained(ctx: &JobContext, drained: &DrainedMap, upto: Lsn) -> DrainedMap {
    let mut drained = drained.clone();
    if ctx.options.has(Failpoint::RetireRangesEarly) {
        drained.set(&KeyInterval::all(), upto);
    }
    drained
}

/// Whether the edit of these columns is to come before the values that they wrote apart.
fn is_installed_early(ctx: &JobContext, columns: &[Box<Drained<'_>>]) -> bool {
    let mut ops = columns.iter().flat_map(|drained| &drained.done.edit.ops);
    let refers = |op: &Op| match op {
        Op::AddExtent { extent, .. } => !extent.meta().values.is_empty(),
        _ => false,
    };
    ctx.options.has(Failpoint::InstallBeforeSync) && ops.any(refers)
}

/// Journals the edit of a drain. The floor on the media names it before entries of a persistent
/// index and pages of row tables go by it: an opening takes damage to another edit at the journal's
/// end for a torn append.
fn apply(
    ctx: &JobContext,
    edit: Edit,
    columns: &[Box<Drained<'_>>],
) -> Result<Vec<(TableId, Arc<Version>)>> {
    if ctx.options.has(Failpoint::ReuseBeforeEdit) {
        let tables = columns.iter().map(|drained| drained.table.id());
        return ctx.adopt_unjournaled(&edit, tables);
    }
    let versions = match ctx.shared.zones.serves_freeing() {
        true => ctx.apply_freeing(edit),
        false => ctx.shared.apply(edit),
    }?;
    let has_rows = |table: &Arc<TableCore>| table.view().level0.shown_rows().is_some();
    if ctx.forest.is_some() || columns.iter().any(|drained| has_rows(drained.table)) {
        ctx.sync_floor()?;
    }
    Ok(versions)
}

/// What the first keys of a span are, as many as a drain takes.
#[derive(Debug, Default)]
pub(super) struct Front {
    /// How many, and of these the deleted ones.
    pub(super) keys: u64,
    pub(super) deleted: u64,
    /// The last of them, if the span goes on behind it.
    pub(super) last: Option<Vec<u8>>,
}

/// Looks at records of level 0 from the first key of `span` on, as many as a drain takes.
pub(super) fn front(view: &View, span: &KeyInterval, upto: Lsn, budget: u64) -> Result<Front> {
    let tombstones = view.level0.tombstones.load();
    let mut cursor = view.level0.cursor(&view.version.drained);
    cursor.seek(&span.start, LSN_MAX)?;
    let (mut column, mut bytes) = (Front::default(), 0);
    let mut last: Option<Vec<u8>> = None;
    while let Some(entry) = cursor.entry().filter(|entry| span.contains(entry.key)) {
        let is_new = last.as_deref() != Some(entry.key);
        if is_new && bytes >= budget {
            column.last = last;
            break;
        }
        if entry.seq <= upto {
            bytes += record_len(entry.key.len(), entry.value.len()) as u64;
        }
        if is_new {
            let hidden =
                || tombstones.as_ref().map_or(0, |set| set.newest_over(entry.key, LSN_MAX));
            column.keys += 1;
            column.deleted += u64::from(entry.kind == Kind::Delete || hidden() > entry.seq);
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(entry.key);
        }
        cursor.next()?;
    }
    debug_assert!(column.deleted <= column.keys, "a deleted key is one of the keys");
    Ok(column)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `low` says that every record up to it is drained. The end of a round raises it to where the
    /// round began. A merge into an empty level 0 may have raised it further meanwhile: then it
    /// stays, or the table would be taken for one with older records than it has.
    #[test]
    fn the_end_of_a_round_never_lowers_what_is_drained() {
        let all = KeyInterval::all();
        for (low, began, want) in [(3, Some(5), 5), (9, Some(5), 9), (3, None, 7), (9, None, 9)] {
            let mut round = DrainRound { low, began, ..DrainRound::default() };
            go_on(&mut round, &all, 7);
            assert_eq!((round.low, round.began), (want, None), "{low} {began:?}");
            assert!(round.cursor.is_empty());
        }
    }
}
