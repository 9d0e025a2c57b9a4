//! Which job is next: a pure function of the state that was gathered. Cases are text files in
//! `testdata/scheduler`.

use super::state::RegionState;
use crate::db::jobs::Batch;

/// Compactions go before drains where level 1 has outgrown its target by half, or drains have used
/// up its sublevels: more than so many thousandths of it. Else it would grow without a bound, and
/// drains would merge each column with ever more of it. Writers, which wait for drains in the end,
/// are the ones to be slowed down.
const BEHIND: u64 = 1500;

/// The kinds of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::db) enum JobKind {
    MarkTime,
    GrowRegion,
    PreallocateZones,
    AssignStreams,
    ReleaseZones(Batch),
    Freeze,
    MergeMemtables,
    Expire,
    DeleteOnly,
    PlaceBulkLoad,
    CleanZones(Batch),
    Drain,
    DrainDeletes,
    Compact,
    CompactRange,
    PruneVersions,
    DrainRuns,
    ReturnSpace,
    SyncFloor,
}

/// A job that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) enum Running {
    /// A compaction on a thread of its own.
    Compaction,
    /// A compaction on the thread that picks, between two extents. Only jobs that writers may wait
    /// for pass it.
    PausedCompaction,
}

/// The most urgent job that there may be work for, but for those that were `declined` since the
/// state was gathered: they found nothing to do.
pub(in crate::db) fn pick(
    state: &RegionState,
    running: &[Running],
    declined: &[JobKind],
) -> Option<JobKind> {
    let by_urgency = if running.contains(&Running::PausedCompaction) {
        urgent(state).to_vec()
    } else {
        all(state, !running.is_empty())
    };
    let is_next = |(kind, has_work): &(JobKind, bool)| *has_work && !declined.contains(kind);
    by_urgency.into_iter().find(is_next).map(|(kind, _)| kind)
}

/// Zones that are released for writers: many share syncs, unless a writer waits for any.
fn batch(state: &RegionState) -> Batch {
    if state.lacks_zone { Batch::Any } else { Batch::Large }
}

/// What writers need most.
fn keep_up(state: &RegionState) -> [(JobKind, bool); 6] {
    [
        (JobKind::GrowRegion, state.grows),
        (JobKind::PreallocateZones, true),
        (JobKind::AssignStreams, true),
        (JobKind::ReleaseZones(batch(state)), true),
        (JobKind::Freeze, state.has_large_memtable),
        (JobKind::MergeMemtables, state.has_frozen_memtable),
    ]
}

/// What may pass a compaction.
fn urgent(state: &RegionState) -> [(JobKind, bool); 7] {
    let [a, b, c, d, e, f] = keep_up(state);
    [a, b, c, d, e, f, (JobKind::Drain, state.is_drain_due && state.has_undrained)]
}

/// All jobs, the most urgent first. `compacts` says that compactions are under way.
fn all(state: &RegionState, compacts: bool) -> Vec<(JobKind, bool)> {
    let drains = state.is_drain_due && state.has_undrained;
    // Level 1 has outgrown its target so far that drains wait for compactions under way.
    let is_far_behind = state.level1 > 2 * BEHIND && compacts;
    let mut jobs = vec![(JobKind::MarkTime, state.has_ttl)];
    jobs.extend(keep_up(state));
    jobs.extend([
        (JobKind::Expire, state.has_aging),
        (JobKind::DeleteOnly, state.has_range_tombstones),
        (JobKind::PlaceBulkLoad, state.has_runs),
        (JobKind::CleanZones(Batch::Large), state.is_drain_due),
        (JobKind::Drain, drains && state.level1 <= BEHIND),
        (JobKind::DrainDeletes, state.has_deletes && state.level1 <= BEHIND),
        (JobKind::Compact, !state.has_workers),
        (JobKind::Drain, drains && !is_far_behind),
        (JobKind::CompactRange, state.has_requests),
        (JobKind::CleanZones(Batch::Any), state.is_drain_due),
        (JobKind::ReleaseZones(Batch::Any), true),
        (JobKind::PruneVersions, state.has_kept_versions),
        (JobKind::DrainRuns, state.has_runs),
        (JobKind::ReturnSpace, true),
        (JobKind::SyncFloor, true),
    ]);
    jobs
}

#[cfg(test)]
mod tests;
