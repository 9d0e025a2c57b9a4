//! The release of zones in which nothing lives: when it is worth the syncs that it takes, and when
//! no reader and no power cut needs them any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::inner::Engine;
use crate::error::Result;
use crate::mvcc::defer;
use crate::options::Planted;

/// How many zones a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batch {
    /// Many, so that they share its syncs.
    Large,
    /// As many as there are.
    Any,
}

impl Engine {
    /// Whether zones are worth a job, which takes syncs. Many are a quarter of what is free, or a
    /// 32nd of the region.
    pub(super) fn are_worth_it(&self, zones: &[u32], batch: Batch) -> bool {
        let pool = &self.shared.zones;
        let are_many = || {
            let units = pool.units_in(zones.iter().copied());
            4 * units >= pool.free() || 32 * units >= pool.geometry().units
        };
        !zones.is_empty() && (batch == Batch::Any || are_many())
    }

    /// Releases zones in which nothing lives, once every reader that may look into them is gone.
    pub(super) fn release_dead(&self, batch: Batch) -> Result<bool> {
        self.transactions.prepared.let_go(&self.shared);
        let mut cooling = self.background.cooling.lock();
        if let Some((zones, cool)) = cooling.take() {
            if !cool.load(Ordering::Acquire) {
                *cooling = Some((zones, cool));
                return Ok(false);
            }
            let released = self.shared.committer.release(&zones)?;
            self.transactions.prepared.released(&self.shared.zones, &zones);
            self.background.metrics.zones_released.add(released as u64);
            self.shared.pace.report(None);
            let oldest = self.shared.zones.oldest();
            for table in self.tables() {
                self.set.forget_drained_below(table.id(), oldest);
            }
            return Ok(released > 0);
        }
        let dead = self.releasable(batch)?;
        if dead.is_empty() {
            return Ok(false);
        }
        let cool = Arc::new(AtomicBool::new(false));
        *cooling = Some((dead, Arc::clone(&cool)));
        defer(move || cool.store(true, Ordering::Release));
        Ok(true)
    }

    /// Dead zones that a power cut does without, if they are worth it: recovery walks upward from
    /// the floor on the media, so what is above it must stay, dead or not.
    fn releasable(&self, batch: Batch) -> Result<Vec<u32>> {
        let (zones, committer) = (&self.shared.zones, &self.shared.committer);
        let durable = zones.dead(committer.durable());
        if !self.are_worth_it(&durable, batch) {
            return Ok(Vec::new());
        }
        if self.options.has(Planted::FreeBeforeCopy) {
            return Ok(committer.releasable(durable));
        }
        // What dies is old, and jobs have moved the floor beyond it, as a rule.
        let there = zones.dead(committer.floor_there());
        let has_more = there.len() < durable.len();
        let there = committer.releasable(there);
        if has_more && there.is_empty() {
            return Ok(committer.releasable(zones.dead(self.settle()?)));
        }
        Ok(there)
    }
}
