//! Memtables on their way to level 0. One that has grown large is frozen: it takes no more records.
//! The oldest frozen memtables of some tables are merged into their level 0: of one table, or of
//! several with little in them. Where a table has row tables, a merge copies the memtable into one
//! instead, and a drain removes those that are empty (`docs/internals/level0.md`).

use std::sync::Arc;
use std::time::Instant;

use super::context::{JobContext, Outcome};
use super::ops::{self, DrainedRows, install, kept_for, prune_later, row_is_sound};
use super::table_index::Has;
use crate::base::error::{Error, Result};
use crate::base::events::FlushInfo;
use crate::base::options::Failpoint;
use crate::base::record::Lsn;
use crate::level0::{Keep, Released};
use crate::memtable::Memtable;
use crate::mvcc::Horizon;
use crate::os::time;
use crate::read::view::Frozen;
use crate::table::{Change, TableCore};
use crate::version::{Edit, Op};

/// Merges frozen memtables of which all records are indexed, until that is enough for one job.
pub(crate) fn merge_memtables(ctx: &JobContext) -> Result<Outcome> {
    let visible = ctx.shared.committer.visible();
    let mut tables = ctx.tables.index().having(Has::Frozen);
    tables.retain(|t| t.view().frozen.last().is_some_and(|oldest| oldest.boundary <= visible));
    merge_some(tables, ctx)
}

fn merge_some(tables: Vec<Arc<TableCore>>, ctx: &JobContext) -> Result<Outcome> {
    let (mut outcome, mut bytes) = (Outcome::NOTHING, 0);
    for table in tables {
        let Some(merged) = merge(ctx, &table)? else { continue };
        outcome.did = true;
        outcome.pruned += merged.pruned;
        bytes += merged.bytes;
        if bytes >= ctx.freeze_at() / 4 {
            break;
        }
    }
    if bytes > 0 {
        raise_merged(ctx)?;
    }
    Ok(outcome)
}

/// What came of one memtable.
struct Merged {
    bytes: u64,
    pruned: u64,
}

/// Merges the oldest frozen memtable of a table; `None` if there is none.
///
/// # Errors
///
/// An I/O error. One from the merge itself poisons the database, since a part may be done.
fn merge(ctx: &JobContext, table: &Arc<TableCore>) -> Result<Option<Merged>> {
    let mut change = table.change();
    let Some(oldest) = table.view().frozen.last().cloned() else { return Ok(None) };
    let Frozen { memtable, boundary } = oldest;
    let from = time::now();
    if ctx.shared.committer.visible() < boundary {
        return Ok(None);
    }
    let floor = ctx.floor_from(boundary)?;
    debug_assert!(
        memtable.oldest().is_none_or(|oldest| oldest <= boundary),
        "a frozen memtable has records up to its boundary"
    );
    let horizon = ctx.shared.snapshots.horizon();
    let keep = |seq, newer| {
        debug_assert!(newer <= boundary, "what is merged lies up to the boundary");
        kept_for(&horizon, floor, (seq, newer))
    };
    let level0 = Arc::clone(&table.view().level0);
    if copy_to_row_table(ctx, table, &mut change, (&memtable, boundary), (&horizon, &keep))? {
        ctx.metrics.row_tables.add(1);
        count_merge(ctx, table, &memtable, (from, true));
        return Ok(Some(Merged { bytes: memtable.bytes(), pruned: 0 }));
    }
    if level0.size().records == 0 {
        // Whatever is older has moved.
        let oldest = memtable.oldest().map_or(0, |oldest| oldest - 1);
        change.round.low = change.round.low.max(oldest);
    }
    let ingested = level0.ingest(&memtable, &keep);
    let superseded = ingested.inspect_err(|error| ctx.shared.stop_because(&error.to_string()))?;
    change.apply(|view| {
        let merged = view.frozen.pop();
        debug_assert!(merged.is_some(), "what was merged is the oldest frozen memtable");
        if !superseded.is_empty() {
            view.pruned = view.pruned.max(horizon.newest());
        }
    });
    table.set_merged(boundary);
    let pruned = prune_later(ctx, table, level0, superseded);
    count_merge(ctx, table, &memtable, (from, false));
    // An empty one, frozen for its boundary, has none.
    Ok(Some(Merged { bytes: memtable.bytes(), pruned }))
}

fn count_merge(
    ctx: &JobContext,
    table: &TableCore,
    memtable: &Memtable,
    (from, row_table): (Instant, bool),
) {
    ctx.metrics.merges.add(1);
    ctx.options.events.send(|| FlushInfo {
        table: table.name(),
        row_table,
        records: memtable.records(),
        bytes: memtable.bytes(),
        ms: time::since(from).as_secs_f64() * 1e3,
        ..FlushInfo::default()
    });
}

/// Notes durably how far the persistent index knows of everything.
fn raise_merged(ctx: &JobContext) -> Result<()> {
    let Some(forest) = &ctx.forest else { return Ok(()) };
    let early = ctx.options.has(Failpoint::MergedBeforeFloor);
    let early = early.then(|| ctx.tables.merged_upto(Lsn::MAX));
    let floor = ctx.sync_floor()?;
    let upto = || ctx.tables.merged_upto(floor);
    forest.raise_merged(early.map_or_else(upto, |early| early.min(floor)))
}

/// The least memory of an index for which a memtable is frozen.
const LEAST_INDEX: u64 = 64 << 10;

/// Bytes of records, and memory of their index, at which a memtable is frozen. A merge has its
/// records in two indexes for a while.
pub(crate) fn freeze_bounds(ctx: &JobContext) -> (u64, u64) {
    let memory = ctx.memory.most_indexes().map(|most| (most / 8).max(LEAST_INDEX));
    (ctx.freeze_at(), memory.unwrap_or(u64::MAX))
}

/// Freezes the first large memtable; beside a persistent index also what has older records, for the
/// boundary of that index to move on.
pub(crate) fn freeze_large(ctx: &JobContext) -> Result<Outcome> {
    let (bytes, memory) = freeze_bounds(ctx);
    let large = ctx.tables.index().large(bytes, memory);
    let Some(table) = large.filter(|table| ops::freeze(ctx, table)) else {
        return Ok(Outcome::NOTHING);
    };
    if ctx.forest.is_some()
        && let Some(boundary) = table.view().oldest_in_memtables()
    {
        let older = ctx.tables.index().in_memtables_below(boundary);
        for table in &older {
            ops::freeze(ctx, table);
        }
    }
    Ok(Outcome::DONE)
}

/// Copies the oldest frozen memtable of a table into a row table, and publishes that; whether it
/// did. Else the table's level 0 keeps none, or has no room for one.
///
/// The order matters: the copy is durable, then the edit, then readers find the copy. After that
/// the records in zones no longer count.
///
/// # Errors
///
/// An I/O error, which poisons the database where a part may be done.
fn copy_to_row_table(
    ctx: &JobContext,
    table: &Arc<TableCore>,
    change: &mut Change<'_>,
    (memtable, boundary): (&Arc<Memtable>, Lsn),
    (horizon, keep): (&Horizon, Keep<'_>),
) -> Result<bool> {
    let level0 = Arc::clone(&table.view().level0);
    let Some(rows) = level0.rows.as_ref().filter(|rows| rows.takes_memtables()) else {
        return Ok(false);
    };
    if table.check().is_err() {
        return Ok(false);
    }
    let number = (table.id(), ctx.set.next_extent_id());
    let stop = |error: &Error| ctx.shared.stop_because(&error.to_string());
    let jobs = &ctx.set.store().memory().jobs;
    let stored = rows.store(memtable, keep, number, (table.merged(), boundary), jobs);
    let Some(stored) = stored.inspect_err(stop)? else { return Ok(false) };
    let drained = DrainedRows::of(table);
    let row = stored.describe();
    debug_assert!(row_is_sound(&row, boundary), "a row table is between two merges: {row:?}");
    let add = Op::AddRow { table: table.id(), row };
    let ops = std::iter::once(add).chain(drained.ops()).collect();
    // It frees the zones of the memtable.
    let applied = match ctx.options.has(Failpoint::UnjournaledRow) {
        true => ctx.adopt_unjournaled(&Edit { ops }, std::iter::once(table.id())),
        false => ctx.apply_freeing(Edit { ops }),
    };
    let versions = match applied {
        Ok(versions) => versions,
        Err(error) => {
            if !error.may_pass() {
                return Err(error);
            }
            rows.give_up(&stored);
            return Ok(false);
        }
    };
    drained.remove(ctx);
    if level0.size().records == 0 {
        // Whatever is older has moved.
        change.round.low = change.round.low.max(row.oldest - 1);
    }
    let pruned = if stored.has_left_out() { horizon.newest() } else { 0 };
    let copied = level0.publish(memtable, stored).inspect_err(stop)?;
    install(table, change, versions, pruned);
    change.apply(|view| {
        view.frozen.pop();
    });
    table.set_merged(boundary);
    count_out_later(ctx, table, copied);
    Ok(true)
}

/// Counts records out of their zones once every reader has a view with the copies.
fn count_out_later(ctx: &JobContext, table: &Arc<TableCore>, records: Vec<u64>) {
    let table = Arc::clone(table);
    ctx.shared.defer(move |shared| {
        shared.count_out(|| Ok(Released { records }));
        table.mark_changed();
    });
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
