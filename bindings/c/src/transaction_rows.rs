//! Calls of a transaction on one row or several at once, made of its reads and writes.

use std::mem::MaybeUninit;

use bytes::Bytes;

use crate::atomic::give_row;
use crate::error::{Error, Status};
use crate::guard::{self, Result, need};
use crate::pointers::{Data, Slice, Slices, Values};
use crate::table::{Table, give_all};
use crate::transaction::Transaction;
use crate::value::{Value, ValueOut};

/// A row that a call has found or taken, if there is one.
type Found = Option<(Bytes, Bytes)>;

/// A transaction and a table of it.
type Both<'a> = (Option<&'a Transaction>, Option<&'a Table>);

/// Runs `f` on a transaction and a table, which both must be there.
fn with<T>(
    (transaction, table): Both<'_>,
    f: impl FnOnce(&terrace::Transaction, &terrace::Table) -> terrace::Result<T>,
) -> Result<T> {
    let (transaction, table) = (need(transaction, "transaction")?, need(table, "table")?);
    transaction.running.with(|running| Ok(f(running, &table.table)?))
}

/// Writes the row that `f` has found or taken.
fn row(
    both: Both<'_>,
    out: (ValueOut<'_>, ValueOut<'_>),
    f: impl FnOnce(&terrace::Transaction, &terrace::Table) -> terrace::Result<Found>,
) -> Result<Status> {
    give_row(out, || with(both, f))
}

/// Whether a table has a key, as the transaction sees it: TERRACE_OK, or TERRACE_NOT_FOUND.
///
/// Errors: as terrace_transaction_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_contains_key(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let key = key.bytes(key_len, "key")?;
        let found = with((transaction, table), |running, table| running.contains_key(table, key))?;
        Ok(if found { Status::TERRACE_OK } else { Status::TERRACE_NOT_FOUND })
    })
}

/// The values of several keys as the transaction sees them. At read_committed each is read as of
/// its own moment. As terrace_table_multi_get.
///
/// Errors: as terrace_transaction_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_multi_get(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    keys: Slices,
    values: Values,
    count: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        give_all((keys, values, count), |keys| {
            with((transaction, table), |running, table| running.multi_get(table, keys))
        })
    })
}

/// The values of several keys, which are locked in the order of the array. Where all callers name
/// keys in one order, they do not wait for each other in a circle. As terrace_table_multi_get.
///
/// Errors: as terrace_transaction_get_for_update. Keys that were locked before stay locked.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_multi_get_for_update(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    keys: Slices,
    values: Values,
    count: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        give_all((keys, values, count), |keys| {
            with((transaction, table), |running, table| running.multi_get_for_update(table, keys))
        })
    })
}

/// The row with the least key, as the transaction sees it. As terrace_table_first. A serializable
/// transaction locks the whole table.
///
/// Errors: as terrace_transaction_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_first(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || row((transaction, table), (key, value), terrace::Transaction::first))
}

/// The row with the greatest key, as the transaction sees it. As terrace_transaction_first.
///
/// Errors: as terrace_transaction_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_last(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || row((transaction, table), (key, value), terrace::Transaction::last))
}

/// Sets a key to a value, for this transaction until it commits, if it has none. *inserted says
/// whether it had none. The row is locked either way.
///
/// Errors: as terrace_transaction_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_insert_if_absent(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Data,
    value_len: usize,
    inserted: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let inserted = need(inserted, "inserted")?;
        inserted.write(false);
        let (key, value) = (key.bytes(key_len, "key")?, value.bytes(value_len, "value")?);
        let insert = |running: &terrace::Transaction, table: &terrace::Table| {
            running.insert_if_absent(table, key, value)
        };
        inserted.write(with((transaction, table), insert)?);
        Ok(())
    })
}

/// Gives a key another value, for this transaction until it commits, if it has the expected one.
/// NULL stands for no value, and *changed says what became of it, as in
/// terrace_table_compare_and_set. The row is locked either way.
///
/// Errors: as terrace_transaction_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_compare_and_set(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    expected: Option<&Slice>,
    new_value: Option<&Slice>,
    changed: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let changed = need(changed, "changed")?;
        changed.write(false);
        let key = key.bytes(key_len, "key")?;
        let expected = expected.map(|slice| slice.data.bytes(slice.len, "expected")).transpose()?;
        let new = new_value.map(|slice| slice.data.bytes(slice.len, "new_value")).transpose()?;
        let change = |running: &terrace::Transaction, table: &terrace::Table| {
            running.compare_and_set(table, key, expected, new)
        };
        changed.write(with((transaction, table), change)?);
        Ok(())
    })
}

/// Merges an operand into the value of a key, for this transaction until it commits, with the merge
/// operator of the table. The row is locked, and the value is made at once.
///
/// Errors: TERRACE_INVALID when the table has no merge operator, when it is not registered, and
/// when it fails; nothing is written then. Otherwise as terrace_transaction_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_merge(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    operand: Data,
    operand_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (key, operand) = (key.bytes(key_len, "key")?, operand.bytes(operand_len, "operand")?);
        with((transaction, table), |running, table| running.merge(table, key, operand))
    })
}

/// Removes the row with the least key, for this transaction until it commits, and gives it to the
/// caller. The keys up to it are locked. As terrace_table_pop_first.
///
/// Errors: as terrace_transaction_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_pop_first(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        row((transaction, table), (key, value), terrace::Transaction::pop_first)
    })
}

/// Removes the row with the greatest key, for this transaction until it commits, and gives it to
/// the caller. The keys from it on are locked. As terrace_table_pop_first.
///
/// Errors: as terrace_transaction_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_transaction_pop_last(
    transaction: Option<&Transaction>,
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || row((transaction, table), (key, value), terrace::Transaction::pop_last))
}
