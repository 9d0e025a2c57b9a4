//! Backups: a set of them in a directory, each what one LSN showed. `set.rs` knows the directory,
//! `take.rs` adds a backup of an open database, `restore.rs` makes a database of one.
//!
//! Extents never change, so a backup is a list of them. The set keeps each extent once, in extent
//! files like a database's, and a manifest for each backup says which it has; what is above the
//! levels is written into the set as extents of a level more. A backup counts once its manifest has
//! its name; until then what was written for it is free space of the set.
//!
//! A set may lie in an object store instead (`bucket`), with an object for each extent.

mod bucket;
mod dump;
mod known;
mod restore;
mod salvage;
mod set;
mod take;
mod verify;

use std::path::{Path, PathBuf};

use crate::base::error::{Result, VerifyReport};
use crate::base::options::Options;
use crate::engine::catalog::{READER_POSITION, READER_POSITION_LEN, READER_TABLE};
use crate::engine::open::files_of;
use crate::engine::{Database, Engine};
use crate::version::Manifest;
use bucket::BucketSet;
#[cfg(any(test, feature = "testing"))]
pub(crate) use bucket::probe as head_probe;
pub(crate) use dump::of_stream;
#[cfg(any(test, feature = "testing"))]
pub(crate) use dump::probe as dump_probe;
pub use dump::{DumpEntry, DumpOptions, DumpReport};
pub(crate) use known::KnownExtents;
#[cfg(test)]
pub(crate) use restore::fetch_objects;
pub(crate) use restore::{fetch, object_damage};
pub use salvage::SalvageReport;
use set::Set;
pub(crate) use take::{Destination, MICROS_A_SECOND, gather, oldest_above_levels};
#[cfg(any(test, feature = "testing", feature = "bench"))]
pub(crate) use verify::broken_cache;
pub(crate) use verify::open_database;

/// Adds a backup to the set in the directory `path`, or in the object store of a URL.
pub(crate) fn back_up(engine: &Engine, path: &Path) -> Result<BackupInfo> {
    engine.shared.check_open()?;
    match bucket::url_of(path) {
        Some(url) => bucket::back_up(engine, url),
        None => set::back_up(engine, path),
    }
}

/// One backup of a [`BackupSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number in the set, from 1; a later one has a greater number. That of a deleted backup is
    /// not given again.
    pub number: u64,
    /// The last commit that is in it: all that was visible then is, and nothing else.
    pub commit: u64,
    /// When it was begun, in seconds since 1970, by the clock of the machine.
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

impl BackupInfo {
    fn of(manifest: &Manifest) -> BackupInfo {
        BackupInfo {
            number: manifest.number,
            commit: manifest.lsn,
            created: manifest.created,
            tables: manifest.tables() as u64,
            extents: manifest.extents().count() as u64,
            bytes: manifest.places().iter().map(|place| u64::from(place.len)).sum(),
            added_bytes: manifest.added,
        }
    }
}

/// Backups of one database, made by [`Database::backup`](crate::Database::backup), in a directory
/// or in an object store.
///
/// Each call opens the set for itself. Of a directory one process at a time may add to it or
/// delete from it, and several may read at once while none does. In an object store one process at
/// a time may add or delete: a second one makes the call of the first fail, and nothing else. A
/// backup that is deleted while it is read may be found damaged by that call.
///
/// A path with `://` in it is the URL of an object store, as
/// [`Options::object_store`](crate::Options::object_store) takes it: `s3://bucket/prefix`,
/// `gs://…`, `az://…` or `file:///directory`. The set may lie beside the cold levels of databases.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let [path, set, new] = ["db", "set", "new"].map(|name| dir.path().join(name));
/// let db = terrace::Options::new().pm_size(4 << 20).open(&path)?;
/// db.table("users")?.put("ada", "1815")?;
/// let backup = db.backup(&set)?;
/// db.drop_table("users")?;
///
/// let set = terrace::Options::new().pm_size(4 << 20).backup_set(&set)?;
/// assert_eq!(set.list()?, [backup.clone()]);
/// assert!(set.verify()?.damages.is_empty());
/// set.restore(backup.number, &new)?;
/// let db = terrace::Database::open(&new)?;
/// assert!(db.existing_table("users")?.get("ada")?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BackupSet {
    path: PathBuf,
    options: Options,
}

impl BackupSet {
    /// Its backups, the oldest first.
    ///
    /// # Errors
    ///
    /// `Corrupt` when a manifest is damaged; `Busy` when another caller adds to the set or
    /// deletes from it, or when a file could not be read.
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        if let Some(bucket) = self.bucket()? {
            return bucket.list();
        }
        let set = Set::open_to_read(&self.path, &self.options)?;
        let info = |number| set.manifest(number).map(|manifest| BackupInfo::of(&manifest));
        set.numbers()?.into_iter().map(info).collect()
    }

    /// Makes a database of backup `number` in the directory `to`, which must be missing or empty,
    /// with the options that the set was opened with. Everything is checked as it is read. It holds
    /// what was visible at the backup's commit, the last blob too; it is another database than the
    /// one that the backup is of, and has backup sets of its own. Costs a copy of all of it. With
    /// [`Options::share`](crate::Options::share) its first opening claims the shared store.
    ///
    /// # Errors
    ///
    /// `Invalid` when there is no such backup; `Exists` when there is something in `to`; `Corrupt`,
    /// with file and offset, when the backup is damaged; `Full`; otherwise as [`BackupSet::list`].
    /// There is no database in `to` then. A restore that was cut off, or failed at its last step,
    /// leaves files that every opening refuses; the next restore to `to` starts over.
    pub fn restore(&self, number: u64, to: impl AsRef<Path>) -> Result<()> {
        match self.bucket()? {
            Some(bucket) => bucket.restore(number, to.as_ref(), &self.options),
            None => restore::restore((&self.path, number), to.as_ref(), &self.options),
        }
    }

    /// Deletes backup `number`, and gives space back that no other one needs, as far as it lies at
    /// the ends of files; the rest is for later backups. A damaged one can be deleted, too: while
    /// it is there, the set takes no backup.
    ///
    /// # Errors
    ///
    /// `Invalid` when there is none; otherwise as [`BackupSet::list`], and nothing was deleted but
    /// after a failed sync.
    pub fn delete(&self, number: u64) -> Result<()> {
        match self.bucket()? {
            Some(bucket) => bucket.delete(number),
            None => Set::open_to_delete(&self.path, &self.options)?.delete(number),
        }
    }

    /// Reads all that the set has, and checks it.
    ///
    /// # Errors
    ///
    /// `Unavailable`, as [`BackupSet::list`]. Damage is not an error but in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        match self.bucket()? {
            Some(bucket) => bucket.verify(&self.options),
            None => Set::open_to_read(&self.path, &self.options)?.verify(),
        }
    }

    /// The way to it, if it is in an object store.
    fn bucket(&self) -> Result<Option<BucketSet>> {
        bucket::url_of(&self.path).map(|url| BucketSet::open(url, &self.options)).transpose()
    }
}

/// Whether a database is that of a follower or a standby. Its state lies in a table of a name that
/// a user may have given, too; without a position it is the user's.
fn is_of_node(db: &Database) -> Result<bool> {
    if db.table_names().iter().all(|name| name != READER_TABLE) {
        return Ok(false);
    }
    let row = db.existing_table(READER_TABLE)?.get(READER_POSITION)?;
    Ok(row.is_some_and(|row| row.len() == READER_POSITION_LEN))
}

impl Options {
    /// Opens the set of backups in the directory `path`, or in a bucket. Databases that are
    /// restored from it are made with these options.
    ///
    /// # Errors
    ///
    /// `Invalid` when there is none; `Unavailable` when the directory or the bucket cannot be read.
    pub fn backup_set(self, path: impl AsRef<Path>) -> Result<BackupSet> {
        let set = BackupSet { path: path.as_ref().to_path_buf(), options: self };
        match set.bucket()? {
            Some(bucket) => bucket.check_present()?,
            None => set::check_present(&*files_of(&set.options), &set.path)?,
        }
        Ok(set)
    }
}

impl Options {
    /// Checks the database in the directory `path`. Nothing is changed. Beside a process that has
    /// it open to write, what [`Options::open_read_only`] shows is checked, and no copy of a
    /// superblock, floor or pool that is not needed for it. A database too damaged to be opened can
    /// be verified. Its objects are read from the [`object_store`](Options::object_store).
    ///
    /// # Errors
    ///
    /// `MissingDatabase` when there is none; `Busy` when it is open elsewhere and cannot be read
    /// beside; `Unavailable` when the object store does not answer, or where a process that writes
    /// may have changed what was read. Damage is not an error but in the report, and so is what
    /// cannot be read.
    pub fn verify(&self, path: impl AsRef<Path>) -> Result<VerifyReport> {
        verify::verify_with(path.as_ref(), self)
    }

    /// Writes what can be read of the database in the directory `from`, however damaged, to a new
    /// one in `to`, which must be missing or empty, and says what was lost. `from` is not changed
    /// and must not be open to write. Costs a reading of all of it.
    ///
    /// Keys that were lost are missing, or show an older value where only their newest version was.
    /// Tables have the options that they had; what had expired is left out, and the rest lives for
    /// its table's time from now on. The last blob is there. Prepared transactions are not: those
    /// that are open are in the report by name.
    ///
    /// # Errors
    ///
    /// `MissingDatabase` when there is none in `from`; `Exists` when there is something in `to`;
    /// otherwise as [`Database::open`](crate::Database::open).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (from, to) = (dir.path().join("damaged"), dir.path().join("new"));
    /// let db = terrace::Database::open(&from)?;
    /// db.table("users")?.put("ada", "1815")?;
    /// db.close()?;
    ///
    /// let report = terrace::Options::new().salvage(&from, &to)?;
    /// assert!(report.lost.is_empty());
    /// let db = terrace::Database::open(&to)?;
    /// assert_eq!(db.table("users")?.get("ada")?.as_deref(), Some(&b"1815"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn salvage(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<SalvageReport> {
        salvage::salvage(from.as_ref(), to.as_ref(), self)
    }
}
