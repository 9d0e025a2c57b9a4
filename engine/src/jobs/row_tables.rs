//! Row tables of level 0: a merge copies a memtable into one, and a drain removes those that are
//! empty. `docs/internals/level0.md` has the steps.

use std::sync::Arc;

use super::context::JobContext;
use super::invariants::row_is_sound;
use super::ops::install;
use crate::error::{ErrorKind, Result};
use crate::level0::{Keep, Level0, Released};
use crate::levels::{Edit, Op};
use crate::memtable::Memtable;
use crate::mvcc::Horizon;
use crate::options::Failpoint;
use crate::record::{Lsn, TableId};
use crate::table::{Change, TableCore};

/// Copies the oldest frozen memtable of a table into a row table, and publishes that; whether it
/// did. Else the table's level 0 keeps none, or has no room for one.
///
/// The order matters: the copy is durable, then the edit, then readers find the copy. After that
/// the records in zones no longer count.
///
/// # Errors
///
/// An I/O error, which poisons the database where a part may be done.
pub(super) fn copy(
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
    let stop = |error: &crate::error::Error| ctx.stop_because(&error.to_string());
    let stored = rows.store(memtable, keep, number, (table.merged(), boundary));
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
            if error.kind() != ErrorKind::Full {
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
    ctx.metrics.merges.add(1);
    ctx.metrics.row_tables.add(1);
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

/// Row tables of which all is drained, on their way out.
pub(super) struct DrainedRows {
    table: TableId,
    level0: Arc<Level0>,
    ids: Vec<u64>,
}

impl DrainedRows {
    /// Those of a table.
    pub(super) fn of(table: &TableCore) -> DrainedRows {
        let level0 = Arc::clone(&table.view().level0);
        let ids = level0.rows.as_ref().map_or_else(Vec::new, |rows| rows.drained());
        DrainedRows { table: table.id(), level0, ids }
    }

    /// What removes them.
    pub(super) fn ops(&self) -> impl Iterator<Item = Op> {
        self.ids.iter().map(|id| Op::RemoveRow { table: self.table, id: *id })
    }

    /// The edit that removes them is durable.
    pub(super) fn remove(&self, ctx: &JobContext) {
        if let Some(rows) = self.level0.rows.as_ref().filter(|_| !self.ids.is_empty()) {
            ctx.metrics.row_tables_removed.add(self.ids.len() as u64);
            rows.remove(&self.ids);
        }
    }
}
