//! Marks the time: the marks say when records were written, by which they expire.
//!
//! While a table has a time to live, and there are commits, a mark a second goes into the journal.
//! It names an LSN that is durable: what a power cut can take is given to other records after it,
//! which are younger. No reader goes by a mark before its edit is durable, so what has expired has
//! expired after any cut as well.

use std::time::Duration;

use super::context::{JobContext, Outcome};
use super::ops::unless_full;
use crate::error::Result;
use crate::levels::{Edit, Op};
use crate::mvcc::{TimeMark, micros};
use crate::record::Lsn;

/// Marks come no closer to each other.
const APART: Duration = Duration::from_secs(1);

/// The job.
#[derive(Debug, Default)]
pub(in crate::db) struct MarkTime;

impl MarkTime {
    /// Whether commits have come further since the last mark, and that is old enough.
    pub(in crate::db) fn plan(&self, ctx: &JobContext) -> Option<Due> {
        due(ctx, APART)
    }

    /// Writes the mark. Where the disk is full it is left for later: jobs that make space are more
    /// urgent.
    ///
    /// # Errors
    ///
    /// Those of the edit.
    pub(in crate::db) fn run(&self, due: Due, ctx: &JobContext) -> Result<Outcome> {
        unless_full(mark(ctx, due)).map(Outcome::did)
    }
}

/// A mark is due: the last one's LSN.
#[derive(Clone, Copy, Debug)]
pub(in crate::db) struct Due {
    last: Lsn,
}

fn due(ctx: &JobContext, apart: Duration) -> Option<Due> {
    let last = ctx.set.timeline().last();
    let now = ctx.shared.clock.now();
    if last.is_some_and(|last| now - last.time < micros(apart)) {
        return None;
    }
    let due = Due { last: last.map_or(0, |last| last.lsn) };
    let is_new = ctx.shared.committer.visible() > due.last;
    (is_new && ctx.tables.index().has_ttl()).then_some(due)
}

fn mark(ctx: &JobContext, Due { last }: Due) -> Result<bool> {
    let lsn = ctx.sync_floor()?.min(ctx.shared.committer.visible());
    if lsn <= last {
        return Ok(false);
    }
    // Later than all of that was committed.
    let mark = TimeMark { lsn, time: ctx.shared.clock.now() };
    ctx.apply(Edit { ops: vec![Op::TimeMark(mark)] })?;
    ctx.set.thin_timeline(&ctx.shared.snapshots.horizon());
    Ok(true)
}

/// The last mark before the database is closed, or what was written last would count as written
/// when it is opened again.
///
/// # Errors
///
/// Those of the edit.
pub(in crate::db) fn mark_close(ctx: &JobContext) -> Result<()> {
    due(ctx, Duration::ZERO).map_or(Ok(false), |due| unless_full(mark(ctx, due))).map(drop)
}
