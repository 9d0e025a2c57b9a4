//! Removes from level 0 what it keeps for readers that are gone. A merge looks at the keys that it
//! brings, and leaves what a reader needs. What is left like that goes by a walk over all of level
//! 0, a part at a time. Levels have compactions for it.

use std::sync::Arc;

use super::context::{JobContext, Outcome};
use super::ops::{kept_for, prune_later};
use super::table_index::Rest;
use crate::error::Result;
use crate::mvcc::{is_worth, pin};
use crate::os::sync::locks::Mutex;
use crate::table::TableCore;

/// A walk under way: the table, and the first key that is left.
type Walk = (Arc<TableCore>, Vec<u8>);

/// The job.
#[derive(Debug, Default)]
pub(crate) struct PruneVersions {
    walk: Mutex<Option<Walk>>,
}

impl PruneVersions {
    /// Whether a walk is under way.
    pub(crate) fn goes_on(&self) -> bool {
        self.walk.lock().is_some()
    }

    /// Goes on with the walk that is under way, or begins one through a level 0 that keeps enough
    /// for no reader.
    pub(crate) fn step(&self, ctx: &JobContext) -> Result<Outcome> {
        let under_way = self.walk.lock().take();
        let walk = under_way.or_else(|| Some((next_table(ctx)?, Vec::new())));
        let Some((table, from)) = walk else { return Ok(Outcome::NOTHING) };
        let mut change = table.change();
        if table.check().is_err() {
            return Ok(Outcome::DONE);
        }
        let floor = ctx.sync_floor()?;
        let horizon = ctx.shared.snapshots.horizon();
        let level0 = Arc::clone(&table.view().level0);
        let (superseded, rest) = {
            let _guard = pin();
            level0
                .in_zones
                .superseded(&from, &|seq, newer| kept_for(&horizon, floor, (seq, newer)))?
        };
        debug_assert!(rest.as_ref().is_none_or(|rest| *rest > from), "a walk goes up");
        if !superseded.is_empty() {
            change.apply(|view| view.pruned = view.pruned.max(horizon.newest()));
        }
        drop(change);
        let pruned = prune_later(ctx, &table, level0, superseded);
        debug_assert!(!self.goes_on(), "one walk is under way at a time");
        *self.walk.lock() = rest.map(|rest| (table, rest));
        Ok(Outcome { pruned, ..Outcome::DONE })
    }
}

/// A table whose level 0 keeps enough that no reader needs.
fn next_table(ctx: &JobContext) -> Option<Arc<TableCore>> {
    // Before the horizon: what is released between the two is looked at again.
    let releases = ctx.shared.snapshots.releases();
    let (horizon, rest) = (ctx.shared.snapshots.horizon(), ctx.rest());
    ctx.tables.index().prunable((rest, releases), |view| {
        let (level0, rests) = (&view.level0, rest >= Rest::Resting);
        is_worth(level0.in_zones.obsolete(horizon.readers()), level0.size().records, rests)
    })
}
