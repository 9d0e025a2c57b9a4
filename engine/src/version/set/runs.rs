//! Runs whose verdict is open, and those that were lost.

use super::VersionSet;
use super::salvage::run_without_extents;
use crate::base::error::Damage;
use crate::base::record::{Lsn, TableId};
use crate::version::Level;

impl VersionSet {
    /// Runs whose commit the journal does not know of, with their tables.
    pub(crate) fn pending_runs(&self) -> Vec<(u64, TableId)> {
        let state = self.current.load();
        state.pending.iter().map(|(&run, pending)| (run, pending.table)).collect()
    }

    /// The table and the extents of one of them.
    pub(crate) fn pending_run(&self, run: u64) -> Option<(TableId, Level)> {
        let state = self.current.load();
        state.pending.get(&run).map(|pending| (pending.table, pending.extents.clone()))
    }

    /// Why a run that was committed cannot be shown: no edit has made it. `None` if one may have.
    /// Each edit says the next number. It also says up to where all was durable, so an edit that
    /// ended the run knows of its commit.
    pub(crate) fn lost_run(&self, run: u64, lsn: Lsn) -> Option<Damage> {
        let next = self.current.load().counters.next_extent;
        (run >= next || lsn > self.durable)
            .then(|| run_without_extents((run, lsn), "none", &self.directory))
    }
}
