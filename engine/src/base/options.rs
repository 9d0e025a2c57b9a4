//! The options of a database, and their defaults.

mod check;
mod failpoint;
pub(crate) mod named;
mod table;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod tuning;
pub(crate) mod types;

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use named::{
    COMPRESSIONS, INDEX, MEMORY_FILES, MODE, PERMISSIONS, SWITCH, SWITCH_OR_NONE, TIME,
    TIME_OR_NONE, URL, bytes, bytes_or_none, declare, text,
};

use crate::base::events::{Event, EventFn, Events};
use crate::base::limits;
use crate::base::operator::MergeOperator;
use crate::base::progress::{Progress, ProgressFn};
use crate::mvcc::Clock;
use crate::os::{MemoryFiles, PRIVATE};

pub(crate) use check::MemoryPlan;
pub use table::{Compression, Level0Container, TableOptions, Tier};
pub use tuning::{BackgroundTuning, CommitTuning, Durability};
pub(crate) use tuning::{Making, Storage};

#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(unreachable_pub, reason = "exported with `testing` only")
)]
pub use failpoint::Failpoint;
#[cfg(any(test, feature = "testing"))]
pub use testing::IndexRoom;

/// How the region is kept, and what makes its bytes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// A preallocated file with an image in memory; commits share writes and syncs. The default,
    /// for every machine.
    #[default]
    File,
    /// Persistent memory: a file on a DAX file system (fsdax, mounted with `dax=always`), mapped;
    /// flushes and fences make stores durable. Opening fails where the kernel does not grant that;
    /// there is no fall-back. Character devices (devdax, `/dev/dax*`) are no files, and refused.
    Dax,
    /// The same as `Dax` on memory that is not persistent (a tmpfs file), for benchmarks and
    /// tests: it survives the process, **not the machine**. `delay` is added for each block of
    /// 256 bytes that is written, to stand for slower media.
    Emulated {
        /// What a media block costs beyond memory.
        delay: Duration,
    },
}

/// Where the index of level 0 is kept: what finds the records that memtables have handed down and
/// that were not drained yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Index {
    /// In memory: a B+-tree of digests, made anew at each opening from all records in the region.
    /// The default, and the fastest to read and to write.
    #[default]
    Volatile,
    /// In persistent memory, beside the region: a one-direction-shift B+-tree for each table.
    /// Opening reads one header for each commit in the region, and records only of what was not
    /// merged before: those of the memtables. Merges, drains and the cleaner pay, with a few cache
    /// lines flushed for each record, and so do reads of level 0, which compare keys in the region
    /// where the volatile index compares digests. It takes 20 to 40 bytes of persistent memory for
    /// a record, and next to no memory.
    ///
    /// For [`Mode::Dax`] and [`Mode::Emulated`]; not for [`Mode::File`], where each of its stores
    /// would be a sync.
    Persistent,
}

impl Index {
    pub(crate) const NAMES: [(&'static str, Index); 2] =
        [("volatile", Index::Volatile), ("persistent", Index::Persistent)];
}

pub(crate) type LockWaitFn = Arc<dyn Fn(u64, &[u64]) + Send + Sync>;

declare! {
    /// How to open a database.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = terrace::Options::new().pm_size(16 << 20).open(dir.path().join("db"))?;
    /// db.table("users")?.put("ada", "1815")?;
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone)]
    struct Options: [];

    /// Options that follow the machine: a quarter of the memory that the process may use as the
    /// limit (see [`memory`](Options::memory)), and a region of 256 MiB, or an eighth of that
    /// memory where that is less.
    new;

    /// The size of the region in bytes, from [`limits`](crate::base::limits)`::MIN_PM_SIZE` to
    /// `MAX_PM_SIZE`; 256 MiB by default, or an eighth of the memory that the process may use,
    /// where that is less. It counts only when a database is created. The region begins with
    /// [`pm_initial_size`](Options::pm_initial_size) and grows to this size by itself. In `file`
    /// mode it is held in memory as far as it is used. It bounds what can wait to be drained.
    ///
    /// It is rounded down to whole units: the power of two from 128 KiB to 4 MiB at or above a
    /// 1024th of it. So 3,000,001 becomes 2,883,584, 22 units of 128 KiB.
    /// [`PmStats::capacity`](crate::PmStats::capacity) is the file's real size, some pages more.
    pm_size(bytes: u64): u64 = check::default_region(check::usable()) => bytes, takes bytes();

    /// The bytes that the region of a new database has at first; 8 MiB by default, and at least
    /// eight units. One of `pm_size` and more preallocates the whole region at once.
    ///
    /// The background makes the region longer ahead of need. It doubles it, or adds 64 MiB where
    /// that is less. On a disk that has no space for it the region stays as it is, and drains make
    /// space earlier.
    pm_initial_size(bytes: u64): u64 = limits::PM_INITIAL_SIZE => bytes, takes bytes();

    /// Where the region's file is, if not in the database's directory: on the DAX file system for
    /// [`Mode::Dax`], on tmpfs for [`Mode::Emulated`]. It must be named at each opening. An
    /// emulated region that is not named lies in `/dev/shm`, or in `$TMPDIR` when that has no room
    /// for it, and then `stats().pm.note` says so.
    pm_path(path: impl Into<PathBuf>): Option<PathBuf> = None
        => Some(path.into()), takes text("a path");

    /// How the region is kept; [`Mode::File`] by default. A database is opened in the mode it was
    /// created in.
    mode(mode: Mode): Mode = Mode::File => mode, takes MODE;

    /// Where the index of level 0 is kept; [`Index::Volatile`] by default. It may differ from
    /// opening to opening: a persistent one that missed an opening is made anew, out of the
    /// records, and one that is not asked for is removed. It lies beside the region, in a file
    /// `index`, or at [`pm_path`](Options::pm_path) with `.index` behind it.
    ///
    /// Opening fails as `Invalid` with a persistent one in [`Mode::File`].
    ///
    /// ```no_run
    /// # use terrace::{Index, Mode, Options};
    /// let options = Options::new().mode(Mode::Dax).pm_path("/mnt/pmem/region");
    /// let db = options.index(Index::Persistent).open("my-data")?;
    /// # Ok::<(), terrace::Error>(())
    /// ```
    index(index: Index): Index = Index::Volatile => index, takes INDEX;

    /// The memory for blocks of extents, in bytes, and no limit for anything else. Without it, and
    /// without [`memory`](Options::memory), the limit follows the machine.
    ///
    /// Blocks enter the cache when they are read, and when they leave persistent memory while it
    /// has room.
    cache_size(bytes: u64): Option<u64> = None => Some(bytes), takes bytes_or_none();

    /// One limit for the memory of the database: the image of its region, the indexes over it,
    /// transactions, iterators, drains and compactions, and, with what is left, blocks of extents
    /// with their block indexes and filters. It goes before [`cache_size`](Options::cache_size).
    /// [`MemoryStats`](crate::MemoryStats) has the parts, and what bounds each.
    ///
    /// **By default the limit follows the machine.** It is a quarter of what the process may use:
    /// of the machine's memory, or of the limit of its control group (version 1 or 2). All
    /// databases of the process that name no limit share it. The database takes memory as it needs
    /// it. While other programs wait for memory (the kernel's pressure stall information), the
    /// limit falls by a sixteenth a second, to an eighth of the share, and rises again afterwards.
    /// An opening never refuses a limit of this kind: a large region raises it.
    ///
    /// Under a limit that the caller names, a quarter of what the region leaves is for drains and
    /// compactions, and a quarter for the indexes. Writers are slowed down before these have more;
    /// with records of less than about a hundred bytes that may be sooner than the region is full.
    /// Where drains and compactions have less than 33 MiB in all, they read shorter pieces and cut
    /// extents at less than 2 MiB. Where they have less than as much for each thread, fewer run at
    /// a time.
    ///
    /// The process holds little more: up to a limit of a GiB, what was freed goes back to the
    /// operating system, of the whole process, with the GNU C library's allocator (`malloc_trim`).
    ///
    /// Beyond it come what threads hold for a moment (half a MiB each that reads or writes
    /// extents), and blocks of which the caller holds values. What drains write enters the cache
    /// only as long as it could hold all that there is on disk.
    ///
    /// Opening fails with `Invalid` where region and indexes leave less than a quarter of a limit
    /// that was named.
    memory(bytes: u64): Option<u64> = None => Some(bytes), takes bytes_or_none();

    /// How many bytes of a table level 1 holds before extents move on to level 2. By default twice
    /// the size of the region, or half of what the table has below, if that is more.
    ///
    /// With more of it, less is written: what is below is written again once for all that level 1
    /// has above it. It costs space, since it is there that superseded versions lie, and a look at
    /// a few filters more for reads that leave memory.
    level1_size(bytes: u64): Option<u64> = None => Some(bytes), takes bytes_or_none();

    /// How blocks written from now on are compressed: in level 1, where they are hot and soon
    /// rewritten, and in the levels below. By default both with zstd, at its fastest level: level 1
    /// then holds more, and what lies below is written again less often. Where the two differ, what
    /// comes down is written once more even if it overlaps nothing there. A block that compression
    /// makes less than an eighth smaller stays as it is.
    compression(level1: Compression, deeper: Compression): (Compression, Compression)
        = (Compression::Zstd, Compression::Zstd) => (level1, deeper), takes COMPRESSIONS;

    /// Whether extents are read and written past the operating system's cache, where the file
    /// system can.
    ///
    /// Under a limit on memory that the caller named, all reads and writes pass by it: a second
    /// copy would be memory that the limit does not know of.
    ///
    /// Where the limit follows the machine, all go through it, as long as extents are smaller than
    /// what the process may use. The system then keeps blocks, compressed, in memory that no
    /// program uses, and gives that back by itself. Beyond that size drains and compactions pass by
    /// it, so that they push out nothing that is read. Single blocks are still read through it.
    ///
    /// `true` has all reads and writes pass by it, `false` none. `stats().disk.direct_io` says
    /// whether writes do; on a file system that cannot, nothing changes.
    direct_io(on: bool): Option<bool> = None => Some(on), takes SWITCH_OR_NONE;

    /// The permissions of the files that the database makes, as bits (`0o640`, say), before the
    /// umask takes some away; `0o600` by default. Directories that are made may be searched by
    /// those that may read. Opening fails as `Invalid` where the owner could not read and write,
    /// or where files could be executed.
    file_permissions(mode: u32): u32 = PRIVATE => mode, takes PERMISSIONS;

    /// Keeps the database in memory, in at most so many bytes, for tests: nothing is on disk, and
    /// all is gone with the last handle of it and the last clone of these options. Off by default.
    ///
    /// All directories that its calls name are in that memory too, those of backup sets and of
    /// `file:` stores among them. The paths of other options are of another memory. Openings with
    /// clones of these options meet in theirs, so a test opens its database again. A forked child
    /// has to make options of its own. `memory` bounds what the database needs beside.
    ///
    /// Where the bytes are used up, calls fail as on a full disk. Opening fails as `Invalid` with
    /// another mode than [`Mode::File`], or with [`pm_path`](Options::pm_path).
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// let options = terrace::Options::new().in_memory(64 << 20);
    /// let db = options.clone().open("db")?;
    /// db.table("users")?.put("ada", "1815")?;
    /// db.backup("backups")?;
    /// db.close()?;
    ///
    /// let db = options.clone().open("db")?;
    /// assert_eq!(db.table("users")?.get("ada")?.as_deref(), Some(&b"1815"[..]));
    /// assert_eq!(options.backup_set("backups")?.list()?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    in_memory(bytes: u64): Option<Arc<MemoryFiles>> = None
        => Some(Arc::new(MemoryFiles::new(bytes))), takes MEMORY_FILES;

    /// The object store in which tables may have their cold levels
    /// ([`TableOptions::cold`](crate::TableOptions::cold)): `s3://bucket/prefix` and what is
    /// compatible, `gs://bucket/prefix`, `az://container/prefix`, or `file:///directory`, which may
    /// be a network file system. It is named at each opening. Credentials, region and endpoint come
    /// from the variables that the tools of each cloud read, such as `AWS_ACCESS_KEY_ID`. Stores
    /// that are reached over a network need the cargo feature `object`; a directory does not.
    ///
    /// Opening asks the store for nothing, so it works while the store is away. One database may
    /// write to a store at a time: a second opening of a copy takes the store over, and the first
    /// one stops with [`ErrorKind::Fenced`](crate::ErrorKind::Fenced). Databases may share a bucket
    /// and a prefix. `docs/machines.md` has what the store must allow.
    object_store(url: impl Into<String>): Option<String> = None => Some(url.into()), takes URL;

    /// How many bytes of cold levels may lie on this machine, of tables that have them in the
    /// object store; none by default. What is read again and again comes back from the store while
    /// there is room, and what is read a fourth as often goes down for it. What is here is here
    /// after a restart too.
    ///
    /// Of a follower ([`Options::follow`](crate::Options::follow)): none means that it copies all
    /// data. Otherwise it reads data in the store, and has no more than so many bytes of extents
    /// here, with those of about two checkpoints beside. Name it by [`Options::follower_name`]:
    /// then the writer keeps what the follower reads, and the follower restarts from a checkpoint
    /// less often. Without a name a handle of its database can be read for one more checkpoint.
    /// Later a read that needs deleted data fails as `Unavailable`, and
    /// [`Follower::database`](crate::Follower::database) gives another handle.
    object_cache(bytes: u64): u64 = 0 => bytes, takes bytes();

    /// Ships all commits to the object store, so that other machines can take over, follow or stand
    /// by: see [`Options::open_shared`](crate::Options::open_shared). Needs
    /// [`object_store`](Options::object_store), and one URL for each shared database. Off by
    /// default.
    ///
    /// An opening claims the store with two to about twenty small requests. It fails as
    /// `Unavailable` while the store is away, and as [`Fenced`](crate::ErrorKind::Fenced) if
    /// another directory has taken the database over. It fails as `Invalid` if the directory has
    /// lost commits that the store has. The first opening sends all data. Then commits go out each
    /// 100 ms, or once there are 4 MiB of them or one is waited for, on a thread of their own, and
    /// the rest when the database is closed. If the store is away then, closing gives up after five
    /// seconds, or ten if a request is under way; the next opening ships what is left. A commit
    /// does not wait for that, unless it asks for
    /// [`Durability::Remote`](crate::Durability::Remote).
    share(on: bool): bool = false => on, takes SWITCH;

    /// For how long the writer of a shared database keeps what it has shipped, so that a follower
    /// that was away goes on where it was: none by default, which is up to two checkpoints, that
    /// is 64 to 128 MiB of commits. It costs the store's space for the commits of that time.
    share_retention(retention: Duration): Duration = Duration::ZERO => retention, takes TIME;

    /// Registers a follower or a standby at the shared store by a name of 1 to 64 letters, digits,
    /// `-`, `_` and `.`: the writer keeps what it lacks, up to 16 checkpoints, about 1 GiB of
    /// commits, however long it is away. It tells the store how far it is each ten seconds at most,
    /// with two requests, while it has news. [`Options::forget_follower`] ends that, and a
    /// promotion. Names that begin with `starting-` or `takeover-` are Terrace's own. Without a
    /// name by default.
    follower_name(name: impl Into<String>): Option<String> = None
        => Some(name.into()), takes text("a name");

    /// How commits are grouped and where their records go; see [`CommitTuning::new`] for the
    /// default.
    commit_tuning(tuning: CommitTuning): CommitTuning = CommitTuning::new() => tuning;

    /// What the background may use of the machine; see [`BackgroundTuning::new`] for the default.
    background_tuning(tuning: BackgroundTuning): BackgroundTuning = BackgroundTuning::new()
        => tuning;

    /// For measurements only. Switched off, drains and compactions copy no extent and no block as
    /// it is: they write each record again.
    #[doc(hidden)]
    reuse(on: bool): bool = true => on;

    /// Calls `f` while a database opens or closes, is verified, backed up, restored or salvaged,
    /// and for [`Database::digest`](crate::Database::digest): first, last, and some ten times a
    /// second between them. [`with_progress`](crate::with_progress) has another `f` for one call.
    /// The thread of the call or those that work for it call `f`, for one piece of work one at a
    /// time, and wait for it. Several pieces may be under way at once. While an open database is
    /// verified its commits may wait for `f` too. Calls of the same database in `f` fail with
    /// [`Invalid`](crate::ErrorKind::Invalid). A panic of `f` ends there, and the work goes on. Of
    /// what followers, standbys and takeovers open and close by themselves nothing is told.
    ///
    /// [`ControlFlow::Break`] ends the call with [`Cancelled`](crate::ErrorKind::Cancelled). An
    /// opening leaves all rows, as a power cut does. What a verification has found by then the
    /// error has ([`Error::report`](crate::Error::report)). A backup is not in its set; what it
    /// wrote to a bucket goes with the next backup or deletion. What a restore or salvage has begun
    /// cannot be opened, and the next one to the same directory starts over. A closing goes on to
    /// its end.
    ///
    /// [`Database::compact_range_with`](crate::Database::compact_range_with) has a function of its
    /// own. What a caller feeds, such as a bulk load, the caller counts and ends.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let [path, set] = ["db", "set"].map(|name| dir.path().join(name));
    /// use std::ops::ControlFlow;
    ///
    /// let options = terrace::Options::new().pm_size(4 << 20).on_progress(|at| {
    ///     println!("{}: {} of {} {}", at.operation, at.done, at.total, at.unit);
    ///     match at.operation {
    ///         "backup" => ControlFlow::Break(()),
    ///         _ => ControlFlow::Continue(()),
    ///     }
    /// });
    /// let error = options.open(&path)?.backup(&set).unwrap_err();
    /// assert_eq!(error.kind(), terrace::ErrorKind::Cancelled);
    /// # Ok(())
    /// # }
    /// ```
    on_progress(
        f: impl Fn(&Progress) -> ControlFlow<()> + Send + Sync + 'static
    ): Option<ProgressFn> = None => Some(Arc::new(f));

    /// Calls `f` when a transaction is about to wait for a lock: with its number, and with those of
    /// the transactions that it waits for. A plain write has a number too. The waiting thread makes
    /// the call, and `f` calls nothing of the database. A panic of `f` ends there, and the wait
    /// goes on.
    on_lock_wait(f: impl Fn(u64, &[u64]) + Send + Sync + 'static): Option<LockWaitFn> = None
        => Some(Arc::new(f));

    /// Calls `f` with each [`Event`] of an open database: when it has drained, compacted or closed,
    /// say. `docs/operations.md` has the kinds, and what to do about each.
    ///
    /// One thread makes the calls, in the order of the events. No lock is held meanwhile, so `f`
    /// may call the database, and may close it. A panic of `f` ends there. While 1,024 events wait,
    /// or 512 for slow operations, later ones are left out and counted ([`Event::dropped`]).
    /// [`Database::close`](crate::Database::close) alone waits for `f`, until all is told, unless
    /// `f` calls it. So `f` takes no lock that a caller of `close` holds. A handle that `f` keeps
    /// keeps the database open.
    ///
    /// A follower or a standby opens a database at each start from a checkpoint, which tells `f`
    /// too. There, and at a promotion or a takeover, the thread of the database before may still
    /// tell its last events.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use terrace::events::Event;
    ///
    /// let options = terrace::Options::new().pm_size(4 << 20).on_event(|event| match event {
    ///     Event::Drain(drain) => println!("{}: {} bytes", drain.table, drain.level0_bytes),
    ///     other => println!("{other:?}"),
    /// });
    /// options.open(dir.path().join("db"))?.close()?;
    /// # Ok(())
    /// # }
    /// ```
    on_event(f: impl Fn(&Event) + Send + Sync + 'static): Option<EventFn> = None
        => Some(Arc::new(f));

    /// Tells [`on_event`](Options::on_event) of calls that take longer: see
    /// [`SlowOperationInfo`](crate::events::SlowOperationInfo), which has where their time went.
    /// `None` by default: no call is timed. With it, and with a function for events, each call
    /// reads the clock twice more, and once more where it waits or reads from a device.
    /// Calls of that function are not told of.
    slow_operation(threshold: impl Into<Option<Duration>>): Option<Duration> = None
        => threshold.into(), takes TIME_OR_NONE;

    /// How often a sample of all numbers is kept in the database's directory: each ten seconds by
    /// default, at least a tenth of a second, `None` for never. Samples take 8 MiB at most, in two
    /// files. That is one to two days by default.
    /// [`Database::history`](crate::Database::history) reads them, also beside a writer, and after
    /// a crash.
    history(interval: impl Into<Option<Duration>>): Option<Duration> = Some(Duration::from_secs(10))
        => interval.into(), takes TIME_OR_NONE;

    @fields
    /// Of one opening, where its parts send events to.
    events: Events = Events::default();
    /// Of a takeover, the last LSN of the log, all of which the directory has. LSNs go on above it.
    lsn_after: Option<crate::base::record::Lsn> = None;
    /// Pieces of the shared store are read from there, and not brought to this machine.
    stays_far: bool = false;
    /// It is a node's: nothing but its reader writes, and nothing goes to the store.
    follows: Option<&'static str> = None;
    /// What the user has registered, in addition to the built-in ones.
    merge_operators: Vec<Arc<dyn MergeOperator>> = Vec::new();
    storage: Storage = Storage::Real;
    /// The directory that a node holds, in which this database's lies.
    within: Option<Arc<crate::os::HeldDirectory>> = None;
    /// The call that this opening belongs to, which makes the database: it ends the making.
    making: Option<Making> = None;
    /// The background runs only when a test steps it.
    stepped: bool = false;
    /// Segments of so many bytes are followed by a checkpoint.
    checkpoint_bytes: Option<u64> = None;
    /// Bytes at which a memtable is frozen, in tests.
    freeze_bytes: Option<u64> = None;
    /// Bytes of records that a persistent index is made for.
    #[cfg(any(test, feature = "testing"))]
    index_room: Option<u64> = None;
    #[cfg(any(test, feature = "testing"))]
    clock: Option<crate::mvcc::HandClock> = None;
    /// How long a request to the object store takes beyond what it takes, and the bytes a second
    /// of a connection.
    #[cfg(any(test, feature = "testing", feature = "bench"))]
    distance: Option<(Duration, u64)> = None;
    #[cfg(any(test, feature = "testing"))]
    failpoint: Option<Failpoint> = None;
    /// The container of every table's level 0, whatever their options say.
    #[cfg(any(test, feature = "testing"))]
    container: Option<Level0Container> = None;
    /// What stands for the machine's memory file system.
    #[cfg(any(test, feature = "testing"))]
    tmpfs: Option<PathBuf> = None;
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("mode", &self.mode)
            .field("pm_size", &self.pm_size)
            .field("pm_initial_size", &self.pm_initial_size)
            .field("cache_size", &self.cache_size)
            .field("level1_size", &self.level1_size)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Registers a merge operator for tables that name it: see
    /// [`TableOptions::merge_operator`]. The built-in ones ([`operators`](crate::operators)) need
    /// no registration. Opening fails as `Invalid` for a name that is taken, or out of bounds.
    ///
    /// Every opening registers the operators that its tables name. Without one, calls that need it
    /// fail and say so, and drains and compactions keep operands as they are.
    #[must_use]
    pub fn merge_operator(mut self, operator: impl MergeOperator + 'static) -> Options {
        self.merge_operators.push(Arc::new(operator));
        self
    }

    /// Takes the function of [`on_event`](Options::on_event) back, for the C interface.
    #[doc(hidden)]
    #[must_use]
    pub fn without_events(mut self) -> Options {
        self.on_event = None;
        self
    }

    /// For tests and measurements only: has each request to the object store take so much longer,
    /// and its bytes as long as on a connection of so many bytes a second.
    #[cfg(any(test, feature = "testing", feature = "bench"))]
    #[doc(hidden)]
    #[must_use]
    pub fn object_store_distance(mut self, latency: Duration, bytes_per_second: u64) -> Options {
        self.distance = Some((latency, bytes_per_second));
        self
    }

    /// Where files lie in memory, as far as the system has such a place.
    pub(crate) fn tmpfs_directory(&self) -> &Path {
        #[cfg(any(test, feature = "testing"))]
        if let Some(directory) = &self.tmpfs {
            return directory;
        }
        Path::new("/dev/shm")
    }

    /// The clock that records age by.
    pub(crate) fn clock_of_records(&self) -> Arc<Clock> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(clock) = &self.clock {
            return Clock::new(Arc::new(clock.clone()));
        }
        Clock::of_machine()
    }

    /// Whether `bug` was planted.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn has(&self, bug: Failpoint) -> bool {
        self.failpoint == Some(bug)
    }

    /// Whether `bug` was planted: never.
    #[cfg(not(any(test, feature = "testing")))]
    pub(crate) const fn has(&self, _bug: Failpoint) -> bool {
        false
    }

    fn has_persistent_memory(&self) -> bool {
        match &self.storage {
            Storage::Real => self.mode != Mode::File,
            #[cfg(any(test, feature = "testing"))]
            Storage::Simulated(machine) => machine.memory().is_some(),
        }
    }
}
