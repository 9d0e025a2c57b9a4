//! What was asked of an object store.

use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::tier::object::store::FailureKind;

/// A number that only rises.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of a client.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) gets: Count,
    pub(super) puts: Count,
    pub(super) heads: Count,
    pub(super) deletes: Count,
    pub(super) lists: Count,
    pub(super) retries: Count,
    pub(super) hedges: Count,
    pub(super) sent_bytes: Count,
    pub(super) received_bytes: Count,
    failures: [Count; FailureKind::ALL.len()],
}

impl Counts {
    pub(super) fn failed(&self, kind: FailureKind) {
        self.failures[kind as usize].add(1);
    }

    pub(super) fn take(&self) -> RequestCounts {
        let failures = FailureKind::ALL.map(|kind| (kind, self.failures[kind as usize].get()));
        RequestCounts {
            gets: self.gets.get(),
            puts: self.puts.get(),
            heads: self.heads.get(),
            deletes: self.deletes.get(),
            lists: self.lists.get(),
            retries: self.retries.get(),
            hedges: self.hedges.get(),
            sent_bytes: self.sent_bytes.get(),
            received_bytes: self.received_bytes.get(),
            failures,
        }
    }
}

/// Requests to an object store since the opening. Attempts and second requests count too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestCounts {
    /// Reads of objects, whole or in part.
    pub(crate) gets: u64,
    /// Writes of objects.
    pub(crate) puts: u64,
    /// Looks at objects.
    pub(crate) heads: u64,
    /// Deletions, each of up to 1000 objects.
    pub(crate) deletes: u64,
    /// Lists, each of up to 1000 objects.
    pub(crate) lists: u64,
    /// Requests that were made again after a failure.
    pub(crate) retries: u64,
    /// Reads that were made a second time because the first one took long.
    pub(crate) hedges: u64,
    /// Bytes of objects that were sent.
    pub(crate) sent_bytes: u64,
    /// Bytes of objects that came.
    pub(crate) received_bytes: u64,
    /// Failures by kind.
    pub(crate) failures: [(FailureKind, u64); FailureKind::ALL.len()],
}
