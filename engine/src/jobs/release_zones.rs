//! Releases zones in which nothing lives: when it is worth the syncs that it takes, and when no
//! reader and no power cut needs them any more. Zones on their way wait in a **pending release**
//! for readers to leave.

use std::sync::Arc;

use super::context::{Batch, JobContext, Outcome};
use super::invariants::zones_are_dead;
use super::ops::are_worth_it;
use super::table_index::Has;
use crate::error::Result;
use crate::options::Failpoint;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;

/// Dead zones that readers may still look into.
#[derive(Debug)]
struct Pending {
    zones: Vec<u32>,
    /// Set once no reader from before is left.
    readers_left: Arc<AtomicBool>,
}

/// The job.
#[derive(Debug, Default)]
pub(crate) struct ReleaseZones {
    pending: Mutex<Option<Pending>>,
}

impl ReleaseZones {
    /// Whether zones wait for readers.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.lock().is_some()
    }

    /// Releases the zones that wait for readers no more, or else has dead zones wait for them.
    pub(crate) fn step(&self, batch: Batch, ctx: &JobContext) -> Result<Outcome> {
        ctx.transactions.prepared.release(&ctx.shared);
        let mut pending = self.pending.lock();
        if pending.is_none() {
            let zones = releasable(ctx, batch)?;
            if zones.is_empty() {
                return Ok(Outcome::NOTHING);
            }
            let readers_left = Arc::new(AtomicBool::new(false));
            *pending = Some(Pending { zones, readers_left: Arc::clone(&readers_left) });
            drop(pending);
            ctx.shared.queue.defer(move || readers_left.store(true, Ordering::Release));
            return Ok(Outcome::DONE);
        }
        let have_left = |waits: &mut Pending| waits.readers_left.load(Ordering::Acquire);
        let Some(Pending { zones, .. }) = pending.take_if(have_left) else {
            return Ok(Outcome::NOTHING);
        };
        drop(pending);
        debug_assert!(zones_are_dead(ctx, &zones), "a zone is released when no record counts");
        let released = ctx.shared.committer.release(&zones)?;
        ctx.transactions.prepared.released(&ctx.shared.zones, &zones);
        ctx.metrics.zones_released.add(released as u64);
        ctx.shared.pace.report(None);
        let oldest = ctx.shared.zones.oldest();
        // Their maps no longer have to say what moved out of those zones.
        for table in ctx.tables.index().ids_having(Has::Drained) {
            ctx.set.forget_drained_below(*table, oldest);
        }
        Ok(Outcome::did(released > 0))
    }
}

/// Dead zones that a power cut does without, if they are worth it: recovery walks upward from the
/// floor on the media, so what is above it must stay, dead or not.
fn releasable(ctx: &JobContext, batch: Batch) -> Result<Vec<u32>> {
    let (zones, committer) = (&ctx.shared.zones, &ctx.shared.committer);
    if ctx.options.has(Failpoint::KeepDeadZones) {
        return Ok(Vec::new());
    }
    let durable = zones.dead(committer.durable());
    if !are_worth_it(ctx, &durable, batch) {
        return Ok(Vec::new());
    }
    if ctx.options.has(Failpoint::FreeBeforeCopy) {
        return Ok(committer.releasable(durable));
    }
    // What dies is old, and jobs have moved the floor beyond it, as a rule.
    let there = zones.dead(committer.floor_there());
    let has_more = there.len() < durable.len();
    let there = committer.releasable(there);
    if has_more && there.is_empty() {
        return Ok(committer.releasable(zones.dead(ctx.sync_floor()?)));
    }
    Ok(there)
}
