//! The jobs of the background, one file each.
//!
//! A job is a function `step`, which does what there is to do, if anything, and says what it did.
//! It is a method where the job has a state of its own. A [`JobContext`] is all that it may touch:
//! no job knows the engine, the scheduler, or another job (`cargo xtask tidy` checks it). Every job
//! reads the state of its moment and is safe to be cut anywhere: what it changes on the media it
//! changes by one journal edit. `scheduler/picker.rs` has the table of them.

mod assign_streams;
mod clean_zones;
mod columns;
mod compact;
pub(in crate::db) mod compact_range;
mod context;
mod count_live;
pub(in crate::db) mod delete_only;
mod drain;
pub(in crate::db) mod drain_deletes;
pub(in crate::db) mod freeze;
mod grow_region;
mod invariants;
pub(in crate::db) mod mark_time;
pub(in crate::db) mod merge_memtables;
mod ops;
pub(in crate::db) mod place_bulk_load;
pub(in crate::db) mod preallocate_zones;
mod prune_versions;
mod release_zones;
pub(in crate::db) mod return_space;
mod row_tables;
mod sync_floor;

pub(in crate::db) use compact::Look;
pub(in crate::db) use context::{Batch, JobContext, Outcome};
pub(in crate::db) use count_live::CountLive;
pub(in crate::db) use grow_region::{find_reserve, grow, keep_reserves};
pub(in crate::db) use invariants::outcome_is_sound;
pub(in crate::db) use ops::{freeze, install};

use std::sync::Arc;

use assign_streams::AssignStreams;
use clean_zones::CleanZones;
use compact::Compact;
use drain::Drain;
use grow_region::GrowRegion;
use prune_versions::PruneVersions;
use release_zones::ReleaseZones;
use sync_floor::SyncFloor;

/// Those with a state of their own.
#[derive(Debug, Default)]
pub(in crate::db) struct Jobs {
    pub(in crate::db) assign_streams: AssignStreams,
    pub(in crate::db) clean_zones: CleanZones,
    pub(in crate::db) compact: Compact,
    pub(in crate::db) count_live: Arc<CountLive>,
    pub(in crate::db) drain: Drain,
    pub(in crate::db) grow_region: GrowRegion,
    pub(in crate::db) prune_versions: PruneVersions,
    pub(in crate::db) release_zones: ReleaseZones,
    pub(in crate::db) sync_floor: SyncFloor,
}
