//! Flushes, fences, syncs and bytes: this field's units of cost, always counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one region since it was opened.
#[derive(Debug, Default)]
pub(crate) struct PmCounts {
    /// Cache lines flushed.
    pub(crate) flushes: AtomicU64,
    /// Store fences.
    pub(crate) fences: AtomicU64,
    /// Media blocks of 256 bytes that fenced ranges touched.
    pub(crate) blocks: AtomicU64,
    /// Completed syncs of the region's file.
    pub(crate) syncs: AtomicU64,
    /// Bytes written to the region's file.
    pub(crate) bytes: AtomicU64,
}

impl PmCounts {
    pub(super) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}
