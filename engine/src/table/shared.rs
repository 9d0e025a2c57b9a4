//! What all handles of one open database share.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use super::awaited::Awaited;
use super::bell::Bell;
use super::core::{TableCore, TableSlot};
use super::gate::Gate;
use super::pace::Pace;
use super::pending::PendingCommit;
use crate::alloc::ZonePool;
use crate::commit::{Batch, Committer, Group, Pending, Poison};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::BlockCache;
use crate::level0::Released;
use crate::levels::{Version, VersionSet};
use crate::locks::{DEFAULT_WAIT, LockManager, Locker, Mode, Patience};
use crate::mvcc::{Clock, Registered, SnapshotRegistry, Time};
use crate::options::{Compression, Durability, Planted};
use crate::os::ForkGuard;
use crate::pm::{LINE, Purpose, Region, SpentOn};
use crate::read::{AsOf, KeyRange};
use crate::record::Lsn;
use crate::spill::WriteMemory;
use crate::view::View;

/// Keeps a database open while handles of it are left.
pub(crate) type Keep = Arc<dyn Any + Send + Sync>;

/// The parts of an open database that handles use.
pub(crate) struct Shared {
    pub(crate) region: Arc<Region>,
    pub(crate) zones: Arc<ZonePool>,
    pub(crate) committer: Committer,
    pub(crate) snapshots: Arc<SnapshotRegistry>,
    /// The clock that records age by.
    pub(crate) clock: Arc<Clock>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) poison: Arc<Poison>,
    pub(crate) pace: Pace,
    /// The background's.
    pub(crate) bell: Bell,
    /// Of the thread that keeps zones ready.
    pub(crate) zone_bell: Bell,
    pub(crate) fork: ForkGuard,
    /// Rows that transactions, and writes beside them, have locked.
    pub(crate) locks: Arc<LockManager>,
    pub(crate) read_only: bool,
    /// Tables and extents, as the journal has them.
    pub(crate) set: Arc<VersionSet>,
    /// Held shared by large commits, which go on in the journal after their ticket: closing waits.
    pub(crate) large: RwLock<()>,
    /// What transactions have written and hold in memory.
    pub(crate) write_memory: WriteMemory,
    /// The most memory that the row locks of transactions may take.
    pub(crate) most_lock_memory: usize,
    /// How loaded records are compressed: as in the levels that they go to.
    pub(crate) load_compression: Compression,
    /// Held by whoever creates, drops, renames or truncates a table.
    pub(crate) ddl: Mutex<()>,
    pub(crate) closed: AtomicBool,
    /// Commits that tasks await.
    pub(crate) awaited: Awaited,
    /// Whether what was deferred may still be done: level 0 may lie in memory that the next opening
    /// has then.
    pub(crate) defers: Gate,
}

impl Shared {
    /// Closes the database to every call, and ends the waits of those under way, but for commits
    /// that have their place in the order; whether it was open.
    pub(crate) fn close(&self) -> bool {
        let was_open = !self.closed.swap(true, Ordering::AcqRel);
        self.locks.close();
        self.pace.close();
        was_open
    }

    /// Removes records from a level 0 by `remove`, and counts what it released out of its zones. If
    /// the removal fails, the database is poisoned and releases nothing any more. After the closing
    /// the removal is left to the next opening.
    pub(crate) fn count_out(&self, remove: impl FnOnce() -> Result<Released>) {
        let inside = self.defers.enter();
        if inside.is_none() || self.fork.is_forked() {
            return;
        }
        // On whichever thread this was put off to.
        let _spent = SpentOn::purpose(Purpose::Background);
        match remove() {
            Ok(Released { records }) => {
                records.iter().for_each(|at| self.zones.sub_live(self.zones.zone_of(*at), 1));
            }
            Err(error) => self.stop_because(&error.to_string()),
        }
        self.bell.ring();
    }

    /// Whether reads may go on.
    ///
    /// # Errors
    ///
    /// `Closed`, or `Unavailable` in a forked child.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        self.fork.check()
    }

    /// Whether writes may go on.
    ///
    /// # Errors
    ///
    /// `Closed`, `Invalid` when it is open read-only, `Unavailable` when it is poisoned or this
    /// is a forked child.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(Error::invalid("the database is open read-only; open it to write"));
        }
        self.poison.check()
    }

    /// Commits a batch from outside of a transaction. Until the first transaction locks a row that
    /// takes no locks; from then on it locks its rows, as a transaction of one step would, for as
    /// long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Table::put`](crate::Table::put).
    pub(crate) fn write(&self, batch: &mut Batch, durability: Durability) -> Result<()> {
        self.write_by(batch, durability, None)
    }

    /// As [`Shared::write`], but waits no longer than to the deadline for its turn.
    ///
    /// # Errors
    ///
    /// `Timeout` then, with the reason, and nothing was written; else as
    /// [`Table::put`](crate::Table::put).
    pub(crate) fn write_by(
        &self,
        batch: &mut Batch,
        durability: Durability,
        deadline: Option<Instant>,
    ) -> Result<()> {
        let commit = |batch: &Batch| self.commit_by(batch, durability, deadline);
        self.with_locks(batch, deadline, commit).map(drop)
    }

    /// As [`Shared::write`], but does not wait once the batch has its place in the order.
    ///
    /// # Errors
    ///
    /// As [`Table::put`](crate::Table::put), but for `UnknownOutcome`.
    pub(crate) fn enqueue_write(
        self: &Arc<Shared>,
        keep: Keep,
        batch: &mut Batch,
        durability: Durability,
    ) -> Result<PendingCommit> {
        let (lsn, locks) = self.with_locks(batch, None, |batch| self.enqueue(batch, durability))?;
        Ok(PendingCommit::new(self, keep, (lsn, durability), locks))
    }

    /// Runs `commit` for a batch, with its rows locked if that is needed; they stay so for as long
    /// as the locker is kept.
    fn with_locks<T>(
        &self,
        batch: &mut Batch,
        deadline: Option<Instant>,
        commit: impl Fn(&Batch) -> Result<T>,
    ) -> Result<(T, Option<Locker>)> {
        let lock = || Some(Locker::new(&self.locks));
        let mut locker = self.committer.locks_rows().then(lock).flatten();
        loop {
            if let Some(locker) = &mut locker {
                self.lock_rows_of(batch, locker, deadline)?;
            }
            batch.set_unlocked(locker.is_none());
            match commit(batch) {
                Err(e) if e.is_needs_locks() => locker = lock(),
                done => return Ok((done?, locker)),
            }
        }
    }

    /// Ranges first, and in the order of their keys, so that batches do not wait for each other in
    /// a circle.
    fn lock_rows_of(
        &self,
        batch: &Batch,
        locker: &mut Locker,
        deadline: Option<Instant>,
    ) -> Result<()> {
        self.check_writable()?;
        let longest = Instant::now() + DEFAULT_WAIT;
        let patience = Patience::Until(deadline.map_or(longest, |d| d.min(longest)));
        let mut ranges: Vec<_> = batch.ranges().collect();
        ranges
            .sort_by(|(a, x), (b, y)| (a.lock_space(), &x.start).cmp(&(b.lock_space(), &y.start)));
        for (table, interval) in ranges {
            let (space, name) = (table.lock_space(), || table.label());
            let range = KeyRange::from(interval);
            locker.lock_range(space, &range, Mode::Exclusive, patience, &name)?;
        }
        let mut rows: Vec<_> = batch.rows().collect();
        rows.sort_by_key(|(table, key)| (table.lock_space(), *key));
        for (table, key) in rows {
            let name = || table.label();
            locker.lock_key(table.lock_space(), key, Mode::Exclusive, patience, &name)?;
        }
        Ok(())
    }

    /// Commits a batch whose rows are locked, or one that says that they are not.
    ///
    /// # Errors
    ///
    /// As [`Table::put`](crate::Table::put).
    pub(crate) fn commit(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.commit_by(batch, durability, None)
    }

    fn commit_by(
        &self,
        batch: &Batch,
        durability: Durability,
        deadline: Option<Instant>,
    ) -> Result<()> {
        match self.commit_if_large(batch, deadline)? {
            Some(lsn) => self.committer.wait_for(lsn, Durability::Durable),
            None => {
                self.admit(batch, deadline, || self.committer.commit(batch, durability)).map(drop)
            }
        }
    }

    /// Gives such a batch its place in the order of commits, and does not wait for more; `None` if
    /// there is nothing in it.
    ///
    /// # Errors
    ///
    /// As [`Table::put`](crate::Table::put).
    pub(crate) fn enqueue(&self, batch: &Batch, durability: Durability) -> Result<Option<Lsn>> {
        match self.commit_if_large(batch, None)? {
            Some(lsn) => Ok(Some(lsn)),
            None => {
                self.admit(batch, None, || Ok(self.committer.enqueue(batch, durability)?.lsn()))
            }
        }
    }

    /// Commits a batch that does not fit in a zone, as [`Shared::commit_runs`] does; `None` if it
    /// fits.
    fn commit_if_large(&self, batch: &Batch, deadline: Option<Instant>) -> Result<Option<Lsn>> {
        if self.committer.fits(batch.stored_len()) {
            return Ok(None);
        }
        self.check_writable()?;
        batch.check()?;
        loop {
            match self.commit_runs(batch, Vec::new(), deadline) {
                Err(e) if e.is_table_gone() => self.wait_for_successors(batch)?,
                done => return done.map(Some),
            }
        }
    }

    /// Runs `commit` for a batch when it is its turn and there is space.
    fn admit(
        &self,
        batch: &Batch,
        deadline: Option<Instant>,
        commit: impl Fn() -> Result<Lsn>,
    ) -> Result<Option<Lsn>> {
        self.check_writable()?;
        // A batch of nothing but refused operations is empty, and yet an error.
        batch.check()?;
        if batch.is_empty() {
            return Ok(None);
        }
        // What it takes in a zone, but for what other batches of its group share with it.
        let bytes = (batch.stored_len() as u64 + LINE).next_multiple_of(LINE);
        self.slow_down(bytes, batch.frees(), deadline)?;
        loop {
            match self.with_space(deadline, &commit) {
                Ok(lsn) => {
                    self.wrote(bytes);
                    return Ok(Some(lsn));
                }
                Err(e) if e.is_table_gone() => self.wait_for_successors(batch)?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives a group its place in the order of commits; `make` makes it, again once there is space,
    /// and `at_ticket` runs with its ticket. With a deadline it waits for space no longer than
    /// that.
    ///
    /// # Errors
    ///
    /// Those of `make`; otherwise as [`Table::put`](crate::Table::put), but for `UnknownOutcome`.
    pub(crate) fn enqueue_group(
        &self,
        make: &dyn Fn() -> Result<Group>,
        (durability, deadline): (Durability, Option<Instant>),
        at_ticket: &dyn Fn(Lsn),
    ) -> Result<Pending<'_>> {
        let first = make()?;
        let bytes = first.zone_len();
        // Once, however often it is tried.
        self.slow_down(bytes, first.frees(), deadline)?;
        let first = Cell::new(Some(first));
        self.with_space(deadline, || {
            let group = first.take().map_or_else(make, Ok)?;
            let at_ticket = &mut |lsn| at_ticket(lsn);
            let pending = self.committer.enqueue_group(group, durability, at_ticket)?;
            self.wrote(bytes);
            Ok(pending)
        })
    }

    /// Slows a write of `bytes` down as far as is called for. On a full disk what frees space is
    /// not slowed down: no space comes free without it.
    fn slow_down(&self, bytes: u64, frees: bool, deadline: Option<Instant>) -> Result<()> {
        if frees && self.pace.is_stuck() {
            return Ok(());
        }
        self.pace.slow_down(bytes, deadline)
    }

    /// Wakes now and then who keeps up with writers.
    fn wrote(&self, bytes: u64) {
        if self.bell.is_due(bytes) {
            self.bell.ring();
            self.zone_bell.ring();
        }
    }

    /// Runs `attempt`; again, once there is space, for as long as the region is full.
    fn with_space<T>(
        &self,
        deadline: Option<Instant>,
        attempt: impl Fn() -> Result<T>,
    ) -> Result<T> {
        loop {
            let rounds = self.pace.rounds();
            match attempt() {
                Err(e) if e.kind() == ErrorKind::Full => {
                    self.bell.ring();
                    self.pace
                        .wait_for_space(rounds, deadline)
                        .map_err(|waited| waited.after(&e))?;
                }
                done => return done,
            }
        }
    }

    /// Truncated? Then a batch goes to the table that stands there now.
    fn wait_for_successors(&self, batch: &Batch) -> Result<()> {
        drop(self.ddl.lock());
        batch.homes().iter().try_for_each(|home| home.check_alive())
    }

    /// Runs `f` with the table in `slot`; once more when the table was truncated meanwhile.
    pub(crate) fn with_table<T>(
        &self,
        slot: &TableSlot,
        f: impl Fn(&TableCore) -> Result<T>,
    ) -> Result<T> {
        loop {
            let core = slot.core();
            match f(&core) {
                Err(e) if e.is_table_gone() => {
                    drop(self.ddl.lock());
                    if Arc::ptr_eq(&core, &slot.core()) {
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
        f: impl FnOnce(&View, AsOf) -> Result<T>,
    ) -> Result<T> {
        // In this order: who closes the database waits for those who found it open.
        let _guard = crate::mvcc::pin();
        self.check_open()?;
        core.check()?;
        if let Some(snapshot) = snapshot {
            // Of a poisoned database nothing unsynced is served, to nobody.
            let lsn = snapshot.lsn();
            let lsn = if self.poison.is_set() { lsn.min(self.committer.readable()) } else { lsn };
            let view = core.view();
            let expired = self.expired(&view.version, || snapshot.time());
            return f(&view, AsOf { lsn, expired });
        }
        loop {
            let at = self.committer.readable();
            let view = core.view();
            // A compaction that started after `at` was read may have dropped what it needs
            // (view invariant 3); the watermark has moved by then.
            if at >= view.pruned || self.poison.is_set() {
                // The clock is read last: later than by whoever left out of the view what had
                // expired, so that no older version shows instead.
                let expired = self.expired(&view.version, || self.clock.now());
                return f(&view, AsOf { lsn: at, expired });
            }
        }
    }

    /// The LSN up to which all of a table has expired at a moment.
    pub(crate) fn expired(&self, version: &Version, time: impl FnOnce() -> Time) -> Lsn {
        match version.options.ttl {
            None => version.expired,
            Some(_) => {
                let timeline = self.set.timeline();
                let ahead = u64::from(self.region.has(Planted::ExpireEarly)) * 1_000_000;
                version.expired_at(&timeline, time() + ahead)
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("region", &self.region.path()).finish_non_exhaustive()
    }
}
