//! How a transaction behaves.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::locks::{DEFAULT_LIMIT, DEFAULT_WAIT};
use crate::options::Durability;

/// What a transaction may see of others. `docs/transactions.md` has what each level prevents, as
/// it is tested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Every call sees what is committed when it is made.
    ReadCommitted,
    /// All reads see the database as it was when the transaction began (SQL's repeatable read);
    /// of two that write the same row, the second fails. The default.
    #[default]
    Snapshot,
    /// As if transactions ran one after the other. Reads lock what they read, ranges with their
    /// gaps; optimistic ones check it when they commit.
    Serializable,
}

/// How long a call waits for a row that another transaction or a plain write has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// At most so long.
    AtMost(Duration),
    /// Not at all (`NOWAIT`): the call fails at once with [`ErrorKind::Timeout`].
    ///
    /// [`ErrorKind::Timeout`]: crate::ErrorKind::Timeout
    NoWait,
    /// Until the row is free. Deadlocks are found all the same.
    Endless,
}

/// How to run a transaction: [`Database::begin_with`](crate::Database::begin_with).
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// use terrace::{Isolation, TxnOptions};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let accounts = db.table("accounts")?;
/// let txn = db.begin_with(TxnOptions::new().isolation(Isolation::Serializable))?;
/// txn.put(&accounts, "ada", "100")?;
/// txn.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TxnOptions {
    pub(super) isolation: Isolation,
    pub(super) optimistic: bool,
    pub(super) lock_wait: LockWait,
    pub(super) durability: Durability,
    pub(super) write_limit: u64,
    pub(super) spill_at: usize,
    pub(super) lock_limit: usize,
}

/// The default of [`TxnOptions::spill_at`]: hardly less than a zone of the default size.
const SPILL_AT: usize = 4 << 20;

impl TxnOptions {
    /// Snapshot isolation with row locks, durable, waiting 10 s for a lock.
    pub fn new() -> TxnOptions {
        TxnOptions {
            isolation: Isolation::default(),
            optimistic: false,
            lock_wait: LockWait::AtMost(DEFAULT_WAIT),
            durability: Durability::Durable,
            write_limit: u64::MAX,
            spill_at: SPILL_AT,
            lock_limit: DEFAULT_LIMIT,
        }
    }

    /// What it may see of others.
    pub fn isolation(mut self, isolation: Isolation) -> TxnOptions {
        self.isolation = isolation;
        self
    }

    /// Locks nothing before it commits. The commit checks what it wrote, and what it read
    /// `for_update` (when serializable, all that it read). It fails with `Conflict` if any of that
    /// has changed. Good where conflicts are rare. Not with read committed.
    pub fn optimistic(mut self) -> TxnOptions {
        self.optimistic = true;
        self
    }

    /// How long a call waits for a lock. 10 s when not set.
    pub fn lock_wait(mut self, wait: LockWait) -> TxnOptions {
        self.lock_wait = wait;
        self
    }

    /// How long a call waits for a lock: see [`TxnOptions::lock_wait`].
    pub fn longest_lock_wait(&self) -> LockWait {
        self.lock_wait
    }

    /// How far its commit goes: see [`TxnOptions::durability`].
    pub fn durability_of_commit(&self) -> Durability {
        self.durability
    }

    /// How far its commit has gone when [`Transaction::commit`](crate::Transaction::commit)
    /// returns.
    pub fn durability(mut self, durability: Durability) -> TxnOptions {
        self.durability = durability;
        self
    }

    /// How many bytes its writes may take, in memory and on disk: keys and values with 64 bytes for
    /// each. No limit when not set; then the disk's room is the limit, and a call that finds none
    /// fails with `Full`.
    pub fn write_limit(mut self, bytes: u64) -> TxnOptions {
        self.write_limit = bytes;
        self
    }

    /// How many bytes of its writes stay in memory: 4 MiB when not set, and never more than 15/16
    /// of a zone of the region. What is beyond goes to disk, sorted. A transaction that has spilled
    /// is always durable when it has committed, which takes a few syncs more.
    ///
    /// Its row locks stay in memory all the same: see [`TxnOptions::lock_limit`].
    pub fn spill_at(mut self, bytes: usize) -> TxnOptions {
        self.spill_at = bytes;
        self
    }

    /// How many bytes of memory its row locks may take, and what an optimistic one has to find
    /// unchanged. It is 64 MiB when not set, which is some 300,000 locks on short keys. From a
    /// quarter of it on, runs of row locks become locks on ranges, with the rows between them,
    /// where no other transaction has a lock there. A call that needs more all the same fails with
    /// `Invalid`, and the transaction goes on without it. A caller that writes many rows may lock
    /// them as a range first, with
    /// [`Transaction::range_for_update`](crate::Transaction::range_for_update): they take no locks
    /// of their own then.
    ///
    /// Under [`Options::memory`](crate::Options::memory) the locks of all transactions together
    /// take at most an eighth of it. The more others take of that, the sooner row locks become
    /// locks on ranges.
    pub fn lock_limit(mut self, bytes: usize) -> TxnOptions {
        self.lock_limit = bytes;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.optimistic && self.isolation == Isolation::ReadCommitted {
            return Err(Error::invalid(
                "an optimistic transaction checks against its snapshot, and read committed has \
                 none; take Isolation::Snapshot or Isolation::Serializable",
            ));
        }
        Ok(())
    }
}

impl Default for TxnOptions {
    fn default() -> TxnOptions {
        TxnOptions::new()
    }
}
