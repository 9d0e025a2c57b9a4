//! What all parts of an executor share.

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::locks::RwLock;
use crate::table::{Shared, TableSlot};

/// What the handles of an executor and its threads share. It does not keep the database open.
pub(super) struct ExecutorState {
    pub(super) shared: Arc<Shared>,
    /// The tables that were named to the executor. The list only grows.
    pub(super) slots: RwLock<Vec<Arc<TableSlot>>>,
    pub(super) counts: Box<[ShardCounts]>,
    pub(super) is_closed: AtomicBool,
}

impl ExecutorState {
    /// Whether work may begin.
    pub(super) fn check_open(&self) -> Result<()> {
        self.shared.check_open()?;
        if self.is_closed.load(Ordering::Acquire) { Err(ended()) } else { Ok(()) }
    }
}

/// The error of work that did not begin.
pub(super) fn ended() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the per-core executor or its database was closed before this work began; make a new one",
    )
}

// What each shard has done.
//
// Thread safety: a shard's thread alone writes its counts, each on a line of its own. Any thread
// reads them.

/// What one shard of a [`PerCore`](crate::PerCore) has done since the executor was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ShardStats {
    /// The processor that its thread runs on alone; `None` where the system does not allow that.
    pub core: Option<usize>,
    /// Batches of look-ups.
    pub batches: u64,
    /// Look-ups in batches, and in [`ShardScope::read`](crate::ShardScope::read).
    pub gets: u64,
    /// Closures that ended, those that panicked among them.
    pub closures: u64,
    /// Closures that panicked.
    pub panics: u64,
}

/// A kind of count.
#[derive(Clone, Copy, Debug)]
pub(super) enum ShardCount {
    Batches,
    Gets,
    Closures,
    Panics,
}

/// The counts of one shard, on lines that no other shard writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ShardCounts {
    counts: [AtomicU64; 4],
    /// The processor and one; 0 without one.
    core: AtomicU64,
}

impl ShardCounts {
    /// Counts so many more. The shard's thread alone calls it.
    #[inline]
    pub(super) fn add(&self, what: ShardCount, more: u64) {
        let count = &self.counts[what as usize];
        count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// The shard's thread runs on `core` alone.
    pub(super) fn pinned_to(&self, core: usize) {
        self.core.store(core as u64 + 1, Ordering::Relaxed);
    }

    /// What was counted.
    pub(super) fn stats(&self) -> ShardStats {
        let of = |what: ShardCount| self.counts[what as usize].load(Ordering::Relaxed);
        let core = self.core.load(Ordering::Relaxed).checked_sub(1);
        ShardStats {
            core: core.and_then(|core| usize::try_from(core).ok()),
            batches: of(ShardCount::Batches),
            gets: of(ShardCount::Gets),
            closures: of(ShardCount::Closures),
            panics: of(ShardCount::Panics),
        }
    }
}
