//! Delete-only compactions: removes extents that range tombstones hide from every reader, unread.
//! A tombstone counts from its commit on, wherever it lies, once the floor on the media covers it.

use std::sync::Arc;

use super::context::{JobContext, Outcome};
use super::ops::{self, remove_extents};
use crate::compaction;
use crate::error::Result;
use crate::extent::Extent;
use crate::merge::Fragments;
use crate::mvcc::Tombstone;
use crate::record::Lsn;
use crate::table::TableCore;
use crate::view::View;

/// The job.
#[derive(Debug, Default)]
pub(in crate::db) struct DeleteOnly;

impl DeleteOnly {
    /// Tables with range tombstones that changed since they were looked at, or of which readers
    /// have gone.
    pub(in crate::db) fn plan(&self, ctx: &JobContext) -> Option<Vec<Arc<TableCore>>> {
        let releases = ctx.shared.snapshots.releases();
        let tables = ctx.tables.index().with_ranges(releases);
        (!tables.is_empty()).then_some(tables)
    }

    /// Removes extents of the first table that has some.
    ///
    /// # Errors
    ///
    /// Those of reading and of the edit, but for a full disk: there nothing is done, and nothing
    /// has to be.
    pub(in crate::db) fn run(
        &self,
        tables: Vec<Arc<TableCore>>,
        ctx: &JobContext,
    ) -> Result<Outcome> {
        ops::for_first(tables, |table| remove_hidden(ctx, table))
    }
}

/// The range tombstones of a view that a reader at `at` sees, and the newest of those in the
/// region. Those that would have to come from an object store are left out, since drains wait for
/// this job: a merge removes what they hide.
fn visible(view: &View, at: Lsn) -> Result<(Vec<Arc<Tombstone>>, Lsn)> {
    let mut all = view.tombstones_in_memory(at);
    let newest = all.iter().map(|tombstone| tombstone.seq).max().unwrap_or(0);
    let has_some = |extent: &Arc<Extent>| extent.meta().tombstones > 0;
    let at_hand = |extent: &Arc<Extent>| has_some(extent) && extent.missing_end().is_none();
    for (_, extent) in view.version.extents().filter(|(_, extent)| at_hand(extent)) {
        all.extend(extent.tombstones()?.iter().filter(|t| t.seq <= at).cloned());
    }
    Ok((all, newest))
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
    let (tombstones, newest) = visible(&view, horizon.oldest())?;
    let busy = ctx.claims.of(table.id());
    let ranges = Fragments::new(&tombstones, &horizon);
    let gone = compaction::hidden(&version, &ranges, horizon.oldest(), &busy);
    if gone.is_empty() {
        let in_memory = view.range_deletes();
        let are_visible = view.tombstones_in_memory(horizon.newest()).len() as u64 == in_memory;
        if busy.is_empty() && are_visible {
            ctx.tables.index().not_covered(table.id(), &version, in_memory);
        }
        return Ok(false);
    }
    debug_assert!(newest <= horizon.oldest(), "every reader sees what hides the extents");
    drop(view);
    // Or a power cut could take what hides them, and leave them away.
    let floor = ctx.floor_from(newest)?;
    debug_assert!(newest <= floor, "what hides an extent is durable before the extent goes");
    remove_extents(ctx, table, change, &gone, horizon.newest())?;
    let bytes = gone.iter().map(|(_, extent)| u64::from(extent.meta().location.len)).sum();
    ctx.metrics.delete_only_compactions.add(1);
    ctx.metrics.delete_only_extents.add(gone.len() as u64);
    ctx.metrics.delete_only_bytes.add(bytes);
    Ok(true)
}
