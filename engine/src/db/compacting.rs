//! Compactions: on the background's thread, or several at a time on workers beside it.
//!
//! A job claims the keys that it works on, in all levels of its table, under the right to change
//! the table, and then runs without it: drains and other compactions of the table go on elsewhere.
//! The right is taken again to install what came out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::claims::Claim;
use super::inner::Engine;
use crate::compaction::{self, Choice, Shape, Situation};
use crate::error::Result;
use crate::mvcc::Horizon;
use crate::options::Planted;
use crate::table::TableCore;

/// Bytes of extents aimed at.
const EXTENT_BYTES: usize = 2 * 1024 * 1024;

/// How much larger each level is than the one above.
const LEVEL_RATIO: u64 = 10;

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
            if n >= budget.threads() {
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
        Shape {
            level1_bytes: self.options.level1_size,
            ratio: LEVEL_RATIO,
            extent_bytes: EXTENT_BYTES,
            compression: self.options.compression,
            reuse: self.options.reuse,
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
        let now = Situation { oldest: horizon.oldest(), busy: &busy };
        let choice = compaction::pick(&table.view().version, &self.shape(), &now)?;
        let claim = claims.claim(table.id(), choice.interval())?;
        Some(Job { choice, horizon, _claim: claim })
    }

    fn compact(&self, table: &TableCore, job: &Job<'_>) -> Result<bool> {
        let (background, cache) = (&self.background, &self.shared.cache);
        let limit = |bytes| background.budget.spend(bytes, &self.stop);
        let done =
            compaction::run(&job.choice, &self.set, cache, &job.horizon, &self.shape(), &limit);
        let mut change = table.change();
        if table.check().is_err() {
            // Dropped meanwhile: what was written goes with `done`.
            return Ok(true);
        }
        let done = done?;
        let versions = self.apply(done.edit)?;
        self.install(table, &mut change, versions, job.horizon.newest());
        drop(change);
        background.count_reused(&done.reused);
        done.replaced.iter().for_each(|extent| extent.evict(cache));
        let (moved, collected) = match &job.choice {
            Choice::Move { .. } => (true, false),
            Choice::Merge { collects, .. } => (false, !collects.is_empty()),
        };
        let counter = if moved { &background.moves } else { &background.compactions };
        counter.fetch_add(1, Ordering::Relaxed);
        background.collections.fetch_add(u64::from(collected), Ordering::Relaxed);
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
