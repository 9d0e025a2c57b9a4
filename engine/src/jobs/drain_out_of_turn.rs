//! Drains out of the turn of rounds: of deletes, and for manual compactions.
//!
//! Places of level 0 are drained where most keys are deleted. A range steps over each such key; in
//! the region they would stay until as much as fills it was written. The drain drops those that
//! hide nothing below, and compactions take the others down to what they hide
//! (`compaction/pick.rs`).
//!
//! While writes go on, a place has to have many deletes, and half of its keys. At rest fewer do: of
//! what is in memtables too, and of what range deletes hide. A place is looked at once for the
//! deletes that were committed there. So a database at rest comes to an end, also where snapshots
//! need what was deleted, and a few deletes among other writes move nothing.
//!
//! The keys of a manual compaction come to level 0, and are drained from there. What lies in levels
//! is a compaction like others, of another choice.

use std::sync::Arc;

use super::columns::{DrainSize, drain_in_room, drain_out_of_turn, front};
use super::context::{JobContext, Outcome};
use super::manual::{ManualCompaction, Stage};
use super::ops::freeze;
use super::table_index::CheckFor;
use crate::base::error::Result;
use crate::compaction;
use crate::level0::DeletedSpan;
use crate::mvcc::{KeyInterval, Tombstone, after, pin, union};
use crate::read::view::View;
use crate::table::TableCore;

/// Deletes next to each other that are drained while writes go on, and at rest.
const MANY: u64 = 8192;
const SOME: u64 = 1024;

/// While writes go on, a memtable is frozen for its deletes when it has a sixteenth of the bytes at
/// which it is frozen anyway.
const FROZEN_EARLY: u64 = 16;

/// A column goes where one key in so many is deleted: while writes go on, and at rest.
const HALF: u64 = 2;
const QUARTER: u64 = 4;

/// What to do next.
#[derive(Debug)]
enum Plan {
    /// Deletes in its memtable are to come to level 0.
    Freeze(Arc<TableCore>),
    /// Keys of its level 0 of which many are deleted.
    Drain(Arc<TableCore>, DeletedSpan),
}

/// The place with the most deletes of the first table that has enough of them.
fn plan(ctx: &JobContext) -> Option<Plan> {
    let (idle, least) = (is_eager(ctx), least(ctx));
    let mut tables = ctx.tables.index().with_deletes(least);
    tables.retain(has_no_runs);
    for table in &tables {
        if let Some(span) = table.view().level0.deleted.take(least) {
            return Some(Plan::Drain(Arc::clone(table), span));
        }
    }
    let bytes = if idle { 0 } else { ctx.freeze_at() / FROZEN_EARLY };
    let is_large = |table: &&Arc<TableCore>| {
        let view = table.view();
        view.frozen.is_empty() && view.active.deletes() >= least && view.active.bytes() >= bytes
    };
    let large = tables.iter().find(is_large).cloned().map(Plan::Freeze);
    large.or_else(|| idle.then(|| plan_ranges(ctx)).flatten())
}

/// What range deletes in memory call for, of the first table where they hide enough.
fn plan_ranges(ctx: &JobContext) -> Option<Plan> {
    // Before the horizon: what is released between the two is looked at again.
    let releases = ctx.shared.snapshots.releases();
    let oldest = ctx.shared.snapshots.horizon().oldest();
    let mut tables = ctx.tables.index().with_ranges(CheckFor::HiddenRecords, releases);
    tables.retain(has_no_runs);
    for table in tables {
        let view = table.view();
        if !view.frozen.is_empty() {
            continue;
        }
        // Before the look: one that comes meanwhile is looked at again.
        let (version, ranges) = (&view.version, view.range_deletes());
        let tombstones = view.tombstones_in_memory(oldest);
        // What cannot be read is for reads and merges to tell.
        let hides_enough = hides_enough(&view, &tombstones).unwrap_or(false);
        if hides_enough && view.active.tombstones().is_some() {
            drop(view);
            return Some(Plan::Freeze(table));
        }
        let look = CheckFor::HiddenRecords;
        ctx.tables.index().looked_at_ranges(look, table.id(), version, ranges);
        if !hides_enough {
            continue;
        }
        let keys = union(tombstones.iter().map(|tombstone| tombstone.interval.clone()));
        for interval in keys.into_iter().map(with_last) {
            view.level0.deleted.add(vec![DeletedSpan { interval, deletes: SOME }]);
        }
        let span = view.level0.deleted.take(SOME);
        drop(view);
        return span.map(|span| Plan::Drain(table, span));
    }
    None
}

/// Freezes a memtable, or drains the first column of a span if it is worth it.
pub(crate) fn drain_deletes(ctx: &JobContext) -> Result<Outcome> {
    match plan(ctx) {
        None => Ok(Outcome::NOTHING),
        Some(Plan::Freeze(table)) => Ok(Outcome::did(freeze(ctx, &table))),
        Some(Plan::Drain(table, span)) => {
            let drain = |size: &DrainSize| drain_span(ctx, (&table, &span), size);
            let done = drain_in_room(ctx, "deletes", drain);
            let done = match done {
                // No writer waits for it: what may pass can wait, and others go on.
                Err(e) if e.may_pass() => Ok(Outcome::NOTHING),
                done => done,
            };
            if !matches!(done, Ok(Outcome { did: true, .. })) {
                table.view().level0.deleted.add(vec![span]);
            }
            done
        }
    }
}

/// A column takes along what runs have of its keys, however much: those are drained first.
fn has_no_runs(table: &Arc<TableCore>) -> bool {
    table.view().version.runs.is_empty()
}

/// The deletes that a place has to have.
fn least(ctx: &JobContext) -> u64 {
    match ctx.shared.zones.serves_freeing() {
        true => 1,
        false if ctx.is_idle() => SOME,
        false => MANY,
    }
}

/// Whether a few deletes are worth a drain: there is time, or space is what commits lack.
fn is_eager(ctx: &JobContext) -> bool {
    ctx.is_idle() || ctx.shared.zones.serves_freeing()
}

/// Drains the first column of a span, if enough of its keys are deleted; what is left of the span
/// is noted again. Nothing was done if another job has the table or the keys.
fn drain_span(
    ctx: &JobContext,
    (table, span): (&Arc<TableCore>, &DeletedSpan),
    size: &DrainSize,
) -> Result<Outcome> {
    let Some(change) = table.try_change() else { return Ok(Outcome::NOTHING) };
    if table.check().is_err() {
        return Ok(Outcome::DONE);
    }
    debug_assert!(!span.interval.is_empty(), "a span has keys");
    let floor = ctx.floor_from(table.merged())?;
    let upto = table.merged().min(floor);
    let level0 = Arc::clone(&table.view().level0);
    let column = {
        let _guard = pin();
        front(&table.view(), &span.interval, upto, size.budget)?
    };
    let end = column.last.as_deref().map(after).or_else(|| span.interval.end.clone());
    let mut interval = KeyInterval { start: span.interval.start.clone(), end };
    let share = if is_eager(ctx) { QUARTER } else { HALF };
    let mut outcome = Outcome::DONE;
    let has_ranges =
        || level0.tombstones.has_undrained_in(&interval, upto, &table.view().version.drained);
    if column.deleted * share >= column.keys.max(1) || (column.keys == 0 && has_ranges()) {
        let done = drain_out_of_turn(ctx, (table, change), (interval, floor), size)?;
        let Some(done) = done else { return Ok(Outcome::NOTHING) };
        ctx.metrics.tombstone_drains.add(1);
        outcome.pruned = done.level0_bytes;
        interval = done.interval;
    }
    if let Some(start) = interval.end
        && span.interval.ends_after(&start)
    {
        let rest = KeyInterval { start, end: span.interval.end.clone() };
        // A place that was begun is finished.
        let least = if outcome.pruned > 0 { least(ctx) } else { 0 };
        let deletes = span.deletes.saturating_sub(column.deleted.max(1)).max(least);
        level0.deleted.add(vec![DeletedSpan { interval: rest, deletes }]);
    }
    Ok(outcome)
}

/// Whether tombstones in memory hide enough records in extents. Of those in level 0 the merge took
/// note.
fn hides_enough(view: &View, tombstones: &[Arc<Tombstone>]) -> Result<bool> {
    if compaction::hidden_records(&view.version, tombstones, SOME)? >= SOME {
        return Ok(true);
    }
    // Not in level 0 yet: what is there was not held against it.
    let in_active = view.active.tombstones().is_some();
    Ok(in_active && view.level0.size().records + view.memtable_records() >= SOME)
}

/// The same keys and the end: a tombstone is cut behind some key.
fn with_last(interval: KeyInterval) -> KeyInterval {
    KeyInterval { end: interval.end.map(|end| after(&end)), ..interval }
}

/// Takes a step of a request in memory. Nothing was done if another job comes first: merges, drains
/// of runs, compactions of its keys.
///
/// # Errors
///
/// Those of reading, writing and of the edit; `MissingTable` once the table was dropped.
pub(crate) fn compact_range_in_memory(
    request: &ManualCompaction,
    ctx: &JobContext,
) -> Result<Outcome> {
    request.table.check()?;
    match request.stage() {
        Stage::Memtables => Ok(merge_for(request, ctx)),
        Stage::Level0(from) => {
            drain_in_room(ctx, "call", |size| drain_for(request, &from, ctx, size))
        }
        Stage::Levels => Ok(Outcome::NOTHING),
    }
}

/// What the memtables have comes to level 0.
fn merge_for(request: &ManualCompaction, ctx: &JobContext) -> Outcome {
    let table = &request.table;
    let view = table.view();
    // A merge, and drains of runs, are jobs of their own.
    if !view.frozen.is_empty() || !view.version.runs.is_empty() {
        return Outcome::NOTHING;
    }
    let is_in_level0 = view.active.records() == 0 || table.merged() >= request.upto;
    drop(view);
    if is_in_level0 {
        request.set_stage(Stage::Level0(request.keys.start.clone()));
        return Outcome::DONE;
    }
    Outcome::did(freeze(ctx, table))
}

/// Drains the next column.
fn drain_for(
    request: &ManualCompaction,
    from: &[u8],
    ctx: &JobContext,
    size: &DrainSize,
) -> Result<Outcome> {
    let table = &request.table;
    let Some(change) = table.try_change() else { return Ok(Outcome::NOTHING) };
    table.check()?;
    if !table.view().version.runs.is_empty() {
        return Ok(Outcome::NOTHING);
    }
    let floor = ctx.floor_from(table.merged())?;
    let (upto, rest) = (table.merged().min(floor), request.rest(from));
    let (front, has_ranges) = {
        let _guard = pin();
        let view = table.view();
        let has_ranges =
            view.level0.tombstones.has_undrained_in(&rest, upto, &view.version.drained);
        (front(&view, &rest, upto, size.budget)?, has_ranges)
    };
    if front.keys == 0 && !has_ranges {
        request.set_stage(Stage::Levels);
        return Ok(Outcome::DONE);
    }
    let end = front.last.as_deref().map(after).or_else(|| rest.end.clone());
    let interval = KeyInterval { start: rest.start.clone(), end };
    let done = drain_out_of_turn(ctx, (table, change), (interval, floor), size)?;
    let Some(done) = done else { return Ok(Outcome::NOTHING) };
    request.count(1, 0);
    let stage = match done.interval.end {
        Some(end) if rest.ends_after(&end) => Stage::Level0(end),
        _ => Stage::Levels,
    };
    request.set_stage(stage);
    Ok(Outcome { pruned: done.level0_bytes, ..Outcome::DONE })
}
