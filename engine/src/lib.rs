//! Terrace, a transactional LSM storage engine that is embedded in a program.
//!
//! A write lands in persistent memory, or in a preallocated file where there is none. That file is
//! written by group and synced like a log, and then *is* level 0. Records move to SSD when they
//! cool, and to an object store where asked for. They are sorted at every step. There is no
//! separate log to write first and replay later.
//!
//! # Start
//!
//! [`Database::open`] opens or makes a database in a directory, and [`Options`] say how. One
//! process has it open to write, with any number of threads. Handles are cheap to clone.
//!
//! ```
//! # fn main() -> terrace::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("db");
//! let db = terrace::Database::open(path)?;
//! let users = db.table("users")?;
//! users.put("ada", "1815")?;
//! assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # Tables
//!
//! A [`Table`] is a sorted map of bytes to bytes. [`Database::table`] opens or makes one,
//! [`Database::table_with`] with [`TableOptions`]. The module `typed` (feature `typed`) has tables
//! of keys and values with types. [`limits`] has the largest keys and values.
//!
//! ```
//! # fn main() -> terrace::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
//! use terrace::{Compression, TableOptions};
//!
//! let options = TableOptions::new().compression(Compression::Lz4, Compression::Zstd);
//! let pages = db.table_with("pages", options)?;
//! pages.put("index", "<html>")?;
//! assert_eq!(db.table_names(), ["pages"]);
//! # Ok(())
//! # }
//! ```
//!
//! # Writing
//!
//! Each call is durable when it returns, unless [`Durability::Relaxed`] is asked for. A
//! [`WriteBatch`] commits to several tables at once, all of it or nothing. [`Database::enqueue`]
//! gives a [`PendingCommit`] to wait for or to await, and [`BulkLoad`] takes many sorted rows.
//!
//! ```
//! # fn main() -> terrace::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
//! use terrace::{Durability, WriteBatch};
//!
//! let (rows, log) = (db.table("rows")?, db.table("log")?);
//! let mut batch = WriteBatch::new();
//! batch.put(&rows, "a", "1").delete(&rows, "b").put(&log, "1", "a was put");
//! db.write(batch)?;
//! rows.durability(Durability::Relaxed).put("c", "3")?;
//! db.sync()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Reading
//!
//! Keys are read one by one, many at once, or as a [`Range`] from either end. A [`Snapshot`] reads
//! all tables as of one moment, while writers go on. [`ReadTables`] is for code that reads a
//! snapshot or a transaction alike.
//!
//! ```
//! # fn main() -> terrace::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
//! let users = db.table("users")?;
//! for (name, year) in [("ada", "1815"), ("alan", "1912"), ("emmy", "1882")] {
//!     users.put(name, year)?;
//! }
//! let snapshot = db.snapshot()?;
//! users.delete("ada")?;
//! let names: Vec<_> = snapshot.range(&users, "a".."b").keys().collect::<Result<_, _>>()?;
//! assert_eq!(names, ["ada", "alan"]);
//! let last = users.iter().next_back().transpose()?;
//! assert!(last.is_some_and(|(name, _)| name == "emmy"));
//! # Ok(())
//! # }
//! ```
//!
//! # Transactions
//!
//! A [`Transaction`] sees its own writes, and commits or rolls back as a whole, at an
//! [`Isolation`] level. [`Database::run`] repeats one that conflicts with another. Rows and ranges
//! may be locked ([`Transaction::get_for_update`]), or checked at the commit. There are savepoints,
//! and two phases with [`Transaction::prepare`].
//!
//! ```
//! # fn main() -> terrace::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
//! let accounts = db.table("accounts")?;
//! accounts.put("ada", [10])?;
//! accounts.put("emmy", [0])?;
//! db.run(|txn| {
//!     for (name, change) in [("ada", -3_i8), ("emmy", 3)] {
//!         let old = txn.get_for_update(&accounts, name)?;
//!         let sum = old.map_or(0, |value| value[0]).saturating_add_signed(change);
//!         txn.put(&accounts, name, [sum])?;
//!     }
//!     Ok::<_, terrace::Error>(())
//! })?;
//! assert_eq!(accounts.get("emmy")?.as_deref(), Some(&[3][..]));
//! # Ok(())
//! # }
//! ```
//!
//! # Operations
//!
//! [`Database::stats`] says what a database does, and [`Options::on_event`] when.
//! [`Database::backup`] adds to a [`BackupSet`] while writers go on, [`Database::dump`] writes rows
//! for another database or program, and [`Options::verify`] reads all checksums. With
//! [`Options::share`] other machines follow a database ([`Follower`]), stand by for it
//! ([`Standby`]), or take it over ([`Options::open_shared`]).
//!
//! ```
//! # fn main() -> terrace::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
//! db.table("t")?.put("key", "value")?;
//! db.backup(dir.path().join("backups"))?;
//! println!("{} commits", db.stats().commit.groups);
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! An [`Error`] says what is wrong and what to do, and its [`ErrorKind`] tells programs what it is:
//! [`ErrorKind::is_refusal`] for calls that changed nothing, `Conflict` for a transaction to run
//! again, `Full` for a disk that is full, `Corrupt` with the [`Damage`] that was found.
//!
//! ```
//! # fn main() -> terrace::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
//! use terrace::ErrorKind;
//!
//! let missing = db.existing_table("t").unwrap_err();
//! assert_eq!(missing.kind(), ErrorKind::MissingTable);
//! assert!(missing.kind().is_refusal());
//! println!("{missing}");
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    all(test, feature = "loom"),
    allow(dead_code, reason = "each model checker runs a part of the tests")
)]

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
compile_error!(
    "Terrace builds for Linux, macOS and Windows. For another system it lacks the calls in \
     crates/os/src/calls (syncs that reach the drive, space of files, direct I/O, locks of files \
     that end with their process) and crates/os/src/pages (memory that is reserved and grows)."
);

mod backup;
mod base;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod cache;
mod commit;
mod compaction;
mod database;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod decoders;
mod engine;
mod jobs;
mod level0;
mod locks;
mod memtable;
mod mvcc;
mod per_core;
mod pindex;
mod pm;
mod read;
mod replication;
mod scheduler;
mod sstable;
mod storage;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use storage::object_testing::{Asked, ObjectServer, StoreFault, StoreRounds};
mod txn;
#[cfg(feature = "typed")]
pub mod typed;
mod version;

pub use backup::{BackupInfo, BackupSet, DumpEntry, DumpOptions, DumpReport, SalvageReport};
pub use base::error::{Damage, Error, ErrorKind, Result, Unreadable, VerifyReport};
pub use base::events;
pub use base::limits;
pub use base::operator::MergeOperator;
pub use base::operator::built_in as operators;
pub use base::options::{
    BackgroundTuning, CommitTuning, Compression, Durability, Index, Level0Container, Mode, Options,
    TableOptions, Tier,
};
pub use base::progress::{Progress, with_progress};
pub use engine::{
    CacheStats, CommitStats, Database, DiskStats, ExtentInfo, HistorySample, JobKeys, LevelStats,
    LockStats, ObjectStats, ObjectStoreReport, OpenStats, PaceStats, PersistenceStats, PmStats,
    ShareStats, Stats, StatsReader, TableRef, TableStats,
};
pub use jobs::manual::CompactionProgress;
pub use jobs::memory::MemoryStats;
pub use jobs::metrics::BackgroundStats;
pub use replication::{
    Digest, Follower, NodeStatus, RegisteredFollower, SharedStatus, Standby, TableDigest,
    UnshippedChange, UnshippedReport,
};

/// It covers [`Table::get_with`] and [`Table::get`], the same of snapshots, and
/// [`Table::contains_key`]. Other calls may wait without telling: for other threads, as writes and
/// ranges do.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let table = db.table("t")?;
/// table.put("a", "1")?;
/// let value = terrace::before_device_read(|| println!("this takes a while"), || table.get("a"))?;
/// assert_eq!(value.as_deref(), Some(&b"1"[..]));
/// # Ok(())
/// # }
/// ```
pub use os::before_device_read;
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// use std::time::{Duration, Instant};
///
/// let (jobs, arrival) = (db.table("jobs")?, Instant::now());
/// let put = || {
///     let soon = Instant::now() + Duration::from_millis(100);
///     terrace::with_arrival(arrival, || terrace::with_deadline(soon, || jobs.put("1", "first")))
/// };
/// while put().is_err_and(|e| e.kind() == terrace::ErrorKind::Timeout) {
///     // What the thread does beside.
/// }
/// # Ok(())
/// # }
/// ```
pub use os::with_arrival;
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// use std::time::{Duration, Instant};
///
/// let jobs = db.table("jobs")?;
/// let holder = db.begin()?;
/// holder.put(&jobs, "1", "mine")?;
/// let soon = Instant::now() + Duration::from_millis(5);
/// let busy = terrace::with_deadline(soon, || jobs.delete_range(..)).unwrap_err();
/// assert_eq!(busy.kind(), terrace::ErrorKind::Timeout);
/// # Ok(())
/// # }
/// ```
pub use os::with_deadline;
pub use per_core::{
    FoundValues, GetBatch, PendingGets, PerCore, ShardScope, ShardStats, ShardTask, ShardedTable,
    TableReads,
};
pub use read::KeyBounds;
pub use table::{
    BulkLoad, Existing, KeyIter, PendingCommit, Range, ReadTables, Snapshot, Table, ValueIter,
    WriteBatch,
};
use terrace_os as os;
pub use txn::{
    ExtractIf, Isolation, LockWait, PreparedInfo, Transaction, TransactionInfo, TxnOptions,
    TxnRange,
};

/// The example of the README, which has to compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The code of the cookbook, which has to do what it says.
#[cfg(doctest)]
#[doc = include_str!("../../docs/cookbook.md")]
struct Cookbook;
