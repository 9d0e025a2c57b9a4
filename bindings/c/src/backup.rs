//! Backups.

use std::mem::MaybeUninit;

use crate::database::Database;
use crate::error::{Error, Status};
use crate::guard::{self, need};
use crate::options::Options;
use crate::pointers::Text;
use crate::prepared::nth;
use crate::report::Report;

/// One backup of a set.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Backup {
    /// Its number in the set, from 1; a later one has a greater number.
    pub number: u64,
    /// The last commit that is in it.
    pub commit: u64,
    /// When it was begun, in seconds since 1970.
    pub created: u64,
    /// Tables in it.
    pub tables: u64,
    /// Extents in it.
    pub extents: u64,
    /// Bytes of them, and of values that lie apart.
    pub bytes: u64,
    /// Of these, bytes that the set had not from an earlier backup.
    pub added_bytes: u64,
}

impl Backup {
    fn new(info: &terrace::BackupInfo) -> Backup {
        Backup {
            number: info.number,
            commit: info.commit,
            created: info.created,
            tables: info.tables,
            extents: info.extents,
            bytes: info.bytes,
            added_bytes: info.added_bytes,
        }
    }
}

/// A directory of backups of one database. Any thread may use it.
#[derive(Debug)]
pub struct BackupSet(terrace::BackupSet);

/// The backups of a set, as of the call that made the list.
#[derive(Debug)]
pub struct BackupList(Vec<Backup>);

/// Adds a backup to the set in a directory, which is made if it is missing, while writers go on.
/// Extents that the set has are not copied again. *backup gets what was made, and may be NULL.
///
/// Errors: TERRACE_INVALID when the directory holds something else, or backups of another database;
/// TERRACE_CORRUPT; TERRACE_FULL; TERRACE_BUSY when another process uses the set;
/// TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_backup(
    database: Option<&Database>,
    set: Text,
    backup: Option<&mut MaybeUninit<Backup>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let info = need(database, "database")?.0.backup(set.path("set")?)?;
        if let Some(backup) = backup {
            backup.write(Backup::new(&info));
        }
        Ok(())
    })
}

/// Opens the set of backups in a directory. Databases are restored with the options, which may be
/// NULL for the defaults. NULL after an error. Free it with terrace_backup_set_free.
///
/// Errors: TERRACE_INVALID when there is none; TERRACE_UNAVAILABLE.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_backup_set_open(
    path: Text,
    options: Option<&Options>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<BackupSet>> {
    guard::made(error, || {
        let options = Options::or_default(options);
        Ok(BackupSet(options.backup_set(path.path("path")?)?))
    })
}

/// The backups of a set, the oldest first. NULL after an error. Free the list with
/// terrace_backup_list_free.
///
/// Errors: TERRACE_CORRUPT when a manifest is damaged; TERRACE_BUSY when another process
/// adds to the set or deletes from it.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_backup_set_list(
    set: Option<&BackupSet>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<BackupList>> {
    guard::made(error, || {
        Ok(BackupList(need(set, "set")?.0.list()?.iter().map(Backup::new).collect()))
    })
}

/// How many backups a list has; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_backup_list_len(list: Option<&BackupList>) -> usize {
    list.map_or(0, |list| list.0.len())
}

/// A backup of a list, counted from 0.
///
/// Errors: TERRACE_INVALID when there is none at that place.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_backup_list_at(
    list: Option<&BackupList>,
    at: usize,
    backup: Option<&mut MaybeUninit<Backup>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let found = nth(&need(list, "list")?.0, at)?;
        need(backup, "backup")?.write(*found);
        Ok(())
    })
}

/// Frees a list. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_backup_list_free(list: Option<Box<BackupList>>) {
    guard::free(list);
}

/// Makes a database of a backup in the directory to, which must be missing or empty.
///
/// Errors: TERRACE_INVALID when there is no such backup; TERRACE_EXISTS when there is something in
/// to; TERRACE_CORRUPT when the backup is damaged; TERRACE_FULL; otherwise as
/// terrace_backup_set_list.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_backup_set_restore(
    set: Option<&BackupSet>,
    number: u64,
    to: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(set, "set")?.0.restore(number, to.path("to")?)?))
}

/// Deletes a backup, and gives back space that no other one needs.
///
/// Errors: TERRACE_INVALID when there is none; otherwise as terrace_backup_set_list.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_backup_set_delete(
    set: Option<&BackupSet>,
    number: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || Ok(need(set, "set")?.0.delete(number)?))
}

/// Reads all that a set has, and checks it. NULL after an error. Free the report with
/// terrace_report_free.
///
/// Errors: TERRACE_UNAVAILABLE. Damage is no error; it is in the report.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_backup_set_verify(
    set: Option<&BackupSet>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Report>> {
    guard::made(error, || Ok(Report::of_verification(&need(set, "set")?.0.verify()?)))
}

/// Frees the handle. The backups stay. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_backup_set_free(set: Option<Box<BackupSet>>) {
    guard::free(set);
}
