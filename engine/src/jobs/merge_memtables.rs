//! Merges the oldest frozen memtables of some tables into their level 0: of one, or of several with
//! little in them.

use std::sync::Arc;

use super::context::{JobContext, Outcome};
use super::ops::{kept_for, prune_later};
use super::row_tables;
use super::table_index::Has;
use crate::error::{ErrorKind, Result};
use crate::options::Failpoint;
use crate::record::Lsn;
use crate::table::TableCore;
use crate::view::Frozen;

/// Merges frozen memtables of which all records are indexed, until that is enough for one job.
pub(crate) fn step(ctx: &JobContext) -> Result<Outcome> {
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

/// Merges the oldest frozen memtable of a table; `None` if there is none, or no room for it.
///
/// # Errors
///
/// An I/O error. One from the merge itself poisons the database, since a part may be done.
fn merge(ctx: &JobContext, table: &Arc<TableCore>) -> Result<Option<Merged>> {
    let mut change = table.change();
    let Some(oldest) = table.view().frozen.last().cloned() else { return Ok(None) };
    let Frozen { memtable, boundary } = oldest;
    if ctx.shared.committer.visible() < boundary {
        return Ok(None);
    }
    let floor = ctx.floor_from(boundary)?;
    debug_assert!(
        memtable.oldest().is_none_or(|oldest| oldest <= boundary),
        "a frozen memtable has records up to its boundary"
    );
    let horizon = ctx.shared.snapshots.horizon();
    let keep = |seq, newer| kept_for(&horizon, floor, (seq, newer));
    let level0 = Arc::clone(&table.view().level0);
    if row_tables::copy(ctx, table, &mut change, (&memtable, boundary), (&horizon, &keep))? {
        return Ok(Some(Merged { bytes: memtable.bytes(), pruned: 0 }));
    }
    match level0.in_zones.reserve(&memtable) {
        Ok(()) => {}
        // Drains make space in the index.
        Err(e) if e.kind() == ErrorKind::Full => {
            ctx.shared.pace.report(Some(e.to_string()));
            return Ok(None);
        }
        Err(e) => return Err(e),
    }
    if level0.size().records == 0 {
        // Whatever is older has moved.
        let oldest = memtable.oldest().map_or(0, |oldest| oldest - 1);
        change.round.low = change.round.low.max(oldest);
    }
    let ingested = level0.ingest(&memtable, &keep);
    let superseded = ingested.inspect_err(|error| ctx.stop_because(&error.to_string()))?;
    change.apply(|view| {
        let merged = view.frozen.pop();
        debug_assert!(merged.is_some(), "what was merged is the oldest frozen memtable");
        if !superseded.is_empty() {
            view.pruned = view.pruned.max(horizon.newest());
        }
    });
    table.set_merged(boundary);
    let pruned = prune_later(ctx, table, level0, superseded);
    ctx.metrics.merges.add(1);
    // An empty one, frozen for its boundary, has none.
    Ok(Some(Merged { bytes: memtable.bytes(), pruned }))
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

#[cfg(all(test, not(feature = "loom")))]
mod tests;
