//! What all handles of one open database share.
//!
//! A thread that applies what another database has committed: it alone writes to one that follows.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use super::awaited::Awaited;
use super::core::{Pinned, TableCore, TableSlot};
use super::extent_writer::WriteMemory;
use super::pace::{Pace, Wakeup};
use crate::base::error::{Error, Result};
use crate::base::events::Events;
use crate::base::operator;
use crate::base::options::{Compression, Failpoint};
use crate::base::progress;
use crate::base::record::{Lsn, TableId};
use crate::commit::{Committer, Poison};
use crate::level0::Released;
use crate::locks::LockManager;
use crate::mvcc::{
    Clock, DeferQueue, EpochGuard, Registered, SnapshotRegistry, Time, is_waited_for, pin,
};
use crate::os::sync::atomic::{AtomicUsize, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::{ForkGuard, Gate, Inside};
use crate::pm::alloc::{PagePool, ZonePool};
use crate::pm::{Purpose, Region, SpentOn};
use crate::read::view::{PinnedView, TicketLsn, View};
use crate::read::{self, AsOf, Lookups};
use crate::sstable::{BlockCache, Blocks};
use crate::version::{Level, Version, VersionSet};

/// Keeps a database open while handles of it are left.
pub(crate) type Keep = Arc<dyn Any + Send + Sync>;

/// The parts of an open database that handles use.
pub(crate) struct Shared {
    pub(crate) region: Arc<Region>,
    pub(crate) zones: Arc<ZonePool>,
    /// The pages of row tables of level 0.
    pub(crate) pages: Arc<PagePool>,
    pub(crate) committer: Committer,
    pub(crate) snapshots: Arc<SnapshotRegistry>,
    /// The clock that records age by.
    pub(crate) clock: Arc<Clock>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) poison: Arc<Poison>,
    pub(crate) events: Events,
    pub(crate) pace: Pace,
    /// The background's.
    pub(crate) wakeup: Wakeup,
    /// Of the thread that keeps zones ready.
    pub(crate) zone_wakeup: Wakeup,
    pub(crate) fork: ForkGuard,
    /// Rows that transactions, and writes beside them, have locked.
    pub(crate) locks: Arc<LockManager>,
    pub(crate) read_only: bool,
    /// Tables and extents, as the journal has them.
    pub(crate) set: Arc<VersionSet>,
    /// What writes files of the database is inside, and closing waits for it.
    pub(crate) gate: Arc<Gate>,
    /// Runs that the shared store may lack; none without one.
    pub(crate) unshipped: UnshippedRuns,
    /// Runs that ended when the journal had no room for that.
    pub(crate) ended_runs: Mutex<Vec<(Arc<TableCore>, u64)>>,
    /// What transactions have written and hold in memory.
    pub(crate) write_memory: WriteMemory,
    /// How loaded records are compressed: as in the levels that they go to.
    pub(crate) load_compression: Compression,
    /// The caller that creates, drops, renames or truncates a table holds it.
    pub(crate) ddl: Mutex<()>,
    /// Whether it has what another database commits: only the reader of the log writes.
    pub(crate) follows: bool,
    /// Commits that tasks await.
    pub(crate) awaited: Awaited,
    /// What waits for readers of this database.
    pub(crate) queue: Arc<DeferQueue>,
    /// How much of that the background is to look after.
    pub(crate) deferred: AtomicUsize,
}

impl Shared {
    /// Closes the database to every call, and ends the waits of those under way, but for commits
    /// that have their place in the order.
    pub(crate) fn shut(&self) {
        self.gate.shut();
        self.locks.close();
        self.pace.close();
    }

    /// Enters the gate for a call that waits for others, or for locks.
    pub(crate) fn enter_call(&self) -> Result<Inside> {
        let inside = self.gate.enter_call().map_err(Error::not_open)?;
        self.check_outside()?;
        Ok(inside)
    }

    /// Enters the gate for a call that writes.
    pub(crate) fn enter(&self) -> Result<Inside> {
        let inside = self.gate.enter_call().map_err(Error::not_open)?;
        self.check_writable()?;
        Ok(inside)
    }

    /// Has `work` run once every guard and hold that exists now is gone. After the closing the
    /// thread that runs it may be another database's, so a panic stops this one here.
    pub(crate) fn defer(self: &Arc<Self>, work: impl FnOnce(&Shared) + Send + 'static) {
        self.deferred.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(self);
        self.queue.defer(move || {
            if catch_unwind(AssertUnwindSafe(|| work(&shared))).is_err() {
                shared.stop_because("work that had waited for readers panicked");
            }
            let before = shared.deferred.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "work is counted in before it is counted out");
        });
    }

    /// Removes records from a level 0 by `remove`, and counts what it released out of its zones. If
    /// the removal fails, the database is poisoned and releases nothing any more. After the closing
    /// the removal is left to the next opening: level 0 may lie in memory that the next one has.
    pub(crate) fn count_out(&self, remove: impl FnOnce() -> Result<Released>) {
        let Ok(_inside) = self.gate.enter_step() else { return };
        // On whichever thread this was put off to.
        let _spent = SpentOn::purpose(Purpose::Background);
        match remove() {
            Ok(Released { records }) => {
                records.iter().for_each(|at| self.zones.sub_live(self.zones.zone_of(*at), 1));
            }
            Err(error) => self.stop_because(&error.to_string()),
        }
        self.wakeup.wake();
    }

    /// Whether reads may go on.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.gate.check_open().map_err(Error::not_open)?;
        self.check_outside()
    }

    /// Fails inside of an operator, and of a function that work of this database waits for.
    #[inline]
    pub(crate) fn check_outside(&self) -> Result<()> {
        operator::check_outside()?;
        progress::check_outside(&self.events)
    }

    /// Whether this opening only reads: it is read-only, or applies what another database commits.
    pub(crate) fn refuses_writes(&self) -> bool {
        self.read_only || self.check_leads().is_err()
    }

    /// Whether writes may go on.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(Error::invalid("the database is open read-only; open it to write"));
        }
        self.check_leads()?;
        self.poison.check()
    }

    /// Whether rows may be locked. Where the database follows, its reader takes no lock, so one of
    /// a user's would keep nothing away but the promotion.
    pub(crate) fn check_leads(&self) -> Result<()> {
        if !self.follows || Applying::is_inside() {
            return Ok(());
        }
        Err(Error::invalid(
            "the database follows a shared store, and only its writer writes and locks rows: do it \
             there, or promote the standby; read by snapshots here",
        ))
    }

    /// Runs `f` with the table in `slot`; once more when the table was truncated meanwhile.
    #[inline]
    pub(crate) fn with_table<T>(
        &self,
        slot: &TableSlot,
        f: impl Fn(&TableCore) -> Result<T>,
    ) -> Result<T> {
        loop {
            let guard = pin();
            let core = slot.lent_core(&guard);
            let gone = match f(core) {
                Err(e) if e.is_table_gone() => e,
                done => return done,
            };
            let id = core.id();
            drop(guard);
            self.wait_for_truncation()?;
            if slot.core().id() == id {
                return Err(gone);
            }
        }
    }

    /// Waits until a truncation that is under way has ended.
    pub(super) fn wait_for_truncation(&self) -> Result<()> {
        if is_waited_for() {
            return Err(Error::invalid(
                "a read inside of a closure that a value is lent to met a table that is truncated \
                 or dropped, and would wait for itself: read it once the closure has returned",
            ));
        }
        drop(self.ddl.lock());
        Ok(())
    }

    /// Runs `f` with the table of this moment, without an epoch; again, if it was truncated
    /// meanwhile.
    pub(crate) fn again_after_truncations<T>(
        &self,
        slot: &TableSlot,
        mut f: impl FnMut(&Arc<Pinned>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let pinned = Arc::new(slot.pin());
            match f(&pinned) {
                Err(e) if e.is_table_gone() => {
                    self.wait_for_truncation()?;
                    if Arc::ptr_eq(&pinned.core, &slot.core()) {
                        return Err(e);
                    }
                }
                done => return done,
            }
        }
    }

    /// Runs `f` with a view of `core` and the moment to read it as of: the snapshot's, or this one.
    /// Nothing in the view goes away meanwhile.
    pub(crate) fn read<T>(
        &self,
        core: &TableCore,
        snapshot: Option<&Registered>,
        f: impl FnOnce(PinnedView<'_>, AsOf) -> Result<T>,
    ) -> Result<T> {
        self.read_view(core, snapshot, f).map_err(|e| {
            self.events.damage(&e);
            e.in_table(|| core.name())
        })
    }

    /// The value of a key. One that lies apart in an object is read with no epoch pinned.
    pub(crate) fn get(
        &self,
        core: &TableCore,
        snapshot: Option<&Registered>,
        key: &[u8],
    ) -> Result<Option<Bytes>> {
        if self.set.store().objects().is_none() {
            return self.read(core, snapshot, |view, at| read::get(view, key, at));
        }
        let mut found = Lookups::with_capacity(1);
        found.add(self.read(core, snapshot, |view, at| read::find(view, key, at))?);
        let values = found.into_values().inspect_err(|e| self.events.damage(e));
        Ok(values.map_err(|e| e.in_table(|| core.name()))?.pop().flatten())
    }

    fn read_view<T>(
        &self,
        core: &TableCore,
        snapshot: Option<&Registered>,
        f: impl FnOnce(PinnedView<'_>, AsOf) -> Result<T>,
    ) -> Result<T> {
        let guard = pin();
        let blocks = Blocks::new(&self.cache, &guard);
        if let Some(snapshot) = snapshot {
            // A poisoned database serves nothing unsynced to any reader.
            let lsn = snapshot.lsn();
            debug_assert!(
                lsn <= self.committer.visible(),
                "a snapshot reads only commits that are visible"
            );
            let lsn = if self.poison.is_set() { lsn.min(self.committer.readable()) } else { lsn };
            let view = self.open_view(core, &guard)?;
            let expired = self.expired(&view.version, || snapshot.time());
            return f(PinnedView { view, blocks }, AsOf { lsn, expired });
        }
        loop {
            let at = self.committer.readable();
            let view = self.open_view(core, &guard)?;
            // A compaction that started after `at` was read may have dropped what it needs
            // (view invariant 3); the watermark has moved by then.
            if at >= view.pruned || self.poison.is_set() {
                // The reader reads the clock last: later than the job that left expired versions
                // out of the view, so that no older version shows instead.
                let expired = self.expired(&view.version, || self.clock.now());
                return f(PinnedView { view, blocks }, AsOf { lsn: at, expired });
            }
        }
    }

    /// The view of a table that is there, in a database that is open. In this order: a closing, a
    /// drop and a truncation empty the view behind their beginning, which these checks see, so a
    /// view that was loaded before them has its records. Whether the database is open comes first:
    /// an operator, or the child of a fork, must not wait for the end of a truncation.
    #[inline]
    fn open_view<'g>(&self, core: &TableCore, guard: &'g EpochGuard) -> Result<&'g View> {
        let view = core.lent_view(guard);
        self.check_open()?;
        core.check()?;
        Ok(view)
    }

    /// The LSN up to which all of a table has expired at a moment.
    pub(crate) fn expired(&self, version: &Version, time: impl FnOnce() -> Time) -> Lsn {
        match version.options.ttl {
            None => version.expired,
            Some(_) => {
                let timeline = self.set.timeline();
                let ahead = u64::from(self.region.has(Failpoint::ExpireEarly)) * 1_000_000;
                let never = self.region.has(Failpoint::NeverExpire);
                version.expired_at(&timeline, if never { 0 } else { time() + ahead })
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("region", &self.region.path()).finish_non_exhaustive()
    }
}

thread_local! {
    static APPLYING: Cell<bool> = const { Cell::new(false) };
}

/// As long as it lives, its thread may write to databases that follow.
#[derive(Debug)]
pub(crate) struct Applying(());

impl Applying {
    /// Begins.
    pub(crate) fn enter() -> Applying {
        debug_assert!(!APPLYING.get(), "a thread applies one database at a time");
        APPLYING.set(true);
        Applying(())
    }

    /// Whether this thread applies.
    pub(crate) fn is_inside() -> bool {
        APPLYING.get()
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        APPLYING.set(false);
    }
}

// Runs of large commits and prepares that the shared store may lack. They are kept for the
// shipper, which reads their rows after the commit: levels may have taken them over by then.
//
// Thread safety: any thread may call any method; the lock is held for a few instructions.
//
// Invariant: a run is here from before its commit has its ticket until the store has the commit,
// unless the commit is withdrawn, or too much waited then. A store that is away stops no compaction
// from giving space back.

/// What a commit has written to a table, in extents.
#[derive(Clone, Debug)]
pub(crate) struct UnshippedRun {
    pub(crate) table: TableId,
    pub(crate) rows: Level,
    /// Whether a bulk load has laid it out.
    pub(crate) loaded: bool,
    /// That of the commit or prepare that ships it.
    pub(super) lsn: Arc<TicketLsn>,
}

/// While so many bytes of runs wait, those of a further commit are not kept.
const MOST_UNSHIPPED: u64 = 1 << 30;
const STEPPED_UNSHIPPED: u64 = 8 << 20;

/// Those of one database, by the runs' numbers.
#[derive(Debug)]
pub(crate) struct UnshippedRuns {
    runs: Mutex<BTreeMap<u64, UnshippedRun>>,
    most: u64,
}

impl UnshippedRuns {
    /// None. Steps come in their turn if they are `stepped`.
    pub(crate) fn new(stepped: bool) -> UnshippedRuns {
        let most = if stepped { STEPPED_UNSHIPPED } else { MOST_UNSHIPPED };
        UnshippedRuns { runs: Mutex::default(), most }
    }

    /// Whether those of one more commit are kept. Otherwise a checkpoint ships it.
    pub(super) fn has_room(&self) -> bool {
        let runs = self.runs.lock();
        runs.values().map(|run| run.rows.bytes() + run.rows.referred()).sum::<u64>() < self.most
    }

    pub(super) fn add(&self, id: u64, run: UnshippedRun) {
        debug_assert!(run.lsn.get().is_none(), "runs are here before their commit has its ticket");
        self.runs.lock().insert(id, run);
    }

    /// A commit was withdrawn.
    pub(crate) fn forget(&self, ids: impl Iterator<Item = u64>) {
        let mut runs = self.runs.lock();
        ids.for_each(|id| drop(runs.remove(&id)));
    }

    /// The runs with these numbers; `None` if one of them is not here.
    pub(crate) fn get(&self, ids: &[u64]) -> Option<Vec<UnshippedRun>> {
        let runs = self.runs.lock();
        ids.iter().map(|id| runs.get(id).cloned()).collect()
    }

    /// The store has all commits below `lsn`.
    pub(crate) fn forget_below(&self, lsn: Lsn) {
        // What is dropped gives space back, outside of the lock.
        let mut gone = Vec::new();
        let mut runs = self.runs.lock();
        runs.retain(|_, run| {
            let is_kept = run.lsn.get().is_none_or(|own| own >= lsn);
            if !is_kept {
                gone.push(run.clone());
            }
            is_kept
        });
        drop(runs);
    }
}
