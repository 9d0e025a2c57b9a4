//! Terrace, a transactional LSM storage engine. Its data is its log.
//!
//! A write lands in persistent memory, or in a preallocated file where there is none. That file is
//! written by group and synced like a log, and then *is* level 0. Records move to SSD when they
//! cool, and are sorted at every step. There is no separate log to write first and replay later.
//!
//! Start with [`Database::open`], then [`Database::table`]. [`WriteBatch`] commits to several
//! tables at once. [`Snapshot`] reads all of them as of one moment. Every commit is durable when
//! its call returns, unless [`Durability::Relaxed`] is asked for.
//!
//! # Examples
//!
//! ```
//! # fn main() -> terrace::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("db");
//! let db = terrace::Database::open(path)?;
//! let users = db.table("users")?;
//! users.put("ada", "1815")?;
//! for row in users.range("a".."b") {
//!     let (key, value) = row?;
//!     assert_eq!((&key[..], &value[..]), (&b"ada"[..], &b"1815"[..]));
//! }
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

pub use backup::{
    BackupInfo, BackupSet, DumpEntry, DumpOptions, DumpReport, SalvageReport, VerifyReport, verify,
};
pub use base::error::{Damage, Error, ErrorKind, Result, Unreadable};
pub use base::limits;
pub use base::operator::MergeOperator;
pub use base::operator::built_in as operators;
pub use base::options::{
    BackgroundTuning, CommitTuning, Compression, Durability, Index, Level0Container, Mode,
    OpenProgress, Options, TableOptions, Tier,
};
pub use engine::{
    CacheStats, CommitStats, Database, DiskStats, LevelStats, ObjectStats, ObjectStoreReport,
    OpenStats, PaceStats, PersistenceStats, PmStats, ShareStats, Stats, TableRef, TableStats,
};
pub use jobs::manual::CompactionProgress;
pub use jobs::memory::MemoryStats;
pub use jobs::metrics::BackgroundStats;
pub use replication::{
    Digest, Follower, NodeStatus, RegisteredFollower, SharedStatus, Standby, TableDigest,
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
///     terrace::with_arrival(arrival, || jobs.try_put("1", "first", soon))
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
