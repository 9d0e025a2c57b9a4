//! Tables.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use terrace::Durability;

use crate::atomic::give_row;
use crate::cursor::Cursor;
use crate::database::{deadline, durability};
use crate::error::{Error, OwnedText, Status};
use crate::guard::{self, Result, need};
use crate::options::TableOptions;
use crate::pointers::{Buffer, Data, Slices, Text, Values};
use crate::range::{Range, bounds};
use crate::value::{Value, ValueOut};

/// A named, ordered map from bytes to bytes. Any thread may use it, several at once. It follows its
/// table through renaming and truncation, and keeps its database open.
#[derive(Debug)]
pub struct Table {
    pub(crate) database: terrace::Database,
    pub(crate) table: terrace::Table,
    /// The same, whose writes are relaxed.
    relaxed: terrace::Table,
}

impl Table {
    pub(crate) fn new(database: terrace::Database, table: terrace::Table) -> Table {
        let relaxed = table.durability(Durability::Relaxed);
        Table { database, table, relaxed }
    }

    /// A handle whose writes are as durable as is asked for.
    pub(crate) fn durably(&self, durability: Durability) -> Cow<'_, terrace::Table> {
        match durability {
            Durability::Durable => Cow::Borrowed(&self.table),
            Durability::Relaxed => Cow::Borrowed(&self.relaxed),
            Durability::Remote => Cow::Owned(self.table.durability(durability)),
        }
    }

    /// The table in Rust, for figures that measure both.
    pub fn table(&self) -> &terrace::Table {
        &self.table
    }
}

/// Writes what a read has found. After an error it is nothing: `read` looks at all other arguments,
/// so that they are refused behind that.
#[inline]
pub(crate) fn give(
    value: ValueOut<'_>,
    read: impl FnOnce() -> Result<Option<bytes::Bytes>>,
) -> Result<Status> {
    let value = need(value, "value")?;
    value.write(Value::NONE);
    let Some(found) = read()? else { return Ok(Status::TERRACE_NOT_FOUND) };
    value.write(Value::new(Some(found)));
    Ok(Status::TERRACE_OK)
}

/// Copies what a read has found into the caller's buffer.
#[inline]
pub(crate) fn copy(
    (mut buffer, capacity): (Buffer, usize),
    len: Option<&mut MaybeUninit<usize>>,
    read: impl FnOnce() -> Result<Option<bytes::Bytes>>,
) -> Result<Status> {
    let len = need(len, "value_len")?;
    len.write(0);
    let Some(found) = read()? else { return Ok(Status::TERRACE_NOT_FOUND) };
    len.write(found.len());
    let fits = buffer.fill(capacity, &found)?;
    Ok(if fits { Status::TERRACE_OK } else { Status::TERRACE_BUFFER_TOO_SMALL })
}

/// Writes the values that a read of several keys has found. All are empty after an error.
pub(crate) fn give_all(
    (keys, mut values, count): (Slices, Values, usize),
    read: impl FnOnce(Vec<&[u8]>) -> Result<Vec<Option<bytes::Bytes>>>,
) -> Result<()> {
    values.write(count, std::iter::repeat_with(|| Value::NONE))?;
    let slices = keys.slices(count, "keys")?;
    let keys: Vec<&[u8]> =
        slices.iter().map(|slice| slice.data.bytes(slice.len, "key")).collect::<Result<_>>()?;
    values.write(count, read(keys)?.into_iter().map(Value::new))
}

/// Frees the handle. The table stays. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_free(table: Option<Box<Table>>) {
    guard::free(table);
}

/// The name of a table at present. NULL after an error. Free it with terrace_string_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_name(
    table: Option<&Table>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<OwnedText>> {
    guard::made(error, || Ok(OwnedText::new(need(table, "table")?.table.name())))
}

/// The value of a key, without a copy: TERRACE_OK with *value, or TERRACE_NOT_FOUND with an empty
/// one. Release it with terrace_value_release. What *value held before is not read.
///
/// Errors: TERRACE_CORRUPT when the block is damaged; TERRACE_UNAVAILABLE when a file could not be
/// read; TERRACE_MISSING_TABLE when the table was dropped; TERRACE_CLOSED. *value is empty then.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_get(
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        give(value, || Ok(need(table, "table")?.table.get(key.bytes(key_len, "key")?)?))
    })
}

/// The value of a key, copied into a buffer of the caller's. *value_len gets its length.
/// TERRACE_BUFFER_TOO_SMALL when the value is longer than capacity, and nothing is copied then.
/// TERRACE_NOT_FOUND when there is none. With a capacity of 0 the buffer may be NULL: the call says
/// whether the key is there, and how long its value is.
///
/// Errors: as terrace_table_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_get_into(
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    buffer: Buffer,
    capacity: usize,
    value_len: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let read = || Ok(need(table, "table")?.table.get(key.bytes(key_len, "key")?)?);
        copy((buffer, capacity), value_len, read)
    })
}

/// The values of several keys, all as of one moment, in the order of the keys. values is an array
/// of count structures, and each is written: a missing one is empty. Release each. What they held
/// before is not read. After an error all are empty.
///
/// Errors: as terrace_table_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_multi_get(
    table: Option<&Table>,
    keys: Slices,
    values: Values,
    count: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        give_all((keys, values, count), |keys| Ok(need(table, "table")?.table.multi_get(keys)?))
    })
}

/// Sets a key to a value, with the durability that is named. A row that a transaction has locked is
/// waited for. Keys have up to 64 KiB, values up to 1 MiB.
///
/// Errors: TERRACE_TOO_LARGE when key or value are too long; TERRACE_MISSING_TABLE when the table
/// was dropped; TERRACE_INVALID when the database is open read-only; TERRACE_FULL;
/// TERRACE_UNKNOWN_OUTCOME when the device failed while the commit was under way;
/// TERRACE_UNAVAILABLE when the database stopped after an earlier failure; TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_put(
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Data,
    value_len: usize,
    durability: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (table, durability) = (need(table, "table")?, self::durability(durability)?);
        let (key, value) = (key.bytes(key_len, "key")?, value.bytes(value_len, "value")?);
        Ok(table.durably(durability).put(key, value)?)
    })
}

/// Sets a key to a value, durably, unless that would have to wait for its turn for more than
/// wait_ms milliseconds: for a drain, or for a row that a transaction has locked.
///
/// Errors: TERRACE_TIMEOUT, and nothing was written; otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_try_put(
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Data,
    value_len: usize,
    wait_ms: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let table = need(table, "table")?;
        let (key, value) = (key.bytes(key_len, "key")?, value.bytes(value_len, "value")?);
        Ok(terrace::with_deadline(deadline(wait_ms), || table.table.put(key, value))?)
    })
}

/// Removes a key, with the durability that is named. It is no error if the key is not there.
///
/// Errors: as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_delete(
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    durability: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (table, durability) = (need(table, "table")?, self::durability(durability)?);
        Ok(table.durably(durability).delete(key.bytes(key_len, "key")?)?)
    })
}

/// Removes every key of a range, durably. It costs one small record, whatever lies in the range.
///
/// Errors: as terrace_table_put, for the bounds as for keys.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_delete_range(
    table: Option<&Table>,
    range: Option<&Range>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(table, "table")?.table.delete_range(bounds(range)?)?))
}

/// About how many keys lie in a range. Versions, deletes and expired records that were not
/// compacted yet count. It reads the block indexes at the ends of the range, and of a small range
/// the blocks there. All keys cost no I/O.
///
/// Errors: TERRACE_MISSING_TABLE when the table was dropped; otherwise as terrace_table_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_approximate_len(
    table: Option<&Table>,
    range: Option<&Range>,
    keys: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let found = need(table, "table")?.table.approximate_len(bounds(range)?)?;
        need(keys, "keys")?.write(found);
        Ok(())
    })
}

/// About how many bytes the keys and values of a range have, before compression. As
/// terrace_table_approximate_len.
///
/// Errors: as terrace_table_approximate_len.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_approximate_size(
    table: Option<&Table>,
    range: Option<&Range>,
    bytes: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let found = need(table, "table")?.table.approximate_size(bounds(range)?)?;
        need(bytes, "bytes")?.write(found);
        Ok(())
    })
}

/// A cursor over a range of the table, as of now. NULL after an error. It reads nothing before its
/// first step. Free it with terrace_cursor_free.
///
/// Errors: TERRACE_INVALID for a range with bounds of an unknown kind; TERRACE_CLOSED;
/// TERRACE_UNAVAILABLE in a forked child.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_cursor(
    table: Option<&Table>,
    range: Option<&Range>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Cursor>> {
    guard::made(error, || Cursor::of_now(need(table, "table")?, bounds(range)?))
}

/// The row with the least key. TERRACE_NOT_FOUND when the table is empty, and *key and *value are
/// empty then. Release both with terrace_value_release.
///
/// Errors: as terrace_table_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_first(
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || give_row((key, value), || Ok(need(table, "table")?.table.first()?)))
}

/// The row with the greatest key. As terrace_table_first.
///
/// Errors: as terrace_table_get.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_last(
    table: Option<&Table>,
    key: Option<&mut MaybeUninit<Value>>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || give_row((key, value), || Ok(need(table, "table")?.table.last()?)))
}

/// A copy of the options that a table has at present. NULL after an error. Free it with
/// terrace_table_options_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_get_options(
    table: Option<&Table>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<TableOptions>> {
    guard::made(error, || Ok(TableOptions(need(table, "table")?.table.options())))
}

/// Changes one option of a table, with a name and a value of terrace_table_options_set, and keeps
/// the others, also those that another thread changes at the same time. What is on disk stays as it
/// is until a compaction rewrites it.
///
/// Errors: as terrace_table_options_set; TERRACE_MISSING_TABLE when the table was dropped;
/// TERRACE_INVALID for a value out of bounds; otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_set_option(
    table: Option<&Table>,
    name: Text,
    value: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (table, name) = (need(table, "table")?, name.text("name")?);
        let value = value.text("value")?;
        Ok(table.database.change_table_options(&table.table, |mut options| {
            options.set(name, value)?;
            Ok(options)
        })?)
    })
}

/// Empties a table, at no cost for each row. Handles stay valid; snapshots and cursors from before
/// fail on it.
///
/// Errors: TERRACE_MISSING_TABLE when the table was dropped, also where another one has its name;
/// otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_truncate(
    table: Option<&Table>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let table = need(table, "table")?;
        Ok(table.database.truncate_table(&table.table)?)
    })
}

/// Drops a table and all that is in it. Calls on its handles fail from then on. The handles are
/// freed as always.
///
/// Errors: as terrace_table_truncate.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_drop(
    table: Option<&Table>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let table = need(table, "table")?;
        Ok(table.database.drop_table(&table.table)?)
    })
}

/// Gives a table another name. Handles follow it.
///
/// Errors: TERRACE_EXISTS when there is a table called to; otherwise as terrace_table_truncate.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_rename(
    table: Option<&Table>,
    to: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let table = need(table, "table")?;
        Ok(table.database.rename_table(&table.table, to.text("to")?)?)
    })
}

/// Compacts a range until its last level has all of it, and waits until that is done. It is not
/// needed: the background compacts what is worth it. It is for the time before a load of reads,
/// and for disk space at once. terrace_close in another thread ends it.
///
/// Errors: TERRACE_MISSING_TABLE when the table was dropped; TERRACE_INVALID when the database is
/// open read-only;
/// TERRACE_FULL when the disk has no room, and what was done stays done; TERRACE_CORRUPT;
/// TERRACE_UNAVAILABLE; TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_compact_range(
    table: Option<&Table>,
    range: Option<&Range>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let table = need(table, "table")?;
        table.database.compact_range(&table.table, bounds(range)?)?;
        Ok(())
    })
}
