//! The jobs of the background, one file each.
//!
//! A job is a function `step`, which does what there is to do, if anything, and says what it did.
//! It is a method where the job has a state of its own. A [`JobContext`] is all that it may touch:
//! no job knows the engine, the scheduler, or another job (`cargo xtask tidy` checks it). Every job
//! reads the state of its moment and is safe to be cut anywhere: what it changes on the media it
//! changes by one journal edit. `scheduler/picker.rs` has the table of them.

mod assign_streams;
mod automatic_memory;
pub(crate) mod claims;
mod clean_zones;
mod columns;
mod compact;
pub(crate) mod compact_range;
mod context;
mod count_live;
pub(crate) mod delete_only;
mod drain;
pub(crate) mod drain_deletes;
pub(crate) mod freeze;
mod grow_region;
mod invariants;
pub(crate) mod manual;
pub(crate) mod mark_time;
pub(crate) mod memory;
pub(crate) mod merge_memtables;
pub(crate) mod metrics;
mod ops;
pub(crate) mod place_bulk_load;
pub(crate) mod preallocate_zones;
mod prune_versions;
pub(crate) mod rate_limiter;
mod release_zones;
pub(crate) mod return_space;
mod row_tables;
mod sync_floor;
pub(crate) mod table_index;
pub(crate) mod tables;

pub(crate) use compact::Look;
pub(crate) use context::{Batch, JobContext, Outcome};
pub(crate) use count_live::CountLive;
pub(crate) use grow_region::{find_reserve, grow, keep_reserves};
pub(crate) use invariants::outcome_is_sound;
pub(crate) use ops::{freeze, install};

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
pub(crate) struct Jobs {
    pub(crate) assign_streams: AssignStreams,
    pub(crate) clean_zones: CleanZones,
    pub(crate) compact: Compact,
    pub(crate) count_live: Arc<CountLive>,
    pub(crate) drain: Drain,
    pub(crate) grow_region: GrowRegion,
    pub(crate) prune_versions: PruneVersions,
    pub(crate) release_zones: ReleaseZones,
    pub(crate) sync_floor: SyncFloor,
}
