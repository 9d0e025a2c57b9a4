//! Prepared transactions, and those that run.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr;

use crate::database::{Database, durability, milliseconds};
use crate::error::{Error, Status, c_text};
use crate::guard::{self, Failure, Result, need};
use crate::pending::Pending;
use crate::pointers::Data;
use crate::transaction::isolation;

/// A list of prepared transactions, as of the call that made it.
#[derive(Debug)]
pub struct PreparedList(Vec<terrace::PreparedInfo>);

/// A prepared transaction. What it points to belongs to the list.
#[derive(Debug)]
#[repr(C)]
pub struct Prepared {
    /// The id that it was prepared under.
    pub id: *const c_char,
    /// How many bytes the id has.
    pub id_len: usize,
    /// How many keys it has written.
    pub writes: u64,
    /// How many locks it holds.
    pub locks: u64,
}

/// The transactions that are prepared and not resolved, by id. NULL after an error. Free the list
/// with terrace_prepared_list_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_list_prepared(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<PreparedList>> {
    guard::made(error, || Ok(PreparedList(need(database, "database")?.0.list_prepared())))
}

/// How many transactions a list has; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_prepared_list_len(list: Option<&PreparedList>) -> usize {
    list.map_or(0, |list| list.0.len())
}

/// A prepared transaction of a list, counted from 0.
///
/// Errors: TERRACE_INVALID when there is none at that place.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_prepared_list_at(
    list: Option<&PreparedList>,
    at: usize,
    prepared: Option<&mut MaybeUninit<Prepared>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let info = nth(&need(list, "list")?.0, at)?;
        need(prepared, "prepared")?.write(Prepared {
            id: info.id.as_ptr().cast(),
            id_len: info.id.len(),
            writes: info.writes,
            locks: info.locks,
        });
        Ok(())
    })
}

/// Frees a list. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_prepared_list_free(list: Option<Box<PreparedList>>) {
    guard::free(list);
}

/// Commits the transaction that was prepared under an id, durably.
///
/// Errors: TERRACE_INVALID when there is none; otherwise as terrace_database_write. Unless it is
/// TERRACE_UNKNOWN_OUTCOME, it is still prepared.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_commit_prepared(
    database: Option<&Database>,
    id: Data,
    id_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let id = id.bytes(id_len, "id")?;
        Ok(need(database, "database")?.0.commit_prepared(id)?)
    })
}

/// Commits the transaction that was prepared under an id as terrace_database_enqueue commits a
/// batch. The blob may be NULL with a length of 0, for none. NULL after an error.
///
/// Errors: as terrace_database_commit_prepared, but never TERRACE_UNKNOWN_OUTCOME.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_enqueue_prepared(
    database: Option<&Database>,
    id: Data,
    id_len: usize,
    blob: Data,
    blob_len: usize,
    durability: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Pending>> {
    guard::made(error, || {
        let (database, durability) = (need(database, "database")?, self::durability(durability)?);
        let (id, blob) = (id.bytes(id_len, "id")?, blob.bytes(blob_len, "blob")?);
        let blob = (!blob.is_empty()).then_some(blob);
        let commit = database.0.enqueue_prepared(id, blob, durability)?;
        Ok(Pending::new(&database.0, commit))
    })
}

/// Rolls the transaction back that was prepared under an id, durably.
///
/// Errors: as terrace_database_commit_prepared.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_roll_back_prepared(
    database: Option<&Database>,
    id: Data,
    id_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let id = id.bytes(id_len, "id")?;
        Ok(need(database, "database")?.0.roll_back_prepared(id, terrace::Durability::Durable)?)
    })
}

/// As terrace_database_roll_back_prepared, and as durable as asked: TERRACE_REMOTE waits for the
/// shared store, so that no takeover finds the transaction prepared.
///
/// Errors: as terrace_database_commit_prepared.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_roll_back_prepared_with(
    database: Option<&Database>,
    id: Data,
    id_len: usize,
    durability: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (database, durability) = (need(database, "database")?, self::durability(durability)?);
        let id = id.bytes(id_len, "id")?;
        Ok(database.0.roll_back_prepared(id, durability)?)
    })
}

/// A list of transactions that run, as of the call that made it.
#[derive(Debug)]
pub struct TransactionList(Vec<(terrace::TransactionInfo, Option<CString>)>);

/// A transaction that has not ended. What it points to belongs to the list.
#[derive(Debug)]
#[repr(C)]
pub struct TransactionInfo {
    /// Its number.
    pub id: u64,
    /// How many milliseconds ago it began.
    pub age_ms: u64,
    /// How many locks it held after its last call.
    pub locks: u64,
    /// How many keys it had written after its last call.
    pub writes: u64,
    /// How many bytes these took in memory.
    pub memory: u64,
    /// How many bytes were spilled to disk.
    pub spilled: u64,
    /// The lock that it waits for, in words; NULL when it waits for none.
    pub waits_for: *const c_char,
    /// Its isolation level, as terrace_transaction_isolation says it.
    pub isolation: *const c_char,
}

/// The transactions that have not ended, the oldest first. NULL after an error. Free the list with
/// terrace_transaction_list_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_list_transactions(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<TransactionList>> {
    guard::made(error, || {
        let list = need(database, "database")?.0.transactions().into_iter();
        let text = |info: &terrace::TransactionInfo| info.waits_for.as_deref().map(c_text);
        Ok(TransactionList(list.map(|info| (info.clone(), text(&info))).collect()))
    })
}

/// How many transactions a list has; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_list_len(list: Option<&TransactionList>) -> usize {
    list.map_or(0, |list| list.0.len())
}

/// A transaction of a list, counted from 0.
///
/// Errors: TERRACE_INVALID when there is none at that place.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_list_at(
    list: Option<&TransactionList>,
    at: usize,
    transaction: Option<&mut MaybeUninit<TransactionInfo>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (info, waits_for) = nth(&need(list, "list")?.0, at)?;
        need(transaction, "transaction")?.write(TransactionInfo {
            id: info.id,
            age_ms: milliseconds(info.age),
            locks: info.locks as u64,
            writes: info.writes as u64,
            memory: info.memory as u64,
            spilled: info.spilled,
            waits_for: waits_for.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
            isolation: isolation(info.isolation),
        });
        Ok(())
    })
}

/// Frees a list. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_list_free(list: Option<Box<TransactionList>>) {
    guard::free(list);
}

/// An element of a list.
pub(crate) fn nth<T>(list: &[T], at: usize) -> Result<&T> {
    list.get(at).ok_or_else(|| {
        Failure::Invalid(format!("there is nothing at {at} in a list of {}", list.len()))
    })
}
