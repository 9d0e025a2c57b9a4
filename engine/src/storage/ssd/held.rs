//! What is held in memory of a store's extents, by which component, and how much it may be.

use std::sync::Arc;

use crate::base::memory::{Clock, Gauge, Holding};
use crate::os::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Where extents are cut, at the next key, unless a memory limit asks for smaller ones.
pub(crate) const EXTENT_BYTES: usize = 2 * 1024 * 1024;

/// What is read ahead for users may always take one byte for so many of the cache,
const AHEAD_OF_CACHE: u64 = 16;

/// with objects more, since a request to a store takes so long,
const AHEAD_OF_CACHE_FOR_OBJECTS: u64 = 4;

/// and under a memory limit up to one for so many of what cache and it have together,
const AHEAD_OF_BOTH: u64 = 4;

/// or with objects more.
const AHEAD_OF_BOTH_FOR_OBJECTS: u64 = 2;

/// What is held of extents.
#[derive(Debug)]
pub(crate) struct Held {
    /// Their descriptions, with the lists of value extents.
    pub(crate) descriptions: Arc<Gauge>,
    /// Filters, indexes and range tombstones, as long as a reader has them.
    pub(crate) parts: Arc<Gauge>,
    /// Says which of these stay for the next readers.
    pub(crate) clock: Clock,
    /// What is read ahead for users until they come to it. One bound holds for all readers
    /// together: beyond it nothing is read ahead.
    pub(crate) ahead: Arc<Gauge>,
    /// Says which of it stays with readers that rest.
    pub(crate) resting: Arc<Clock>,
    /// What a memory limit leaves it.
    ahead_share: AtomicU64,
    /// The most that it would have been since its share was last looked at.
    ahead_wanted: AtomicU64,
    /// Chunks of ranges.
    pub(crate) iterators: Arc<Gauge>,
    /// Beyond so many bytes of them the next ones are shorter.
    most_iterators: AtomicU64,
    /// What jobs have read, and what they are about to write.
    pub(crate) jobs: Arc<Gauge>,
    /// The most that a job reads ahead on one side of a merge.
    job_ahead: AtomicU64,
    /// The same of objects.
    job_ahead_of_objects: AtomicU64,
    /// The most that a job has on its way to an object store or from it.
    job_sends: AtomicU64,
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
            resting: Arc::default(),
            ahead_share: AtomicU64::new(0),
            ahead_wanted: AtomicU64::new(0),
            iterators: Arc::default(),
            most_iterators: AtomicU64::new(u64::MAX),
            jobs: Arc::default(),
            job_ahead: AtomicU64::new(u64::MAX),
            job_ahead_of_objects: AtomicU64::new(u64::MAX),
            job_sends: AtomicU64::new(u64::MAX),
            extent_bytes: AtomicUsize::new(EXTENT_BYTES),
        }
    }
}

impl Held {
    /// Counts `bytes` more that are read ahead for users, of an object or not, if they may, beside
    /// a cache of `cache`.
    pub(crate) fn hold_ahead(
        &self,
        bytes: u64,
        (cache, is_object): (u64, bool),
    ) -> Option<Holding> {
        self.ahead_wanted.fetch_max(self.ahead.bytes() + bytes, Ordering::Relaxed);
        self.ahead.hold_within(bytes, self.most_ahead(cache, is_object))
    }

    /// The most that is read ahead for users, beside a cache of `cache`.
    pub(crate) fn most_ahead(&self, cache: u64, is_object: bool) -> u64 {
        let part = if is_object { AHEAD_OF_CACHE_FOR_OBJECTS } else { AHEAD_OF_CACHE };
        self.ahead_share.load(Ordering::Relaxed).max(cache / part)
    }

    /// The share for reading ahead from now on, of the bytes `left` for it and for the cache. It
    /// is twice of what readers wanted, so that pieces become longer. It shrinks step by step when
    /// no reader asks for it.
    pub(crate) fn share_ahead(&self, left: u64, has_objects: bool) -> u64 {
        let part = if has_objects { AHEAD_OF_BOTH_FOR_OBJECTS } else { AHEAD_OF_BOTH };
        let wanted = self.ahead_wanted.swap(0, Ordering::Relaxed);
        let before = self.ahead_share.load(Ordering::Relaxed);
        let share = (2 * wanted).max(before - before.div_ceil(64)).min(left / part);
        self.ahead_share.store(share, Ordering::Relaxed);
        share.max(self.ahead.bytes())
    }

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

    /// The same of objects.
    pub(crate) fn job_ahead_of_objects(&self) -> u64 {
        self.job_ahead_of_objects.load(Ordering::Relaxed)
    }

    /// What counts the bytes that a job has on its way to an object store or from it, and the most.
    pub(crate) fn job_sends(&self) -> (&Arc<Gauge>, u64) {
        (&self.jobs, self.job_sends.load(Ordering::Relaxed))
    }

    /// Where jobs cut extents.
    pub(crate) fn extent_bytes(&self) -> usize {
        self.extent_bytes.load(Ordering::Relaxed)
    }

    /// Has jobs read ahead at most `ahead` bytes on one side of a merge, or a block a level where
    /// that is more, and so many of objects. Has them cut extents at `extent_bytes`, or what they
    /// are usually cut at, and have at most `sends` on their way to an object store.
    pub(crate) fn set_job(&self, extent_bytes: u64, (ahead, of_objects): (u64, u64), sends: u64) {
        let extent_bytes = usize::try_from(extent_bytes).unwrap_or(usize::MAX);
        self.extent_bytes.store(extent_bytes.min(EXTENT_BYTES), Ordering::Relaxed);
        self.job_ahead.store(ahead, Ordering::Relaxed);
        self.job_ahead_of_objects.store(of_objects, Ordering::Relaxed);
        self.job_sends.store(sends, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_ahead_gets_a_larger_share_while_somebody_reads() {
        const LEFT: u64 = 64 << 10;
        let held = Held::default();
        let all: Vec<_> = std::iter::from_fn(|| held.hold_ahead(1 << 10, (LEFT, false))).collect();
        assert_eq!(all.len(), 4, "a sixteenth of the cache");
        assert_eq!(held.share_ahead(LEFT, false), 10 << 10, "twice of what was asked for");
        let more: Vec<_> = std::iter::from_fn(|| held.hold_ahead(1 << 10, (LEFT, false))).collect();
        assert_eq!(more.len(), 6);
        assert_eq!(held.share_ahead(LEFT, false), LEFT / 4, "and no more than a quarter");
        let mut shares = (0..2000).map(|_| held.share_ahead(LEFT, false));
        assert!(shares.all(|share| share >= 10 << 10), "what is held counts");
        drop((all, more));
        assert_eq!(held.share_ahead(LEFT, false), 0, "no reader has asked for a while");
        assert_eq!(held.share_ahead(0, false), 0);
        drop(held.hold_ahead(LEFT, (0, true)));
        assert_eq!(held.share_ahead(LEFT, true), LEFT / 2, "half for requests to a store");
    }
}
