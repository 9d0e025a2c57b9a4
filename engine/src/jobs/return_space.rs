//! Gives free space of extent files back to the file system, all of it once no job works.

use super::context::{JobContext, Outcome};
use crate::error::Result;

/// Gives it back; at rest from the middle of files too. What the file system refuses to take stays
/// with the files: nothing is lost by it, and the next idle time tries again.
pub(crate) fn step(ctx: &JobContext) -> Result<Outcome> {
    let (store, all) = (ctx.set.store(), ctx.is_idle() && ctx.claims.is_empty());
    let given = if all { store.give_back_all() } else { store.give_back() };
    given.map(|bytes| Outcome::did(bytes > 0)).or_else(|_| {
        ctx.metrics.failures.add(1);
        Ok(Outcome::NOTHING)
    })
}
