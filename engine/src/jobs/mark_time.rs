//! Marks the time: the marks say when records were written, by which they expire.
//!
//! While a table has a time to live, and there are commits, a mark a second goes into the journal.
//! It names an LSN that is durable: what a power cut can take is given to other records after it,
//! which are younger. No reader goes by a mark before its edit is durable, so what has expired has
//! expired after any cut as well.

use std::time::Duration;

use super::context::{JobContext, Outcome};
use super::ops::unless_full;
use super::table_index::Has;
use crate::error::Result;
use crate::levels::{Edit, Op};
use crate::mvcc::{TimeMark, micros};

/// Marks come no closer to each other.
const APART: Duration = Duration::from_secs(1);

/// Writes a mark, where commits have come further since the last one, and that is old enough. On a
/// full disk it is left for later: jobs that make space are more urgent.
pub(crate) fn step(ctx: &JobContext) -> Result<Outcome> {
    unless_full(mark(ctx, APART)).map(Outcome::did)
}

fn mark(ctx: &JobContext, apart: Duration) -> Result<bool> {
    let last = ctx.set.timeline().last();
    let now = ctx.shared.clock.now();
    if last.is_some_and(|last| now - last.time < micros(apart)) {
        return Ok(false);
    }
    let last = last.map_or(0, |last| last.lsn);
    if ctx.shared.committer.visible() <= last || !ctx.tables.index().has(Has::Ttl) {
        return Ok(false);
    }
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
pub(crate) fn mark_close(ctx: &JobContext) -> Result<()> {
    unless_full(mark(ctx, Duration::ZERO)).map(drop)
}
