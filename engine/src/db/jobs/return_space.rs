//! Gives free space of extent files back to the file system, all of it once no job works.

use super::context::{JobContext, Outcome};
use crate::error::Result;

/// The job.
#[derive(Debug, Default)]
pub(in crate::db) struct ReturnSpace;

impl ReturnSpace {
    /// Whether all of it may go, from the middle of files too.
    pub(in crate::db) fn plan(&self, ctx: &JobContext) -> bool {
        ctx.is_idle() && ctx.claims.is_empty()
    }

    /// Gives it back. What the file system refuses to take stays with the files: nothing is lost by
    /// it, and the next idle time tries again.
    pub(in crate::db) fn run(&self, all: bool, ctx: &JobContext) -> Result<Outcome> {
        let store = ctx.set.store();
        let given = if all { store.give_back_all() } else { store.give_back() };
        match given {
            Ok(bytes) => Ok(Outcome::did(bytes > 0)),
            Err(_) => {
                ctx.metrics.failures.add(1);
                Ok(Outcome::NOTHING)
            }
        }
    }
}
