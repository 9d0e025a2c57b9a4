//! Every counter of the background's jobs. Jobs count what they did; [`Stats`](crate::Stats) reads
//! it, and nothing decides by it.

use crate::base::counters::{Counter, counters};
use crate::compaction::CarriedOver;

counters! {
    /// What jobs did since the database was opened.
    struct Metrics;

    /// Background jobs.
    #[derive(Clone, Copy, Debug)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    #[non_exhaustive]
    pub struct BackgroundStats;

    /// Memtables frozen.
    freezes,
    /// Memtables merged into level 0.
    merges,
    /// Of these, memtables that were copied into row tables.
    row_tables,
    /// Row tables that were drained and removed.
    row_tables_removed,
    /// Columns drained to level 1.
    drains,
    /// Bytes that drains have written.
    drained_bytes,
    /// Bytes of level 0 that drains have moved.
    drained_level0_bytes,
    /// Extents of runs that drains have used up.
    spilled_extents,
    /// Merges between levels.
    compactions,
    /// Of these, extents that were written again so as to empty value extents that are mostly dead.
    collections,
    /// Extents that went unread because all in them had expired.
    expired_extents,
    /// Edits that removed extents unread because range deletes hide all in them.
    delete_only_compactions,
    /// Extents that they removed.
    delete_only_extents,
    /// Bytes in those.
    delete_only_bytes,
    /// Of the drains, those of places where most keys are deleted: out of turn, to be rid of them.
    tombstone_drains,
    /// Of `compactions` and `moves`, those that were chosen for the tombstones in an extent.
    tombstone_compactions,
    /// Extents that went down a level unread, or out of a bulk load to one.
    moves,
    /// Extents that a compaction's edit moved down unread, among the sublevels of level 1, to where
    /// it made room.
    trivially_moved_extents,
    /// Extents that drains and compactions left where they were, or moved, unread.
    reused_extents,
    /// Bytes in them.
    reused_extent_bytes,
    /// Blocks that they copied without decoding them.
    reused_blocks,
    /// Bytes in them.
    reused_block_bytes,
    /// Zones released.
    zones_released,
    /// Versions dropped in the region because newer ones had taken their place.
    pruned_records,
    /// Zones that were mostly dead and had their records moved out.
    zones_cleaned,
    /// Records moved out of them.
    records_moved,
    /// Jobs that failed and were tried again.
    failures,

    @also
    /// Milliseconds that drains have taken.
    drain_ms: f64,
    /// Snapshots held, those of iterators included.
    snapshots: u64,

    @hidden
    drain_micros: Counter,
    /// Of the failures, those that the object store ended.
    store_failures: Counter,
}

impl Metrics {
    /// Counts what a merge did not have to write again.
    pub(crate) fn count_reused(&self, carried_over: &CarriedOver) {
        self.reused_extents.add(carried_over.extents);
        self.reused_extent_bytes.add(carried_over.extent_bytes);
        self.reused_blocks.add(carried_over.blocks);
        self.reused_block_bytes.add(carried_over.block_bytes);
    }

    /// What users see. `snapshots` are held.
    pub(crate) fn background(&self, snapshots: u64) -> BackgroundStats {
        self.stats(self.drain_micros.get() as f64 / 1e3, snapshots)
    }
}
