//! The work on objects: compactions that read or write them, and the deletion of those that no edit
//! names any more. It has threads of its own, so no other job waits for an object store. There are
//! two, so one merges while the other waits until the store has acknowledged what it wrote. The
//! second one rests where memory is little, or the store fails.
//!
//! A failure of the store ends the job and nothing else. The job is made again after a pause that
//! doubles while the store fails. Level 1 takes what drains bring meanwhile.

use std::time::Duration;

use super::Scheduler;
use crate::base::error::Result;
use crate::compaction::Work;
use crate::jobs::manual::Stage;
use crate::os::sync::atomic::{AtomicU32, Ordering};
use crate::os::time;

/// With nothing to do the thread looks around this often.
const IDLE: Duration = Duration::from_millis(200);

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
            let has_failed = self.ctx.metrics.store_failures.get() > failures;
            let waited_for = match did {
                _ if has_failed => {
                    let now = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    now
                }
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
            let (until, mut wakes) = (time::now() + waited_for, wakes);
            loop {
                self.workers.wait(wakes, until.saturating_duration_since(time::now()));
                wakes = self.workers.wakes();
                // What others have done does not mend the store.
                if !has_failed || self.ctx.is_stopping() || time::now() >= until {
                    break;
                }
            }
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
                self.ctx.metrics.failures.add(1);
                Ok(None)
            }
            done => done.map(Some),
        }
    }
}
