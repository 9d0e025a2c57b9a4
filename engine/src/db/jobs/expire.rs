//! Removes extents in which everything has expired, unread.

use std::sync::Arc;

use super::context::{JobContext, Outcome};
use super::ops::{self, remove_extents};
use crate::compaction;
use crate::error::Result;
use crate::table::TableCore;

/// The job.
#[derive(Debug, Default)]
pub(in crate::db) struct Expire;

impl Expire {
    /// Tables of which records may have expired.
    pub(in crate::db) fn plan(&self, ctx: &JobContext) -> Option<Vec<Arc<TableCore>>> {
        let tables = ctx.tables.index().aging();
        (!tables.is_empty()).then_some(tables)
    }

    /// Removes extents of the first table that has some.
    ///
    /// # Errors
    ///
    /// Those of the edit, but for a full disk: there nothing is done, and nothing has to be.
    pub(in crate::db) fn run(
        &self,
        tables: Vec<Arc<TableCore>>,
        ctx: &JobContext,
    ) -> Result<Outcome> {
        ops::for_first(tables, |table| expire(ctx, table))
    }
}

fn expire(ctx: &JobContext, table: &TableCore) -> Result<bool> {
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
    remove_extents(ctx, table, change, &gone, 0)?;
    ctx.metrics.expired_extents.add(gone.len() as u64);
    Ok(true)
}
