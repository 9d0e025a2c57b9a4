//! How a database is opened, checked and backed up: what needs the engine and the floors above it.
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;

use crate::backup::{self, BackupInfo, BackupSet};
use crate::base::error::{Result, VerifyReport};
use crate::base::options::Options;
use crate::engine::{Database, OpenHow};
use crate::per_core::{PerCore, ShardedTable};
use crate::replication;
use crate::table::{BulkLoad, PendingCommit, Range, Snapshot, Table, WriteBatch};
use crate::txn::{Transaction, TxnRange};

impl Database {
    /// Opens the database in the directory `path`; creates one when the directory is missing or
    /// empty. [`Options`] has the settings and the other ways to open one.
    ///
    /// # Errors
    ///
    /// - `Exists`: the directory holds other files but no database;
    /// - `Invalid`: options are out of bounds, or it holds a database of a newer format, or
    ///   a region and a journal that do not belong together, or the database of a follower or
    ///   standby, which can be opened read-only;
    /// - `Busy`: another process has it open (it is named);
    /// - `Unavailable`: a file could not be used;
    /// - `Full`: there is no space for a new one;
    /// - `Corrupt`: bytes that were durable are damaged; the place is named.
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().open(path)
    }

    pub(crate) fn open_with(path: &Path, options: &Options, how: OpenHow) -> Result<Database> {
        Database::open_unshared(path, options, how)?.shared(options, how)
    }

    /// Claims the shared store, if there is one.
    fn shared(self, options: &Options, how: OpenHow) -> Result<Database> {
        if options.share && how != OpenHow::ReadOnly {
            replication::share(&self.inner, self.inner.set.store().files())?;
            self.inner.start_shipper()?;
        }
        Ok(self)
    }

    /// Checks every structure on every tier against its checksum; writers wait meanwhile.
    ///
    /// # Errors
    ///
    /// `Closed`, or an I/O error of the region. Damage is not an error but in the report, and so is
    /// what cannot be read.
    pub fn verify(&self) -> Result<VerifyReport> {
        backup::open_database(&self.inner)
    }

    /// Adds a backup to the set in the directory `set`, which is made if it is missing: all that is
    /// visible now, in every table, while writers go on. Extents that the set has from earlier
    /// backups are not copied again. [`BackupSet`](crate::BackupSet) has what can be done with it.
    /// Transactions that are prepared and not committed are not in it, nor are their locks.
    ///
    /// Records in the region are written into the set while none of its zones is given back: for
    /// about as long as writing them takes. Extents that compactions replace meanwhile keep their
    /// space until it is done.
    ///
    /// A database that is open read-only sends these records to a bucket at once. A closing waits
    /// for that: up to 30 seconds, and longer for many bytes, while the store does not answer.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the directory holds something else, or backups of another database;
    /// - `Corrupt`: an extent of the database is damaged, or a manifest in the set;
    /// - `Full`: there is no space for it;
    /// - `Busy`: another caller uses the set;
    /// - `Unavailable`: a file could not be used, or the database
    ///   stopped after an earlier failure;
    /// - `Closed`.
    ///
    /// Backups that the set had are whole after any error, and the new one is not there, but
    /// perhaps after a failed sync of the directory.
    pub fn backup(&self, set: impl AsRef<Path>) -> Result<BackupInfo> {
        backup::back_up(&self.inner, set.as_ref())
    }

    /// Does one background job on a database that was opened [`stepped`](Options::stepped);
    /// whether there was one.
    ///
    /// # Errors
    ///
    /// Those of the job.
    #[cfg(any(test, feature = "testing", feature = "bench"))]
    #[doc(hidden)]
    pub fn step(&self) -> Result<bool> {
        let _inside = self.inner.shared.enter_call()?;
        let shipped = self.inner.shipper.get().map(|shipper| shipper.step(&self.inner));
        let stepped = self.inner.scheduler.step();
        self.inner.shared.queue.drive_all();
        let broken = || backup::broken_cache(&self.inner);
        debug_assert!(!matches!(stepped, Ok(true)) || broken().is_none(), "{:?}", broken());
        Ok(stepped? | shipped.unwrap_or(Ok(false))?)
    }
}

impl Options {
    /// Opens a database as [`Database::open`](crate::Database::open) does.
    ///
    /// # Errors
    ///
    /// As [`Database::open`](crate::Database::open).
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path.as_ref(), &self, OpenHow::OpenOrCreate)
    }

    /// Opens the database in the directory `path`, to read and to write. It has to be there: what
    /// an unfinished creation left does not count.
    ///
    /// # Errors
    ///
    /// `MissingDatabase` when there is none; otherwise as [`Database::open`].
    pub fn open_existing(self, path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path.as_ref(), &self, OpenHow::Existing)
    }

    /// Creates a database in the directory `path`, which must be missing or empty.
    ///
    /// # Errors
    ///
    /// `Exists` when there is something; otherwise as [`Database::open`].
    pub fn create(self, path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path.as_ref(), &self, OpenHow::Create)
    }

    /// Opens an existing database to read; several processes may do so at once. Where none has it
    /// open to write, a read-only directory will do.
    ///
    /// Beside a process that has it open to write, or opens it later, it shows what was committed
    /// at this moment, and [`Database::refresh`] what is committed later. That is so without an
    /// object store, on a local file system. The reader makes a file in the directory, by which the
    /// writer knows of it, and removes it as it ends. What the reader shows keeps its disk space
    /// until then.
    ///
    /// # Errors
    ///
    /// `MissingDatabase` when there is none; `Busy` beside a process that writes, with an object
    /// store or where no file can be made; `Unavailable` beside one that stopped after a failure;
    /// otherwise as [`Database::open`].
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path.as_ref(), &self, OpenHow::ReadOnly)
    }
}

// Handles stay usable after a panic of the caller that unwinds past them: calls of the engine do
// not run the caller's code while something is half changed, and panic for nothing that can
// happen. A transaction that was being used is whole, and is rolled back when it is dropped.

macro_rules! unwind_safe {
    ($($handle:ty),*) => {
        $(
            impl UnwindSafe for $handle {}
            impl RefUnwindSafe for $handle {}
        )*
    };
}

unwind_safe!(
    Database,
    Table,
    Snapshot,
    Range,
    WriteBatch,
    BulkLoad,
    PendingCommit,
    Transaction,
    TxnRange,
    BackupSet,
    PerCore,
    ShardedTable
);
