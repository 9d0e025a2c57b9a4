//! Which job is next: a pure function of the state that was gathered. Cases are text files in
//! `testdata/scheduler`.

use super::Scheduler;
use super::state::RegionState;
use crate::base::error::Result;
use crate::jobs::table_index::Has;
use crate::jobs::{self, Batch, Outcome};
use Batch::{Any, Large};
use Has::{Aged, Deletes, Frozen, Kept, Ranges, Runs, Ttl, Undrained};
use JobKind::*;

/// Compactions go before drains where level 1 has outgrown its target by half, or drains have used
/// up its sublevels: more than so many thousandths of it. Else it would grow without a bound, and
/// drains would merge each column with ever more of it. Writers, which wait for drains in the end,
/// are the ones to be slowed down.
const BEHIND: u64 = 1500;

/// The kinds of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobKind {
    MarkTime,
    GrowRegion,
    PreallocateZones,
    AssignStreams,
    ReleaseZones(Batch),
    Freeze,
    MergeMemtables,
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
pub(crate) enum Running {
    /// A compaction on a thread of its own.
    Compaction,
    /// A compaction on the thread that picks, between two extents. Only jobs that writers may wait
    /// for pass it.
    PausedCompaction,
}

/// The most urgent job that there may be work for, but for those that were `declined` since the
/// state was gathered: they found nothing to do.
pub(crate) fn pick(
    state: &RegionState,
    running: &[Running],
    declined: &[JobKind],
) -> Option<&'static ScheduledJob> {
    let is_paused = running.contains(&Running::PausedCompaction);
    let compacts = !is_paused && !running.is_empty();
    JOBS.iter().find(|job| {
        (job.passes || !is_paused)
            && !declined.contains(&job.kind)
            && (job.has_work)(state, compacts)
    })
}

/// A row of the table of jobs.
pub(crate) struct ScheduledJob {
    pub(crate) kind: JobKind,
    /// Writers may wait for it: it passes a compaction on the thread that picks.
    passes: bool,
    /// Whether there may be something to do. The second argument says that compactions run on
    /// threads of their own.
    has_work: fn(&RegionState, bool) -> bool,
    pub(crate) step: fn(&Scheduler) -> Result<Outcome>,
}

const PASSES: bool = true;

const fn job(
    kind: JobKind,
    passes: bool,
    has_work: fn(&RegionState, bool) -> bool,
    step: fn(&Scheduler) -> Result<Outcome>,
) -> ScheduledJob {
    ScheduledJob { kind, passes, has_work, step }
}

/// Drains are due, and level 1 has not outgrown its target.
fn drains(state: &RegionState, _: bool) -> bool {
    state.is_drain_due && state.has(Undrained) && state.level1 <= BEHIND
}

/// Drains are due. Where level 1 has outgrown its target far, they wait for compactions under way.
fn drains_behind(state: &RegionState, compacts: bool) -> bool {
    state.is_drain_due && state.has(Undrained) && !(state.level1 > 2 * BEHIND && compacts)
}

/// All jobs, the most urgent first. One may have several places.
#[rustfmt::skip]
pub(crate) const JOBS: &[ScheduledJob] = &[
    job(MarkTime, false, |s, _| s.has(Ttl), |s| jobs::mark_time(&s.ctx)),
    // What writers need most.
    job(GrowRegion, PASSES, |s, _| s.grows, |s| s.jobs.grow_region.step(&s.ctx)),
    job(PreallocateZones, PASSES, |_, _| true, |s| jobs::preallocate_zone(&s.ctx)),
    job(AssignStreams, PASSES, |_, _| true, |s| s.jobs.assign_streams.step(&s.ctx)),
    // Many zones share syncs, unless a writer waits for any.
    job(ReleaseZones(Any), PASSES, |s, _| s.lacks_zone, |s| s.jobs.release_zones.step(Any, &s.ctx)),
    job(ReleaseZones(Large), PASSES, |s, _| !s.lacks_zone,
        |s| s.jobs.release_zones.step(Large, &s.ctx)),
    job(Freeze, PASSES, |s, _| s.has_large_memtable, |s| jobs::freeze_large(&s.ctx)),
    job(MergeMemtables, PASSES, |s, _| s.has(Frozen), |s| jobs::merge_memtables(&s.ctx)),
    job(DeleteOnly, false, |s, _| s.has(Aged) || s.has(Ranges), |s| jobs::delete_only(&s.ctx)),
    job(PlaceBulkLoad, false, |s, _| s.has(Runs), |s| jobs::place_bulk_load(&s.ctx)),
    // On a full disk what frees space goes before what takes some.
    job(DrainDeletes, false, |s, _| s.serves_freeing && s.has(Deletes),
        |s| jobs::drain_deletes(&s.ctx)),
    job(CleanZones(Large), false, |s, _| s.is_drain_due,
        |s| s.jobs.clean_zones.step(Large, &s.ctx)),
    job(Drain, false, drains, |s| s.jobs.drain.step(&s.ctx)),
    job(DrainDeletes, false, |s, _| s.has(Deletes) && s.level1 <= BEHIND,
        |s| jobs::drain_deletes(&s.ctx)),
    job(Compact, false, |s, _| !s.has_workers, |s| s.compact_here().map(Outcome::did)),
    // Also between two extents of a compaction, however far behind level 1 is.
    job(Drain, PASSES, drains_behind, |s| s.jobs.drain.step(&s.ctx)),
    job(CompactRange, false, |s, _| s.has_requests, Scheduler::compact_range),
    job(CleanZones(Any), false, |s, _| s.is_drain_due, |s| s.jobs.clean_zones.step(Any, &s.ctx)),
    job(ReleaseZones(Any), false, |_, _| true, |s| s.jobs.release_zones.step(Any, &s.ctx)),
    job(PruneVersions, false, |s, _| s.has(Kept), |s| s.jobs.prune_versions.step(&s.ctx)),
    job(DrainRuns, false, |s, _| s.has(Runs), |s| s.jobs.drain.step_runs(&s.ctx)),
    job(ReturnSpace, false, |_, _| true, |s| jobs::return_space(&s.ctx)),
    job(SyncFloor, false, |_, _| true, Scheduler::sync_floor),
];

#[cfg(test)]
mod tests;
