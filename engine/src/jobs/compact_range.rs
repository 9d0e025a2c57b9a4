//! Manual compactions, as far as memory goes: the keys of a request come to level 0, and are
//! drained from there. What lies in levels is a compaction like others, of another choice.

use super::columns::{drain_budget, drain_out_of_turn, front};
use super::context::{JobContext, Outcome};
use super::manual::{ManualCompaction, Stage};
use super::ops::freeze;
use crate::error::Result;
use crate::mvcc::{KeyInterval, after, pin};

/// Takes a step of a request in memory. Nothing was done if another job comes first: merges, drains
/// of runs, compactions of its keys.
///
/// # Errors
///
/// Those of reading, writing and of the edit; `Invalid` once the table was dropped.
pub(crate) fn step(request: &ManualCompaction, ctx: &JobContext) -> Result<Outcome> {
    request.table.check()?;
    match request.stage() {
        Stage::Memtables => Ok(merge(request, ctx)),
        Stage::Level0(from) => drain(request, &from, ctx),
        Stage::Levels => Ok(Outcome::NOTHING),
    }
}

/// What the memtables have comes to level 0.
fn merge(request: &ManualCompaction, ctx: &JobContext) -> Outcome {
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
fn drain(request: &ManualCompaction, from: &[u8], ctx: &JobContext) -> Result<Outcome> {
    let table = &request.table;
    let Some(change) = table.try_change() else { return Ok(Outcome::NOTHING) };
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
        (front(&view, &rest, upto, drain_budget(ctx))?, has_ranges)
    };
    if front.keys == 0 && !has_ranges {
        request.set_stage(Stage::Levels);
        return Ok(Outcome::DONE);
    }
    let end = front.last.as_deref().map(after).or_else(|| rest.end.clone());
    let interval = KeyInterval { start: rest.start.clone(), end };
    let Some(done) = drain_out_of_turn(ctx, (table, change), (interval, floor))? else {
        return Ok(Outcome::NOTHING);
    };
    request.count(1, 0);
    let stage = match done.interval.end {
        Some(end) if rest.ends_after(&end) => Stage::Level0(end),
        _ => Stage::Levels,
    };
    request.set_stage(stage);
    Ok(Outcome { pruned: done.level0_bytes, ..Outcome::DONE })
}
