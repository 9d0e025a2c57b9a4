//! Links the next zone to each stream while the one before it fills, so that no writer has to.

use super::context::{JobContext, Outcome};
use crate::error::{ErrorKind, Result};

/// The job.
#[derive(Debug, Default)]
pub(in crate::db) struct PreallocateZones;

impl PreallocateZones {
    /// A stream without a standby zone.
    pub(in crate::db) fn plan(&self, ctx: &JobContext) -> Option<u32> {
        ctx.shared.committer.lacks_standby()
    }

    /// Links one to it. Where the region is full, drains make space.
    ///
    /// # Errors
    ///
    /// Those of linking a zone.
    pub(in crate::db) fn run(&self, stream: u32, ctx: &JobContext) -> Result<Outcome> {
        match ctx.shared.committer.make_standby(stream, 0, false) {
            Ok(()) => Ok(Outcome::DONE),
            Err(e) if e.kind() == ErrorKind::Full => Ok(Outcome::NOTHING),
            Err(e) => Err(e),
        }
    }
}
