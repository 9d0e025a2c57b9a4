//! The engine of an open database: it owns the store, the catalog of tables and the scheduler.
//!
//! What is done with a database lies beside it: `open` makes it, `instance.rs` runs and closes it,
//! `catalog.rs` knows tables by name, `jobs` work on its parts.

pub(crate) mod catalog;
mod database;
mod extents;
mod history;
mod instance;
mod metrics;
mod object_store;
pub(crate) mod open;
mod stats;
mod stats_reader;
mod table_calls;
pub(crate) mod table_events;
mod transactions;

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::options::{BackgroundTuning, CommitTuning, Level0Container, Options};
use crate::base::record::Lsn;
use crate::cache::Below;
use crate::jobs::JobContext;
use crate::level0::{Level0, RowTables};
use crate::mvcc::{Runner, is_pinned};
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::OnceLock;
use crate::os::{cores, give_back_freed};
use crate::pindex::forest::Forest;
use crate::pm::Region;
use crate::pm::alloc::{VolatilePool, ZonePool};
use crate::scheduler::Scheduler;
use crate::table::{Shared, TableCore, Wakeup};
use crate::txn::Registry;
use crate::version::VersionSet;
use catalog::Catalog;
pub use catalog::TableRef;

pub use database::Database;
pub(crate) use database::OpenHow;
pub use extents::{ExtentInfo, JobKeys};
pub use history::HistorySample;
pub use instance::ShareStats;
pub(crate) use instance::{Shipping, check_closing};
pub use object_store::{ObjectStats, ObjectStoreReport};
pub use open::OpenStats;
pub use stats::{
    CacheStats, CommitStats, DiskStats, LevelStats, LockStats, PaceStats, PersistenceStats,
    PmStats, Stats, TableStats,
};
pub use stats_reader::StatsReader;
#[cfg(any(test, feature = "testing"))]
pub(crate) use {history::probe as history_probe, table_events::TableEvent};

/// How many threads open and close a database: as many as there are cores, one where every step is
/// to come in its turn.
pub(crate) fn threads_of(options: &Options) -> usize {
    if options.stepped { 1 } else { cores() }
}

/// Everything of an open database but its thread and its lock.
///
/// Thread safety: lock order is `ddl`, then a table's change, then tables by name; `docs/locks.md`
/// has the whole of it.
pub(crate) struct Engine {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) shared: Arc<Shared>,
    pub(crate) transactions: Arc<Registry>,
    pub(crate) set: Arc<VersionSet>,
    /// The tables, and all else that jobs of the background may touch.
    pub(crate) ctx: Arc<JobContext>,
    pub(crate) catalog: Catalog,
    pub(crate) scheduler: Arc<Scheduler>,
    /// The persistent index of level 0, where it is kept so.
    pub(crate) forest: Option<Arc<Forest>>,
    /// What was wrong with the one that the opening found, or why there is none.
    pub(crate) index_note: Option<String>,
    pub(crate) opened: OpenStats,
    /// Whether another process may write meanwhile: this one has a registration, and no lock.
    pub(crate) is_beside: bool,
    /// The last commit that the opening found.
    pub(crate) recovered: Lsn,
    /// Ships commits, where the database is shared.
    pub(crate) shipper: OnceLock<Box<dyn Shipping>>,
    /// The cache below the block cache, where there is one.
    pub(crate) secondary_cache: Option<Arc<VolatilePool>>,
    /// Ends the wait for the next sample of the history.
    history_wakeup: Wakeup,
    /// As long as the background, or a caller's steps, run what was deferred.
    pub(crate) runner: Mutex<Option<Runner>>,
}

impl Engine {
    /// The tables of this moment.
    pub(crate) fn tables(&self) -> Vec<Arc<TableCore>> {
        self.ctx.tables.all()
    }

    /// Whether threads of its own do the background's jobs.
    pub(crate) fn has_background(&self) -> bool {
        !self.shared.read_only && !self.options.stepped
    }

    /// Sets what the background may use. Where it has no thread, it has no workers either.
    pub(crate) fn set_budget(&self, tuning: BackgroundTuning) {
        let tuning = if self.has_background() { tuning } else { tuning.threads(1) };
        self.scheduler.tune(tuning);
    }

    /// Does a job of the background, where that has no thread.
    pub(crate) fn step(&self) -> Result<bool> {
        let _inside = self.shared.gate.enter_call().map_err(Error::not_open)?;
        self.scheduler.step()
    }

    /// Where a test steps the background, it does what makes room for a reader of the shared store:
    /// a quarter of the region at least. No thread does that then, and a step of the reader may
    /// apply more than the region takes.
    pub(crate) fn step_for_space(&self) {
        #[cfg(any(test, feature = "testing"))]
        {
            let zones = &self.shared.zones;
            let is_filling = || self.options.stepped && 4 * zones.free() < zones.room();
            while is_filling() && matches!(self.step(), Ok(true)) {}
        }
    }

    /// Waits for the readers that began before the gate was shut, where they read what the next
    /// opening writes: the persistent index, or a mapped region. Work that was deferred on them is
    /// done then. Once the gate is barred, the next opening has both to itself.
    pub(crate) fn wait_for_readers(&self) {
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
    pub(crate) fn delete_objects_at_close(&self) {
        let answers = self.ctx.object_work.failure().is_none();
        if let Some(objects) = self.set.store().objects().filter(|_| answers) {
            // What the last jobs replaced is released by deferred work.
            self.shared.queue.drive();
            objects.delete_at_close();
        }
    }

    /// Changes how commits are grouped and where their records go.
    pub(crate) fn tune(&self, tuning: CommitTuning) {
        self.shared.committer.set_group_bounds(tuning.group_batches, tuning.group_bytes);
        self.shared.committer.follow_published_rule(tuning.published_rule);
        self.scheduler.tune_streams(tuning);
    }
}

/// How often the work of others that has to be done first is driven on. After that the image goes
/// when a reader of some database of the process moves on.
const ROUNDS: usize = 64;

/// With fewer bytes of cached blocks than this, what the heap keeps is not worth its walk.
const WORTH_IT: u64 = 4 << 20;

impl Engine {
    /// Gives back what calls and jobs used. All calls fail with `Closed` by now.
    pub(crate) fn release_memory(&self) {
        debug_assert!(self.shared.check_open().is_err(), "no call begins any more");
        self.set.store().stop_behind();
        let cached = self.shared.cache.used();
        self.shared.cache.set_capacity(0);
        self.set.store().memory().clock.set_most(0);
        if self.forest.is_none() {
            self.tables().iter().for_each(|table| self.release_indexes(table));
        }
        let region = Arc::clone(&self.shared.region);
        // Work on records of dropped tables was deferred before, and reads the image. It runs
        // before the outer closure, or on a thread that has a hold which the inner one waits
        // for.
        let (queue, behind) = (&self.shared.queue, Arc::clone(&self.shared.queue));
        queue.defer(move || behind.defer(move || region.discard()));
        (0..ROUNDS).for_each(|_| queue.drive());
        // What comes later is run by who defers it, or by another database.
        drop(self.runner.lock().take());
        self.shared.cache.trim();
        if cached >= WORTH_IT {
            give_back_freed();
        }
    }

    /// Replaces the view of a table by one without records.
    fn release_indexes(&self, table: &TableCore) {
        let mut empty = self.catalog.empty_view(Arc::clone(&table.view().version));
        let pages = Arc::clone(&self.shared.pages);
        empty.level0 = Level0::new(RowTables::new(pages, Level0Container::GlobalIndex));
        table.release(empty);
    }
}

impl Below for VolatilePool {
    fn get(&self, extent: u64, offset: u32) -> Option<Vec<u8>> {
        VolatilePool::get(self, (extent, offset))
    }

    fn keep(&self, extent: u64, offset: u32, bytes: &[u8]) {
        // Without room it is read from its medium again.
        VolatilePool::keep(self, (extent, offset), bytes);
    }
}

/// The cache below the block cache, where that is of use. A read-only opening has none, since it
/// writes nothing to the region.
fn secondary_cache(
    region: &Arc<Region>,
    zones: &Arc<ZonePool>,
    read_only: bool,
) -> Option<Arc<VolatilePool>> {
    (region.is_mapped() && !read_only).then(|| VolatilePool::new(region, zones))
}
