//! Dumps: all rows of a database as bytes, which functions of the caller's take and give.

use std::ffi::c_void;
use std::io::BufReader;
use std::mem::MaybeUninit;

use crate::callback::{Context, ReadFunction, Sink, Source, WriteFunction};
use crate::database::Database;
use crate::error::{Error, Status};
use crate::guard::{self, Failure, Result, need};
use crate::pointers::Slices;

/// What a dump or a load has taken.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DumpReport {
    /// Tables, with all their rows.
    pub tables: u64,
    /// Rows of these tables.
    pub rows: u64,
}

impl DumpReport {
    fn write(report: Option<&mut MaybeUninit<DumpReport>>, done: terrace::DumpReport) {
        if let Some(report) = report {
            report.write(DumpReport { tables: done.tables, rows: done.rows });
        }
    }
}

/// Some tables by name, or all. None of them is refused: it would mean all.
fn options(tables: Slices, count: usize) -> Result<terrace::DumpOptions> {
    if count == 0 && !tables.is_null() {
        let why = "table_count is 0; name a table at least, or pass NULL as tables for all of them";
        return Err(Failure::Invalid(why.to_owned()));
    }
    let mut tables = tables.slices(count, "tables")?.iter();
    tables.try_fold(terrace::DumpOptions::new(), |options, table| {
        let name = std::str::from_utf8(table.data.bytes(table.len, "tables")?);
        let name = name.map_err(|e| Failure::Invalid(format!("a table is not UTF-8: {e}")))?;
        Ok(options.table(name))
    })
}

/// Gives all tables with their options, their rows, and the last blob to write, as one snapshot
/// shows them, while writers go on. terrace_database_load takes the bytes in, which have checksums
/// and an end. With tables, table_count names, only these are dumped, and no blob; NULL and 0 mean
/// all of them. Merged values stand for operands. Ages of rows are left out: in a table with a ttl
/// they live that long from the load on. It reads all rows, and holds one and a block of 256 KiB.
/// *report gets what was dumped, and may be NULL.
///
/// What prepared transactions have written is in no dump. While some are prepared the call fails,
/// unless without_prepared is true: then their writes and locks are left out.
///
/// Errors: TERRACE_INVALID while transactions are prepared, or when tables has no names;
/// TERRACE_MISSING_TABLE; TERRACE_CONFLICT when a table was dropped or truncated meanwhile;
/// TERRACE_UNAVAILABLE when write has returned false; otherwise as terrace_cursor_next. What was
/// written by then has no end, and no load takes it for whole.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_dump(
    database: Option<&Database>,
    tables: Slices,
    table_count: usize,
    without_prepared: bool,
    write: WriteFunction,
    context: *mut c_void,
    report: Option<&mut MaybeUninit<DumpReport>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let database = &need(database, "database")?.0;
        let mut options = options(tables, table_count)?;
        if without_prepared {
            options = options.without_prepared();
        }
        let to = Sink { function: need(write, "write")?, context: Context::new(context) };
        DumpReport::write(report, database.dump(&options, to)?);
        Ok(())
    })
}

/// Takes in a dump, which read gives: makes its tables, with their options and rows. A merge
/// operator need not be known to the opening. The blob becomes the last one where the database has
/// none. With tables, table_count names, only these are loaded, and no blob. It holds a few MiB of
/// memory. *report gets what was loaded, and may be NULL.
///
/// Errors: TERRACE_EXISTS when the database has a table of the dump already, and
/// TERRACE_MISSING_TABLE when the dump lacks one that was named: nothing was loaded then, unless
/// another thread has made the table since the load began. TERRACE_CORRUPT when the dump is damaged
/// or was cut off; TERRACE_INVALID when it is no dump, or tables has no names; TERRACE_UNAVAILABLE
/// when read has failed; otherwise as terrace_bulk_load_finish. After an error each table has all
/// rows of the dump or is not there, and the message counts them.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_load(
    database: Option<&Database>,
    tables: Slices,
    table_count: usize,
    read: ReadFunction,
    context: *mut c_void,
    report: Option<&mut MaybeUninit<DumpReport>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let database = &need(database, "database")?.0;
        let options = options(tables, table_count)?;
        let from = Source { function: need(read, "read")?, context: Context::new(context) };
        DumpReport::write(report, database.load(&options, BufReader::new(from))?);
        Ok(())
    })
}
