//! What holds of the scheduler's decisions, each under its name.

use super::picker::{JobKind, Running};
use super::state::RegionState;

/// Only jobs that writers may wait for pass a compaction on the thread that picks.
pub(super) fn may_run(kind: JobKind, running: &[Running]) -> bool {
    let waits = matches!(
        kind,
        JobKind::MarkTime
            | JobKind::Expire
            | JobKind::DeleteOnly
            | JobKind::PlaceBulkLoad
            | JobKind::CleanZones(_)
            | JobKind::DrainDeletes
            | JobKind::Compact
            | JobKind::CompactRange
            | JobKind::PruneVersions
            | JobKind::DrainRuns
            | JobKind::ReturnSpace
            | JobKind::SyncFloor
    );
    !waits || !running.contains(&Running::PausedCompaction)
}

/// The state has what a job of this kind works on.
pub(super) fn has_work(kind: JobKind, state: &RegionState) -> bool {
    match kind {
        JobKind::Drain => state.has_undrained,
        JobKind::DrainRuns | JobKind::PlaceBulkLoad => state.has_runs,
        JobKind::MergeMemtables => state.has_frozen_memtable,
        // A worker compacts, where there are some.
        JobKind::Compact => !state.has_workers,
        _ => true,
    }
}

/// What ages has a time to live, or had one: so a table with one ages.
pub(super) fn ages_if_it_lives(state: &RegionState) -> bool {
    !state.has_ttl || state.has_aging
}
