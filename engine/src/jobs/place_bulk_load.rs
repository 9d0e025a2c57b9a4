//! Places bulk loads: once everything that is older has come down, extents that nothing is in the
//! way of get their places in levels by one edit, unread. The drain merges what has to be merged.

use super::context::{JobContext, Outcome};
use super::ops::{self, install};
use super::table_index::Has;
use crate::compaction;
use crate::error::Result;
use crate::mvcc::{KeyInterval, pin};
use crate::options::Failpoint;
use crate::record::Lsn;
use crate::table::TableCore;

/// Places some extents of the first load that has any to place, or freezes a memtable that has
/// older records.
pub(crate) fn step(ctx: &JobContext) -> Result<Outcome> {
    let tables = ctx.tables.index().having(Has::Runs);
    for table in tables {
        let done = match is_merged(&table) {
            None => false,
            Some(true) => place(ctx, &table)?,
            Some(false) => table.view().frozen.is_empty() && ops::freeze(ctx, &table),
        };
        if done {
            return Ok(Outcome::DONE);
        }
    }
    Ok(Outcome::NOTHING)
}

/// Whether all that is older than the first load that was not looked at yet is merged; `None`
/// without such a load.
fn is_merged(table: &TableCore) -> Option<bool> {
    let view = table.view();
    let loads = || view.version.runs.iter().rev().filter(|run| run.loaded);
    loads().next()?;
    let looked_at = table.change().round.placed;
    let load = loads().find(|run| run.lsn > looked_at)?;
    Some(table.merged() >= load.lsn)
}

fn place(ctx: &JobContext, table: &TableCore) -> Result<bool> {
    let floor = ctx.sync_floor()?;
    let mut change = table.change();
    if table.check().is_err() {
        return Ok(false);
    }
    let view = table.view();
    let (version, level0) = (&view.version, &view.level0);
    let upto = table.merged().min(floor).min(view.drains_below() - 1);
    let busy = ctx.claims.of(table.id());
    // Of a range tombstone that begins before them no bytes count.
    let has_none = |keys: &KeyInterval, upto: Lsn| -> Result<bool> {
        Ok(level0.bytes_in(keys, upto, &version.drained)? == 0
            && !level0.tombstones.has_undrained_in(keys, upto, &version.drained)
            || ctx.options.has(Failpoint::PlaceOverOlder))
    };
    let placing = {
        let _guard = pin();
        compaction::place(version, upto, &busy, &has_none)?
    };
    let Some(placing) = placing else {
        // Keys that a compaction works on may be free later; the rest is the drain's.
        if busy.is_empty() {
            let seen = version.runs.iter().map(|run| run.lsn).filter(|lsn| *lsn <= upto).max();
            change.round.placed = change.round.placed.max(seen.unwrap_or(0));
        }
        return Ok(false);
    };
    debug_assert!(upto <= floor, "what is placed is durable");
    debug_assert!(upto <= table.merged(), "what is older than a placed run is merged");
    let versions = ctx.apply(placing.edit(table.id()))?;
    install(table, &mut change, versions, 0);
    drop(change);
    let carried_over = placing.carried_over();
    ctx.metrics.moves.add(carried_over.extents);
    ctx.metrics.count_reused(&carried_over);
    Ok(true)
}
