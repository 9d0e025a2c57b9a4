//! What verification and salvage have found.

use std::mem::MaybeUninit;

use crate::database::Database;
use crate::error::{Damage, DamageText, Error, Status};
use crate::guard::{self, need};
use crate::options::Options;
use crate::pointers::Text;
use crate::prepared::nth;

/// What was checked or rescued, and each damage that was found. It never changes; any thread may
/// read it.
#[derive(Debug)]
pub struct Report {
    checked: u64,
    tables: u64,
    /// Those that could not be read come last.
    damages: Vec<DamageText>,
    unreadable: usize,
}

impl Report {
    pub(crate) fn new(checked: u64, tables: u64, damages: &[terrace::Damage]) -> Report {
        let damages = damages.iter().map(DamageText::new).collect();
        Report { checked, tables, damages, unreadable: 0 }
    }

    pub(crate) fn of_verification(report: &terrace::VerifyReport) -> Report {
        let mut found = Report::new(report.checked, 0, &report.damages);
        found.damages.extend(report.unreadable.iter().map(DamageText::of_unreadable));
        found.unreadable = report.unreadable.len();
        found
    }
}

/// Checks every structure of an open database, on every tier, against its checksum. Writers wait
/// meanwhile. NULL after an error. Free the report with terrace_report_free.
///
/// Errors: TERRACE_CLOSED; TERRACE_UNAVAILABLE when a file could not be read without which nothing
/// else can be checked. Damage is no error; it is in the report, and so is an extent that could not
/// be read.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_verify(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Report>> {
    guard::made(error, || Ok(Report::of_verification(&need(database, "database")?.0.verify()?)))
}

/// Checks the database in a directory, which must not be open to write. The options are those of
/// terrace_open, and may be NULL for the defaults: they name the region and the store where the
/// database has them elsewhere. As terrace_database_verify.
///
/// Errors: TERRACE_MISSING_DATABASE when there is none; TERRACE_BUSY when it is open elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_verify(
    path: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Report>> {
    guard::made(error, || {
        let options = Options::or_default(options);
        Ok(Report::of_verification(&options.verify(path.path("path")?)?))
    })
}

/// Writes what can be read of the damaged database in the directory from to a new one in the
/// directory to, which must be missing or empty. The options are as of terrace_verify. NULL after
/// an error. The report has what was lost.
///
/// Errors: TERRACE_MISSING_DATABASE when there is none; TERRACE_EXISTS for something in to;
/// otherwise as terrace_open.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_salvage(
    from: Text,
    to: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Report>> {
    guard::made(error, || {
        let options = Options::or_default(options);
        let report = options.salvage(from.path("from")?, to.path("to")?)?;
        Ok(Report::new(report.records, report.tables, &report.lost))
    })
}

/// How many structures were checked, or records written to the new database; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_report_checked(report: Option<&Report>) -> u64 {
    report.map_or(0, |report| report.checked)
}

/// How many tables a salvage has written; 0 for a verification, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_report_tables(report: Option<&Report>) -> u64 {
    report.map_or(0, |report| report.tables)
}

/// How many damages were found, with what could not be read: terrace_report_unreadable says how
/// many of them that is. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_report_damages(report: Option<&Report>) -> usize {
    report.map_or(0, |report| report.damages.len())
}

/// How many structures could not be read: an I/O error, or a store that does not answer. They are
/// the last of the damages, and their got is the error. Nothing is known of what is stored there. 0
/// for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_report_unreadable(report: Option<&Report>) -> usize {
    report.map_or(0, |report| report.unreadable)
}

/// One of the damages, counted from 0. Its text belongs to the report.
///
/// Errors: TERRACE_INVALID when there is none at that place.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_report_damage(
    report: Option<&Report>,
    at: usize,
    damage: Option<&mut MaybeUninit<Damage>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let found = nth(&need(report, "report")?.damages, at)?;
        need(damage, "damage")?.write(found.damage());
        Ok(())
    })
}

/// Frees a report. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_report_free(report: Option<Box<Report>>) {
    guard::free(report);
}
