//! Batches of writes.

use std::mem;

use crate::error::{Error, Status};
use crate::guard::{self, need};
use crate::pointers::Data;
use crate::range::{Range, bounds};
use crate::table::Table;

/// Writes to any tables of one database, which become visible and durable together or not at all.
/// Not for several threads at once. terrace_database_write and terrace_database_enqueue commit it.
#[derive(Debug)]
pub struct Batch(terrace::WriteBatch);

impl Batch {
    /// All that is in it; it is empty afterwards.
    pub(crate) fn take(&mut self) -> terrace::WriteBatch {
        mem::take(&mut self.0)
    }
}

/// An empty batch. Free it with terrace_batch_free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_new() -> Option<Box<Batch>> {
    guard::made(None, || Ok(Batch(terrace::WriteBatch::new())))
}

/// Frees a batch. What was not committed is not written. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_free(batch: Option<Box<Batch>>) {
    guard::free(batch);
}

/// Sets a key of a table to a value. Of several operations on one key the last counts, and
/// merges go on with what is before them.
///
/// Errors: TERRACE_INVALID for NULL. A key or a value that is too long, or a table of another
/// database, makes the commit fail.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_put(
    batch: Option<&mut Batch>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    value: Data,
    value_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (batch, table) = (need(batch, "batch")?, need(table, "table")?);
        let (key, value) = (key.bytes(key_len, "key")?, value.bytes(value_len, "value")?);
        batch.0.put(&table.table, key, value);
        Ok(())
    })
}

/// Merges an operand into the value of a key, with the merge operator of the table. What the batch
/// does to the key before counts. As terrace_table_merge.
///
/// Errors: as terrace_batch_put. Without a merge operator that is registered the commit fails.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_merge(
    batch: Option<&mut Batch>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    operand: Data,
    operand_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (batch, table) = (need(batch, "batch")?, need(table, "table")?);
        let (key, operand) = (key.bytes(key_len, "key")?, operand.bytes(operand_len, "operand")?);
        batch.0.merge(&table.table, key, operand);
        Ok(())
    })
}

/// Removes a key of a table. It is no error if the key is not there.
///
/// Errors: as terrace_batch_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_delete(
    batch: Option<&mut Batch>,
    table: Option<&Table>,
    key: Data,
    key_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (batch, table) = (need(batch, "batch")?, need(table, "table")?);
        batch.0.delete(&table.table, key.bytes(key_len, "key")?);
        Ok(())
    })
}

/// Removes every key of a range of a table: those there at the commit, and those that the batch has
/// put before.
///
/// Errors: as terrace_batch_put; TERRACE_INVALID also for bounds of an unknown kind.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_delete_range(
    batch: Option<&mut Batch>,
    table: Option<&Table>,
    range: Option<&Range>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (batch, table) = (need(batch, "batch")?, need(table, "table")?);
        batch.0.delete_range(&table.table, bounds(range)?);
        Ok(())
    })
}

/// Sets the blob of the commit: up to 4 KiB of the caller's, such as a position in another log.
/// terrace_database_last_blob gives it back, also after a restart.
///
/// Errors: TERRACE_INVALID for NULL. One that is too long makes the commit fail.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_set_blob(
    batch: Option<&mut Batch>,
    blob: Data,
    blob_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        need(batch, "batch")?.0.set_blob(blob.bytes(blob_len, "blob")?);
        Ok(())
    })
}

/// How many operations a batch holds; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_len(batch: Option<&Batch>) -> usize {
    guard::plain(0, || batch.map_or(0, |batch| batch.0.len()))
}

/// How many bytes of the region a batch will take at most; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_stored_bytes(batch: Option<&Batch>) -> usize {
    guard::plain(0, || batch.map_or(0, |batch| batch.0.stored_bytes()))
}

/// Forgets all that is in a batch. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_clear(batch: Option<&mut Batch>) {
    guard::plain((), || {
        if let Some(batch) = batch {
            batch.0.clear();
        }
    });
}
