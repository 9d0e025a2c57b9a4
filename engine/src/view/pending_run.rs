//! Pending runs: readers find them before the journal knows that they are committed.
//!
//! A run is in its table's view before its commit has a ticket. No reader sees it then. The ticket
//! gives the run its LSN. From then on every read at or above that LSN sees it.
//!
//! Thread safety: the LSN is stored once, in the turnstile, before the commit is visible. A thread
//! that reads at or above it has loaded the visible watermark after that.

use std::sync::Arc;

use crate::levels::{Level, ReadRun};
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::record::{LSN_MAX, Lsn};

/// The LSN of a commit that may not have its ticket yet.
#[derive(Debug)]
pub(crate) struct TicketLsn(AtomicU64);

impl TicketLsn {
    /// Of a commit without a ticket.
    pub(crate) fn unknown() -> Arc<TicketLsn> {
        Arc::new(TicketLsn(AtomicU64::new(LSN_MAX)))
    }

    /// It has its ticket.
    pub(crate) fn set(&self, lsn: Lsn) {
        debug_assert_eq!(self.get(), None, "a commit takes one ticket");
        self.0.store(lsn, Ordering::Release);
    }

    /// The LSN, once there is one.
    pub(crate) fn get(&self) -> Option<Lsn> {
        Some(self.0.load(Ordering::Acquire)).filter(|&lsn| lsn != LSN_MAX)
    }
}

/// A run that the journal has as pending.
#[derive(Clone, Debug)]
pub(crate) struct PendingRun {
    pub(crate) id: u64,
    pub(crate) extents: Level,
    /// The same for all runs of a commit.
    pub(crate) lsn: Arc<TicketLsn>,
}

impl PendingRun {
    /// The run, to read, once it has its LSN.
    pub(super) fn as_read(&self) -> Option<ReadRun<'_>> {
        Some(ReadRun { lsn: self.lsn.get()?, extents: &self.extents })
    }
}
