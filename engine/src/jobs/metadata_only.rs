//! Compactions that read and write no block: one edit removes extents, or gives them places.
//!
//! Removed are extents in which everything has expired, or that range tombstones hide from every
//! reader. A tombstone counts from its commit on, wherever it lies, once the floor on the media
//! covers it.
//!
//! Placed are bulk loads: once everything that is older has come down, extents that nothing is in
//! the way of get their places in levels. The drain merges what has to be merged.

use std::sync::Arc;

use super::context::{JobContext, Outcome};
use super::ops::{self, install, remove_extents};
use super::table_index::{CheckFor, Has};
use crate::base::error::Result;
use crate::base::events::CompactionInfo;
use crate::base::options::Failpoint;
use crate::base::record::Lsn;
use crate::compaction;
use crate::compaction::Fragments;
use crate::mvcc::{Horizon, KeyInterval, pin};
use crate::os::time;
use crate::read::view::RangeTombstones;
use crate::table::TableCore;
use crate::version::known_as;

/// Removes extents in which all has expired, of the first table that has some; else extents that
/// range tombstones hide: of tables that changed since they were looked at, or of which readers
/// have gone. On a full disk nothing is done, and nothing has to be.
pub(crate) fn delete_only(ctx: &JobContext) -> Result<Outcome> {
    let aged = ctx.tables.index().having(Has::Aged);
    if ops::for_first(aged, |table| remove_expired(ctx, table))?.did {
        return Ok(Outcome::DONE);
    }
    let releases = ctx.shared.snapshots.releases();
    let tables = ctx.tables.index().with_ranges(CheckFor::HiddenExtents, releases);
    ops::for_first(tables, |table| remove_hidden(ctx, table))
}

fn remove_expired(ctx: &JobContext, table: &TableCore) -> Result<bool> {
    let change = table.change();
    let horizon = ctx.shared.snapshots.horizon();
    let version = Arc::clone(&table.view().version);
    let expired = version.expired_at(&ctx.set.timeline(), horizon.oldest_time());
    if expired == 0 || table.check().is_err() {
        return Ok(false);
    }
    // A job takes an extent to work on under the right to change the table.
    let busy = ctx.claims.of(table.id());
    let gone = compaction::expired(&version, expired, &busy);
    if gone.is_empty() {
        return Ok(false);
    }
    remove_extents(ctx, table, change, (&gone, "expired"), 0)?;
    ctx.metrics.expired_extents.add(gone.len() as u64);
    Ok(true)
}

/// Whether range tombstones at hand that readers of the horizon see hide all that is not newer than
/// `seq` in `keys`. Those that would have to come from an object store are left out, since drains
/// wait for this job: a merge removes what they hide.
fn hides(
    ranges: &RangeTombstones<'_>,
    keys: &KeyInterval,
    seq: Lsn,
    horizon: &Horizon,
) -> Result<bool> {
    // Where no tombstone is over the first key, those over the others need no look.
    let first = KeyInterval::closed(&keys.start, &keys.start);
    if ranges.at_hand_over(&first, seq, horizon.oldest())?.is_empty() {
        return Ok(false);
    }
    let over = ranges.at_hand_over(keys, seq, horizon.oldest())?;
    Ok(Fragments::new(&over, horizon).hide(keys, seq, horizon.oldest()))
}

fn remove_hidden(ctx: &JobContext, table: &TableCore) -> Result<bool> {
    // A table that another job changes is looked at again.
    let Some(change) = table.try_change() else { return Ok(false) };
    if table.check().is_err() {
        return Ok(false);
    }
    let horizon = ctx.shared.snapshots.horizon();
    let view = Arc::clone(&table.view());
    let version = Arc::clone(&view.version);
    let busy = ctx.claims.of(table.id());
    // Before the look: one that comes meanwhile is looked at again.
    let in_memory = view.range_deletes();
    let (gone, newest) = match view.range_tombstones() {
        None => (Vec::new(), 0),
        Some(ranges) => {
            let is_hidden = |keys: &KeyInterval, seq| hides(&ranges, keys, seq, &horizon);
            let gone = match compaction::hidden(&version, is_hidden, horizon.oldest(), &busy) {
                // Tombstones that cannot be read hide nothing here. The table is looked at again
                // once it has changed.
                Err(e) if e.is_unread() => Vec::new(),
                gone => gone?,
            };
            (gone, ranges.newest_in_memory())
        }
    };
    if gone.is_empty() {
        if busy.is_empty() && newest <= horizon.newest() {
            let mut index = ctx.tables.index();
            index.looked_at_ranges(CheckFor::HiddenExtents, table.id(), &version, in_memory);
        }
        return Ok(false);
    }
    // What hides an extent is no newer than the oldest reader.
    let newest = newest.min(horizon.oldest());
    drop(view);
    // Or a power cut could take what hides them, and leave them away.
    let floor = ctx.floor_from(newest)?;
    debug_assert!(newest <= floor, "what hides an extent is durable before the extent goes");
    remove_extents(ctx, table, change, (&gone, "hidden"), horizon.newest())?;
    let bytes = gone.iter().map(|(_, extent)| u64::from(extent.meta().location.len)).sum();
    ctx.metrics.delete_only_compactions.add(1);
    ctx.metrics.delete_only_extents.add(gone.len() as u64);
    ctx.metrics.delete_only_bytes.add(bytes);
    Ok(true)
}

/// Places some extents of the first load that has any to place, or freezes a memtable that has
/// older records.
pub(crate) fn place_bulk_load(ctx: &JobContext) -> Result<Outcome> {
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
    let (began, floor) = (time::now(), ctx.sync_floor()?);
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
        compaction::place(version, (upto, ctx.shape().most_under()), &busy, &has_none)?
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
    let versions = ctx.shared.apply(placing.edit(table.id()))?;
    install(table, &mut change, versions, 0);
    drop(change);
    let carried_over = placing.carried_over();
    ctx.metrics.moves.add(carried_over.extents);
    ctx.metrics.count_reused(&carried_over);
    ctx.options.events.send(|| CompactionInfo {
        table: table.name(),
        to_level: known_as(placing.deepest()),
        reason: "load",
        is_move: true,
        extents_in: carried_over.extents,
        bytes_in: carried_over.extent_bytes,
        ms: time::since(began).as_secs_f64() * 1e3,
        ..CompactionInfo::default()
    });
    Ok(true)
}
