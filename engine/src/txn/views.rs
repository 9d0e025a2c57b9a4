//! Views of read-committed transactions: plain reads as of one moment, locking reads as of now.
//! Servers that speak SQL need both in one transaction.

use std::sync::Arc;

use bytes::Bytes;

use super::state::Running;
use super::{Isolation, Transaction, TxnRange};
use crate::base::error::{Error, Result};
use crate::locks::Mode;
use crate::mvcc::{Registered, SnapshotRegistry};
use crate::read::{KeyBounds, KeyRange};
use crate::table::Table;

impl Transaction {
    /// Takes a view of what is committed now. Plain reads see that and the transaction's own writes
    /// until the next call, or until [`Transaction::drop_view`]. Locking reads and writes see the
    /// newest rows all the same, and a row that changed after the view is no conflict.
    ///
    /// One view for each statement is SQL's read committed with statements of one moment. One for
    /// the whole transaction is repeatable read as InnoDB has it: the transaction may overwrite
    /// what it has not seen.
    ///
    /// With the number of a commit the view has that one, and all before it, also where they are
    /// not visible yet. The call does not wait: the first plain read does, until they are visible,
    /// and makes them durable if nothing else does.
    ///
    /// That is for a program with a log of its own, which enqueues commits in the log's order
    /// ([`crate::PendingCommit::number`]). A view of a position of the log has the commits up to
    /// there, and it takes the view without a wait while it keeps the log from growing.
    ///
    /// # Errors
    ///
    /// `Invalid` when no commit has the number, or unless the transaction is at
    /// [`Isolation::ReadCommitted`]; `Closed` once it has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # use terrace::{Durability, Isolation, TxnOptions, WriteBatch};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let accounts = db.table("accounts")?;
    /// accounts.put("ada", "100")?;
    /// let txn = db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted))?;
    /// txn.take_view(None)?;
    /// accounts.put("ada", "70")?;
    /// assert_eq!(txn.get(&accounts, "ada")?.as_deref(), Some(&b"100"[..]));
    /// assert_eq!(txn.get_for_update(&accounts, "ada")?.as_deref(), Some(&b"70"[..]));
    ///
    /// let mut batch = WriteBatch::new();
    /// batch.put(&accounts, "emmy", "50");
    /// let pending = db.enqueue(batch, Durability::Durable)?;
    /// txn.take_view(Some(pending.number()))?;
    /// assert_eq!(txn.get(&accounts, "emmy")?.as_deref(), Some(&b"50"[..]));
    /// pending.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_view(&self, commit: Option<u64>) -> Result<()> {
        let Some(commit) = commit else { return self.view_at(|snapshots| snapshots.register()) };
        let last = self.inner().shared.committer.last_ticket();
        if commit > last {
            return Err(Error::invalid(format!(
                "no commit has the number {commit}: the last one is {last}; take the number of a \
                 commit that was enqueued in this database"
            )));
        }
        self.view_at(|snapshots| snapshots.register_with(commit))
    }

    fn view_at(&self, register: impl FnOnce(&Arc<SnapshotRegistry>) -> Registered) -> Result<()> {
        let inner = self.inner();
        inner.shared.check_open()?;
        if inner.options.isolation != Isolation::ReadCommitted {
            return Err(Error::invalid(
                "only a transaction at read committed takes views; the other levels say themselves \
                 what reads see",
            ));
        }
        inner.call(|running| {
            running.view = Some(Arc::new(register(&inner.shared.snapshots)));
            Ok(())
        })
    }

    /// Gives the view back. Plain reads see what is committed when they are made.
    ///
    /// # Errors
    ///
    /// `Closed` once the transaction has ended.
    pub fn drop_view(&self) -> Result<()> {
        self.inner().call(|running| {
            running.view = None;
            Ok(())
        })
    }

    /// The value of `key`, which nothing changes until this transaction ends. Others may lock it
    /// so too (`SELECT … LOCK IN SHARE MODE`).
    ///
    /// # Errors
    ///
    /// As [`Transaction::get_for_update`].
    pub fn get_for_share(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let key = key.as_ref();
        let _brought = self.fetch(table, key, Running::moment_of_locked)?;
        self.on(table, |running, at| {
            running.own(self.inner(), (at, key), Mode::Shared)?;
            running.read(self.inner(), at, key)
        })
    }

    /// The keys in `range` with their values. Until this transaction ends nothing changes them or
    /// puts another one between them. Other transactions may lock the range so too.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range_for_update`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let rooms = db.table("rooms")?;
    /// let (one, two) = (db.begin()?, db.begin()?);
    /// assert_eq!(one.range_for_share(&rooms, "a".."c")?.count(), 0);
    /// assert_eq!(two.range_for_share(&rooms, "b".."d")?.count(), 0);
    /// two.set_lock_wait(terrace::LockWait::NoWait)?;
    /// assert!(two.put(&rooms, "b", "taken").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn range_for_share(&self, table: &Table, range: impl KeyBounds) -> Result<TxnRange> {
        let range = KeyRange::from_bounds(&range);
        self.on(table, |running, at| {
            running.own_range(self.inner(), (at, &range), Mode::Shared)?;
            Ok(self.cursor(running, None, (table, at), range, false))
        })
    }

    /// The keys in `range` with their values, as of this call, whatever view the transaction holds.
    /// It locks nothing at any level: a caller that locks rows one by one reads their values with
    /// the lock. A transaction with a snapshot reads that.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range`].
    #[doc(hidden)]
    pub fn range_unlocked(&self, table: &Table, range: impl KeyBounds) -> Result<TxnRange> {
        let range = KeyRange::from_bounds(&range);
        self.on(table, |running, at| Ok(self.cursor(running, None, (table, at), range, false)))
    }
}

impl Running {
    /// What plain reads are as of; `None` is now.
    pub(super) fn moment(&self) -> Option<Arc<Registered>> {
        self.view.as_ref().or(self.snapshot.as_ref()).map(Arc::clone)
    }

    /// What reads of locked rows are as of; `None` is now.
    pub(super) fn moment_of_locked(&self) -> Option<Arc<Registered>> {
        self.snapshot.as_ref().map(Arc::clone)
    }
}
