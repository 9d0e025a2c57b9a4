//! The engine of an open database: it owns the store, the catalog of tables and the scheduler.
//!
//! What is done with a database lies beside it: `open` makes it, `instance.rs` runs and closes it,
//! `catalog.rs` knows tables by name, `jobs` and `maintenance` work on its parts.

use std::path::PathBuf;
use std::sync::Arc;

use super::catalog::Catalog;
use super::jobs::JobContext;
use super::open_stats::OpenStats;
use super::scheduler::Scheduler;
use super::share::Shipper;
use crate::alloc::VolatilePool;
use crate::error::{Damage, Result};
use crate::levels::VersionSet;
use crate::mvcc::{Runner, is_pinned};
use crate::options::{BackgroundTuning, CommitTuning, Options};
use crate::os::cores;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::OnceLock;
use crate::ptree::forest::Forest;
use crate::record::Lsn;
use crate::table::{Shared, TableCore};
use crate::txn::Registry;

/// How many threads open and close a database: as many as there are cores, one where every step is
/// to come in its turn.
pub(super) fn threads_of(options: &Options) -> usize {
    if options.stepped { 1 } else { cores() }
}

/// Everything of an open database but its thread and its lock.
///
/// Thread safety: lock order is `ddl`, then a table's change, then tables by name; `docs/locks.md`
/// has the whole of it.
pub(super) struct Engine {
    pub(super) path: PathBuf,
    pub(super) options: Options,
    pub(super) shared: Arc<Shared>,
    pub(super) transactions: Arc<Registry>,
    pub(super) set: Arc<VersionSet>,
    /// The tables, and all else that jobs of the background may touch.
    pub(super) ctx: Arc<JobContext>,
    pub(super) catalog: Catalog,
    pub(super) scheduler: Arc<Scheduler>,
    /// The persistent index of level 0, where it is kept so.
    pub(super) forest: Option<Arc<Forest>>,
    /// What was wrong with the one that the opening found, and did not go on with.
    pub(super) index_damage: Option<Damage>,
    pub(super) opened: OpenStats,
    /// The last commit that the opening found.
    pub(super) recovered: Lsn,
    /// Ships commits, where the database is shared.
    pub(super) shipper: OnceLock<Shipper>,
    /// The cache below the block cache, where there is one.
    pub(super) secondary_cache: Option<Arc<VolatilePool>>,
    /// As long as the background, or a caller's steps, run what was deferred.
    pub(super) runner: Mutex<Option<Runner>>,
}

impl Engine {
    /// The tables of this moment.
    pub(super) fn tables(&self) -> Vec<Arc<TableCore>> {
        self.ctx.tables.all()
    }

    /// Whether threads of its own do the background's jobs.
    pub(super) fn has_background(&self) -> bool {
        !self.shared.read_only && !self.options.stepped
    }

    /// Sets what the background may use. Where it has no thread, it has no workers either.
    pub(super) fn set_budget(&self, tuning: BackgroundTuning) {
        let tuning = if self.has_background() { tuning } else { tuning.threads(1) };
        self.scheduler.tune(tuning);
    }

    /// Does a job of the background, where that has no thread.
    pub(super) fn step(&self) -> Result<bool> {
        let _inside = self.shared.gate.enter_call()?;
        self.scheduler.step()
    }

    /// Waits for the readers that began before the gate was shut, where they read what the next
    /// opening writes: the persistent index, or a mapped region. Work that was deferred on them is
    /// done then. Once the gate is barred, the next opening has both to itself.
    pub(super) fn wait_for_readers(&self) {
        debug_assert!(!is_pinned(), "it would wait for itself");
        if self.forest.is_none() && !self.shared.region.is_mapped() {
            return;
        }
        let have_left = Arc::new(AtomicBool::new(false));
        let left = Arc::clone(&have_left);
        self.shared.queue.defer(move || left.store(true, Ordering::Release));
        while !have_left.load(Ordering::Acquire) {
            self.shared.queue.drive();
            crate::os::thread::yield_now();
        }
    }

    /// Deletes objects that no edit names any more, if the store answered last. No job runs.
    pub(super) fn delete_objects_at_close(&self) {
        let answers = self.ctx.object_work.failure().is_none();
        if let Some(objects) = self.set.store().objects().filter(|_| answers) {
            // What the last jobs replaced is released by deferred work.
            self.shared.queue.drive();
            objects.delete_at_close();
        }
    }

    /// Seals the persistent index, where there is one: the last that is done to it.
    pub(super) fn seal_index(&self) -> Result<()> {
        match &self.forest {
            Some(forest) => forest.seal(threads_of(&self.options)),
            None => Ok(()),
        }
    }

    /// Changes how commits are grouped and where their records go.
    pub(super) fn tune(&self, tuning: CommitTuning) {
        self.shared.committer.set_group_bounds(tuning.group_batches, tuning.group_bytes);
        self.shared.committer.follow_published_rule(tuning.published_rule);
        self.scheduler.tune_streams(tuning);
    }

    /// Whether links of zones take long enough for a thread of their own.
    pub(super) fn has_slow_links(&self) -> bool {
        self.shared.region.mode() == "file"
    }
}
