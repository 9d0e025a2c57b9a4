//! Runs of large commits and prepares that the shared store may lack. They are kept for the
//! shipper, which reads their rows after the commit: levels may have taken them over by then.
//!
//! Thread safety: any thread may call any method; the lock is held for a few instructions.
//!
//! Invariant: a run is here from before its commit has its ticket until the store has the commit,
//! unless the commit is withdrawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::levels::Level;
use crate::os::sync::locks::Mutex;
use crate::record::{Lsn, TableId};
use crate::view::TicketLsn;

/// What a commit has written to a table, in extents.
#[derive(Clone, Debug)]
pub(crate) struct UnshippedRun {
    pub(crate) table: TableId,
    pub(crate) rows: Level,
    /// Whether a bulk load has laid it out.
    pub(crate) loaded: bool,
    /// That of the commit or prepare that ships it.
    pub(super) lsn: Arc<TicketLsn>,
}

/// Those of one database, by the runs' numbers.
#[derive(Debug, Default)]
pub(crate) struct UnshippedRuns(Mutex<BTreeMap<u64, UnshippedRun>>);

impl UnshippedRuns {
    pub(super) fn add(&self, id: u64, run: UnshippedRun) {
        debug_assert!(run.lsn.get().is_none(), "runs are here before their commit has its ticket");
        self.0.lock().insert(id, run);
    }

    /// A commit was withdrawn.
    pub(super) fn forget(&self, ids: impl Iterator<Item = u64>) {
        let mut runs = self.0.lock();
        ids.for_each(|id| drop(runs.remove(&id)));
    }

    /// The runs with these numbers; `None` if one of them is not here.
    pub(crate) fn get(&self, ids: &[u64]) -> Option<Vec<UnshippedRun>> {
        let runs = self.0.lock();
        ids.iter().map(|id| runs.get(id).cloned()).collect()
    }

    /// The store has all commits below `lsn`.
    pub(crate) fn forget_below(&self, lsn: Lsn) {
        // What is dropped gives space back, outside of the lock.
        let mut gone = Vec::new();
        let mut runs = self.0.lock();
        runs.retain(|_, run| {
            let is_kept = run.lsn.get().is_none_or(|own| own >= lsn);
            if !is_kept {
                gone.push(run.clone());
            }
            is_kept
        });
        drop(runs);
    }
}
