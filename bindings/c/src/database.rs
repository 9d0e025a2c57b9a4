//! Databases: opening and closing, tables by name, what concerns all of them.

use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use terrace::{BackgroundTuning, CommitTuning, Durability, ErrorKind};

use crate::batch::Batch;
use crate::error::{Error, OwnedText, Status};
use crate::guard::{self, ErrorOut, Failure, Result, need};
use crate::list::Strings;
use crate::options::{Options, TableOptions};
use crate::pointers::Text;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::value::Value;

/// A commit survives a power cut once its call has returned.
pub const TERRACE_DURABLE: u32 = 0;
/// A commit survives the death of the process, not a power cut. Commits keep their order.
pub const TERRACE_RELAXED: u32 = 1;
/// A commit survives the machine once its call has returned: the shared store has it.
pub const TERRACE_REMOTE: u32 = 2;

/// An open database. Any thread may use it, several at once.
#[derive(Debug)]
pub struct Database(pub(crate) terrace::Database);

/// Fails in a forked child: a thread of the parent may have held a lock of a handle at the fork.
pub(crate) fn check_not_forked(database: &terrace::Database) -> Result<()> {
    if database.is_forked() {
        database.snapshot()?;
    }
    Ok(())
}

/// Fails where a wait for a commit would: in a forked child, and inside of a merge operator. A wait
/// that the engine refuses has the commit no more, and others may wait for it.
pub(crate) fn check_may_wait(database: &terrace::Database) -> Result<()> {
    match database.snapshot() {
        // Commits outlast their database.
        Err(error) if error.kind() != ErrorKind::Closed => Err(error.into()),
        _ => Ok(()),
    }
}

/// A durability as C says it.
pub(crate) fn durability(number: u32) -> Result<Durability> {
    match number {
        TERRACE_DURABLE => Ok(Durability::Durable),
        TERRACE_RELAXED => Ok(Durability::Relaxed),
        TERRACE_REMOTE => Ok(Durability::Remote),
        other => Err(Failure::Invalid(format!(
            "there is no durability {other}; there are TERRACE_DURABLE (0), TERRACE_RELAXED (1) \
             and TERRACE_REMOTE (2)"
        ))),
    }
}

/// The moment at which a wait of so many milliseconds ends.
pub(crate) fn deadline(wait_ms: u64) -> Instant {
    let now = Instant::now();
    let century = Duration::from_secs(100 * 366 * 86_400);
    now + Duration::from_millis(wait_ms).min(century)
}

/// Opens the database in the directory path, and creates one where the directory is missing or
/// empty. Options may be NULL for the defaults. NULL after an error. Close the database with
/// terrace_close, then free it with terrace_database_free.
///
/// Errors: TERRACE_EXISTS when the directory holds other files but no database; TERRACE_INVALID for
/// options out of bounds; TERRACE_BUSY when another process has it open; TERRACE_UNAVAILABLE;
/// TERRACE_FULL; TERRACE_CORRUPT.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_open(
    path: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Database>> {
    open(options, error, |options| Ok(options.open(path.path("path")?)?))
}

/// Creates a database in the directory path, which must be missing or empty. As terrace_open.
///
/// Errors: TERRACE_EXISTS when there is something; otherwise as terrace_open.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_create(
    path: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Database>> {
    open(options, error, |options| Ok(options.create(path.path("path")?)?))
}

/// Opens an existing database. As terrace_open, but a directory without one is an error.
///
/// Errors: TERRACE_MISSING_DATABASE when there is none; otherwise as terrace_open.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_open_existing(
    path: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Database>> {
    open(options, error, |options| Ok(options.open_existing(path.path("path")?)?))
}

/// Opens an existing database to read. Several processes may do so at once, also
/// beside the one that has it open to write: it shows what was committed then, and
/// terrace_database_refresh what is committed later. As terrace_open.
///
/// Errors: TERRACE_MISSING_DATABASE when there is none; otherwise as terrace_open.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_open_read_only(
    path: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Database>> {
    open(options, error, |options| Ok(options.open_read_only(path.path("path")?)?))
}

/// Opens a database once more that is open to read beside a process that writes: the new handle
/// shows what is committed by now. The old one goes on showing what it showed, and keeps disk space
/// until it is freed. Of any other database it is one more handle. NULL after an error. Free it
/// with terrace_database_free.
///
/// Errors: as terrace_open_read_only; TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_refresh(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Database>> {
    guard::made(error, || Ok(Database(need(database, "database")?.0.refresh()?)))
}

pub(crate) fn open(
    options: Option<&Options>,
    error: ErrorOut<'_>,
    how: impl FnOnce(terrace::Options) -> Result<terrace::Database>,
) -> Option<Box<Database>> {
    guard::made(error, || how(Options::or_default(options)).map(Database))
}

/// Closes a database. From then on calls through handles of it fail with TERRACE_CLOSED.
/// The handles stay valid and are freed as always, in any order. A second call does nothing.
///
/// Errors: TERRACE_UNAVAILABLE when the last sync failed, or the database had stopped before. It is
/// closed all the same.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_close(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(database, "database")?.0.clone().close()?))
}

/// Frees the handle. A database that was not closed stays open until its last handle of any kind is
/// freed; an error of that closing is lost. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_free(database: Option<Box<Database>>) {
    guard::free(database);
}

/// The directory that the database lies in, as its opening was given it. NULL after an error. Free
/// it with terrace_string_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_path(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<OwnedText>> {
    guard::made(error, || {
        Ok(OwnedText::new(need(database, "database")?.0.path().as_os_str().as_bytes()))
    })
}

/// The table called name; creates it when there is none. NULL after an error. Free it with
/// terrace_table_free.
///
/// Errors: TERRACE_INVALID for a name that is empty, longer than 255 bytes or has control
/// characters; otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_table(
    database: Option<&Database>,
    name: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Table>> {
    table(database, name, error, |database, name| database.table(name))
}

/// The table called name, which has the options; creates it with them when there is none, in one
/// step. With NULL for options it is terrace_database_table. NULL after an error. Free it with
/// terrace_table_free.
///
/// Errors: TERRACE_EXISTS when it has other options; the message lists those that differ.
/// TERRACE_INVALID for options out of bounds; otherwise as terrace_database_table.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_table_with_options(
    database: Option<&Database>,
    name: Text,
    options: Option<&TableOptions>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Table>> {
    table(database, name, error, |database, name| match options {
        Some(options) => database.table_with(name, options.0),
        None => database.table(name),
    })
}

/// The table called name, which must be there. NULL after an error. Free it with
/// terrace_table_free.
///
/// Errors: TERRACE_MISSING_TABLE when there is none, with the names there are; TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_existing_table(
    database: Option<&Database>,
    name: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Table>> {
    table(database, name, error, |database, name| database.existing_table(name))
}

/// Creates a table called name with options, which it keeps for as long as it lives. Options may be
/// NULL for the defaults. NULL after an error. Free it with terrace_table_free.
///
/// Errors: TERRACE_EXISTS when there is one already; TERRACE_INVALID for options out of bounds;
/// otherwise as terrace_database_table.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_create_table(
    database: Option<&Database>,
    name: Text,
    options: Option<&TableOptions>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Table>> {
    table(database, name, error, |database, name| database.create_table(name, or_default(options)))
}

fn or_default(options: Option<&TableOptions>) -> terrace::TableOptions {
    options.map_or_else(terrace::TableOptions::new, |options| options.0)
}

fn table(
    database: Option<&Database>,
    name: Text,
    error: ErrorOut<'_>,
    how: impl FnOnce(&terrace::Database, &str) -> terrace::Result<terrace::Table>,
) -> Option<Box<Table>> {
    guard::made(error, || {
        let database = &need(database, "database")?.0;
        let table = how(database, name.text("name")?)?;
        Ok(Table::new(database.clone(), table))
    })
}

/// Drops a table and all that is in it. Calls on its handles fail from then on.
///
/// Errors: TERRACE_MISSING_TABLE when there is none; otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_drop_table(
    database: Option<&Database>,
    name: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(database, "database")?.0.drop_table(name.text("name")?)?))
}

/// Gives a table another name. Handles follow it.
///
/// Errors: TERRACE_MISSING_TABLE when there is no table from; TERRACE_EXISTS when there is to;
/// otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_rename_table(
    database: Option<&Database>,
    from: Text,
    to: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let database = &need(database, "database")?.0;
        Ok(database.rename_table(from.text("from")?, to.text("to")?)?)
    })
}

/// Empties a table, at no cost for each row. Handles stay valid; snapshots and cursors from before
/// fail on it.
///
/// Errors: TERRACE_MISSING_TABLE when there is none; otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_truncate_table(
    database: Option<&Database>,
    name: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(database, "database")?.0.truncate_table(name.text("name")?)?))
}

/// Sets how long records of a table live, in milliseconds; 0 for ever.
///
/// Errors: TERRACE_MISSING_TABLE when there is none; TERRACE_INVALID for a time out of bounds;
/// otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_set_ttl(
    database: Option<&Database>,
    name: Text,
    ttl_ms: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let ttl = (ttl_ms > 0).then(|| Duration::from_millis(ttl_ms));
        Ok(need(database, "database")?.0.set_ttl(name.text("name")?, ttl)?)
    })
}

/// Gives a table all of these options in place of its own: of two calls at once one counts.
/// terrace_table_set_option changes one option and keeps the others. What is on disk stays as it is
/// until a compaction rewrites it.
///
/// Errors: TERRACE_MISSING_TABLE when there is none; TERRACE_INVALID for options NULL or out of
/// bounds; otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_set_table_options(
    database: Option<&Database>,
    name: Text,
    options: Option<&TableOptions>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (database, options) = (need(database, "database")?, need(options, "options")?);
        Ok(database.0.set_table_options(name.text("name")?, options.0)?)
    })
}

/// The names of all tables, sorted. NULL after an error. Free them with terrace_strings_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_table_names(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Strings>> {
    guard::made(error, || Ok(Strings::new(need(database, "database")?.0.table_names())))
}

/// Commits a batch, all of it or nothing, with the durability that is named. The batch is empty
/// afterwards, also after an error, and can be filled again.
///
/// Errors: TERRACE_INVALID when the batch mixes databases; otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_write(
    database: Option<&Database>,
    batch: Option<&mut Batch>,
    durability: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let batch = need(batch, "batch")?.take();
        let (database, durability) = (need(database, "database")?, self::durability(durability)?);
        Ok(database.0.write_with(&batch, durability)?)
    })
}

/// Commits a batch, durably, unless that would have to wait for its turn for more than wait_ms
/// milliseconds. The batch is empty afterwards, also after an error.
///
/// Errors: TERRACE_TIMEOUT, and nothing was written; otherwise as terrace_database_write.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_try_write(
    database: Option<&Database>,
    batch: Option<&mut Batch>,
    wait_ms: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let batch = need(batch, "batch")?.take();
        let database = need(database, "database")?;
        Ok(terrace::with_deadline(deadline(wait_ms), || database.0.write(batch))?)
    })
}

/// All tables as they are now. NULL after an error. Free it with terrace_snapshot_free; until then
/// versions that it sees are kept.
///
/// Errors: TERRACE_CLOSED; TERRACE_UNAVAILABLE in a forked child.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_snapshot(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Snapshot>> {
    guard::made(error, || Ok(Snapshot(need(database, "database")?.0.snapshot()?)))
}

/// The blob of the last visible commit that had one, also from before the opening.
/// TERRACE_NOT_FOUND when there was none, and *value is empty then. Release it with
/// terrace_value_release.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_last_blob(
    database: Option<&Database>,
    value: Option<&mut MaybeUninit<Value>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let value = need(value, "value")?;
        value.write(Value::NONE);
        let Some(blob) = need(database, "database")?.0.last_blob() else {
            return Ok(Status::TERRACE_NOT_FOUND);
        };
        value.write(Value::new(Some(blob)));
        Ok(Status::TERRACE_OK)
    })
}

/// Makes the region larger while the database is open. *new_size gets its length in bytes, and may
/// be NULL. It can grow to sixteen times the size that it was made with.
///
/// Errors: TERRACE_INVALID for a size that is not larger, or too large; TERRACE_FULL when the
/// device has no space; otherwise as terrace_table_put.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_grow_pm(
    database: Option<&Database>,
    size: u64,
    new_size: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let grown = need(database, "database")?.0.grow_pm(size)?;
        if let Some(new_size) = new_size {
            new_size.write(grown);
        }
        Ok(())
    })
}

/// Changes how commits are grouped, from the next ones on. The numbers mean what the options
/// group_batches, group_bytes and own_streams of terrace_options_set mean.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_tune_commits(
    database: Option<&Database>,
    group_batches: u32,
    group_bytes: u64,
    own_streams: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let tuning = CommitTuning::new().group_batches(group_batches).group_bytes(group_bytes);
        need(database, "database")?.0.tune_commits(tuning.own_streams(own_streams));
        Ok(())
    })
}

/// Changes what the background may use of the machine: how many threads, and how many bytes a
/// second compactions may write, 0 for no bound.
///
/// Errors: TERRACE_UNAVAILABLE when a thread cannot be started; TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_tune_background(
    database: Option<&Database>,
    threads: usize,
    bytes_per_second: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let tuning = BackgroundTuning::new().threads(threads).bytes_per_second(bytes_per_second);
        Ok(need(database, "database")?.0.tune_background(tuning)?)
    })
}

/// For how many milliseconds the oldest snapshot has been held, those of transactions and cursors
/// included. TERRACE_NOT_FOUND when there is none.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_oldest_snapshot_age(
    database: Option<&Database>,
    age_ms: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let (age, out) =
            (need(database, "database")?.0.oldest_snapshot_age(), need(age_ms, "age_ms")?);
        out.write(age.map_or(0, milliseconds));
        Ok(if age.is_some() { Status::TERRACE_OK } else { Status::TERRACE_NOT_FOUND })
    })
}

/// How many locks transactions hold at present: on keys, and on ranges.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_locks_held(
    database: Option<&Database>,
    keys: Option<&mut MaybeUninit<usize>>,
    ranges: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let held = need(database, "database")?.0.locks_held();
        need(keys, "keys")?.write(held.0);
        need(ranges, "ranges")?.write(held.1);
        Ok(())
    })
}

/// A time in whole milliseconds.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Ends the wait for a lock of the transaction with this number, from another thread. The call
/// that waits fails with TERRACE_TIMEOUT, and so does one that passes many keys which the
/// transaction has deleted. The transaction goes on, and later calls do not wait either, until
/// terrace_transaction_allow_waits. Waits for nothing. TERRACE_NOT_FOUND when its handle is freed.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_end_lock_wait(
    database: Option<&Database>,
    id: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let found = need(database, "database")?.0.end_lock_wait(id);
        Ok(if found { Status::TERRACE_OK } else { Status::TERRACE_NOT_FOUND })
    })
}
