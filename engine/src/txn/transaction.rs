//! The handle of a transaction.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::options::{Isolation, LockWait, TxnOptions};
use super::prepared::lock_again;
use super::range::TxnRange;
use super::registry::Registry;
use super::state::{Inner, Running};
use crate::base::error::{Error, Result};
use crate::base::limits;
use crate::base::operations::OperationKind;
use crate::base::operator;
use crate::locks::{Mode, RunsHere};
use crate::memtable::Record;
use crate::mvcc::Registered;
use crate::os::sync::atomic::Ordering;
use crate::os::with_deadline;
use crate::read::{KeyBounds, KeyRange};
use crate::sstable::Fetched;
use crate::table::{Keep, PendingCommit, Range, Shared, Table, TableReader};

/// Reads and writes that become visible and durable together, or not at all.
///
/// It sees its own writes. Dropping it rolls it back, and so does a call that fails with
/// `Conflict` or `Deadlock`: those are for running it again, which [`Database::run`] does. After
/// any other error it goes on as before the call, but for row locks that the call may have got. It
/// may move between threads; calls of several threads come one after the other.
///
/// Row locks are held until the commit is visible, so a row that every transaction writes changes
/// once a sync. No lock waits for a shared store. `docs/transactions.md` has what each
/// [`Isolation`] prevents.
///
/// [`Database::run`]: crate::Database::run
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let accounts = db.table("accounts")?;
/// let txn = db.begin()?;
/// txn.put(&accounts, "ada", "100")?;
/// assert_eq!(txn.get(&accounts, "ada")?.as_deref(), Some(&b"100"[..]));
/// assert_eq!(accounts.get("ada")?, None);
/// txn.commit()?;
/// assert!(accounts.get("ada")?.is_some());
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    inner: Arc<Inner>,
    keep: Keep,
    registry: Arc<Registry>,
}

impl Transaction {
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        keep: Keep,
        registry: &Arc<Registry>,
        options: TxnOptions,
    ) -> Result<Transaction> {
        let inner = Arc::new(Inner::begin(shared, options)?);
        registry.add(&inner);
        Ok(Transaction { inner, keep, registry: Arc::clone(registry) })
    }

    /// Its number, as errors and [`Database::transactions`](crate::Database::transactions) name
    /// it. Each opening counts from the start.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// How many bytes of memory its locks took after its last call, as
    /// [`TransactionInfo::lock_memory`](crate::TransactionInfo::lock_memory) says it.
    #[doc(hidden)]
    pub fn lock_memory(&self) -> usize {
        self.inner.lock_memory.load(Ordering::Relaxed)
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// Those of [`Table::get`]; `Closed` once the transaction has ended; serializable also those
    /// of [`Transaction::get_for_update`].
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let key = key.as_ref();
        let _brought = self.fetch(table, key, Running::moment)?;
        self.on(table, |running, at| running.get(&self.inner, at, key))
    }

    /// The value of `key`, which no other transaction changes until this one ends.
    ///
    /// # Errors
    ///
    /// - `Conflict`: it was changed after the transaction's snapshot;
    /// - `Deadlock`: others wait for this transaction, and it would have to wait for them;
    /// - `Timeout`: another transaction has had it locked for as long as this call may wait;
    /// - otherwise as [`Transaction::get`].
    pub fn get_for_update(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let key = key.as_ref();
        let _brought = self.fetch(table, key, Running::moment_of_locked)?;
        self.on(table, |running, at| {
            running.own(&self.inner, (at, key), Mode::Exclusive)?;
            running.read(&self.inner, at, key)
        })
    }

    /// Sets `key` to `value`, for this transaction until it commits.
    ///
    /// # Errors
    ///
    /// `TooLarge` when the key, the value or all of the transaction's writes are over their limit;
    /// otherwise as [`Transaction::get_for_update`].
    pub fn put(&self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), Bytes::copy_from_slice(value.as_ref()));
        self.on(table, |running, at| running.write(&self.inner, at, key, Some(value)))
    }

    /// Removes `key`, for this transaction until it commits.
    ///
    /// # Errors
    ///
    /// As [`Transaction::put`].
    pub fn delete(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.on(table, |running, at| running.write(&self.inner, at, key, None))
    }

    /// Removes every key in `range`, for this transaction until it commits. What it puts afterwards
    /// stays. The whole range is locked, so no other transaction puts a key into it meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Transaction::put`]; `Conflict` also when another transaction has put a key into the
    /// range after this one's snapshot.
    pub fn delete_range(&self, table: &Table, range: impl KeyBounds) -> Result<()> {
        let range = KeyRange::from_bounds(&range);
        self.on(table, |running, at| running.delete_range(&self.inner, at, &range))
    }

    /// The keys in `range` with their values, in order from either end. A serializable
    /// transaction first locks the whole range, also what is never asked of the iterator.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`]; those of reading come as items.
    pub fn range(&self, table: &Table, range: impl KeyBounds) -> Result<TxnRange> {
        self.scan(table, KeyRange::from_bounds(&range))
    }

    /// The keys that begin with `prefix`, with their values. As [`Transaction::range`].
    ///
    /// # Errors
    ///
    /// As [`Transaction::range`].
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<TxnRange> {
        self.scan(table, KeyRange::prefix(prefix.as_ref()))
    }

    fn scan(&self, table: &Table, range: KeyRange) -> Result<TxnRange> {
        self.on(table, |running, at| {
            running.about_to_scan(&self.inner, at, &range)?;
            let view = running.view.clone();
            if let Some(view) = &view {
                self.inner.shared.committer.wait_until_visible(view.lsn())?;
            }
            Ok(self.cursor(running, view, (table, at), range, false))
        })
    }

    /// The keys in `range` with their values. Until this transaction ends no other one changes
    /// them, or puts another key between them (`SELECT … FOR UPDATE` over a range).
    ///
    /// # Errors
    ///
    /// As [`Transaction::get_for_update`]; those of reading come as items.
    pub fn range_for_update(&self, table: &Table, range: impl KeyBounds) -> Result<TxnRange> {
        let range = KeyRange::from_bounds(&range);
        self.on(table, |running, at| {
            running.own_range(&self.inner, (at, &range), Mode::Exclusive)?;
            Ok(self.cursor(running, None, (table, at), range, false))
        })
    }

    /// The keys in `range` with their values, without rows that another transaction has locked. It
    /// locks each row when it returns it (`SKIP LOCKED`): several workers take rows of one queue.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`]; those of [`Transaction::get_for_update`] come as items.
    pub fn range_skip_locked(&self, table: &Table, range: impl KeyBounds) -> Result<TxnRange> {
        let range = KeyRange::from_bounds(&range);
        self.on(table, |running, at| Ok(self.cursor(running, None, (table, at), range, true)))
    }

    pub(super) fn cursor(
        &self,
        running: &Running,
        view: Option<Arc<Registered>>,
        (table, at): (&Table, usize),
        range: KeyRange,
        skip_locked: bool,
    ) -> TxnRange {
        let space = running.tables[at].pinned.lock_space();
        let is_locked = running.locker.has_ranges()
            && view.is_none()
            && running.locker.has_range(space, &range, Mode::Shared);
        let is_fixed = running.snapshot.is_some() || is_locked;
        let now = || Arc::new(self.inner.shared.snapshots.register());
        let snapshot = view.or_else(|| running.snapshot.clone()).unwrap_or_else(now);
        let lsn = snapshot.lsn();
        debug_assert!(
            lsn <= self.inner.shared.committer.visible(),
            "a range reads only commits that are visible"
        );
        let pinned = &running.tables[at].pinned.core;
        let is_replaced = !Arc::ptr_eq(&table.slot.core(), pinned);
        let replaced = || is_replaced.then(|| Error::truncated(&pinned.name()));
        let gone = || table.slot.check_not_emptied_since(lsn).err().or_else(replaced);
        let committed = Range::new(table, range.clone(), snapshot, gone);
        let parts = (Arc::clone(&self.inner), Arc::clone(&self.keep));
        TxnRange::new(parts, at, range, committed, (skip_locked, is_fixed))
    }

    /// How long later calls wait for a lock.
    ///
    /// # Errors
    ///
    /// `Closed` once the transaction has ended.
    pub fn set_lock_wait(&self, wait: LockWait) -> Result<()> {
        self.inner.call(|running| {
            running.set_patience(wait);
            Ok(())
        })
    }

    /// Has calls wait for locks again, after [`Database::end_lock_wait`]. It takes back what was
    /// asked before it.
    ///
    /// [`Database::end_lock_wait`]: crate::Database::end_lock_wait
    pub fn allow_waits(&self) {
        self.inner.allow_waits();
    }

    /// Sets a savepoint. One of the same name stays, hidden by this one.
    ///
    /// # Errors
    ///
    /// `Closed` once the transaction has ended.
    pub fn set_savepoint(&self, name: &str) -> Result<()> {
        self.inner.call(|running| {
            running.writes.set_savepoint(name);
            Ok(())
        })
    }

    /// Undoes all that was written since the newest savepoint `name`. The savepoint stays, later
    /// ones go; locks are kept until the transaction ends.
    ///
    /// # Errors
    ///
    /// `Invalid` when there is none of that name; `Closed` once the transaction has ended.
    pub fn roll_back_to(&self, name: &str) -> Result<()> {
        self.inner.call(|running| running.writes.roll_back_to(name))
    }

    /// Forgets the newest savepoint `name`, and those set after it. What was written stays.
    ///
    /// # Errors
    ///
    /// As [`Transaction::roll_back_to`].
    pub fn release_savepoint(&self, name: &str) -> Result<()> {
        self.inner.call(|running| running.writes.release(name))
    }

    /// Makes all that was written visible, and as durable as the options say.
    ///
    /// # Errors
    ///
    /// After `UnknownOutcome` it may or may not last, see
    /// [`ErrorKind`](crate::ErrorKind::UnknownOutcome). After any other error nothing was done, and
    /// the transaction is rolled back; but after `Fenced` a commit that was to be `Remote` is here.
    ///
    /// - `Conflict`: optimistic, and something that it relies on has changed;
    /// - otherwise as [`Database::write`](crate::Database::write).
    pub fn commit(self) -> Result<()> {
        self.commit_whole()
    }

    /// Commits as [`Transaction::commit`], unless that would have to wait beyond `deadline`: for
    /// rows that an optimistic one locks at its end, for its pace or space in the region, or for
    /// another call of the transaction. After a `Timeout` it goes on as before the call, and the
    /// same or another end may be tried. What [`with_deadline`](crate::with_deadline) leaves
    /// unbounded stays so, and so does a change of a table that was truncated meanwhile.
    ///
    /// # Errors
    ///
    /// `Timeout`, with what it would have waited for; otherwise as [`Transaction::commit`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// use std::time::{Duration, Instant};
    ///
    /// let jobs = db.table("jobs")?;
    /// let holder = db.begin()?;
    /// holder.put(&jobs, "1", "first")?;
    /// let txn = db.begin_with(terrace::TxnOptions::new().optimistic())?;
    /// txn.put(&jobs, "1", "second")?;
    /// let soon = Instant::now() + Duration::from_millis(5);
    /// assert_eq!(txn.try_commit(soon).unwrap_err().kind(), terrace::ErrorKind::Timeout);
    /// holder.roll_back();
    /// txn.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_commit(&self, deadline: Instant) -> Result<()> {
        with_deadline(deadline, || self.commit_whole())
    }

    /// With the waits for locks of one that is optimistic, and the wait for a store.
    fn commit_whole(&self) -> Result<()> {
        self.inner.shared.events.time(OperationKind::Commit, || None, || self.inner.commit())
    }

    /// Gives the commit its place in the order, without waiting until it is visible and durable.
    /// The transaction's locks are held until [`PendingCommit::wait`] has found it visible, and as
    /// durable as this machine makes it.
    ///
    /// # Errors
    ///
    /// As [`Transaction::commit`], but never `UnknownOutcome`: after any error nothing was done.
    pub fn enqueue(self) -> Result<PendingCommit> {
        self.enqueue_whole()
    }

    /// As [`Transaction::enqueue`], with a deadline as [`Transaction::try_commit`] has it.
    ///
    /// # Errors
    ///
    /// As [`Transaction::try_commit`], but never `UnknownOutcome`.
    pub fn try_enqueue(&self, deadline: Instant) -> Result<PendingCommit> {
        with_deadline(deadline, || self.enqueue_whole())
    }

    fn enqueue_whole(&self) -> Result<PendingCommit> {
        let enqueue = || self.inner.enqueue(Arc::clone(&self.keep));
        self.inner.shared.events.time(OperationKind::Enqueue, || None, enqueue)
    }

    /// Prepares it under a name of the caller's, 1 to 140 bytes: the first phase of a commit in
    /// two (XA). Once this returns it survives restarts and power cuts, with its locks. A caller
    /// ends it with [`Database::commit_prepared`] or [`Database::roll_back_prepared`], after any
    /// number of restarts. Until then no reader sees what it wrote. The tables that it used can be
    /// neither dropped nor truncated.
    ///
    /// It costs one commit, and the resolve another one, which writes the records once more. With
    /// [`Durability::Remote`](crate::Durability::Remote) it survives the machine too once this
    /// returns: a takeover of the shared store finds it prepared.
    ///
    /// # Errors
    ///
    /// As [`Transaction::commit`]; the transaction is rolled back then. But it stays in
    /// [`Database::list_prepared`] where it was to be `Remote` and the store does not have it:
    ///
    /// - `UnknownOutcome`: it is prepared here, and either verdict ends it;
    /// - `Fenced`: it is void, since the new writer does not have it.
    ///
    /// The others:
    ///
    /// - `Exists`: a transaction is prepared under that name already;
    /// - `Invalid`: it has a blob, which goes
    ///   with the resolve;
    /// - `Full`: unresolved ones keep as much of the region as they may.
    ///
    /// [`Database::list_prepared`]: crate::Database::list_prepared
    /// [`Database::commit_prepared`]: crate::Database::commit_prepared
    /// [`Database::roll_back_prepared`]: crate::Database::roll_back_prepared
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("db");
    /// let db = terrace::Options::new().pm_size(4 << 20).open(&path)?;
    /// let accounts = db.table("accounts")?;
    /// let txn = db.begin()?;
    /// txn.put(&accounts, "ada", "100")?;
    /// txn.prepare("transfer 1")?;
    /// db.close()?;
    ///
    /// let db = terrace::Database::open(&path)?;
    /// assert_eq!(db.list_prepared()[0].id, b"transfer 1");
    /// db.commit_prepared("transfer 1")?;
    /// assert!(db.table("accounts")?.get("ada")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepare(self, id: impl AsRef<[u8]>) -> Result<()> {
        self.prepare_whole(id.as_ref())
    }

    /// As [`Transaction::prepare`], with a deadline as [`Transaction::try_commit`] has it.
    ///
    /// # Errors
    ///
    /// `Timeout`, with what it would have waited for; otherwise as [`Transaction::prepare`].
    pub fn try_prepare(&self, id: impl AsRef<[u8]>, deadline: Instant) -> Result<()> {
        let id = id.as_ref();
        with_deadline(deadline, || self.prepare_whole(id))
    }

    fn prepare_whole(&self, id: &[u8]) -> Result<()> {
        let prepare = || self.inner.prepare(id, &self.registry.prepared);
        self.inner.shared.events.time(OperationKind::Commit, || None, prepare)
    }

    /// Locks what a record of a prepared transaction says that it had locked.
    pub(crate) fn lock_again(&self, table: &Table, record: &Record<'_>) -> Result<()> {
        self.on(table, |running, at| {
            let target = Arc::clone(&running.tables[at].pinned);
            lock_again(&self.inner.shared, &mut running.locker, &target, record)
        })
    }

    /// Sets the commit's blob, as [`WriteBatch::set_blob`](crate::WriteBatch::set_blob) does.
    ///
    /// # Errors
    ///
    /// `TooLarge` when it is over its limit; `Closed` once the transaction has ended.
    pub fn set_blob(&self, blob: impl AsRef<[u8]>) -> Result<()> {
        let blob = blob.as_ref();
        self.inner.call(|running| {
            limits::check_blob(blob)?;
            running.blob = Some(blob.to_vec());
            Ok(())
        })
    }

    /// Ends it without a trace, as dropping it does.
    pub fn roll_back(self) {
        self.inner.roll_back();
    }

    /// What it may see of others.
    pub fn isolation(&self) -> Isolation {
        self.inner.options.isolation
    }

    /// Says that the calling thread cannot end it while the guard lives.
    pub(crate) fn runs_here(&self) -> RunsHere {
        RunsHere::enter(&self.inner.shared.locks, self.inner.id)
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Brings what a look-up of a key as of a moment needs of an object store, unless this
    /// transaction wrote it.
    pub(super) fn fetch(
        &self,
        table: &Table,
        key: &[u8],
        moment: impl Fn(&Running) -> Option<Arc<Registered>>,
    ) -> Result<Fetched> {
        if !table.reader().is_remote()? {
            return Ok(Fetched::default());
        }
        let unwritten = |running: &mut Running, at| {
            let is_written = running.has_written(&self.inner, at, key)?;
            Ok((!is_written).then(|| moment(running)))
        };
        match self.on(table, unwritten)? {
            Some(moment) => {
                let reader = TableReader { snapshot: moment.as_deref(), ..table.reader() };
                unless_truncated(reader.fetch(&[key]))
            }
            None => Ok(Fetched::default()),
        }
    }

    pub(super) fn on<T>(
        &self,
        table: &Table,
        f: impl FnOnce(&mut Running, usize) -> Result<T>,
    ) -> Result<T> {
        let shared = &self.inner.shared;
        shared.check_open()?;
        shared.events.time(
            OperationKind::Transaction,
            || Some(table.name()),
            || {
                self.inner.call(|running| {
                    let at = running.table(&self.inner, table)?;
                    f(running, at)
                })
            },
        )
    }
}

/// What was brought. Of a truncation the read itself tells, inside of the transaction.
pub(super) fn unless_truncated<T: Default>(brought: Result<T>) -> Result<T> {
    match brought {
        Err(error) if error.is_truncated() => Ok(T::default()),
        brought => brought,
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.inner.shared.fork.is_forked() {
            // The parent's transaction, with all that it holds.
            std::mem::forget(Arc::clone(&self.inner));
            return;
        }
        self.inner.roll_back();
        debug_assert!(
            self.inner.bytes.load(Ordering::Relaxed) == 0 || operator::is_running(),
            "a transaction that has ended takes no memory for writes (invariant 3 of `state`)"
        );
        self.registry.remove(self.inner.id);
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("id", &self.inner.id)
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}
