//! Calls that read a row and change it, which no other writer comes between.

use std::mem::MaybeUninit;

use bytes::Bytes;

use crate::error::{Error, Status};
use crate::guard::{self, Result, need};
use crate::pointers::{Data, Slice};
use crate::table::Table;
use crate::value::{Value, ValueOut};

/// Whether a table has a key: TERRACE_OK, or TERRACE_NOT_FOUND. A value that lies apart is not
/// read.
///
/// Errors: as terrace_table_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_contains_key(
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let found = need(table, "table")?.table.contains_key(key.bytes(key_len, "key")?)?;
        Ok(if found { Status::TERRACE_OK } else { Status::TERRACE_NOT_FOUND })
    })
}

/// Sets a key to a value, durably, if it has none. *inserted says whether it had none.
///
/// Errors: TERRACE_TIMEOUT when others had the row locked for 10 s; otherwise as
/// terrace_table_get and terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_insert_if_absent(
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Data,
    value_len: usize,
    inserted: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (table, inserted) = (need(table, "table")?, need(inserted, "inserted")?);
        inserted.write(false);
        let (key, value) = (key.bytes(key_len, "key")?, value.bytes(value_len, "value")?);
        inserted.write(table.table.insert_if_absent(key, value)?);
        Ok(())
    })
}

/// Gives a key another value, durably, if it has the expected one. NULL stands for no value: as
/// expected for a key that is not there, as new_value for its removal. *changed says whether the
/// key had what was expected.
///
/// To compute a value from the old one, get the old one, compute, and call this with both, until
/// *changed is true. terrace_transaction_get_for_update is the other way: it locks the row first.
///
/// Errors: as terrace_table_insert_if_absent.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_compare_and_set(
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    expected: Option<&Slice>,
    new_value: Option<&Slice>,
    changed: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (table, changed) = (need(table, "table")?, need(changed, "changed")?);
        changed.write(false);
        let key = key.bytes(key_len, "key")?;
        let expected = expected.map(|slice| slice.data.bytes(slice.len, "expected")).transpose()?;
        let new = new_value.map(|slice| slice.data.bytes(slice.len, "new_value")).transpose()?;
        changed.write(table.table.compare_and_set(key, expected, new)?);
        Ok(())
    })
}

/// Removes the row with the least key, durably, and gives it to the caller. No two callers get the
/// same row. TERRACE_NOT_FOUND when the table is empty, and *key and *value are empty then. Release
/// both with terrace_value_release.
///
/// Errors: as terrace_table_insert_if_absent.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_pop_first(
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        give_row((key, value), || Ok(need(table, "table")?.table.pop_first()?))
    })
}

/// Removes the row with the greatest key, durably, and gives it to the caller. As
/// terrace_table_pop_first.
///
/// Errors: as terrace_table_insert_if_absent.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_pop_last(
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        give_row((key, value), || Ok(need(table, "table")?.table.pop_last()?))
    })
}

/// Writes the row that a call has found or taken.
pub(crate) fn give_row(
    (key, value): (ValueOut<'_>, ValueOut<'_>),
    take: impl FnOnce() -> Result<Option<(Bytes, Bytes)>>,
) -> Result<Status> {
    // Both are empty after an error, whichever argument it is about.
    let key = key.map(|key| key.write(Value::NONE));
    let value = value.map(|value| value.write(Value::NONE));
    let (key, value) = (need(key, "key")?, need(value, "value")?);
    let Some(row) = take()? else { return Ok(Status::TERRACE_NOT_FOUND) };
    *key = Value::new(Some(row.0));
    *value = Value::new(Some(row.1));
    Ok(Status::TERRACE_OK)
}
