//! Walks over all of level 0, a part at a time.
//!
//! One counts the live records of a persistent index: what an opening found in it is counted into
//! its zones, and what was drained before a power cut and not taken out yet is taken out. Reads and
//! writes go on meanwhile; level 0 and the zones stay as they are until all is counted, because
//! only then it is known which zones are dead.
//!
//! The other one removes what level 0 keeps for readers that are gone. A merge looks at the keys
//! that it brings, and leaves what a reader needs. Levels have compactions for it.

use std::sync::Arc;

use super::context::{JobContext, Outcome};
use super::ops::{kept_for, prune_later};
use super::table_index::Rest;
use crate::base::error::Result;
use crate::base::record::{LSN_MAX, Lsn};
use crate::mvcc::{is_worth, pin};
use crate::os::sync::locks::Mutex;
use crate::table::TableCore;

/// The job.
#[derive(Debug, Default)]
pub(crate) struct CountLive {
    left: Mutex<Left>,
}

/// What is left to be counted.
#[derive(Debug, Default)]
struct Left {
    /// The last one is under way.
    tables: Vec<Arc<TableCore>>,
    /// The first key of it that is left.
    from: Vec<u8>,
    /// The smallest sequence number that was found in it.
    oldest: Option<Lsn>,
}

impl CountLive {
    /// Goes on with the persistent index that an opening found, where there is one: trees of tables
    /// that are no more are felled, those of the others are to be counted. `last` is the last LSN.
    pub(crate) fn begin(&self, last: Lsn, ctx: &JobContext) -> Result<()> {
        let Some(forest) = &ctx.forest else { return Ok(()) };
        for tree in forest.take_rest() {
            forest.remove(&tree)?;
        }
        let tables = ctx.tables.all();
        for table in tables.iter().filter(|table| table.view().frozen.is_empty()) {
            table.set_merged(table.merged().max(last));
        }
        counted(ctx, tables.is_empty());
        self.left.lock().tables = tables;
        Ok(())
    }

    /// Whether something is left to be counted.
    pub(crate) fn goes_on(&self) -> bool {
        !self.left.lock().tables.is_empty()
    }

    /// Counts a part; whether there was something left.
    pub(crate) fn run(&self, ctx: &JobContext) -> Result<Outcome> {
        let mut left = self.left.lock();
        let Some(table) = left.tables.last().cloned() else { return Ok(Outcome::NOTHING) };
        let zones = &ctx.shared.zones;
        let mut change = table.change();
        let view = table.view();
        let mut counts = |at| zones.add_live(zones.zone_of(at), 1);
        let stock =
            view.level0.in_zones.count_live(&left.from, &view.version.drained, &mut counts)?;
        debug_assert!(!zones.is_counted(), "zones are not counted while some table is not");
        left.oldest = left.oldest.into_iter().chain([stock.oldest]).min();
        match stock.next {
            Some(next) => {
                debug_assert!(next > left.from, "a count goes up");
                left.from = next;
            }
            None => {
                // Whatever is older has moved.
                let tombstones = view.level0.tombstones.load();
                let ranges = tombstones.iter().flat_map(|set| set.iter().map(|t| t.seq));
                // What was in memory alone is in a memtable again.
                let in_memtables = view.oldest_in_memtables();
                let oldest = left.oldest.take().into_iter().chain(ranges).chain(in_memtables).min();
                let oldest = oldest.filter(|oldest| *oldest < LSN_MAX);
                change.round.low = oldest.map_or(0, |oldest| oldest.saturating_sub(1));
                left.tables.pop();
                left.from.clear();
                counted(ctx, left.tables.is_empty());
            }
        }
        Ok(Outcome::DONE)
    }

    /// Counts what is left: before a whole level 0 is dropped.
    ///
    /// # Errors
    ///
    /// As [`CountLive::run`]; `Closed` once a closing waits for the part under way.
    pub(crate) fn finish(&self, ctx: &JobContext) -> Result<()> {
        while self.run(ctx)?.did {
            ctx.shared.check_open()?;
        }
        Ok(())
    }
}

/// Notes whether all is counted. All that the index leads to was looked at then.
fn counted(ctx: &JobContext, is_all: bool) {
    if let Some(forest) = ctx.forest.as_ref().filter(|_| is_all) {
        forest.records().trust();
    }
    ctx.shared.zones.set_counted(is_all);
}

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
