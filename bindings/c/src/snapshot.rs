//! Snapshots.

use std::mem::MaybeUninit;

use crate::atomic::give_row;
use crate::cursor::Cursor;
use crate::error::{Error, Status};
use crate::guard::{self, need};
use crate::pointers::{Buffer, Data, Slices, Values};
use crate::range::{Range, bounds};
use crate::table::{Table, copy, give, give_all};
use crate::value::Value;

/// Every table as it was at one moment. Any thread may use it, several at once. While it lives, the
/// versions that it sees are kept.
#[derive(Debug)]
pub struct Snapshot(pub(crate) terrace::Snapshot);

/// Frees a snapshot. Cursors of it go on. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_snapshot_free(snapshot: Option<Box<Snapshot>>) {
    guard::free(snapshot);
}

/// The number of the last commit that a snapshot sees; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_snapshot_number(snapshot: Option<&Snapshot>) -> u64 {
    snapshot.map_or(0, |snapshot| snapshot.0.lsn())
}

/// The value of a key at the snapshot. As terrace_table_get.
///
/// Errors: as terrace_table_get; TERRACE_INVALID also when the table is of another database, or was
/// truncated after the snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_snapshot_get(
    snapshot: Option<&Snapshot>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        give(value, || {
            let (snapshot, table) = (need(snapshot, "snapshot")?, need(table, "table")?);
            Ok(snapshot.0.get(&table.table, key.bytes(key_len, "key")?)?)
        })
    })
}

/// The value of a key at the snapshot, copied into a buffer. As terrace_table_get_into.
///
/// Errors: as terrace_snapshot_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_snapshot_get_into(
    snapshot: Option<&Snapshot>,
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
            let (snapshot, table) = (need(snapshot, "snapshot")?, need(table, "table")?);
            Ok(snapshot.0.get(&table.table, key.bytes(key_len, "key")?)?)
        };
        copy((buffer, capacity), value_len, read)
    })
}

/// A cursor over a range of a table at the snapshot. NULL after an error. Free it with
/// terrace_cursor_free.
///
/// Errors: TERRACE_INVALID for a range with bounds of an unknown kind. What terrace_snapshot_get
/// fails with comes with the first step.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_snapshot_cursor(
    snapshot: Option<&Snapshot>,
    table: Option<&Table>,
    range: Option<&Range>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Cursor>> {
    guard::made(error, || {
        let (snapshot, table) = (need(snapshot, "snapshot")?, need(table, "table")?);
        Ok(Cursor::of_snapshot(snapshot.0.clone(), table, bounds(range)?))
    })
}

/// Whether a table has a key at the snapshot. As terrace_table_contains_key.
///
/// Errors: as terrace_snapshot_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_snapshot_contains_key(
    snapshot: Option<&Snapshot>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let (snapshot, table) = (need(snapshot, "snapshot")?, need(table, "table")?);
        let found = snapshot.0.contains_key(&table.table, key.bytes(key_len, "key")?)?;
        Ok(if found { Status::TERRACE_OK } else { Status::TERRACE_NOT_FOUND })
    })
}

/// The values of several keys at the snapshot. As terrace_table_multi_get.
///
/// Errors: as terrace_snapshot_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_snapshot_multi_get(
    snapshot: Option<&Snapshot>,
    table: Option<&Table>,
    keys: Slices,
    values: Values,
    count: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        give_all((keys, values, count), |keys| {
            let (snapshot, table) = (need(snapshot, "snapshot")?, need(table, "table")?);
            Ok(snapshot.0.multi_get(&table.table, keys)?)
        })
    })
}

/// The row with the least key at the snapshot. As terrace_table_first.
///
/// Errors: as terrace_snapshot_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_snapshot_first(
    snapshot: Option<&Snapshot>,
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        give_row((key, value), || {
            let (snapshot, table) = (need(snapshot, "snapshot")?, need(table, "table")?);
            Ok(snapshot.0.first(&table.table)?)
        })
    })
}

/// The row with the greatest key at the snapshot. As terrace_table_first.
///
/// Errors: as terrace_snapshot_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_snapshot_last(
    snapshot: Option<&Snapshot>,
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        give_row((key, value), || {
            let (snapshot, table) = (need(snapshot, "snapshot")?, need(table, "table")?);
            Ok(snapshot.0.last(&table.table)?)
        })
    })
}
