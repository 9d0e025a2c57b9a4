//! An open database: the engine that handles and the background share, and the thread that ends
//! with the last handle.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::jobs::{JobContext, mark_close};
use super::open::threads_of;
use super::scheduler::{Scheduler, spawn};
use super::stats::OpenStats;
use crate::alloc::VolatilePool;
use crate::error::{Damage, Error, ErrorKind, Result};
use crate::level0::Level0;
use crate::levels::{Edit, Version, VersionSet};
use crate::memtable::Memtable;
use crate::mvcc::{defer, drive, is_pinned};
use crate::options::{BackgroundTuning, CommitTuning, Options};
use crate::os::DirectoryLock;
use crate::pm::Superblock;
use crate::ptree::forest::Forest;
use crate::record::{Lsn, TableId};
use crate::table::{Shared, TableCore};
use crate::txn::Registry;
use crate::view::View;

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
    /// As on the media.
    pub(super) superblock: Mutex<Superblock>,
    /// The tables, and all else that jobs of the background may touch.
    pub(super) ctx: Arc<JobContext>,
    pub(super) scheduler: Arc<Scheduler>,
    /// The persistent index of level 0, where it is kept so.
    pub(super) forest: Option<Arc<Forest>>,
    /// What was wrong with the one that the opening found, and did not go on with.
    pub(super) index_damage: Option<Damage>,
    pub(super) opened: OpenStats,
    /// The cache below the block cache, where there is one.
    pub(super) secondary_cache: Option<Arc<VolatilePool>>,
}

impl Engine {
    /// The tables of this moment.
    pub(super) fn tables(&self) -> Vec<Arc<TableCore>> {
        self.ctx.tables.all()
    }

    /// The state of a table as it opens, with nothing in memory yet.
    pub(super) fn new_core(
        &self,
        id: TableId,
        name: &str,
        created: Lsn,
        version: Arc<Version>,
    ) -> TableCore {
        let view = self.empty_view(version);
        TableCore::new(id, name, (created, created), view, self.ctx.tables.changed())
    }

    /// A view of what `version` has, and nothing above it.
    pub(super) fn empty_view(&self, version: Arc<Version>) -> View {
        let region = &self.shared.region;
        View {
            active: Arc::new(Memtable::new(Arc::clone(region))),
            frozen: Vec::new(),
            level0: self.empty_level0(version.table),
            joining: Vec::new(),
            version,
            pruned: 0,
        }
    }

    /// The level 0 of a table, with what an opening found in a persistent index.
    fn empty_level0(&self, table: TableId) -> Arc<Level0> {
        let region = Arc::clone(&self.shared.region);
        match &self.forest {
            Some(forest) => Level0::persistent(region, Arc::clone(forest), table),
            None => Level0::new(region, self.options.container()),
        }
    }

    /// Applies an edit to the journal, durably. The floor names it from the next run on.
    ///
    /// # Errors
    ///
    /// `Full` when the disk is full, and nothing was changed; anything else poisons the database.
    pub(super) fn apply(&self, edit: Edit) -> Result<Vec<(TableId, Arc<Version>)>> {
        self.shared.apply(edit)
    }

    /// Poisons the database and wakes everybody who waits.
    pub(super) fn stop_because(&self, cause: &str) {
        self.shared.stop_because(cause);
    }

    /// Whether threads of its own do the background's jobs.
    fn has_background(&self) -> bool {
        !self.shared.read_only && !self.options.stepped
    }

    /// Sets what the background may use. Where it has no thread, it has no workers either.
    fn set_budget(&self, tuning: BackgroundTuning) {
        let tuning = if self.has_background() { tuning } else { tuning.threads(1) };
        self.scheduler.tune(tuning);
    }

    /// Waits for those who use the persistent index, and for what they have deferred: the next
    /// opening has it to itself. Whether nobody is left.
    fn leave_index(&self) -> bool {
        // Who holds an epoch while it drops the last handle would wait for itself.
        let is_alone = !is_pinned();
        if self.forest.is_some() && is_alone {
            let is_left = Arc::new(AtomicBool::new(false));
            let left = Arc::clone(&is_left);
            defer(move || left.store(true, Ordering::Release));
            while !is_left.load(Ordering::Acquire) {
                drive();
                std::thread::yield_now();
            }
        }
        self.shared.defers.shut();
        is_alone
    }

    /// Seals the persistent index, where there is one: the last that is done to it.
    fn seal_index(&self) -> Result<()> {
        match &self.forest {
            Some(forest) => forest.seal(threads_of(&self.options)),
            None => Ok(()),
        }
    }

    /// Makes everything committed durable and writes the floor.
    pub(super) fn settle(&self) -> Result<Lsn> {
        self.shared.committer.settle()
    }
}

impl Engine {
    /// Changes how commits are grouped and where their records go.
    pub(super) fn tune(&self, tuning: CommitTuning) {
        self.shared.committer.set_group_bounds(tuning.group_batches, tuning.group_bytes);
        self.shared.committer.follow_published_rule(tuning.published_rule);
        self.scheduler.tune_streams(tuning);
    }

    /// Whether links of zones take long enough for a thread of their own.
    fn has_slow_links(&self) -> bool {
        self.shared.region.mode() == "file"
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}"))
}

/// What handles keep alive.
pub(super) struct Inner {
    engine: Arc<Engine>,
    /// The background's own, then its workers.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Keeps zones ready, where that takes long.
    zone_keeper: Mutex<Option<JoinHandle<()>>>,
    /// Given back at last.
    lock: Mutex<Option<DirectoryLock>>,
}

impl Inner {
    /// Starts the background of an opened engine.
    pub(super) fn start(engine: Engine, lock: DirectoryLock) -> Result<Arc<Inner>> {
        let engine = Arc::new(engine);
        engine.set_budget(engine.options.background);
        let mut threads = Vec::new();
        if engine.has_background() {
            let name = "terrace-background".to_string();
            let spawned = spawn(&engine.scheduler, name, Scheduler::run_background);
            threads.push(spawned.map_err(|e| no_thread(&e))?);
        }
        let (threads, lock) = (Mutex::new(threads), Mutex::new(Some(lock)));
        let inner = Arc::new(Inner { engine, threads, zone_keeper: Mutex::default(), lock });
        inner.start_workers()?;
        if inner.has_background() && inner.has_slow_links() {
            let name = "terrace-zones".to_string();
            let spawned = spawn(&inner.engine.scheduler, name, Scheduler::keep_zones_ready);
            *inner.zone_keeper.lock() = Some(spawned.map_err(|e| no_thread(&e))?);
        }
        Ok(inner)
    }

    /// Starts workers until there are as many as the budget has room for; those beyond it rest.
    fn start_workers(&self) -> Result<()> {
        let mut threads = self.threads.lock();
        for n in threads.len().max(1)..self.engine.scheduler.workers.threads() {
            let name = format!("terrace-compaction-{n}");
            let spawned = spawn(&self.engine.scheduler, name, move |s| s.run_worker(n));
            threads.push(spawned.map_err(|e| no_thread(&e))?);
        }
        Ok(())
    }

    /// Changes what the background may use.
    pub(super) fn tune_background(&self, tuning: BackgroundTuning) -> Result<()> {
        self.engine.shared.check_open()?;
        self.engine.set_budget(tuning);
        self.start_workers()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.engine.shared
    }

    pub(super) fn transactions(&self) -> &Arc<Registry> {
        &self.engine.transactions
    }

    pub(super) fn path(&self) -> &Path {
        &self.engine.path
    }

    /// Closes for all handles; a second time does nothing.
    pub(super) fn close(&self) -> Result<()> {
        let engine = &self.engine;
        if engine.shared.fork.is_forked() {
            // The parent's database: the child has neither its threads nor the right to write.
            return engine.shared.check_open();
        }
        if !engine.shared.close() {
            return Ok(());
        }
        // Large commits that are under way: afterwards nobody writes to the journal but the thread.
        drop(engine.shared.large.write());
        // Tables that are being dropped take stock of the index first.
        drop(engine.shared.ddl.lock());
        engine.ctx.stop.store(true, Ordering::Release);
        engine.scheduler.wake_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads.into_iter().chain(self.zone_keeper.lock().take()) {
            if thread.join().is_err() {
                engine.stop_because("a background thread panicked");
            }
        }
        let merged = engine.scheduler.merge_at_close();
        let is_left = engine.leave_index();
        let settled = merged.and_then(|()| match engine.shared.read_only {
            true => Ok(0),
            false => mark_close(&engine.ctx).and_then(|()| engine.settle()),
        });
        // After a failure nobody knows what it is that would be sealed.
        let sealed = settled.and_then(|_| if is_left { engine.seal_index() } else { Ok(()) });
        let gave_back = match engine.shared.poison.check() {
            Ok(()) => engine.set.store().give_back_all().map(drop),
            Err(_) => Ok(()),
        };
        drop(self.lock.lock().take());
        sealed.and(gave_back)
    }
}

impl std::ops::Deref for Inner {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody is left to tell. Whoever wants to know calls `close`.
        drop(self.close());
    }
}
