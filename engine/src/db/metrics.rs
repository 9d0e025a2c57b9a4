//! Every counter of the background's jobs. Jobs count what they did; [`Stats`](super::Stats) reads
//! it, and nothing decides by it.
//!
//! Thread safety: each counter is an atomic of its own. A reader may see one counter of a job
//! before another one.

use crate::compaction::CarriedOver;
use crate::os::sync::atomic::{AtomicU64, Ordering};

/// Counts up from 0 for as long as the database is open.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum so far.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What jobs did since the database was opened.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// Memtables frozen.
    pub(super) freezes: Counter,
    /// Memtables merged into level 0.
    pub(super) merges: Counter,
    pub(super) row_tables: Counter,
    pub(super) row_tables_removed: Counter,
    /// Columns drained to level 1.
    pub(super) drains: Counter,
    pub(super) drained_level0_bytes: Counter,
    pub(super) drain_micros: Counter,
    /// Bytes that drains wrote to extents.
    pub(super) drained_bytes: Counter,
    /// Extents of runs that drains used up.
    pub(super) spilled_extents: Counter,
    /// Merges between levels.
    pub(super) compactions: Counter,
    /// Compactions that emptied value extents.
    pub(super) collections: Counter,
    /// Extents that were removed unread, since all in them had expired.
    pub(super) expired_extents: Counter,
    /// Edits that removed extents unread, since range tombstones hide all in them.
    pub(super) delete_only_compactions: Counter,
    /// The extents, and their bytes.
    pub(super) delete_only_extents: Counter,
    pub(super) delete_only_bytes: Counter,
    /// Columns that were drained out of turn, since most of their keys are deleted.
    pub(super) tombstone_drains: Counter,
    /// Compactions that were picked for their tombstones.
    pub(super) tombstone_compactions: Counter,
    /// Extents that changed their level unread.
    pub(super) moves: Counter,
    /// Extents of level 1 that moved down in the edit of a compaction.
    pub(super) trivially_moved_extents: Counter,
    /// Zones released.
    pub(super) zones_released: Counter,
    /// Superseded records that level 0 dropped.
    pub(super) pruned_records: Counter,
    /// Zones cleaned.
    pub(super) zones_cleaned: Counter,
    /// Records that cleaning moved.
    pub(super) records_moved: Counter,
    /// Extents that merges left where they were, and their bytes.
    pub(super) reused_extents: Counter,
    pub(super) reused_extent_bytes: Counter,
    /// Blocks that merges copied undecoded, and their bytes.
    pub(super) reused_blocks: Counter,
    pub(super) reused_block_bytes: Counter,
    /// Jobs that failed.
    pub(super) failures: Counter,
    /// Of these, those that the object store ended.
    pub(super) store_failures: Counter,
}

impl Metrics {
    /// Counts what a merge did not have to write again.
    pub(super) fn count_reused(&self, carried_over: &CarriedOver) {
        self.reused_extents.add(carried_over.extents);
        self.reused_extent_bytes.add(carried_over.extent_bytes);
        self.reused_blocks.add(carried_over.blocks);
        self.reused_block_bytes.add(carried_over.block_bytes);
    }
}
