//! The threads of the background: the one that picks jobs, workers that compact beside it, and the
//! one that keeps zones ready.
//!
//! Thread safety: every method may be called from any thread; the mutex is held for a few
//! instructions, or in a timed wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::Scheduler;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Failpoint;
use crate::compaction::Work;
use crate::jobs::READERS_LEAVE;
use crate::jobs::manual::Stage;
use crate::os::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::os::sync::locks::{Condvar, Mutex};
use crate::os::time;

/// With nothing to do, threads look around this often; the background writes the floor then.
const IDLE: Duration = Duration::from_millis(200);

/// After a job failed, its thread waits this long before it tries again.
const RETRY: Duration = Duration::from_millis(500);

/// After a job found no descriptor or no memory, the first pause, which doubles so many times.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const SHORTAGES: u32 = 6;

/// A thread that has nothing to do but when it is woken looks up this often.
const RESTING: Duration = Duration::from_secs(10);

/// How many threads the background may use, and what wakes those that wait.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    threads: AtomicUsize,
    /// Rises when there may be something to do.
    wakes: Mutex<u64>,
    changed: Condvar,
}

impl Workers {
    /// Sets the number of threads, the background's own among them.
    pub(super) fn set_threads(&self, threads: usize) {
        self.threads.store(threads.max(1), Ordering::Release);
        debug_assert!(self.threads() >= 1, "the background has a thread of its own");
        self.wake();
    }

    /// Threads, the background's own among them.
    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::Acquire)
    }

    /// Whether compactions have threads of their own.
    pub(super) fn compact(&self) -> bool {
        self.threads() > 1
    }

    /// Wakes the workers.
    pub(crate) fn wake(&self) {
        *self.wakes.lock() += 1;
        self.changed.notify_all();
    }

    /// How often they were woken. Read before a look at what there is to do, so that the wait
    /// after it misses no wake-up.
    pub(super) fn wakes(&self) -> u64 {
        *self.wakes.lock()
    }

    /// Waits for a wake-up after the first `before`, or for `timeout`.
    pub(super) fn wait(&self, before: u64, timeout: Duration) {
        let mut wakes = self.wakes.lock();
        let until = time::now() + timeout;
        while *wakes == before && !self.changed.wait_until(&mut wakes, until).timed_out() {}
    }

    /// Waits for all of `timeout`, or until the database ends.
    fn wait_out(&self, timeout: Duration, is_stopping: &dyn Fn() -> bool) {
        let until = time::now() + timeout;
        while !is_stopping() && time::now() < until {
            self.wait(self.wakes(), until.saturating_duration_since(time::now()));
        }
    }
}

impl Scheduler {
    /// The body of the background's thread. After a panic the database is poisoned, and the thread
    /// goes on to run what is deferred.
    pub(crate) fn run_background(&self) {
        while !self.ctx.is_stopping() {
            let step = catch_unwind(AssertUnwindSafe(|| self.step())).unwrap_or_else(|_| {
                self.ctx.shared.stop_because("the thread terrace-background panicked");
                Ok(false)
            });
            let waited_for = match step {
                Ok(true) => continue,
                Ok(false) => self.rest_for(),
                Err(e) => {
                    if e.may_pass() {
                        self.ctx.shared.pace.report_failure(&e);
                    }
                    self.note_failure(&e)
                }
            };
            self.ctx.shared.wakeup.wait(waited_for);
        }
    }

    /// How long the background waits when it found nothing to do.
    fn rest_for(&self) -> Duration {
        let has_deferred = self.ctx.shared.deferred.load(Ordering::Relaxed) > 0;
        let waits_for_readers = || self.jobs.release_zones.pause(&self.ctx);
        if has_deferred { READERS_LEAVE } else { waits_for_readers().unwrap_or(IDLE) }
    }

    /// The body of worker `n`, counted from 1. It rests while there are fewer threads than that, or
    /// no memory for its job.
    pub(crate) fn run_worker(&self, n: usize) {
        let workers = &self.workers;
        debug_assert!(n >= 1, "the background's own thread is number 0");
        loop {
            let wakes = workers.wakes();
            if self.ctx.is_stopping() {
                break;
            }
            let most = self.ctx.memory.most_workers().saturating_add(1);
            if n >= workers.threads().min(most) {
                let misses = self.ctx.options.has(Failpoint::MissWorkersWake);
                let wakes = if misses { workers.wakes() } else { wakes };
                workers.wait(wakes, RESTING);
                continue;
            }
            let compacted = self
                .ctx
                .shared
                .poison
                .check()
                .and_then(|()| self.compact(&|_| Ok(()), self.ctx.work_of_files()));
            let waited_for = match compacted {
                Ok(true) => {
                    // Drains may have waited for the keys.
                    self.ctx.shared.wakeup.wake();
                    workers.wake();
                    continue;
                }
                Ok(false) => IDLE,
                Err(e) if e.is_unread() => {
                    workers.wait_out(self.note_failure(&e), &|| self.ctx.is_stopping());
                    continue;
                }
                Err(e) => self.note_failure(&e),
            };
            let misses = self.ctx.options.has(Failpoint::MissWorkersWake);
            let wakes = if misses { workers.wakes() } else { wakes };
            workers.wait(wakes, waited_for);
        }
    }

    /// The body of the thread that keeps zones ready. The background does so too, between its jobs,
    /// but one of these may take longer than a zone lasts. Where the region is a file a link is a
    /// sync, of what was written since the last one as well.
    pub(crate) fn keep_zones_ready(&self) {
        while !self.ctx.is_stopping() {
            let linked = self.ctx.shared.poison.check().and_then(|()| self.preallocate_zone());
            let waited_for = match linked {
                Ok(true) => continue,
                Ok(false) => RESTING,
                Err(e) => self.note_failure(&e),
            };
            self.ctx.shared.zone_wakeup.wait(waited_for);
        }
    }

    /// A job failed; how long to wait before the next one. A full disk is waited out, and so is a
    /// want of descriptors or memory: the longer it lasts, the longer the pauses.
    pub(super) fn note_failure(&self, error: &Error) -> Duration {
        // What failed for the object store is made again.
        if error.may_pass() || error.is_of_store() {
            self.ctx.count_failure(error);
        } else {
            self.ctx.metrics.failures.add(1);
            self.ctx.shared.stop_by(error);
            debug_assert!(
                self.ctx.shared.poison.check().is_err(),
                "a job that failed by what does not pass stops the database"
            );
        }
        if !error.may_pass() || error.kind() == ErrorKind::Full {
            return RETRY;
        }
        let before = self.shortages.fetch_add(1, Ordering::Relaxed).min(SHORTAGES);
        FIRST_RETRY * 2u32.pow(before)
    }

    /// Wakes every thread, to look whether it is to stop. The gate is shut before.
    pub(crate) fn wake_all(&self) {
        self.ctx.shared.wakeup.wake();
        self.workers.wake();
        self.ctx.rate.wake();
        self.ctx.shared.zone_wakeup.wake();
    }
}

/// Starts a thread of a scheduler. Where it panics, the database is poisoned.
pub(crate) fn spawn(
    scheduler: &Arc<Scheduler>,
    name: String,
    body: impl FnOnce(&Scheduler) + Send + 'static,
) -> std::io::Result<crate::os::thread::JoinHandle<()>> {
    let scheduler = Arc::clone(scheduler);
    let what = format!("the thread {name} panicked");
    crate::os::thread::Builder::new().name(name).spawn(move || {
        // What runs on it must not wait for a closing, which waits for it.
        let Ok(_inside) = scheduler.ctx.shared.gate.enter_step() else { return };
        let run = std::panic::AssertUnwindSafe(|| body(&scheduler));
        if std::panic::catch_unwind(run).is_err() {
            scheduler.ctx.shared.stop_because(&what);
        }
    })
}

// The work on objects: compactions that read or write them, and the deletion of those that no edit
// names any more. It has threads of its own, so no other job waits for an object store. There are
// two, so one merges while the other waits until the store has acknowledged what it wrote. The
// second one rests where memory is little, or the store fails.
//
// A failure of the store ends the job and nothing else. The job is made again after a pause that
// doubles while the store fails. Level 1 takes what drains bring meanwhile.

/// The pauses while the store fails.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Counts a compaction with objects as long as it is there.
pub(super) struct Running<'a>(&'a AtomicU32);

impl Running<'_> {
    pub(super) fn new(count: &AtomicU32) -> Running<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        Running(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Scheduler {
    /// The body of thread `n` of objects. The first one has number 0.
    pub(crate) fn run_objects(&self, n: usize) {
        let mut pause = FIRST_PAUSE;
        loop {
            let wakes = self.workers.wakes();
            if self.ctx.is_stopping() {
                break;
            }
            if n > 0 && !self.has_room_for_objects(n) {
                self.workers.wait(wakes, IDLE);
                continue;
            }
            let failures = self.ctx.metrics.store_failures.get();
            let did = self.ctx.shared.poison.check().and_then(|()| self.step_objects(n));
            // What others do mends neither the store nor a place that cannot be read.
            let is_unread = did.as_ref().is_err_and(Error::is_unread);
            let has_failed = self.ctx.metrics.store_failures.get() > failures;
            if has_failed || is_unread {
                if let Some(e) = did.err().filter(|_| is_unread) {
                    self.note_failure(&e);
                }
                self.workers.wait_out(pause, &|| self.ctx.is_stopping());
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
            let waited_for = match did {
                Ok(true) => {
                    pause = FIRST_PAUSE;
                    // Drains may have waited for the keys, and workers for room in a level.
                    self.ctx.shared.wakeup.wake();
                    self.workers.wake();
                    continue;
                }
                Ok(false) => IDLE,
                Err(e) => self.note_failure(&e),
            };
            self.workers.wait(wakes, waited_for);
        }
    }

    /// Whether thread `n` may compact beside the workers and those before it.
    fn has_room_for_objects(&self, n: usize) -> bool {
        let before = self.workers.threads() - 1 + n;
        self.ctx.object_work.failure().is_none() && self.ctx.memory.most_workers() > before
    }

    /// Runs a compaction with objects, or deletes some; whether there was something to do. What is
    /// served in turn is the first thread's: manual compactions, and deletions.
    fn step_objects(&self, n: usize) -> Result<bool> {
        if n > 0 {
            return self.compact(&|_| Ok(()), Work::Objects);
        }
        let objects = self.ctx.set.store().objects();
        // A long load would leave all that it replaces until its end.
        if objects.is_some_and(|tier| tier.has_full_request()) && self.delete_objects()? {
            return Ok(true);
        }
        if self.compact_objects_by_hand()? || self.compact(&|_| Ok(()), Work::Objects)? {
            return Ok(true);
        }
        self.delete_objects()
    }

    /// Takes a step of a manual compaction, if it comes to objects next.
    fn compact_objects_by_hand(&self) -> Result<bool> {
        let first = self.ctx.manual.first();
        let Some(request) = first.filter(|request| request.stage() == Stage::Levels) else {
            return Ok(false);
        };
        let is_there = request.table.check().is_ok();
        if !is_there || !request.table.view().version.concerns_objects() {
            return Ok(false);
        }
        let done = self.compact_by_hand(&request, &|_| Ok(()), Work::Objects);
        done.map(|outcome| outcome.did).or_else(|error| self.end_by_hand(&request, error))
    }

    /// Deletes objects that no edit names any more; whether there were some.
    pub(super) fn delete_objects(&self) -> Result<bool> {
        let store = self.ctx.set.store();
        let Some(tier) = store.objects().filter(|tier| tier.has_released()) else {
            return Ok(false);
        };
        let deleted = tier.delete_released();
        match &deleted {
            Ok(_) => self.ctx.object_work.succeeded(),
            Err(error) => {
                self.ctx.metrics.store_failures.add(1);
                self.ctx.object_work.failed(error);
            }
        }
        Ok(self.unless_store_fails(deleted)?.is_some_and(|deleted| deleted > 0))
    }

    /// The result of a job; `None` if the object store kept it from its end.
    pub(super) fn unless_store_fails<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error) if error.is_of_store() => {
                self.ctx.count_failure(&error);
                Ok(None)
            }
            done => done.map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use std::time::Instant;

    use super::*;
    use crate::base::options::Options;
    use crate::mvcc::{drive_until, pin};

    /// Bug: records that readers had left stayed for 200 ms more, with level 0 full. Cause: the
    /// background rested as if nothing was due, and no reader that leaves wakes it.
    #[test]
    fn the_background_looks_often_while_work_waits_for_readers() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(2 << 20).stepped().create(dir.path()).unwrap();
        let (shared, scheduler) = (&db.inner.ctx.shared, &db.inner.scheduler);
        assert_eq!(scheduler.rest_for(), IDLE);
        let guard = pin();
        shared.defer(|_| ());
        assert_eq!(scheduler.rest_for(), READERS_LEAVE);
        drop(guard);
        assert!(drive_until(|| {
            shared.queue.drive();
            scheduler.rest_for() == IDLE
        }));
    }

    /// Bug: a panic in one database's deferred work stopped another one. Cause: the background of
    /// any database ran what was due, and its panic counted as that database's own.
    #[test]
    fn a_panic_in_deferred_work_stops_its_own_database() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let open = |dir: &tempfile::TempDir| {
            Options::new().pm_size(2 << 20).stepped().create(dir.path()).unwrap()
        };
        let [first, second] = [&dirs[0], &dirs[1]].map(open);
        let shared = &first.inner.ctx.shared;
        shared.defer(|_| panic!("planned"));
        let is_over = || shared.deferred.load(Ordering::Relaxed) == 0;
        // The first one runs its own work, and after its closing another database does.
        drop(first.inner.runner.lock().take());
        assert!(drive_until(|| second.step().is_ok() && is_over()));
        assert!(shared.poison.is_set());
        assert!(second.table("t").unwrap().put("k", "v").is_ok());
    }

    /// Bug: after a failure deferred work of all databases lay in the queue. Cause: a poisoned
    /// database ran none, and was still counted among those that do.
    #[test]
    fn a_poisoned_database_runs_what_is_due() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(2 << 20).stepped().create(dir.path()).unwrap();
        let ran = Arc::new(AtomicBool::new(false));
        let does_run = Arc::clone(&ran);
        db.inner.ctx.shared.stop_because("planned");
        crate::mvcc::defer(move || does_run.store(true, Ordering::SeqCst));
        let until = Instant::now() + Duration::from_mins(1);
        while !ran.load(Ordering::SeqCst) {
            assert!(db.step().is_err());
            assert!(Instant::now() < until);
        }
    }

    /// Bug: a closing took ten seconds more. Cause: a worker that had found the database open was
    /// woken before it began to wait, and the wait counted wake-ups from its own beginning. Fix: it
    /// counts those since before the look.
    #[test]
    fn a_wake_up_between_the_look_and_the_wait_is_not_missed() {
        let (workers, timeout) = (Workers::default(), Duration::from_mins(1));
        let before = workers.wakes();
        workers.wake();
        let from = Instant::now();
        workers.wait(before, timeout);
        assert!(from.elapsed() < timeout, "it does not wait");
    }
}
