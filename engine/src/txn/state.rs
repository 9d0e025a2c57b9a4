//! A transaction from its begin to its end: what it holds, and what its calls do with it.
//!
//! Thread safety: calls of several threads on one transaction come one after the other, held by
//! `state`; what is reported about it is read without. A thread that waits for its turn may run
//! other transactions: the search for deadlocks knows what it holds up.
//!
//! Invariants:
//!
//! 1. Pessimistic: a transaction that has written a key holds it exclusively until it ends. It
//!    ends only after its commit is visible. So the next owner of a lock sees every commit of its
//!    earlier owners.
//! 2. Snapshot isolation: of a key that a call has relied on no version above the snapshot was
//!    there when its lock was got (the first updater wins). The call that gets the lock checks
//!    that. Locks of a call that failed stay, and the check may not have been made; locks that
//!    became ranges are on keys that no call has relied on yet. From then on `owes_checks` has each
//!    call check the keys that it relies on.
//! 3. A transaction that has ended holds no lock, no snapshot and no writes.
//! 4. A transaction ends once. One that is killed ends as killed, unless its commit has its ticket.
//! 5. An optimistic transaction locks nothing before its commit, and only an optimistic one relies
//!    on what it saw. What it relies on takes no more memory than `lock_limit`.
//! 6. The write set has writes only to tables that the transaction uses.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::options::{Isolation, LockWait, TxnOptions};
use super::prepared::PreparedSet;
use super::seen::Seen;
use super::spilled::{Store, Write};
use super::tables::Used;
use super::writes::WriteSet;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits;
use crate::base::operator;
use crate::base::options::{Durability, Failpoint};
use crate::base::record::{Kind, Lsn};
use crate::locks::{Locker, Mode, OwnerId, Patience, killed};
use crate::mvcc::Registered;
use crate::os::earlier;
use crate::os::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::os::sync::locks::{Mutex, MutexGuard};
use crate::os::time;
use crate::read::view::PinnedView;
use crate::read::{self, AsOf, Lookup};
use crate::table::{Keep, NewRun, PendingCommit, Shared, TableBatch, TableTarget};
use crate::version::Level;

/// Where memory is short, a transaction that has written more than this spills it.
const LEAST_SPILL: usize = 64 << 10;

/// How a transaction ended, for later calls on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Committed,
    Prepared,
    /// The next opening finds it committed, or it does not.
    Unknown,
    RolledBack,
    Conflict,
    Deadlock,
    Killed,
}

/// What a running transaction holds.
pub(super) struct Running {
    pub(super) locker: Locker,
    /// Whether a call failed that had got locks: their keys may not be checked (invariant 2).
    pub(super) owes_checks: bool,
    pub(super) tables: Vec<Used>,
    pub(super) writes: WriteSet,
    /// What an optimistic one has to find unchanged.
    pub(super) seen: Seen,
    pub(super) snapshot: Option<Arc<Registered>>,
    /// What plain reads of a read-committed one see, if it holds a view.
    pub(super) view: Option<Arc<Registered>>,
    patience: LockWait,
    /// What its commit leaves to be read after a restart.
    pub(super) blob: Option<Vec<u8>>,
}

enum State {
    Running(Box<Running>),
    Ended(End),
}

/// A transaction, as its handle, its cursors and the registry share it.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) id: OwnerId,
    pub(super) options: TxnOptions,
    pub(super) began: Instant,
    pub(super) snapshot_lsn: Option<Lsn>,
    pub(super) locks: AtomicUsize,
    /// Bytes of memory that they take, with what has to be found unchanged.
    pub(super) lock_memory: AtomicUsize,
    pub(super) writes: AtomicUsize,
    /// Bytes that the writes take in memory, and on disk.
    pub(super) bytes: AtomicUsize,
    pub(super) spilled: AtomicU64,
    killed: AtomicBool,
    /// Calls are to end that wait for a lock or pass many keys. Only its user takes it back.
    ends_calls: Arc<AtomicBool>,
    state: Mutex<State>,
}

impl Inner {
    /// Begins.
    pub(super) fn begin(shared: &Arc<Shared>, options: TxnOptions) -> Result<Inner> {
        options.check()?;
        shared.check_open()?;
        // Serializable reads are of what is locked, and hence of now.
        let of_a_moment = options.optimistic || options.isolation == Isolation::Snapshot;
        let snapshot = of_a_moment.then(|| Arc::new(shared.snapshots.register()));
        let ends_calls = Arc::default();
        let locker = Locker::with_limit(&shared.locks, options.lock_limit).with_mark(&ends_calls);
        debug_assert!(
            snapshot.as_ref().is_none_or(|s| s.lsn() <= shared.committer.visible()),
            "a snapshot sees only commits that are visible (invariant 2)"
        );
        Ok(Inner {
            shared: Arc::clone(shared),
            id: locker.id(),
            began: time::now(),
            snapshot_lsn: snapshot.as_ref().map(|s| s.lsn()),
            locks: AtomicUsize::new(0),
            lock_memory: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            spilled: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            ends_calls,
            state: Mutex::new(State::Running(Box::new(Running {
                locker,
                owes_checks: false,
                tables: Vec::new(),
                writes: WriteSet::default(),
                seen: Seen::default(),
                snapshot,
                view: None,
                patience: options.lock_wait,
                blob: None,
            }))),
            options,
        })
    }

    /// The state, once no other call has it.
    fn turn(&self) -> Result<MutexGuard<'_, State>> {
        self.shared.check_outside()?;
        if let Some(state) = self.state.try_lock() {
            return Ok(state);
        }
        let _waits = self.shared.locks.wait_for_call(self.id);
        let Some(deadline) = earlier(None) else { return Ok(self.state.lock()) };
        let wait = deadline.saturating_duration_since(time::now());
        self.state.try_lock_for(wait).ok_or_else(|| {
            let message = format!(
                "another call of transaction {} is under way: the deadline comes before its end; \
                 nothing was done, try again",
                self.id
            );
            Error::new(ErrorKind::Timeout, message)
        })
    }

    /// Runs a call. A deadlock or a conflict ends the transaction.
    pub(super) fn call<T>(&self, f: impl FnOnce(&mut Running) -> Result<T>) -> Result<T> {
        let mut state = self.turn()?;
        let State::Running(running) = &mut *state else { return Err(self.ended(&state)) };
        let work = running.locker.work();
        let done = match self.check_killed() {
            Ok(()) => f(running).map_err(|e| running.explain(self, e)),
            Err(e) => Err(e),
        };
        let forgets = self.shared.region.has(Failpoint::ForgetOwedChecks);
        running.owes_checks |= done.is_err() && running.locker.work() != work && !forgets;
        running.debug_assert_sound(self);
        self.report(running);
        match done.as_ref().err().map(Error::kind) {
            Some(ErrorKind::Conflict) => self.end(&mut state, End::Conflict),
            Some(ErrorKind::Deadlock) => self.end(&mut state, End::Deadlock),
            _ if self.killed.load(Ordering::Acquire) => self.end(&mut state, End::Killed),
            _ => false,
        };
        drop(state);
        // Who rolls it back within an operator raises the flag alone where it finds the state
        // taken. A call that has the state by now looks here in its turn.
        if self.killed.load(Ordering::Acquire)
            && let Some(mut state) = self.state.try_lock()
        {
            self.end(&mut state, End::Killed);
        }
        done
    }

    /// Reports what it holds.
    fn report(&self, running: &Running) {
        self.locks.store(running.locker.held(), Ordering::Relaxed);
        self.lock_memory.store(running.locker.memory(), Ordering::Relaxed);
        self.writes.store(running.writes.len(), Ordering::Relaxed);
        self.note_memory(running.writes.bytes_in_memory());
        self.spilled.store(running.writes.spilled_bytes(), Ordering::Relaxed);
    }

    /// Its writes take so many bytes in memory now.
    fn note_memory(&self, bytes: usize) {
        let before = self.bytes.load(Ordering::Relaxed);
        if before != bytes {
            // The call that has the state is the only one that stores it.
            self.bytes.store(bytes, Ordering::Relaxed);
            self.shared.write_memory.changed(before, bytes);
        }
    }

    /// Where writes are spilled to.
    fn store(&self) -> Store<'_> {
        Store { set: &self.shared.set, cache: &self.shared.cache }
    }

    /// Bytes of writes that stay in memory. What is never spilled fits in a zone.
    fn spill_at(&self) -> usize {
        let zone = self.shared.zones.geometry().largest_zone() as usize;
        let most = self.options.spill_at.min(zone - zone / 16);
        if self.shared.write_memory.is_short() { most.min(LEAST_SPILL) } else { most }
    }

    /// Fails once it was killed.
    pub(super) fn check_killed(&self) -> Result<()> {
        if self.killed.load(Ordering::Acquire) { Err(killed(self.id)) } else { Ok(()) }
    }

    /// Fails once the call that is under way is to end.
    pub(super) fn check_call(&self) -> Result<()> {
        self.check_killed()?;
        match self.ends_calls.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Timeout, "the call was ended by another thread")),
            false => Ok(()),
        }
    }

    fn ended(&self, state: &State) -> Error {
        let why = match state {
            State::Ended(End::Killed) => return killed(self.id),
            State::Ended(End::Committed) => "was committed",
            State::Ended(End::Prepared) => {
                "was prepared; commit_prepared or roll_back_prepared ends it"
            }
            State::Ended(End::Unknown) => {
                "has an unknown outcome; the error of its commit says which"
            }
            State::Ended(End::Conflict) => "was rolled back after a conflict; run it again",
            State::Ended(End::Deadlock) => "was rolled back to end a deadlock; run it again",
            State::Ended(End::RolledBack) | State::Running(_) => "was rolled back",
        };
        Error::new(ErrorKind::Closed, format!("transaction {} {why}", self.id))
    }

    /// Whether it is best run again: a conflict or a deadlock has ended it, or a call beside it has
    /// `met_deadlock` and it goes on. Never where its commit is there, or may be.
    pub(super) fn may_run_again(&self, met_deadlock: bool) -> bool {
        match *self.state.lock() {
            State::Ended(end) => matches!(end, End::Conflict | End::Deadlock),
            State::Running(_) => met_deadlock,
        }
    }

    /// Ends it without a trace. No error when it has ended already.
    pub(super) fn roll_back(&self) {
        let mut state = match self.state.try_lock() {
            Some(state) => state,
            // The call may be the one that needs the operator, and ends it then, unless it has
            // looked already.
            None if operator::is_running() => {
                self.killed.swap(true, Ordering::AcqRel);
                let Some(state) = self.state.try_lock() else { return };
                state
            }
            None => {
                let _waits = self.shared.locks.wait_for_call(self.id);
                self.state.lock()
            }
        };
        self.end(&mut state, End::RolledBack);
    }

    fn end(&self, state: &mut MutexGuard<'_, State>, end: End) -> bool {
        let running = matches!(**state, State::Running(_));
        debug_assert!(
            end != End::Killed || self.killed.load(Ordering::Acquire),
            "a transaction ends as killed only after it was killed (invariant 4)"
        );
        if running {
            **state = State::Ended(end);
            self.locks.store(0, Ordering::Relaxed);
            self.lock_memory.store(0, Ordering::Relaxed);
            self.writes.store(0, Ordering::Relaxed);
            self.note_memory(0);
            self.spilled.store(0, Ordering::Relaxed);
        }
        running
    }

    /// Ends it from outside; whether it was still running. A call under way that waits for a lock
    /// stops waiting; a commit under way is waited for.
    pub(super) fn kill(&self) -> bool {
        let first = !self.killed.swap(true, Ordering::AcqRel);
        loop {
            self.shared.locks.kill(self.id);
            // A call that saw no flag may be about to wait for a lock: then once more.
            if let Some(mut state) = self.state.try_lock_for(std::time::Duration::from_millis(5)) {
                // A call that was stopped has ended it already.
                let stopped = first && matches!(*state, State::Ended(End::Killed));
                return self.end(&mut state, End::Killed) || stopped;
            }
        }
    }

    /// Has calls end that wait for a lock or pass many keys, as their deadline would: the one that
    /// is under way and later ones, until [`Inner::allow_waits`].
    pub(super) fn end_wait(&self) {
        self.shared.locks.end_wait(self.id, &self.ends_calls);
    }

    /// Takes that back.
    pub(super) fn allow_waits(&self) {
        self.ends_calls.store(false, Ordering::Release);
    }

    /// Commits and ends. It waits for a store once it has ended, without locks.
    pub(super) fn commit(&self) -> Result<()> {
        let (committer, durability) = (&self.shared.committer, self.options.durability);
        let lsn = self.finish(End::Committed, |running| {
            committer.check_durability(durability)?;
            let (batch, runs) = running.batch(self)?;
            let (lsn, least) = match (runs.is_empty(), batch.is_empty()) {
                (true, true) => match running.answers_up_to(committer) {
                    Some(lsn) => (lsn, durability),
                    None => return Ok(0),
                },
                (true, false) => return self.shared.commit(&batch, durability),
                (false, _) => (self.shared.commit_runs(&batch, runs)?, Durability::Durable),
            };
            committer.wait_on_this_machine(lsn, least).map(|()| lsn)
        })?;
        committer.wait_for_store(lsn, durability, None)
    }

    /// Gives the commit its place in the order and ends. The locks go to the waiter for the commit.
    pub(super) fn enqueue(&self, keep: Keep) -> Result<PendingCommit> {
        self.finish(End::Committed, |running| {
            let durability = self.options.durability;
            let committer = &self.shared.committer;
            committer.check_durability(durability)?;
            let (batch, runs) = running.batch(self)?;
            let lsn = match (runs.is_empty(), batch.is_empty()) {
                (true, true) => running.answers_up_to(committer),
                (true, false) => self.shared.enqueue(&batch, durability)?,
                (false, _) => Some(self.shared.commit_runs(&batch, runs)?),
            };
            let locks = std::mem::replace(&mut running.locker, Locker::new(&self.shared.locks));
            Ok(PendingCommit::new(&self.shared, keep, (lsn, durability), Some(locks)))
        })
    }

    /// Prepares and ends; `set` has it from there on, with its locks.
    pub(super) fn prepare(&self, id: &[u8], set: &PreparedSet) -> Result<()> {
        let durability = self.options.durability.at_least_durable();
        let lsn = self.finish(End::Prepared, |running| {
            self.shared.check_writable()?;
            if running.blob.is_some() {
                return Err(Error::invalid(
                    "a blob goes with the commit, and this transaction is only prepared; give it \
                     to enqueue_prepared",
                ));
            }
            let writes = running.batch(self)?;
            let targets = running.tables.iter().map(|used| Arc::clone(&used.pinned)).collect();
            self.shared.committer.check_durability(durability)?;
            let lsn = set.prepare(&self.shared, id, writes, targets, &mut running.locker)?;
            debug_assert_eq!(running.locker.held(), 0, "a prepare takes over all row locks");
            Ok(lsn)
        })?;
        // It is durable and open by now: a thread that takes a checkpoint may wait for the store.
        self.shared.committer.wait_for_store(lsn, durability, None).map_err(|error| {
            let id = id.escape_ascii();
            let what_it_is = match error.kind() {
                ErrorKind::UnknownOutcome => {
                    format!("is prepared here as \"{id}\": commit it or roll it back by that name")
                }
                _ => format!(
                    "is not prepared: what is here as \"{id}\" is void, since the new writer does \
                     not have it; run it again there"
                ),
            };
            Error::new(error.kind(), format!("{error}; the transaction {what_it_is}"))
        })
    }

    /// Ends it by `f`, as `good` if that succeeds. After a `Timeout` nothing was done: it goes on,
    /// so that its handle may try again.
    fn finish<T>(&self, good: End, f: impl FnOnce(&mut Running) -> Result<T>) -> Result<T> {
        let mut state = self.turn()?;
        let State::Running(running) = &mut *state else { return Err(self.ended(&state)) };
        let done = self.check_killed().and_then(|()| f(running));
        let done = done.map_err(|e| running.explain(self, e));
        let end = match &done {
            Ok(_) => good,
            // Also of one that is killed meanwhile: its commit has a place in the order.
            Err(e) if e.kind() == ErrorKind::UnknownOutcome => End::Unknown,
            Err(e) if e.kind() == ErrorKind::Conflict => End::Conflict,
            Err(e) if e.kind() == ErrorKind::Deadlock => End::Deadlock,
            Err(_) if self.killed.load(Ordering::Acquire) => End::Killed,
            Err(e) if e.kind() == ErrorKind::Timeout => {
                running.give_validation_back(self);
                self.report(running);
                return done;
            }
            Err(_) => End::RolledBack,
        };
        let ended = self.end(&mut state, end);
        debug_assert!(ended, "a transaction ends once (invariant 4)");
        done
    }
}

impl Running {
    /// Asserts what holds between two calls of a running transaction.
    fn debug_assert_sound(&self, inner: &Inner) {
        let is_optimistic = inner.options.optimistic;
        debug_assert_eq!(self.locker.id(), inner.id, "its locks name it as their owner");
        debug_assert!(
            !is_optimistic || self.locker.held() == 0,
            "an optimistic transaction locks nothing before its commit (invariant 5)"
        );
        debug_assert!(
            is_optimistic || self.seen.is_empty(),
            "only an optimistic transaction relies on what it saw (invariant 5)"
        );
        debug_assert!(
            !is_optimistic || self.locker.memory() <= inner.options.lock_limit,
            "what a transaction relies on stays within its limit (invariant 5)"
        );
        debug_assert!(
            self.writes.tables() <= self.tables.len(),
            "a transaction writes only to tables that it uses (invariant 6)"
        );
        debug_assert_eq!(
            self.snapshot.as_ref().map(|snapshot| snapshot.lsn()),
            inner.snapshot_lsn,
            "a running transaction keeps the snapshot that it began with (invariant 2)"
        );
    }

    pub(super) fn set_patience(&mut self, wait: LockWait) {
        self.patience = wait;
    }

    pub(super) fn patience(&self) -> Patience {
        match self.patience {
            LockWait::AtMost(wait) => {
                time::now().checked_add(wait).map_or(Patience::Endless, Patience::Until)
            }
            LockWait::NoWait => Patience::None,
            LockWait::Endless => Patience::Endless,
        }
    }

    /// The value of a key: its own, or what its level lets it see.
    pub(super) fn get(&mut self, inner: &Inner, table: usize, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(own) = self.writes.get(table, key, &inner.shared.cache)? {
            return Ok(own);
        }
        self.about_to_read(inner, table, key)?;
        let at = self.read_at(inner, table)?;
        inner.shared.get(&self.tables[table].pinned.core, at, key)
    }

    /// Whether it wrote a key.
    pub(super) fn has_written(&self, inner: &Inner, table: usize, key: &[u8]) -> Result<bool> {
        Ok(self.writes.get(table, key, &inner.shared.cache)?.is_some())
    }

    /// As [`Running::get`], but a value that lies apart is not read.
    pub(super) fn find(
        &mut self,
        inner: &Inner,
        table: usize,
        key: &[u8],
    ) -> Result<Option<Lookup>> {
        if let Some(own) = self.writes.get(table, key, &inner.shared.cache)? {
            return Ok(own.map(Lookup::Here));
        }
        self.about_to_read(inner, table, key)?;
        self.look_up(inner, table, |view, at| read::find(view, key, at))
    }

    /// Reads a table at the moment that the level gives to plain reads.
    fn look_up<T>(
        &self,
        inner: &Inner,
        table: usize,
        read: impl Fn(PinnedView<'_>, AsOf) -> Result<T>,
    ) -> Result<T> {
        let at = self.read_at(inner, table)?;
        inner.shared.read(&self.tables[table].pinned.core, at, read)
    }

    /// What it reads a table as of; `None` is now.
    fn read_at(&self, inner: &Inner, table: usize) -> Result<Option<&Registered>> {
        if let Some(view) = &self.view {
            inner.shared.committer.wait_until_visible(view.lsn())?;
            self.tables[table].slot.check_not_emptied_since(view.lsn())?;
        }
        Ok(self.view.as_deref().or(self.snapshot.as_deref()))
    }

    /// As [`Running::get`], with all that it needs locked already.
    pub(super) fn read(&self, inner: &Inner, table: usize, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(own) = self.writes.get(table, key, &inner.shared.cache)? {
            return Ok(own);
        }
        let core = &self.tables[table].pinned.core;
        inner.shared.get(core, self.snapshot.as_deref(), key)
    }

    /// Writes a key.
    pub(super) fn write(
        &mut self,
        inner: &Inner,
        table: usize,
        key: &[u8],
        write: Write,
    ) -> Result<()> {
        inner.shared.check_writable()?;
        if let Some(value) = &write {
            limits::check_value(value)?;
        }
        self.own(inner, (table, key), Mode::Exclusive)?;
        self.keep(inner, table, key, write)
    }

    /// Keeps what was written to a key, in memory or on disk.
    pub(super) fn keep(
        &mut self,
        inner: &Inner,
        table: usize,
        key: &[u8],
        write: Write,
    ) -> Result<()> {
        debug_assert!(
            self.owns(inner, table, key),
            "a key is locked, or will be validated, before it is written (invariants 1 and 5)"
        );
        while self.writes.is_full(key, &write, inner.spill_at()) {
            self.writes.spill(inner.store())?;
        }
        self.writes.set(table, key, write, inner.options.write_limit)?;
        self.locker.count_write();
        Ok(())
    }

    /// All that is to be committed, which may be: optimistic ones have found that out. Tables with
    /// spilled writes have runs, the others are in the batch, and so are range deletes.
    fn batch(&mut self, inner: &Inner) -> Result<(TableBatch, Vec<NewRun>)> {
        self.validate(inner)?;
        let pinned = |used: &Used| TableTarget::Pinned(Arc::clone(&used.pinned));
        let targets: Vec<TableTarget> = self.tables.iter().map(pinned).collect();
        let runs = self.writes.runs(inner.store())?;
        let mut batch = TableBatch::default();
        // What was written to keys in them was written later.
        for (table, interval) in self.writes.ranges() {
            batch.push_range(&targets[table], &interval);
        }
        for (table, key, write) in self.writes.in_memory() {
            debug_assert!(
                runs.iter().all(|(of, _)| *of != table),
                "the rows of a table are in the batch or in its run, not in both"
            );
            match write {
                Some(value) => batch.push(&targets[table], Kind::Put, key, value),
                None => batch.push(&targets[table], Kind::Delete, key, &[]),
            }
        }
        if let Some(blob) = &self.blob {
            batch.set_blob(blob);
        }
        let run = |(table, extents): (usize, _)| NewRun {
            core: Arc::clone(&self.tables[table].pinned.core),
            extents: Level::new(extents),
            loaded: false,
        };
        Ok((batch, runs.into_iter().map(run).collect()))
    }
}

#[cfg(test)]
mod tests;
