//! What is held in memory of a store's extents, by whom, and how much it may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::memory::{Clock, Gauge};

/// Where extents are cut, at the next key, unless a memory limit asks for smaller ones.
pub(crate) const EXTENT_BYTES: usize = 2 * 1024 * 1024;

/// What is held of extents.
#[derive(Debug)]
pub(crate) struct Held {
    /// Their descriptions, with the lists of value extents.
    pub(crate) descriptions: Arc<Gauge>,
    /// Filters, indexes and range tombstones, as long as anybody has them.
    pub(crate) parts: Arc<Gauge>,
    /// Says which of these stay for those who come again.
    pub(crate) clock: Clock,
    /// What is read ahead for users until they come to it. All of it together is bounded, whoever
    /// reads: beyond the bound nothing is read ahead.
    pub(crate) ahead: Arc<Gauge>,
    /// Chunks of ranges.
    pub(crate) iterators: Arc<Gauge>,
    /// Beyond so many bytes of them the next ones are shorter.
    most_iterators: AtomicU64,
    /// What jobs have read, and what they are about to write.
    pub(crate) jobs: Arc<Gauge>,
    /// The most that a job reads ahead on one side of a merge.
    job_ahead: AtomicU64,
    /// Where jobs cut extents, as far as they may cut them where they like.
    extent_bytes: AtomicUsize,
}

impl Default for Held {
    fn default() -> Held {
        Held {
            descriptions: Arc::default(),
            parts: Arc::default(),
            clock: Clock::default(),
            ahead: Arc::default(),
            iterators: Arc::default(),
            most_iterators: AtomicU64::new(u64::MAX),
            jobs: Arc::default(),
            job_ahead: AtomicU64::new(u64::MAX),
            extent_bytes: AtomicUsize::new(EXTENT_BYTES),
        }
    }
}

impl Held {
    /// Whether chunks of ranges should be short.
    pub(crate) fn has_many_rows(&self) -> bool {
        self.iterators.bytes() >= self.most_iterators.load(Ordering::Relaxed)
    }

    /// Has chunks of ranges be short from so many bytes of them on.
    pub(crate) fn set_most_iterators(&self, bytes: u64) {
        self.most_iterators.store(bytes, Ordering::Relaxed);
    }

    /// The most that a job reads ahead on one side of a merge, of all levels there.
    pub(crate) fn job_ahead(&self) -> u64 {
        self.job_ahead.load(Ordering::Relaxed)
    }

    /// Where jobs cut extents.
    pub(crate) fn extent_bytes(&self) -> usize {
        self.extent_bytes.load(Ordering::Relaxed)
    }

    /// Has jobs read ahead at most `ahead` bytes on one side of a merge, or a block a level where
    /// that is more, and cut extents at `extent_bytes`, or what they are usually cut at.
    pub(crate) fn set_job(&self, extent_bytes: u64, ahead: u64) {
        let extent_bytes = usize::try_from(extent_bytes).unwrap_or(usize::MAX);
        self.extent_bytes.store(extent_bytes.min(EXTENT_BYTES), Ordering::Relaxed);
        self.job_ahead.store(ahead, Ordering::Relaxed);
    }
}
