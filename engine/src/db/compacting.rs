//! Compactions: on the background's thread, or several at a time on workers beside it.
//!
//! A job claims the keys that it works on, in all levels of its table, under the right to change
//! the table, and then runs without it: drains and other compactions of the table go on elsewhere.
//! The right is taken again to install what came out.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::claims::Claim;
use super::inner::Engine;
use crate::compaction::{self, Choice, Shape, Situation};
use crate::error::{ErrorKind, Result};
use crate::mvcc::Horizon;
use crate::options::Planted;
use crate::table::TableCore;

/// How much larger each level is than the one above.
const LEVEL_RATIO: u64 = 10;

/// Where no option says how large level 1 shall be: as many times the size of the region, or one
/// byte for so many below it if that is more. The larger, the less is written again, and the more
/// superseded versions lie about.
const LEVEL1_REGIONS: u64 = 2;
const LEVEL1_SHARE: u64 = 2;

/// The same while nothing is written: then it costs nobody's time to be rid of such versions.
const QUIET_LEVEL1_SHARE: u64 = 16;

/// The bounds of what one job reads.
const LEAST_JOB: u64 = 8 << 20;
const MOST_JOB: u64 = 64 << 20;

/// The most bytes of a layer that a drain writes again rather than to use up another one.
const MOST_LITTLE: u64 = 128 << 10;

/// With nothing to do, a worker looks around this often.
const IDLE: Duration = Duration::from_millis(200);

/// One that the budget has no room for waits for a ring, and looks up this often.
const RESTING: Duration = Duration::from_secs(10);

/// A compaction about to run.
struct Job<'a> {
    choice: Choice,
    horizon: Horizon,
    _claim: Claim<'a>,
}

impl Engine {
    /// The body of worker `n`, counted from 1. It rests while the budget has no room for it.
    pub(super) fn run_worker(&self, n: usize) {
        let budget = &self.background.budget;
        while !self.stop.load(Ordering::Acquire) {
            if n >= budget.threads().min(self.most_workers().saturating_add(1)) {
                budget.wait(RESTING);
                continue;
            }
            let waited_for = match self.shared.poison.check().and_then(|()| self.compact_one()) {
                Ok(true) => {
                    // Drains may have waited for the keys.
                    self.shared.bell.ring();
                    budget.ring();
                    continue;
                }
                Ok(false) => IDLE,
                Err(e) => self.note_failure(&e),
            };
            budget.wait(waited_for);
        }
    }

    pub(super) fn shape(&self) -> Shape {
        let (level1, region) = (self.options.level1_size, self.shared.region.len());
        let smaller = self.background.smaller.load(Ordering::Relaxed);
        let (bytes, share) = match self.is_quiet() {
            true => (0, QUIET_LEVEL1_SHARE),
            false => (region * LEVEL1_REGIONS, LEVEL1_SHARE),
        };
        Shape {
            level1_bytes: level1.unwrap_or(bytes),
            level1_share: level1.is_none().then_some(share),
            job_bytes: (region * 4).clamp(LEAST_JOB, MOST_JOB) >> smaller.min(u32::BITS),
            ratio: LEVEL_RATIO,
            little_bytes: (region / 64).min(MOST_LITTLE),
            extent_bytes: self.set.store().memory().extent_bytes(),
            compression: self.options.compression,
            reuse: self.options.reuse,
            fills: self.drains_fill(),
            drops_tombstones: self.options.has(Planted::PruneTombstones),
        }
    }

    /// Runs one compaction between levels, if some table calls for one.
    pub(super) fn compact_one(&self) -> Result<bool> {
        for table in self.tables() {
            if let Some(job) = self.choose(&table) {
                return self.compact(&table, &job);
            }
        }
        Ok(false)
    }

    /// What a table needs most, its keys claimed.
    fn choose(&self, table: &TableCore) -> Option<Job<'_>> {
        let _no_other_change = table.change();
        table.check().ok()?;
        let claims = &self.background.claims;
        let horizon = self.shared.snapshots.horizon();
        let busy = claims.of(table.id());
        let now = Situation { readers: horizon.readers(), rests: self.rests(), busy: &busy };
        let choice = compaction::pick(&table.view().version, &self.shape(), &now)?;
        let claim = claims.claim(table.id(), choice.interval())?;
        Some(Job { choice, horizon, _claim: claim })
    }

    fn compact(&self, table: &TableCore, job: &Job<'_>) -> Result<bool> {
        let (background, cache) = (&self.background, &self.shared.cache);
        let from = background.clock();
        let failed = RefCell::new(None);
        let between_extents = |bytes| {
            background.budget.spend(bytes, &self.stop);
            if !background.budget.has_workers() && failed.borrow().is_none() {
                *failed.borrow_mut() = self.let_pass().err();
            }
        };
        let (set, shape) = (&self.set, self.shape());
        let done = compaction::run(&job.choice, set, cache, &job.horizon, &shape, &between_extents);
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        let mut change = table.change();
        if table.check().is_err() {
            // Dropped meanwhile: what was written goes with `done`.
            return Ok(true);
        }
        if done.as_ref().is_err_and(|e| e.kind() == ErrorKind::Full) {
            // A smaller one may find room.
            background.smaller.fetch_add(1, Ordering::Relaxed);
        }
        let mut done = done?;
        let version = Arc::clone(&table.view().version);
        let mut busy = background.claims.of(table.id());
        busy.retain(|keys| *keys != job.choice.interval());
        let sinking = compaction::sink(&version, &job.choice, &busy).ops;
        let sunk = sinking.len() as u64;
        done.edit.ops.extend(sinking);
        let (moved, collected) = match &job.choice {
            Choice::Move { .. } => (true, false),
            Choice::Merge { collects, .. } => (false, !collects.is_empty()),
        };
        let versions = match collected && self.options.has(Planted::CollectBeforeEdit) {
            true => self.adopt_unjournaled(&done.edit, [table.id()].into_iter())?,
            false => self.apply(done.edit)?,
        };
        self.install(table, &mut change, versions, job.horizon.newest());
        drop(change);
        background.metrics.count_reused(&done.reused);
        let left = job.choice.out_of_level1();
        background.books.lock().compacted(left, (from, background.clock()));
        done.replaced.iter().for_each(|extent| extent.evict(cache));
        background.smaller.store(0, Ordering::Relaxed);
        let metrics = &background.metrics;
        let counter = if moved { &metrics.moves } else { &metrics.compactions };
        counter.add(1);
        background.metrics.collections.add(u64::from(collected));
        background.metrics.sunk_extents.add(sunk);
        self.balance_memory();
        Ok(true)
    }
}

/// Starts worker `n` of an engine.
pub(super) fn spawn_worker(
    engine: &Arc<Engine>,
    n: usize,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let engine = Arc::clone(engine);
    std::thread::Builder::new().name(format!("terrace-compaction-{n}")).spawn(move || {
        let run = std::panic::AssertUnwindSafe(|| engine.run_worker(n));
        if std::panic::catch_unwind(run).is_err() {
            engine.stop_because("a compaction panicked");
        }
    })
}

#[cfg(test)]
mod tests;
