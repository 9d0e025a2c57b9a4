//! The jobs of the background, one file for jobs of one kind.
//!
//! A job is a function, which does what there is to do, if anything, and says what it did. It is a
//! method `step` where the job has a state of its own. A [`JobContext`] is all that it may touch:
//! no job knows the engine, the scheduler, or another job (`cargo xtask tidy` checks it). Every job
//! reads the state of its moment and is safe to be cut anywhere: what it changes on the media it
//! changes by one journal edit. `scheduler/picker.rs` has the table of them.

mod assign_streams;
pub(crate) mod claims;
mod columns;
mod compact;
mod context;
mod drain;
mod drain_out_of_turn;
mod grow_region;
mod level0_walks;
pub(crate) mod manual;
pub(crate) mod memory;
mod merge_memtables;
mod metadata_only;
pub(crate) mod metrics;
mod ops;
pub(crate) mod rate_limiter;
mod sync_floor;
pub(crate) mod table_index;
pub(crate) mod tables;
mod zones;

pub(crate) use compact::{Look, Plan};
pub(crate) use context::{Batch, JobContext, Outcome};
pub(crate) use drain_out_of_turn::{compact_range_in_memory, drain_deletes};
pub(crate) use grow_region::{find_reserve, grow, keep_reserves, return_space};
pub(crate) use level0_walks::CountLive;
pub(crate) use merge_memtables::{freeze_bounds, freeze_large, merge_memtables};
pub(crate) use metadata_only::{delete_only, place_bulk_load};
pub(crate) use ops::{freeze, install, outcome_is_sound};
pub(crate) use sync_floor::{mark_close, mark_time};
pub(crate) use zones::preallocate_zone;

use std::sync::Arc;

use assign_streams::AssignStreams;
use compact::Compact;
use drain::Drain;
use grow_region::GrowRegion;
use level0_walks::PruneVersions;
use sync_floor::SyncFloor;
pub(crate) use zones::READERS_LEAVE;
use zones::{CleanZones, ReleaseZones};

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
