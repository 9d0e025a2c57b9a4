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

    /// Gives it back.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(in crate::db) fn run(&self, all: bool, ctx: &JobContext) -> Result<Outcome> {
        let store = ctx.set.store();
        let bytes = if all { store.give_back_all()? } else { store.give_back()? };
        Ok(Outcome::did(bytes > 0))
    }
}
