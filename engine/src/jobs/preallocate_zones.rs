//! Links the next zone to each stream while the one before it fills, so that no writer has to.

use super::context::{JobContext, Outcome};
use crate::error::{ErrorKind, Result};

/// Links a standby zone to a stream that has none. Where the region is full, drains make space.
pub(crate) fn step(ctx: &JobContext) -> Result<Outcome> {
    let committer = &ctx.shared.committer;
    let Some(stream) = committer.lacks_standby() else { return Ok(Outcome::NOTHING) };
    match committer.make_standby(stream, 0, false) {
        Ok(()) => Ok(Outcome::DONE),
        Err(e) if e.kind() == ErrorKind::Full => Ok(Outcome::NOTHING),
        Err(e) => Err(e),
    }
}
