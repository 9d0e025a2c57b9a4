//! Bulk loads.

use crate::error::{Error, Status};
use crate::guard::{self, need};
use crate::pointers::Data;
use crate::table::Table;

/// A load of keys in ascending order, each once, into one table: straight to disk, all of them or
/// none. Not for several threads at once.
#[derive(Debug)]
pub struct BulkLoad(terrace::BulkLoad);

/// Begins a bulk load. Keys that the table has already are replaced if replace is true; otherwise
/// they make terrace_bulk_load_finish fail. NULL after an error. Free it with
/// terrace_bulk_load_free.
///
/// Errors: TERRACE_MISSING_TABLE when the table was dropped; TERRACE_INVALID when the database is
/// open read-only;
/// TERRACE_UNAVAILABLE; TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_bulk_load(
    table: Option<&Table>,
    replace: bool,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<BulkLoad>> {
    guard::made(error, || {
        let existing = match replace {
            true => terrace::Existing::Replace,
            false => terrace::Existing::Refuse,
        };
        Ok(BulkLoad(need(table, "table")?.table.bulk_load(existing)?))
    })
}

/// Adds a key with its value.
///
/// Errors: TERRACE_INVALID when the key is not greater than the one before; TERRACE_TOO_LARGE when
/// key or value are too long; the load goes on without it. TERRACE_FULL and TERRACE_UNAVAILABLE end
/// the load, and nothing is left of it.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bulk_load_put(
    load: Option<&mut BulkLoad>,
    key: Data,
    key_len: usize,
    value: Data,
    value_len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (key, value) = (key.bytes(key_len, "key")?, value.bytes(value_len, "value")?);
        Ok(need(load, "load")?.0.put(key, value)?)
    })
}

/// Makes all of it visible, durably, at once. The load has ended then.
///
/// Errors: TERRACE_EXISTS when the table has one of the keys and they are not to be replaced;
/// TERRACE_MISSING_TABLE when it was dropped or truncated; TERRACE_TIMEOUT when a transaction has
/// had one of the keys locked for 10 s; TERRACE_DEADLOCK; TERRACE_UNKNOWN_OUTCOME; otherwise as
/// terrace_table_put. After a key that was there, a timeout and a deadlock it can be called again.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bulk_load_finish(
    load: Option<&mut BulkLoad>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(load, "load")?.0.finish()?))
}

/// Frees a bulk load. One that was not finished leaves nothing. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_bulk_load_free(load: Option<Box<BulkLoad>>) {
    guard::free(load);
}
