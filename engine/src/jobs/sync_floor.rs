//! What is written for the next opening.
//!
//! The floor is written when nothing else is left to do: so what an opening has to read is little.
//!
//! Time marks say when records were written, by which they expire. While a table has a time to
//! live, and there are commits, a mark a second goes into the journal. It names an LSN that is
//! durable: what a power cut can take is given to other records after it, which are younger. No
//! reader goes by a mark before its edit is durable, so what has expired has expired after any cut
//! as well.

use std::time::{Duration, Instant};

use super::context::{JobContext, Outcome};
use super::ops::{close_reopened, unless_full};
use super::table_index::{Has, Rest};
use crate::base::error::Result;
use crate::mvcc::{TimeMark, micros};
use crate::os::sync::locks::Mutex;
use crate::os::time;
use crate::version::{Edit, Op};

/// While writes go on the floor is written so often at most: each time costs syncs, and there is
/// something new each time.
const APART: Duration = Duration::from_millis(200);

/// The job.
#[derive(Debug, Default)]
pub(crate) struct SyncFloor {
    last: Mutex<Option<Instant>>,
}

impl SyncFloor {
    /// Nothing else is left to do; how far the database was at rest before. It is so from now on.
    pub(crate) fn plan(&self, ctx: &JobContext) -> Rest {
        let rest = ctx.rest();
        if rest == Rest::Busy {
            ctx.idle.begin(ctx.shared.committer.visible());
        }
        rest
    }

    /// Looks whether the directory is still this process's, and gives back what readers beside it
    /// kept. Then closes a stream that no table has, or writes the floor, if there is time.
    ///
    /// # Errors
    ///
    /// Those of a commit; an I/O error once the directory was removed, or its lock file replaced.
    pub(crate) fn run(&self, rest: Rest, ctx: &JobContext) -> Result<Outcome> {
        let rested = rest >= Rest::Resting;
        let is_due = || self.last.lock().is_none_or(|at| time::since(at) >= APART);
        let has_time = rested || ctx.options.stepped || is_due();
        if has_time {
            // Else commits would go on in a directory that was removed, until a job makes a file.
            ctx.set.check_directory()?;
            ctx.set.give_back_kept();
        }
        if has_time && close_reopened(ctx, true)? {
            return Ok(Outcome::DONE);
        }
        let settles = has_time && !ctx.shared.committer.is_floor_current();
        if settles {
            ctx.sync_floor()?;
            *self.last.lock() = Some(time::now());
        }
        // There may be what waited for that.
        Ok(Outcome::did(settles || ctx.options.stepped && !rested))
    }
}

/// Marks come no closer to each other.
const MARKS_APART: Duration = Duration::from_secs(1);

/// Writes a mark, where commits have come further since the last one, and that is old enough. On a
/// full disk it is left for later: jobs that make space are more urgent.
pub(crate) fn mark_time(ctx: &JobContext) -> Result<Outcome> {
    unless_full(mark(ctx, MARKS_APART)).map(Outcome::did)
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
    ctx.shared.apply(Edit { ops: vec![Op::TimeMark(mark)] })?;
    ctx.set.thin_timeline(&ctx.shared.snapshots.horizon());
    Ok(true)
}

/// The last mark before the database is closed, or what was written last would count as written
/// when it is opened again.
pub(crate) fn mark_close(ctx: &JobContext) -> Result<()> {
    unless_full(mark(ctx, Duration::ZERO)).map(drop)
}
