//! Writes the floor when nothing else is left to do: so what an opening has to read is little.

use std::time::{Duration, Instant};

use super::context::{JobContext, Outcome};
use super::table_index::Rest;
use crate::error::Result;
use crate::os::sync::locks::Mutex;
use crate::os::time;

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

    /// Looks whether the directory is still this process's, and closes a stream that no table has,
    /// or writes the floor, if there is time.
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
        }
        if has_time && super::ops::close_reopened(ctx, true)? {
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
