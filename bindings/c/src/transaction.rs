//! Transactions.
//!
//! Thread safety: any thread. Reads and writes of one transaction take the lock in `Running`
//! shared, and the engine lets them pass one by one; what ends the transaction takes it alone. A
//! call that waits for a row holds it shared, so only [`terrace_transaction_cancel`], which takes
//! no lock, reaches a transaction that waits.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use terrace::{Isolation, LockWait};

use crate::cursor::Cursor;
use crate::database::{Database, check_not_forked};
use crate::error::{Error, Status};
use crate::guard::{self, Failure, Result, need};
use crate::options::TransactionOptions;
use crate::pending::Pending;
use crate::pointers::{Buffer, Data, Text};
use crate::range::{Range, bounds};
use crate::table::{Table, copy, give};
use crate::value::Value;

/// A cursor of a transaction reads, and locks what its isolation level says.
pub const TERRACE_READ: u32 = 0;
/// A cursor locks its whole range at once, with the gaps between rows.
pub const TERRACE_FOR_UPDATE: u32 = 1;
/// A cursor locks each row that it moves to, and leaves out rows that others have locked.
pub const TERRACE_SKIP_LOCKED: u32 = 2;
/// A cursor reads what is committed when it is sent somewhere, whatever view the transaction holds,
/// and locks nothing. It is for callers that lock rows one by one, and read them with the lock.
pub const TERRACE_READ_NEWEST: u32 = 3;
/// A cursor locks its whole range at once, with the gaps between rows. Others may do so too.
pub const TERRACE_FOR_SHARE: u32 = 4;

/// As a wait for locks: not at all. A call that would have to wait fails with TERRACE_TIMEOUT.
pub const TERRACE_NO_WAIT: u64 = 0;
/// As a wait for locks: until the lock is free. Deadlocks are found all the same.
pub const TERRACE_WAIT_ENDLESS: u64 = u64::MAX;

/// How a cursor of a transaction treats the rows of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    Read,
    ForUpdate,
    SkipLocked,
    Newest,
    ForShare,
}

/// A transaction until it ends, for its handle and its cursors.
#[derive(Debug)]
pub(crate) struct Running {
    id: u64,
    isolation: Isolation,
    database: terrace::Database,
    transaction: RwLock<Option<terrace::Transaction>>,
}

impl Running {
    /// Runs `f` on the transaction, beside others that do.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&terrace::Transaction) -> Result<T>) -> Result<T> {
        check_not_forked(&self.database)?;
        match &*self.transaction.read() {
            Some(transaction) => f(transaction),
            None => Err(self.ended()),
        }
    }

    /// Takes the transaction to its end.
    fn end(&self) -> Result<terrace::Transaction> {
        check_not_forked(&self.database)?;
        self.transaction.write().take().ok_or_else(|| self.ended())
    }

    fn ended(&self) -> Failure {
        Failure::Closed(format!(
            "transaction {} has ended: it was committed, enqueued, prepared or rolled back",
            self.id
        ))
    }
}

/// Reads and writes that become visible and durable together, or not at all. Any thread may use it;
/// calls of several threads come one after the other. A call that fails with TERRACE_CONFLICT or
/// TERRACE_DEADLOCK has rolled it back; after any other error it goes on as before the call. Once
/// it has ended its calls fail with TERRACE_CLOSED.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) running: Arc<Running>,
}

/// Begins a transaction. Options may be NULL for the defaults. NULL after an error. Free it with
/// terrace_transaction_free.
///
/// Errors: TERRACE_INVALID when the options contradict each other; TERRACE_CLOSED;
/// TERRACE_UNAVAILABLE in a forked child.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_begin(
    database: Option<&Database>,
    options: Option<&TransactionOptions>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Transaction>> {
    guard::made(error, || {
        let database = need(database, "database")?.0.clone();
        let options = options.map_or_else(terrace::TxnOptions::new, |options| options.0.clone());
        let transaction = database.begin_with(options)?;
        let (id, isolation) = (transaction.id(), transaction.isolation());
        let running = RwLock::new(Some(transaction));
        let running = Running { id, isolation, database, transaction: running };
        Ok(Transaction { running: Arc::new(running) })
    })
}

/// Frees the handle, and rolls the transaction back if it has not ended. Its cursors fail from then
/// on. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_free(transaction: Option<Box<Transaction>>) {
    guard::plain((), || {
        if let Some(Transaction { running }) = transaction.map(|transaction| *transaction) {
            match running.database.is_forked() {
                // It is the parent's, and a thread of the parent may have held its lock.
                true => std::mem::forget(running),
                false => drop(running.transaction.write().take()),
            }
        }
    });
}

/// The number of a transaction, as errors and lists name it; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_id(transaction: Option<&Transaction>) -> u64 {
    transaction.map_or(0, |transaction| transaction.running.id)
}

/// How many bytes of memory the locks of a transaction took after its last call; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_lock_memory(transaction: Option<&Transaction>) -> usize {
    transaction.and_then(|one| one.running.with(|t| Ok(t.lock_memory())).ok()).unwrap_or_default()
}

/// The isolation level of a transaction, in the words of terrace_transaction_options_set: static
/// text. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_isolation(
    transaction: Option<&Transaction>,
) -> *const c_char {
    transaction.map_or(ptr::null(), |transaction| isolation(transaction.running.isolation))
}

/// An isolation level as C says it.
pub(crate) fn isolation(level: Isolation) -> *const c_char {
    let text = match level {
        Isolation::ReadCommitted => c"read_committed",
        Isolation::Snapshot => c"snapshot",
        Isolation::Serializable => c"serializable",
    };
    text.as_ptr()
}

/// The value of a key as the transaction sees it, its own writes included. As terrace_table_get.
///
/// Errors: as terrace_table_get; serializable also those of terrace_transaction_get_for_update.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_get(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        give(value, || {
            let (transaction, table) = (need(transaction, "transaction")?, need(table, "table")?);
            let key = key.bytes(key_len, "key")?;
            transaction.running.with(|running| Ok(running.get(&table.table, key)?))
        })
    })
}

/// The value of a key as the transaction sees it, copied into a buffer. As terrace_table_get_into.
///
/// Errors: as terrace_transaction_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_get_into(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    buffer: Buffer,
    capacity: usize,
    value_len: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let read = || {
            let (transaction, table) = (need(transaction, "transaction")?, need(table, "table")?);
            let key = key.bytes(key_len, "key")?;
            transaction.running.with(|running| Ok(running.get(&table.table, key)?))
        };
        copy((buffer, capacity), value_len, read)
    })
}

/// The value of a key, which is locked: nothing else changes it until the transaction ends. A key
/// that is not there is locked too. As terrace_table_get.
///
/// Errors: TERRACE_CONFLICT when it was changed after the transaction's snapshot; TERRACE_DEADLOCK;
/// TERRACE_TIMEOUT when another transaction has had it locked for as long as this one may wait;
/// otherwise as terrace_transaction_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_get_for_update(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        give(value, || {
            let (transaction, table) = (need(transaction, "transaction")?, need(table, "table")?);
            let key = key.bytes(key_len, "key")?;
            transaction.running.with(|running| Ok(running.get_for_update(&table.table, key)?))
        })
    })
}

/// The value of a key, which nothing changes until the transaction ends. Other transactions may
/// lock it in this way too. A key that is not there is locked too. As terrace_table_get.
///
/// Errors: as terrace_transaction_get_for_update.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_get_for_share(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        give(value, || {
            let (transaction, table) = (need(transaction, "transaction")?, need(table, "table")?);
            let key = key.bytes(key_len, "key")?;
            transaction.running.with(|running| Ok(running.get_for_share(&table.table, key)?))
        })
    })
}

/// Takes a view of what is committed now. Plain reads see that and the transaction's own writes,
/// until the next call or terrace_transaction_drop_view. Locking reads and writes see the newest
/// rows all the same, and a row that changed after the view is no conflict.
///
/// Errors: TERRACE_INVALID unless the transaction is at read_committed; TERRACE_CLOSED once it has
/// ended.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_take_view(
    transaction: Option<&Transaction>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        need(transaction, "transaction")?.running.with(|running| Ok(running.take_view(None)?))
    })
}

/// As terrace_transaction_take_view, with the commit that has the number commit, and all before it,
/// also where they are not visible yet. The call does not wait: the first plain read waits until
/// they are visible, and makes them durable if nothing else does. The number is that of
/// terrace_pending_number.
///
/// Errors: TERRACE_INVALID when no commit has the number; otherwise as
/// terrace_transaction_take_view.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_take_view_with(
    transaction: Option<&Transaction>,
    commit: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        need(transaction, "transaction")?
            .running
            .with(|running| Ok(running.take_view(Some(commit))?))
    })
}

/// Gives the view of a transaction back. Plain reads see what is committed when they are made.
///
/// Errors: TERRACE_CLOSED once it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_drop_view(
    transaction: Option<&Transaction>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        need(transaction, "transaction")?.running.with(|running| Ok(running.drop_view()?))
    })
}

/// Sets a key to a value, for this transaction until it commits. The row is locked.
///
/// Errors: TERRACE_TOO_LARGE when the key, the value or all of the transaction's writes are over
/// their limit; otherwise as terrace_transaction_get_for_update.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_put(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Data,
    value_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (transaction, table) = (need(transaction, "transaction")?, need(table, "table")?);
        let (key, value) = (key.bytes(key_len, "key")?, value.bytes(value_len, "value")?);
        transaction.running.with(|running| Ok(running.put(&table.table, key, value)?))
    })
}

/// Removes a key, for this transaction until it commits. The row is locked.
///
/// Errors: as terrace_transaction_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_delete(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (transaction, table) = (need(transaction, "transaction")?, need(table, "table")?);
        let key = key.bytes(key_len, "key")?;
        transaction.running.with(|running| Ok(running.delete(&table.table, key)?))
    })
}

/// Removes every key of a range, for this transaction until it commits. The whole range is locked.
///
/// Errors: as terrace_transaction_put; TERRACE_CONFLICT also when a key was put into the range
/// after the transaction's snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_delete_range(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    range: Option<&Range>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (transaction, table) = (need(transaction, "transaction")?, need(table, "table")?);
        let bounds = bounds(range)?;
        transaction.running.with(|running| Ok(running.delete_range(&table.table, bounds)?))
    })
}

/// A cursor over a range of a table as the transaction sees it: TERRACE_READ, TERRACE_FOR_UPDATE,
/// TERRACE_SKIP_LOCKED, TERRACE_READ_NEWEST or TERRACE_FOR_SHARE. NULL after an error. Free it with
/// terrace_cursor_free; it may outlive the transaction, and its calls fail with TERRACE_CLOSED
/// then.
///
/// Rows that the transaction writes later, and the cursor has not reached, come as they were
/// written. A serializable transaction locks what is to come when the cursor is sent somewhere.
///
/// Errors: TERRACE_INVALID for bounds or a way of an unknown kind; for update or share, those of
/// terrace_transaction_get_for_update; TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_cursor(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    range: Option<&Range>,
    scan: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Cursor>> {
    guard::made(error, || {
        let (transaction, table) = (need(transaction, "transaction")?, need(table, "table")?);
        let scan = match scan {
            TERRACE_READ => Scan::Read,
            TERRACE_FOR_UPDATE => Scan::ForUpdate,
            TERRACE_SKIP_LOCKED => Scan::SkipLocked,
            TERRACE_READ_NEWEST => Scan::Newest,
            TERRACE_FOR_SHARE => Scan::ForShare,
            other => {
                return Err(Failure::Invalid(format!(
                    "a cursor cannot scan by way {other}; there are TERRACE_READ (0), \
                     TERRACE_FOR_UPDATE (1), TERRACE_SKIP_LOCKED (2), TERRACE_READ_NEWEST (3) and \
                     TERRACE_FOR_SHARE (4)"
                )));
            }
        };
        Cursor::of_transaction(&transaction.running, scan, table, bounds(range)?)
    })
}

/// How long later calls of a transaction wait for a lock, in milliseconds; TERRACE_NO_WAIT or
/// TERRACE_WAIT_ENDLESS.
///
/// Errors: TERRACE_CLOSED once it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_set_lock_wait(
    transaction: Option<&Transaction>,
    wait_ms: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    let wait = match wait_ms {
        TERRACE_NO_WAIT => LockWait::NoWait,
        TERRACE_WAIT_ENDLESS => LockWait::Endless,
        some => LockWait::AtMost(Duration::from_millis(some)),
    };
    guard::done(error, || {
        need(transaction, "transaction")?.running.with(|running| Ok(running.set_lock_wait(wait)?))
    })
}

/// Sets a savepoint. One of the same name stays, hidden by this one.
///
/// Errors: TERRACE_CLOSED once the transaction has ended.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_set_savepoint(
    transaction: Option<&Transaction>,
    name: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let name = name.text("name")?;
        need(transaction, "transaction")?.running.with(|running| Ok(running.set_savepoint(name)?))
    })
}

/// Undoes what was written since the newest savepoint of that name. The savepoint stays, later ones
/// go. Locks are kept until the transaction ends.
///
/// Errors: TERRACE_INVALID when there is none of that name; TERRACE_CLOSED once it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_roll_back_to(
    transaction: Option<&Transaction>,
    name: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let name = name.text("name")?;
        need(transaction, "transaction")?.running.with(|running| Ok(running.roll_back_to(name)?))
    })
}

/// Forgets the newest savepoint of that name, and those set after it. What was written stays.
///
/// Errors: as terrace_transaction_roll_back_to.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_release_savepoint(
    transaction: Option<&Transaction>,
    name: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let name = name.text("name")?;
        let transaction = need(transaction, "transaction")?;
        transaction.running.with(|running| Ok(running.release_savepoint(name)?))
    })
}

/// Sets the blob of the commit. As terrace_batch_set_blob.
///
/// Errors: TERRACE_TOO_LARGE when it is longer than 4 KiB; TERRACE_CLOSED once it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_set_blob(
    transaction: Option<&Transaction>,
    blob: Data,
    blob_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let blob = blob.bytes(blob_len, "blob")?;
        need(transaction, "transaction")?.running.with(|running| Ok(running.set_blob(blob)?))
    })
}

/// Commits: all that was written becomes visible, and as durable as the options say. The
/// transaction has ended then, also after an error. Free the handle.
///
/// Errors: TERRACE_CONFLICT for an optimistic one when something that it relies on has changed;
/// TERRACE_UNKNOWN_OUTCOME; otherwise as terrace_database_write. But for TERRACE_UNKNOWN_OUTCOME it
/// was rolled back.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_commit(
    transaction: Option<&Transaction>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(transaction, "transaction")?.running.end()?.commit()?))
}

/// Gives the commit its place in the order, without waiting until it is visible and durable. NULL
/// after an error. The transaction has ended then, also after an error. Its locks are held until
/// terrace_pending_wait has found the commit visible, and as durable as this machine makes it. Free
/// the result with terrace_pending_free.
///
/// Errors: as terrace_transaction_commit, but never TERRACE_UNKNOWN_OUTCOME.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_enqueue(
    transaction: Option<&Transaction>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Pending>> {
    guard::made(error, || {
        let running = &need(transaction, "transaction")?.running;
        Ok(Pending::new(&running.database, running.end()?.enqueue()?))
    })
}

/// Prepares the transaction under an id of 1 to 140 bytes: the first phase of a commit in two. Once
/// this returns it survives everything, with its locks, until terrace_database_commit_prepared or
/// terrace_database_roll_back_prepared. The transaction has ended for its handle, also after an
/// error, which rolls it back. But after TERRACE_UNKNOWN_OUTCOME of a TERRACE_REMOTE one it is
/// prepared here, and either call ends it. After TERRACE_FENCED it is void: the new writer does not
/// have it.
///
/// Errors: TERRACE_EXISTS when the id is taken; TERRACE_INVALID when there is a blob; TERRACE_FULL
/// when those that are prepared keep as much of the region as they may; otherwise as
/// terrace_transaction_commit.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_prepare(
    transaction: Option<&Transaction>,
    id: Data,
    id_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let id = id.bytes(id_len, "id")?;
        Ok(need(transaction, "transaction")?.running.end()?.prepare(id)?)
    })
}

/// Rolls the transaction back. The handle is still to be freed. After a conflict, a deadlock or a
/// cancelling there is nothing left to do, and the call succeeds.
///
/// Errors: TERRACE_CLOSED when it was committed, enqueued, prepared or rolled back before.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_roll_back(
    transaction: Option<&Transaction>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        need(transaction, "transaction")?.running.end()?.roll_back();
        Ok(())
    })
}

/// Rolls the transaction back from another thread. A call of it that waits for a lock stops waiting
/// and fails with TERRACE_CLOSED. A commit under way is waited for, and not undone.
/// TERRACE_NOT_FOUND when it had ended before.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_cancel(
    transaction: Option<&Transaction>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let transaction = need(transaction, "transaction")?;
        let found = transaction.running.database.kill_transaction(transaction.running.id);
        Ok(if found { Status::TERRACE_OK } else { Status::TERRACE_NOT_FOUND })
    })
}

/// Has calls wait for locks again, after terrace_database_end_lock_wait. It takes back what was
/// asked before it.
///
/// Errors: TERRACE_CLOSED once the transaction has ended.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_allow_waits(
    transaction: Option<&Transaction>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        need(transaction, "transaction")?.running.with(|running| {
            running.allow_waits();
            Ok(())
        })
    })
}

/// As terrace_transaction_cancel, by number.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_cancel_transaction(
    database: Option<&Database>,
    id: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let found = need(database, "database")?.0.kill_transaction(id);
        Ok(if found { Status::TERRACE_OK } else { Status::TERRACE_NOT_FOUND })
    })
}
