//! The transactions of one open database, for its reports and its limits.
//!
//! Thread safety: any thread; the mutex is held for a few instructions, never while a
//! transaction's own state is.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::options::Isolation;
use super::prepared::PreparedSet;
use super::state::Inner;
use crate::locks::OwnerId;
use crate::os::sync::atomic::Ordering;
use crate::os::sync::locks::Mutex;
use crate::os::time;

/// A transaction that has not ended, as [`Database::transactions`] lists it.
///
/// [`Database::transactions`]: crate::Database::transactions
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransactionInfo {
    /// Its number.
    pub id: u64,
    /// What it may see of others.
    pub isolation: Isolation,
    /// Whether it locks nothing before it commits.
    pub optimistic: bool,
    /// How long ago it began.
    pub age: Duration,
    /// The number of the last commit that it sees, if it reads a snapshot.
    pub snapshot: Option<u64>,
    /// How many locks it held after its last call.
    pub locks: usize,
    /// How many bytes of memory these took, with what an optimistic one has to find unchanged.
    pub lock_memory: usize,
    /// How many keys it had written after its last call; those on disk count once for each time
    /// that they went there.
    pub writes: usize,
    /// How many bytes these took in memory, without those on disk and what finds them.
    pub memory: usize,
    /// How many bytes were spilled to disk.
    pub spilled: u64,
    /// The lock that it is waiting for.
    pub waits_for: Option<String>,
}

/// The transactions that have not ended.
#[derive(Default)]
pub(crate) struct Registry {
    running: Mutex<BTreeMap<OwnerId, Weak<Inner>>>,
    /// Those that wait for their verdict.
    pub(crate) prepared: PreparedSet,
}

impl Registry {
    pub(super) fn add(&self, inner: &Arc<Inner>) {
        let before = self.running.lock().insert(inner.id, Arc::downgrade(inner));
        debug_assert!(before.is_none(), "no two transactions have one number");
    }

    pub(super) fn remove(&self, id: OwnerId) {
        let removed = self.running.lock().remove(&id);
        debug_assert!(removed.is_some(), "a transaction is listed until its handle is dropped");
    }

    /// All of them, the oldest first.
    pub(crate) fn list(&self) -> Vec<TransactionInfo> {
        let all: Vec<_> = self.running.lock().values().filter_map(Weak::upgrade).collect();
        let info = |inner: &Arc<Inner>| TransactionInfo {
            id: inner.id,
            isolation: inner.options.isolation,
            optimistic: inner.options.optimistic,
            age: time::since(inner.began),
            snapshot: inner.snapshot_lsn,
            locks: inner.locks.load(Ordering::Relaxed),
            lock_memory: inner.lock_memory.load(Ordering::Relaxed),
            writes: inner.writes.load(Ordering::Relaxed),
            memory: inner.bytes.load(Ordering::Relaxed),
            spilled: inner.spilled.load(Ordering::Relaxed),
            waits_for: inner.shared.locks.waits_for(inner.id),
        };
        all.iter().map(info).collect()
    }

    /// Ends the waits for locks of one, from outside; whether it is there.
    pub(crate) fn end_wait(&self, id: OwnerId) -> bool {
        let found = self.running.lock().get(&id).and_then(Weak::upgrade);
        found.map(|inner| inner.end_wait()).is_some()
    }

    /// Ends one from outside; whether it was still running.
    pub(crate) fn kill(&self, id: OwnerId) -> bool {
        let found = self.running.lock().get(&id).and_then(Weak::upgrade);
        found.is_some_and(|inner| inner.kill())
    }
}
