//! Transactions of a database.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Database;
use super::instance::Instance;
use crate::base::error::{Error, Result};
use crate::base::operations::OperationKind;
use crate::base::operator;
use crate::base::options::Durability;
use crate::base::record::Kind;
use crate::read::KeyBounds;
use crate::table::{PendingCommit, Table, WriteBatch};
use crate::txn::{self, Isolation, PreparedInfo, Transaction, TransactionInfo, TxnOptions};

impl Database {
    /// Begins a transaction: snapshot isolation with row locks. See [`Transaction`].
    ///
    /// # Errors
    ///
    /// `Closed`, or `Unavailable` in a forked child.
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(TxnOptions::new())
    }

    /// Begins a transaction as it is asked for.
    ///
    /// # Errors
    ///
    /// `Invalid` when the options contradict each other; otherwise as [`Database::begin`].
    pub fn begin_with(&self, options: TxnOptions) -> Result<Transaction> {
        let (shared, registry) = (&self.inner.shared, &self.inner.transactions);
        Transaction::begin(shared, Arc::clone(&self.inner) as _, registry, options)
    }

    /// Runs `f` in a transaction and commits it. An error of `f` rolls it back and is returned as
    /// it is: `E` is [`Error`], or any error that can be made of it.
    ///
    /// `f` runs again after a conflict or a deadlock, up to 64 times, so it must do nothing that
    /// cannot be done twice. The transaction remembers that it met another one: it does not matter
    /// what `f` makes of that error. A deadlock that a plain write of `f` meets counts too.
    ///
    /// A closure that ends in `Ok(…)` leaves its error open. In a function that returns
    /// [`terrace::Result`](crate::Result), `?` settles it. Elsewhere the closure says
    /// `Ok::<_, terrace::Error>(…)`.
    ///
    /// # Errors
    ///
    /// Those of `f` and of [`Transaction::commit`] that running again does not help; the last one
    /// when it has not helped 64 times.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let counters = db.table("counters")?;
    /// let count = db.run(|txn| {
    ///     let old = txn.get_for_update(&counters, "visits")?;
    ///     let new = old.map_or(0, |old| old[0]) + 1;
    ///     txn.put(&counters, "visits", [new])?;
    ///     Ok(new)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// With an error of the caller's own:
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// #[derive(Debug)]
    /// enum BookingError {
    ///     SoldOut,
    ///     Database(terrace::Error),
    /// }
    ///
    /// impl From<terrace::Error> for BookingError {
    ///     fn from(e: terrace::Error) -> BookingError {
    ///         BookingError::Database(e)
    ///     }
    /// }
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let seats = db.table("seats")?;
    /// let booked = db.run(|txn| {
    ///     txn.put(&seats, "asked for", "1")?;
    ///     let (seat, _) = txn.pop_first(&seats)?.ok_or(BookingError::SoldOut)?;
    ///     if seat == "asked for" { Err(BookingError::SoldOut) } else { Ok(seat) }
    /// });
    /// assert!(matches!(booked, Err(BookingError::SoldOut)));
    /// assert_eq!(seats.first()?, None, "it was rolled back");
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<T, E: From<Error>>(
        &self,
        f: impl Fn(&Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.run_with(&TxnOptions::new(), f)
    }

    /// As [`Database::run`], in a transaction as it is asked for.
    ///
    /// # Errors
    ///
    /// As [`Database::run`].
    pub fn run_with<T, E: From<Error>>(
        &self,
        options: &TxnOptions,
        f: impl Fn(&Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        txn::run(|| self.begin_with(options.clone()), f)
    }

    /// The transactions that have not ended, the oldest first.
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        self.inner.transactions.list()
    }

    /// Gives a batch its place in the order of commits, without waiting until it is visible and
    /// durable: [`PendingCommit::wait`] does. Until then its rows are locked.
    ///
    /// # Errors
    ///
    /// As [`Database::write`], but never `UnknownOutcome`: after any error nothing was done.
    pub fn enqueue(&self, batch: WriteBatch, durability: Durability) -> Result<PendingCommit> {
        let shared = &self.inner.shared;
        let keep = Arc::clone(&self.inner) as _;
        shared.enqueue_write(keep, &*WriteBatch::check(Cow::Owned(batch), shared)?, durability)
    }

    /// Makes durable all that was acknowledged or enqueued before the call: relaxed commits survive
    /// a power cut from then on. One call serves any number of them, so it is for a program that
    /// commits relaxed and has points from which it must go on, such as its own log.
    ///
    /// It costs one sync of the region, and nothing where all is durable already. Commits go on
    /// meanwhile. It does not wait for a shared store.
    ///
    /// # Errors
    ///
    /// - `Unavailable`: the device failed, now or before. Durable commits are there, and of the
    ///   relaxed ones the next opening has the first so many;
    /// - `Invalid`: the database is open read-only, or follows a shared store;
    /// - `Closed`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// use terrace::Durability;
    ///
    /// let events = db.table("events")?;
    /// for n in 0..1000_u32 {
    ///     events.durability(Durability::Relaxed).put(n.to_be_bytes(), "seen")?;
    /// }
    /// db.sync()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sync(&self) -> Result<()> {
        let shared = &self.inner.shared;
        shared.check_writable()?;
        shared.committer.sync()
    }

    /// The blob of the last visible commit that had one ([`WriteBatch::set_blob`]), however long
    /// ago that was. `None` once the database is closed.
    pub fn last_blob(&self) -> Option<Bytes> {
        let _guard = crate::mvcc::pin();
        // It waits for nothing that work of the database holds.
        self.inner.shared.gate.check_open().ok()?;
        operator::check_outside().ok()?;
        let committer = &self.inner.shared.committer;
        let (_, last) = committer.blobs.as_of(|| committer.readable());
        last.map(|last| committer.blobs.read(last).into())
    }

    /// The transactions that are prepared and have neither been committed nor rolled back, by name;
    /// none once the database is closed.
    pub fn list_prepared(&self) -> Vec<PreparedInfo> {
        let _guard = crate::mvcc::pin();
        if self.inner.shared.gate.check_open().is_err() || operator::is_running() {
            return Vec::new();
        }
        self.inner.transactions.prepared.list(&self.inner.shared)
    }

    /// Commits the transaction that was prepared under this name, durably. What it wrote becomes
    /// visible together, now.
    ///
    /// # Errors
    ///
    /// `Invalid` when there is none; otherwise as [`Database::write`]. Unless it is
    /// `UnknownOutcome`, it is still prepared.
    pub fn commit_prepared(&self, id: impl AsRef<[u8]>) -> Result<()> {
        self.enqueue_prepared(id, None, Durability::Durable)?.wait()
    }

    /// Commits the transaction that was prepared under this name as [`Database::enqueue`] commits a
    /// batch; with a blob, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Database::commit_prepared`], but never `UnknownOutcome`.
    pub fn enqueue_prepared(
        &self,
        id: impl AsRef<[u8]>,
        blob: Option<&[u8]>,
        durability: Durability,
    ) -> Result<PendingCommit> {
        self.resolve(id.as_ref(), Kind::CommitPrepared, blob, durability)
    }

    /// Rolls back the transaction that was prepared under this name: durably at least. With
    /// [`Durability::Remote`] the shared store has the rollback once this returns, and no takeover
    /// finds the transaction prepared. Without it a takeover may.
    ///
    /// # Errors
    ///
    /// As [`Database::commit_prepared`]. Where the shared store does not acknowledge it, that is
    /// `UnknownOutcome` or `Fenced`, and it is rolled back here.
    pub fn roll_back_prepared(&self, id: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        let durability = durability.at_least_durable();
        self.resolve(id.as_ref(), Kind::RollBackPrepared, None, durability)?.wait()
    }

    fn resolve(
        &self,
        id: &[u8],
        verdict: Kind,
        blob: Option<&[u8]>,
        durability: Durability,
    ) -> Result<PendingCommit> {
        let (shared, keep) = (&self.inner.shared, Arc::clone(&self.inner) as _);
        let prepared = &self.inner.transactions.prepared;
        let resolve = || prepared.resolve(shared, id, verdict, (blob, durability));
        let (lsn, locks) = shared.events.time(OperationKind::Enqueue, || None, resolve)?;
        Ok(PendingCommit::new(shared, keep, (Some(lsn), durability), locks))
    }

    /// Rolls a transaction back from outside; whether there was one. Its calls fail with `Closed`
    /// from then on. A commit under way is waited for, and not undone. So is a call that waits for
    /// a device or an object store; one that waits for a lock ends. In a forked child there is
    /// none; nor in a merge operator, for which a call of the transaction may wait.
    pub fn kill_transaction(&self, id: u64) -> bool {
        // A thread of the parent may hold what a kill takes.
        !self.is_forked() && !operator::is_running() && self.inner.transactions.kill(id)
    }

    /// Ends the wait for a lock of a transaction from outside; whether there is a handle of it.
    /// The call that waits fails with `Timeout`, and so does one that passes many keys which the
    /// transaction has deleted. The transaction goes on, and later calls do not wait either, until
    /// [`Transaction::allow_waits`]: so one that is about to wait is ended too. Waits for nothing.
    /// In a forked child there is none.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = terrace::Database::open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// let (holder, waiter) = (db.begin()?, db.begin()?);
    /// holder.put(&table, "k", "v")?;
    /// db.end_lock_wait(waiter.id());
    /// let ended = waiter.put(&table, "k", "v").unwrap_err();
    /// assert_eq!(ended.kind(), terrace::ErrorKind::Timeout);
    /// holder.commit()?;
    /// waiter.allow_waits();
    /// waiter.roll_back();
    /// # Ok(())
    /// # }
    /// ```
    pub fn end_lock_wait(&self, id: u64) -> bool {
        !self.is_forked() && !operator::is_running() && self.inner.transactions.end_wait(id)
    }

    /// For how long the oldest snapshot has been held, be it a transaction's, an iterator's or one
    /// of [`Database::snapshot`]. Versions of keys that it needs cannot go.
    pub fn oldest_snapshot_age(&self) -> Option<Duration> {
        self.inner.shared.snapshots.oldest_age()
    }

    /// How many locks are held at present: on keys, on ranges.
    pub fn locks_held(&self) -> (usize, usize) {
        self.inner.shared.locks.held()
    }
}

impl Table {
    /// Removes the rows in `range` for which `goes` is true, durably and together, and returns
    /// them. It does so in a transaction of its own, which locks the range and reads what is
    /// newest. The rows are in memory: [`Transaction::extract_if`] gives them one by one. `goes`
    /// writes no row of the range: the call would wait for itself, so it fails.
    ///
    /// # Errors
    ///
    /// As [`Transaction::extract_if`] and [`Transaction::commit`]: no row is removed then, unless
    /// the outcome of the commit is unknown. The rows are lost to the caller then:
    /// [`Transaction::extract_if`] gives them before the commit.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let jobs = db.table("jobs")?;
    /// for (id, state) in [("1", "done"), ("2", "open"), ("3", "failed")] {
    ///     jobs.put(id, state)?;
    /// }
    /// let failed = jobs.extract_if(.., |_, state| state == b"failed")?;
    /// assert_eq!(failed[0].0, "3");
    /// assert_eq!(jobs.retain(.., |_, state| state != b"done")?, 1);
    /// assert_eq!(jobs.iter().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn extract_if(
        &self,
        range: impl KeyBounds,
        goes: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        self.in_transaction(|txn| txn.extract_if(self, range, goes)?.collect())
    }

    /// Removes the rows in `range` for which `stays` is false, durably and together; how many. As
    /// [`Table::extract_if`], of which it returns no row.
    ///
    /// # Errors
    ///
    /// As [`Table::extract_if`].
    pub fn retain(
        &self,
        range: impl KeyBounds,
        stays: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<u64> {
        self.in_transaction(|txn| txn.retain(self, range, stays))
    }

    /// Does `f` once, in a transaction that no other commit makes fail, and commits it.
    pub(crate) fn in_transaction<T>(&self, f: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
        let Ok(inner) = Arc::downcast::<Instance>(Arc::clone(&self.keep)) else {
            unreachable!("the handles of tables keep their database open")
        };
        let options =
            TxnOptions::new().isolation(Isolation::ReadCommitted).durability(self.durability);
        let txn = Database { inner }.begin_with(options)?;
        let here = txn.runs_here();
        let done = f(&txn);
        drop(here);
        let done = done?;
        txn.commit()?;
        Ok(done)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
