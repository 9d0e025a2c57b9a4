//! How a transaction behaves.
//!
//! Running a transaction again when that is all there is to do.

use std::sync::Arc;
use std::time::Duration;

use super::Transaction;
use crate::base::error::{Error, Result};
use crate::base::options::Durability;
use crate::base::options::named::{
    NamedOption, OptionType, SWITCH, bytes, choose, declare, duration, set_named,
};
use crate::locks::{DEFAULT_LIMIT, DEFAULT_WAIT};
use crate::os::time;

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

/// The default of [`TxnOptions::spill_at`]: hardly less than a zone of the default size.
const SPILL_AT: usize = 4 << 20;

const ISOLATION: OptionType<Isolation> =
    OptionType::new("read_committed, snapshot or serializable", |text| {
        let names = [
            ("read_committed", Isolation::ReadCommitted),
            ("snapshot", Isolation::Snapshot),
            ("serializable", Isolation::Serializable),
        ];
        choose(&names, text)
    });
const LOCK_WAIT: OptionType<LockWait> =
    OptionType::new("a time, such as 10s or 500ms; or no_wait, or endless", lock_wait);
const DURABILITY: OptionType<Durability> = OptionType::new("durable, relaxed or remote", |text| {
    let names = [
        ("durable", Durability::Durable),
        ("relaxed", Durability::Relaxed),
        ("remote", Durability::Remote),
    ];
    choose(&names, text)
});

declare! {
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
    struct TxnOptions: [];

    /// Snapshot isolation with row locks, durable, waiting 10 s for a lock.
    new;

    /// What it may see of others.
    isolation(isolation: Isolation): Isolation = Isolation::Snapshot => isolation, takes ISOLATION;

    /// Locks nothing before it commits. The commit checks what it wrote, and what it read
    /// `for_update` (when serializable, all that it read). It fails with `Conflict` if any of that
    /// has changed. Good where conflicts are rare. Not with read committed.
    optimistic(): bool = false => true, takes SWITCH, get is_optimistic;

    /// How long a call waits for a lock. 10 s when not set.
    lock_wait(wait: LockWait): LockWait = LockWait::AtMost(DEFAULT_WAIT)
        => wait, takes LOCK_WAIT, get longest_lock_wait;

    /// How far its commit has gone when [`Transaction::commit`](crate::Transaction::commit)
    /// returns.
    durability(durability: Durability): Durability = Durability::Durable
        => durability, takes DURABILITY, get durability_of_commit;

    /// How many bytes its writes may take, in memory and on disk: keys and values with 64 bytes for
    /// each. No limit when not set; then the disk's room is the limit, and a call that finds none
    /// fails with `Full`.
    write_limit(bytes: u64): u64 = u64::MAX => bytes, takes bytes();

    /// How many bytes of its writes stay in memory: 4 MiB when not set, and never more than 15/16
    /// of a zone of the region. What is beyond goes to disk, sorted. A transaction that has spilled
    /// is always durable when it has committed, which takes a few syncs more.
    ///
    /// Its row locks stay in memory all the same: see [`TxnOptions::lock_limit`].
    spill_at(bytes: usize): usize = SPILL_AT => bytes, takes bytes();

    /// How many bytes of memory its row locks may take, and what an optimistic one has to find
    /// unchanged. It is 64 MiB when not set, which is some 300,000 locks on short keys. From a
    /// quarter of it on, runs of row locks become locks on ranges, with the rows between them,
    /// where no other transaction has a lock there. A call that needs more all the same fails with
    /// `TooLarge`, and the transaction goes on without it. A caller that writes many rows may lock
    /// them as a range first, with
    /// [`Transaction::range_for_update`](crate::Transaction::range_for_update): they take no locks
    /// of their own then.
    ///
    /// Under [`Options::memory`](crate::Options::memory) the locks of all transactions together
    /// take at most an eighth of it. The more others take of that, the sooner row locks become
    /// locks on ranges.
    lock_limit(bytes: usize): usize = DEFAULT_LIMIT => bytes, takes bytes();
}

impl TxnOptions {
    /// Sets an option by the name of its method, as text: `isolation` to `serializable`,
    /// `optimistic` to `on`. [`TxnOptions::names`] lists the names with what each takes. Nothing is
    /// changed after an error.
    ///
    /// # Errors
    ///
    /// As [`Options::set`](crate::Options::set).
    ///
    /// # Examples
    ///
    /// ```
    /// let mut options = terrace::TxnOptions::new();
    /// options.set("isolation", "serializable")?;
    /// options.set("lock_wait", "500ms")?;
    /// assert!(options.set("isolation", "chaos").is_err());
    /// # Ok::<(), terrace::Error>(())
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        set_named(TxnOptions::NAMED, self, name, value)
    }

    /// The names that [`TxnOptions::set`] knows, each with what it takes.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        NamedOption::names(TxnOptions::NAMED)
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.optimistic && self.isolation == Isolation::ReadCommitted {
            return Err(Error::invalid(
                "an optimistic transaction checks against its snapshot, and read committed has \
                 none; take the isolation `snapshot` or `serializable`",
            ));
        }
        Ok(())
    }
}

fn lock_wait(text: &str) -> Option<LockWait> {
    match text {
        "no_wait" => Some(LockWait::NoWait),
        "endless" => Some(LockWait::Endless),
        wait => duration(wait).map(LockWait::AtMost),
    }
}

/// How often a transaction is run before its error goes to the caller.
const RUNS: u32 = 64;

/// The longest pause between two runs is this, doubled `DOUBLINGS` times.
const PAUSE: Duration = Duration::from_micros(50);
const DOUBLINGS: u32 = 8;

/// Begins, runs `f`, commits; again while a conflict or a deadlock ends the transaction.
pub(crate) fn run<T, E: From<Error>>(
    begin: impl Fn() -> Result<Transaction>,
    f: impl Fn(&Transaction) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let mut runs = 0;
    loop {
        let txn = begin()?;
        let inner = Arc::clone(txn.inner());
        let here = txn.runs_here();
        let done = f(&txn);
        // Of a plain write in `f`, say: it waited for who waits for this transaction.
        let met_deadlock = here.has_met_deadlock();
        drop(here);
        // `f` may have made another error of the one that ended the transaction, or none.
        let (failed, again) = match done {
            Err(e) => (e, inner.may_run_again(met_deadlock)),
            Ok(done) => match txn.commit() {
                Ok(()) => return Ok(done),
                Err(e) => (e.into(), inner.may_run_again(false)),
            },
        };
        runs += 1;
        if runs == RUNS || !again {
            return Err(failed);
        }
        pause(runs, inner.id);
    }
}

/// Keeps two transactions that met once from meeting again: they go on at different times.
fn pause(runs: u32, id: u64) {
    let longest = PAUSE * (1 << runs.min(DOUBLINGS));
    // Multiplied by the golden ratio, neighbouring numbers are far apart.
    let share = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
    let pause = longest.mul_f64(f64::from(share) / f64::from(u32::MAX));
    time::wait_out(pause);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_option_has_its_name() {
        let mut named = TxnOptions::new();
        for (name, value) in [
            ("isolation", "serializable"),
            ("optimistic", "on"),
            ("lock_wait", "250ms"),
            ("durability", "relaxed"),
            ("write_limit", "1GiB"),
            ("spill_at", "1MiB"),
            ("lock_limit", "64KiB"),
        ] {
            named.set(name, value).unwrap();
        }
        assert_eq!(named.isolation, Isolation::Serializable);
        assert!(named.optimistic);
        assert_eq!(named.lock_wait, LockWait::AtMost(Duration::from_millis(250)));
        assert_eq!(named.durability, Durability::Relaxed);
        assert_eq!(named.write_limit, 1 << 30);
        assert_eq!((named.spill_at, named.lock_limit), (1 << 20, 64 << 10));
        assert_eq!(TxnOptions::names().count(), 7);
        named.set("lock_wait", "no_wait").unwrap();
        assert_eq!(named.lock_wait, LockWait::NoWait);
        assert!(named.set("lock_wait", "10").is_err(), "a time has a unit");
    }
}
