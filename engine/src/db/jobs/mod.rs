//! The jobs of the background, one file each.
//!
//! A job is a struct with the state that is its own. `plan` says what there is to do, or that there
//! is nothing; `run` does it. Both get a [`JobContext`], which is all that a job may touch: no job
//! knows the engine, the scheduler, or another job (`cargo xtask tidy` checks it). Every job reads
//! the state of its moment and is safe to be cut anywhere: what it changes on the media it changes
//! by one journal edit.

mod assign_streams;
mod clean_zones;
mod columns;
mod compact;
mod compact_range;
mod context;
mod count_live;
mod delete_only;
mod drain;
mod drain_deletes;
mod expire;
mod freeze;
mod grow_region;
mod invariants;
mod mark_time;
mod merge_memtables;
mod ops;
mod place_bulk_load;
mod preallocate_zones;
mod prune_versions;
mod release_zones;
mod return_space;
mod row_tables;
mod sync_floor;

pub(in crate::db) use compact::Look;
pub(in crate::db) use context::{Batch, JobContext, Outcome};
pub(in crate::db) use count_live::CountLive;
pub(in crate::db) use grow_region::{find_reserve, grow, keep_reserves};
pub(in crate::db) use invariants::outcome_is_sound;
pub(in crate::db) use mark_time::mark_close;
pub(in crate::db) use ops::{freeze, install};

use std::sync::Arc;

use assign_streams::AssignStreams;
use clean_zones::CleanZones;
use compact::Compact;
use compact_range::CompactRange;
use delete_only::DeleteOnly;
use drain::Drain;
use drain_deletes::DrainDeletes;
use expire::Expire;
use freeze::Freeze;
use grow_region::GrowRegion;
use mark_time::MarkTime;
use merge_memtables::MergeMemtables;
use place_bulk_load::PlaceBulkLoad;
use preallocate_zones::PreallocateZones;
use prune_versions::PruneVersions;
use release_zones::ReleaseZones;
use return_space::ReturnSpace;
use sync_floor::SyncFloor;

/// All of them.
#[derive(Debug, Default)]
pub(in crate::db) struct Jobs {
    pub(in crate::db) assign_streams: AssignStreams,
    pub(in crate::db) clean_zones: CleanZones,
    pub(in crate::db) compact: Compact,
    pub(in crate::db) compact_range: CompactRange,
    pub(in crate::db) count_live: Arc<CountLive>,
    pub(in crate::db) delete_only: DeleteOnly,
    pub(in crate::db) drain: Drain,
    pub(in crate::db) drain_deletes: DrainDeletes,
    pub(in crate::db) expire: Expire,
    pub(in crate::db) freeze: Freeze,
    pub(in crate::db) grow_region: GrowRegion,
    pub(in crate::db) mark_time: MarkTime,
    pub(in crate::db) merge_memtables: MergeMemtables,
    pub(in crate::db) place_bulk_load: PlaceBulkLoad,
    pub(in crate::db) preallocate_zones: PreallocateZones,
    pub(in crate::db) prune_versions: PruneVersions,
    pub(in crate::db) release_zones: ReleaseZones,
    pub(in crate::db) return_space: ReturnSpace,
    pub(in crate::db) sync_floor: SyncFloor,
}
