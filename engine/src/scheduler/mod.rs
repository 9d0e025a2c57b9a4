//! The scheduler: gathers the state, picks the most urgent job, and has it run. Jobs are bounded
//! and run one after the other on one thread; compactions run on it too, or on workers beside it.
//!
//! Thread safety: `step` is called by one thread at a time, the background's or the stepper's; the
//! rest from any. `stats` and `pacing` are held for a few instructions.

mod pacing;
mod picker;
mod state;
mod workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::base::options::{BackgroundTuning, CommitTuning};
use crate::base::progress::Meter;
use crate::base::record::Lsn;
use crate::compaction::Work;
use crate::jobs::manual::{ManualCompaction, Stage};
use crate::jobs::table_index::Rest;
use crate::jobs::{self, JobContext, Jobs, Look, Outcome, Plan, outcome_is_sound};
use crate::os::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::OnceLock;
use crate::os::time;
use crate::pm::{Purpose, SpentOn};
use pacing::{LONGEST, Pacing, PacingStats, Reason};
use picker::{JobKind, Running, ScheduledJob, pick};
use state::{RegionState, RegionUsage};
use workers::Workers;

pub(crate) use workers::spawn;

/// The most jobs between two extents of a compaction.
const MOST_PASSING: usize = 6;

/// That an extent cannot be read is told so often, while other jobs go on.
const TELLS_UNREAD: Duration = Duration::from_secs(1);

/// The scheduler of an open database.
pub(crate) struct Scheduler {
    ctx: Arc<JobContext>,
    pub(crate) jobs: Jobs,
    pub(crate) workers: Workers,
    /// When it first looked at its clock.
    began: OnceLock<Instant>,
    stats: Mutex<PacingStats>,
    /// What writers were asked to do last.
    pacing: Mutex<Pacing>,
    /// Bytes appended before the oldest record that is not drained.
    appended_before_round: AtomicU64,
    /// Jobs in a row that found no descriptor or no memory.
    shortages: AtomicU32,
    /// When it was last told that an extent cannot be read.
    told_unread: Mutex<Option<Instant>>,
}

impl Scheduler {
    /// The scheduler of what jobs may touch.
    pub(crate) fn new(ctx: Arc<JobContext>) -> Scheduler {
        Scheduler {
            ctx,
            jobs: Jobs::default(),
            workers: Workers::default(),
            began: OnceLock::new(),
            stats: Mutex::default(),
            pacing: Mutex::default(),
            appended_before_round: AtomicU64::new(0),
            shortages: AtomicU32::new(0),
            told_unread: Mutex::default(),
        }
    }

    /// Time since it first looked.
    fn clock(&self) -> Duration {
        time::since(*self.began.get_or_init(time::now))
    }

    /// Sets what the background may use of the machine.
    pub(crate) fn tune(&self, tuning: BackgroundTuning) {
        self.ctx.rate.set(tuning.bytes_per_second);
        self.ctx.memory.set_threads(tuning.threads.max(1));
        self.workers.set_threads(tuning.threads);
    }

    /// Sets how many tables may have streams of their own.
    pub(crate) fn tune_streams(&self, tuning: CommitTuning) {
        self.jobs.assign_streams.tune(tuning);
        self.ctx.shared.wakeup.wake();
    }

    /// Why writers wait, the bytes by which the drain round lags, and the bytes that drains move a
    /// second.
    pub(crate) fn pace(&self) -> (&'static str, u64, u64) {
        let Pacing { reason, debt, .. } = *self.pacing.lock();
        (reason.name(), debt, self.stats.lock().rate())
    }

    /// Bytes that were appended since the oldest record that is not drained.
    pub(crate) fn round_bytes(&self) -> u64 {
        let appended = self.ctx.shared.committer.counts.appended.load(Ordering::Relaxed);
        appended.saturating_sub(self.appended_before_round.load(Ordering::Relaxed))
    }

    /// Does the most urgent job; whether there was one.
    pub(crate) fn step(&self) -> Result<bool> {
        let _spent = SpentOn::purpose(Purpose::Background);
        let ctx = &*self.ctx;
        // Other databases, and readers, count on it also after a failure.
        self.drive();
        ctx.shared.poison.check()?;
        ctx.shared.end_runs();
        ctx.memory.balance();
        if self.jobs.count_live.run(ctx)?.did {
            // Level 0 and zones stay as they are until all is counted, but writers need zones.
            while self.preallocate_zone()? {}
            return Ok(true);
        }
        // No drain waits for a compaction that waits for an object store.
        let elsewhere = ctx.object_work.running.load(Ordering::Relaxed) as usize;
        let running = vec![Running::Compaction; ctx.claims.len().saturating_sub(elsewhere)];
        let did = self.run_most_urgent(&running)?;
        // Stepped jobs have no thread for objects.
        Ok(did || ctx.options.stepped && self.delete_objects()?)
    }

    /// Gathers the state, sets the pace, and runs the most urgent job that finds something to do;
    /// whether one did.
    fn run_most_urgent(&self, running: &[Running]) -> Result<bool> {
        let state = self.gather();
        let (mut declined, mut full): (Vec<_>, Option<Error>) = (Vec::new(), None);
        while let Some(job) = pick(&state, running, &declined) {
            match self.run(job) {
                // Jobs behind it may make space.
                Err(e) if e.may_pass() => full = full.or(Some(e)),
                Ok(true) => {
                    self.shortages.store(0, Ordering::Relaxed);
                    if let Some(e) = full.as_ref().filter(|e| e.is_unread()) {
                        self.tell_unread(e);
                    }
                    // What is given back the job before would take again.
                    let rests = job.kind == JobKind::ReturnSpace;
                    return full.filter(|_| rests).map_or(Ok(true), Err);
                }
                Ok(false) => {}
                Err(e) => return Err(e),
            }
            declined.push(job.kind);
        }
        let Some(full) = full else { return Ok(false) };
        self.tell_of_full_disk(&full, running);
        Err(full)
    }

    /// A job could not read an extent, and another one had something to do. Now and then that
    /// counts as a failure.
    fn tell_unread(&self, error: &Error) {
        let mut told = self.told_unread.lock();
        if told.is_none_or(|at| time::since(at) >= TELLS_UNREAD) {
            *told = Some(time::now());
            self.ctx.count_failure(error);
        }
    }

    /// No job found anything to do but what the disk has no room for. So a manual compaction ends
    /// here, unless another compaction makes room, or is its own.
    fn tell_of_full_disk(&self, full: &Error, running: &[Running]) {
        let elsewhere = self.ctx.object_work.running.load(Ordering::Relaxed);
        if let Some(request) = self.ctx.manual.first()
            && running.is_empty()
            && elsewhere == 0
        {
            self.ctx.manual.finish(&request, Err(full.again()));
        }
    }

    /// Ordinary commits go on again once extents have their reserve.
    fn end_freeing_only(&self) {
        let shared = &self.ctx.shared;
        if shared.zones.is_freeing_only() && self.ctx.set.store().refill_reserve().is_ok() {
            shared.zones.set_freeing_only(false);
            shared.pace.report(None);
        }
    }

    /// The state of this moment. Writers are told how fast they may go.
    fn gather(&self) -> RegionState {
        let ctx = &*self.ctx;
        self.end_freeing_only();
        let (usage, totals) = RegionUsage::gather(ctx, self.clock());
        let is_late = self.set_pace(&usage).debt > 0;
        let is_due = is_late || usage.calls_for_drain() || usage.is_log_long;
        if ctx.shared.zones.finds_wanted() {
            // It need not be a drain that made that space: a stream gives up its zones, say.
            ctx.shared.pace.report(None);
        }
        RegionState::gather((ctx, &self.jobs), &totals, is_due, self.workers.compact())
    }

    /// Tells writers how fast they may go.
    fn set_pace(&self, usage: &RegionUsage) -> Pacing {
        let mut stats = self.stats.lock();
        let mut pacing = stats.look(usage);
        if self.ctx.takes_over() {
            // Nobody can write meanwhile, so what jobs are behind with they make up for later. The
            // memory of indexes has no other bound.
            let least = usage.least_delay().min(LONGEST) as u64;
            let reason = if least > 0 { Reason::Indexes } else { Reason::None };
            (pacing.delay, pacing.reason) = (least, reason);
        }
        let before = stats.appended_before_round(usage);
        drop(stats);
        debug_assert!(before <= usage.appended, "what was appended before is a part of it");
        self.appended_before_round.store(before, Ordering::Relaxed);
        self.ctx.rate.give_way(usage.waits_for_compactions(self.ctx.rest()));
        self.ctx.shared.pace.set_delay(pacing.delay, pacing.reason.name());
        *self.pacing.lock() = pacing;
        pacing
    }

    /// Runs a job; whether it found something to do. What it did goes into the statistics of
    /// pacing, and wakes workers that may go on.
    fn run(&self, job: &ScheduledJob) -> Result<bool> {
        let outcome = (job.step)(self)?;
        debug_assert!(outcome_is_sound(&outcome), "a job that did nothing moved nothing");
        if outcome.did {
            let mut stats = self.stats.lock();
            stats.pruned(outcome.pruned);
            if let Some(drained) = &outcome.drained {
                stats.drained(drained.level0, drained.runs, drained.added, drained.took);
                self.workers.wake();
            }
        }
        Ok(outcome.did)
    }

    /// Links a standby zone to a stream that has none; whether it did.
    fn preallocate_zone(&self) -> Result<bool> {
        jobs::preallocate_zone(&self.ctx).map(|outcome| outcome.did)
    }

    /// Nothing else is left to do: a drain round that stands half-way slows no writer from here on,
    /// and no drain is late.
    fn sync_floor(&self) -> Result<Outcome> {
        let (ctx, job) = (&*self.ctx, &self.jobs.sync_floor);
        self.jobs.drain.end_series();
        let rest = job.plan(ctx);
        if rest >= Rest::Resting && self.stats.lock().end_round() {
            self.set_pace(&RegionUsage::gather(ctx, self.clock()).0);
        }
        ctx.memory.balance();
        job.run(rest, ctx)
    }

    /// Runs a compaction, if a table needs one; whether it did something. `before_extent` is called
    /// between two extents.
    fn compact(&self, before_extent: &dyn Fn(u64) -> Result<()>, work: Work) -> Result<bool> {
        let Some(plan) = self.jobs.compact.plan(&self.ctx, work) else { return Ok(false) };
        let done = self.unless_store_fails(self.run_compaction(&plan, before_extent, work))?;
        Ok(done.is_some_and(|outcome| outcome.did))
    }

    /// Runs a compaction on the thread that picks: between two extents, jobs that writers may wait
    /// for pass it.
    fn compact_here(&self) -> Result<bool> {
        self.compact(&|_| self.let_pass(), self.ctx.work_of_files())
    }

    fn run_compaction(
        &self,
        plan: &Plan<'_>,
        before_extent: &dyn Fn(u64) -> Result<()>,
        work: Work,
    ) -> Result<Outcome> {
        let is_elsewhere = work == Work::Objects;
        let running = &self.ctx.object_work.running;
        let _counted = is_elsewhere.then(|| workers::Running::new(running));
        let from = self.clock();
        let outcome = self.jobs.compact.run(plan, &self.ctx, before_extent)?;
        debug_assert!(outcome_is_sound(&outcome), "a job that did nothing moved nothing");
        // The pace of a store is not that of writers.
        if let Some(left) = outcome.left_level1.filter(|_| !is_elsewhere) {
            self.stats.lock().compacted(left, (from + outcome.waited, self.clock()));
        }
        Ok(outcome)
    }

    /// Takes a step of the manual compaction that was asked for first. What fails ends it; the call
    /// that waits is told.
    fn compact_range(&self) -> Result<Outcome> {
        let ctx = &*self.ctx;
        let Some(request) = ctx.manual.first() else { return Ok(Outcome::NOTHING) };
        let done = match request.stage() {
            Stage::Levels => {
                self.compact_by_hand(&request, &|_| self.let_pass(), ctx.work_of_files())
            }
            _ => jobs::compact_range_in_memory(&request, ctx),
        };
        done.or_else(|error| self.end_by_hand(&request, error).map(Outcome::did))
    }

    /// Ends a request with an error; the database goes on after most.
    fn end_by_hand(&self, request: &Arc<ManualCompaction>, error: Error) -> Result<bool> {
        let is_fatal = !error.kind().is_refusal() && !error.may_pass() && !error.is_of_store();
        self.ctx.manual.finish(request, Err(error.again()));
        if is_fatal { Err(error) } else { Ok(true) }
    }

    /// Runs the next compaction of a request; there is none when all is done.
    fn compact_by_hand(
        &self,
        request: &Arc<ManualCompaction>,
        before_extent: &dyn Fn(u64) -> Result<()>,
        work: Work,
    ) -> Result<Outcome> {
        request.table.check()?;
        match self.jobs.compact.look_by_hand(&self.ctx, request, work) {
            Look::Found(plan) => {
                let outcome = self.run_compaction(&plan, before_extent, work)?;
                request.count(0, 1);
                Ok(outcome)
            }
            // The thread that picks says when all is done.
            Look::Nothing if work != Work::Objects => {
                self.ctx.manual.finish(request, Ok(()));
                Ok(Outcome::DONE)
            }
            Look::Nothing | Look::Busy => Ok(Outcome::NOTHING),
        }
    }

    /// Runs jobs that writers may wait for, as long as there are any, and no more than some.
    fn let_pass(&self) -> Result<()> {
        for _ in 0..MOST_PASSING {
            self.drive();
            match self.run_most_urgent(&[Running::PausedCompaction]) {
                Ok(true) => {}
                Ok(false) => break,
                // There is room when the compaction is done.
                Err(e) if e.may_pass() => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Pushes on what jobs have deferred; all of it where jobs are stepped, so that the same steps
    /// do the same things.
    fn drive(&self) {
        #[cfg(any(test, feature = "testing", feature = "bench"))]
        if self.ctx.options.stepped {
            return self.ctx.shared.queue.drive_all();
        }
        self.ctx.shared.queue.drive();
    }

    /// Goes on with the persistent index that an opening found. `last` is the last LSN.
    pub(crate) fn adopt_index(&self, last: Lsn) -> Result<()> {
        self.jobs.count_live.begin(last, &self.ctx)
    }

    /// Merges all memtables into the persistent index, where there is one, for the next opening to
    /// read none of their records. Unless it is still being counted: level 0 stays as it is then.
    ///
    /// # Errors
    ///
    /// An I/O error, or `Unavailable` when the database is poisoned.
    pub(crate) fn merge_at_close(&self, meter: &Meter) -> Result<()> {
        let ctx = &*self.ctx;
        if ctx.forest.is_none() || self.jobs.count_live.goes_on() {
            return Ok(());
        }
        ctx.shared.poison.check()?;
        for table in ctx.tables.all() {
            jobs::freeze(ctx, &table);
        }
        let frozen = || ctx.tables.all().iter().map(|table| table.view().frozen.len() as u64).sum();
        let mut left: u64 = frozen();
        meter.plan(left);
        while jobs::merge_memtables(ctx)?.did {
            let before = std::mem::replace(&mut left, frozen());
            meter.did(before.saturating_sub(left))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
