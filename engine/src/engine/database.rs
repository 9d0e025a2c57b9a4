//! [`Database`], the handle that users have of an engine, and what needs nothing above the engine.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::instance::Instance;
use super::open;
use super::stats::{self, Stats};
use crate::base::error::Result;
use crate::base::limits;
use crate::base::options::{BackgroundTuning, CommitTuning, Durability, Failpoint, Options};
use crate::jobs;
use crate::jobs::manual::{self, CompactionProgress};
#[cfg(any(test, feature = "testing"))]
use crate::jobs::memory::MemoryStats;
use crate::os::time;
use crate::per_core::PerCore;
use crate::read::{KeyBounds, KeyRange};
use crate::table::{Range, ReadTables, Snapshot, Table, WriteBatch};

/// What an opening may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenHow {
    OpenOrCreate,
    Existing,
    Create,
    ReadOnly,
}

/// An open database.
///
/// Clones are the same database. It closes when the last handle of it (database, table, snapshot,
/// iterator) is gone, or by [`Database::close`]. One process at a time may have it open to write;
/// a child process that was forked meanwhile must not use it and is told so.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("db");
/// let db = terrace::Database::open(&path)?;
/// db.table("users")?.put("ada", "1815")?;
/// db.close()?;
///
/// let db = terrace::Database::open(&path)?;
/// assert_eq!(db.table("users")?.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<Instance>,
}

impl Database {
    /// Opens what this process has just made, and not what others have made there since.
    pub(crate) fn open_made(
        path: &Path,
        options: &Options,
        made: open::LockedDatabase,
    ) -> Result<Database> {
        let (how, options) = (OpenHow::Existing, options.with_absolute_path()?);
        let inner = made.open((path, &options), how, time::now())?;
        Ok(Database { inner })
    }

    /// Opens a database, and does not claim the shared store if its options name one.
    pub(crate) fn open_unshared(path: &Path, options: &Options, how: OpenHow) -> Result<Database> {
        Ok(Database { inner: open::open(path, options, how)? })
    }

    /// Commits a batch, durably: all of it or nothing.
    ///
    /// # Errors
    ///
    /// `Invalid` when the batch mixes databases; otherwise as [`Table::put`].
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_batch(Cow::Owned(batch), Durability::Durable)
    }

    /// Commits a batch, as durably as is asked for. The caller keeps the batch, to try it again
    /// after a [deadline](crate::with_deadline).
    ///
    /// # Errors
    ///
    /// As [`Database::write`].
    pub fn write_with(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.write_batch(Cow::Borrowed(batch), durability)
    }

    fn write_batch(&self, batch: Cow<'_, WriteBatch>, durability: Durability) -> Result<()> {
        let shared = &self.inner.shared;
        shared.write(&*WriteBatch::check(batch, shared)?, durability)
    }

    /// All tables as they are now, for as long as the snapshot lives.
    ///
    /// # Errors
    ///
    /// `Closed`, or `Unavailable` in a forked child.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let shared = &self.inner.shared;
        shared.check_open()?;
        Ok(Snapshot {
            shared: Arc::clone(shared),
            registered: Arc::new(shared.snapshots.register()),
            keep: self.inner.clone(),
        })
    }

    /// Makes the region larger while the database is open, in whole units; returns its new length
    /// in bytes. It can grow to sixteen times the size that it was made with. It takes as long as
    /// writing that many zeros and syncing them; commits go on meanwhile.
    ///
    /// # Errors
    ///
    /// - `Invalid`: `size` is not larger than the region, or more than it can become;
    /// - `Full`: the device has no space for it, and nothing was changed;
    /// - otherwise as [`Table::put`].
    pub fn grow_pm(&self, size: u64) -> Result<u64> {
        let (ctx, inside) = (&self.inner.ctx, self.inner.shared.enter()?);
        let _inside = (!ctx.options.has(Failpoint::GrowOutside)).then_some(inside);
        Options::new().pm_size(size.max(limits::MIN_PM_SIZE)).check()?;
        jobs::grow(ctx, |geometry| geometry.grown_to(size).map(Some))?;
        Ok(ctx.shared.region.len())
    }

    /// Changes how commits are grouped and where their records go, from the next commits on.
    pub fn tune_commits(&self, tuning: CommitTuning) {
        self.inner.tune(tuning);
    }

    /// Changes what the background may use of the machine, from now on: threads are started
    /// or rest, and a compaction under way is held to the new rate.
    ///
    /// # Errors
    ///
    /// `Unavailable` when a thread cannot be started; `Closed`.
    pub fn tune_background(&self, tuning: BackgroundTuning) -> Result<()> {
        self.inner.tune_background(tuning)
    }

    /// What lies where, and what it has cost since the database was opened.
    pub fn stats(&self) -> Stats {
        stats::collect(&self.inner)
    }

    /// Statistics, and histograms of how long things take, in the text format of OpenMetrics, which
    /// Prometheus reads: `docs/operations.md`. Counters begin at the opening.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// assert!(db.metrics_text().contains("terrace_commit_groups_total 0"));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn metrics_text(&self) -> String {
        super::metrics::text_of(&self.inner, self.stats())
    }

    /// The numbers of [`Database::metrics_text`] by their names, with labels as there. Those of
    /// several tables are added up.
    #[doc(hidden)]
    pub fn metric_values(&self) -> BTreeMap<String, f64> {
        super::metrics::values(&stats::collect(&self.inner), self.inner.shared.events.times())
    }

    /// Opens a database once more that is open read-only beside a writing process: the new handle
    /// shows what is committed by now. This one goes on showing what it showed. It keeps disk space
    /// that the writer has freed, until it and its tables are dropped. Of any other database it is
    /// one more handle.
    ///
    /// # Errors
    ///
    /// As [`Options::open_read_only`](crate::Options::open_read_only); `Closed`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("db");
    /// let writer = terrace::Options::new().pm_size(4 << 20).open(&path)?;
    /// let users = writer.table("users")?;
    /// users.put("ada", "1815")?;
    ///
    /// // As another process does.
    /// let reader = terrace::Options::new().open_read_only(&path)?;
    /// users.put("alan", "1912")?;
    /// assert_eq!(reader.existing_table("users")?.get("alan")?, None);
    /// let reader = reader.refresh()?;
    /// assert!(reader.existing_table("users")?.get("alan")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn refresh(&self) -> Result<Database> {
        self.inner.shared.check_open()?;
        if !self.inner.is_beside {
            return Ok(self.clone());
        }
        Ok(Database { inner: open::open_again(&self.inner)? })
    }

    /// Whether [`Database::refresh`] may show more than this handle does.
    ///
    /// # Errors
    ///
    /// As [`Database::refresh`].
    #[doc(hidden)]
    pub fn has_writer_come(&self) -> Result<bool> {
        self.inner.shared.check_open()?;
        Ok(self.inner.is_beside && open::has_writer_come(&self.inner)?)
    }

    /// Compacts the keys of `table` in `range`, and waits until it is done: memory is drained, and
    /// all levels become one, the last that has any of the keys. Versions and tombstones that no
    /// reader needs are gone then; what a snapshot needs stays. What is written meanwhile is not
    /// meant.
    ///
    /// It is not needed: the background compacts what is worth it. It is for the time before a
    /// load of reads, and for disk space at once. It reads and writes all that the range has in
    /// several levels, in jobs of bounded size, on the background's thread; writers go first.
    ///
    /// # Errors
    ///
    /// - `MissingTable`: the table was dropped;
    /// - `Invalid`: the database is open read-only;
    /// - `Full`: the disk has no room for a job. What was done stays done;
    /// - `Corrupt`: an extent is damaged;
    /// - `Unavailable`: a file could not be used, or the database stopped after an earlier failure;
    /// - `Closed`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let days = db.table("days")?;
    /// days.put("2024-01-01", "snow")?;
    /// days.delete("2024-01-01")?;
    /// assert!(db.compact_range(&days, "2024"..)?.is_finished);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compact_range(
        &self,
        table: &Table,
        range: impl KeyBounds,
    ) -> Result<CompactionProgress> {
        self.compact_range_with(table, range, |_| ControlFlow::Continue(()))
    }

    /// The same; `progress` is called here as it goes on, some ten times a second, and cancels it
    /// by [`ControlFlow::Break`]. The background still finishes the job that is under way then.
    ///
    /// # Errors
    ///
    /// As [`Database::compact_range`].
    pub fn compact_range_with(
        &self,
        table: &Table,
        range: impl KeyBounds,
        mut progress: impl FnMut(&CompactionProgress) -> ControlFlow<()>,
    ) -> Result<CompactionProgress> {
        let range = KeyRange::from_bounds(&range);
        let Some(keys) = range.interval() else {
            return Ok(CompactionProgress { is_finished: true, ..CompactionProgress::default() });
        };
        self.own(table)?;
        let step = || self.inner.step();
        let step = self.inner.options.stepped.then_some(&step as &dyn Fn() -> Result<bool>);
        let (shared, requests) = (&self.inner.shared, &self.inner.ctx.manual);
        let ctx = manual::ManualContext { shared, requests, step };
        shared.again_after_truncations(&table.slot, |pinned| {
            manual::compact(&ctx, (Arc::clone(&pinned.core), keys.clone()), &mut progress)
        })
    }

    /// Verdicts on prepared transactions that count in zones: each outlives its prepare.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn outliving_verdicts(&self) -> u64 {
        self.inner.transactions.prepared.outliving()
    }

    /// What calls and jobs hold now, by kind: nothing at rest.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn held(&self) -> Vec<(&'static str, u64)> {
        let (shared, stats) = (&self.inner.shared, self.stats());
        let (rows, ranges) = shared.locks.held();
        let MemoryStats { writes, locks, read_ahead, iterators, jobs, .. } = stats.memory;
        let held = [
            ("row locks", rows as u64),
            ("range locks", ranges as u64),
            ("transactions", self.transactions().len() as u64),
            ("snapshots", stats.background.snapshots),
            ("holds", shared.queue.holds()),
            ("bytes reserved on disk", stats.disk.headroom_bytes),
            ("bytes of writes", writes),
            ("bytes of locks", locks),
            ("bytes read ahead", read_ahead),
            ("bytes of iterators", iterators),
            ("bytes of jobs", jobs),
        ];
        held.into_iter().filter(|(_, held)| *held > 0).collect()
    }

    /// The directory that it lies in, as its opening was given it. After
    /// [`Standby::promote`](crate::Standby::promote) that is a directory in the standby's.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Whether this is the last handle of any kind, so that dropping it closes the database. Only
    /// a caller that makes no other handle meanwhile can rely on it.
    #[doc(hidden)]
    pub fn is_last_handle(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// Whether this process was forked from the one that opened the database: every call fails
    /// with `Unavailable` then.
    #[doc(hidden)]
    pub fn is_forked(&self) -> bool {
        self.inner.shared.fork.is_forked()
    }

    /// Closes the database for all handles. What was committed is in the region and found again
    /// at the next opening; nothing is drained first. Into a persistent index the memtables are
    /// merged first, and it is sealed.
    ///
    /// Calls under way end first, before their commit with `Closed`. Nothing is written once this
    /// returns. A second call waits, and has the same result. The database of a
    /// [`Follower`](crate::Follower) is closed by that alone: this call does nothing to it.
    ///
    /// # Errors
    ///
    /// `Invalid` inside of a merge operator, or of a closure that a value is lent to. `Unavailable`
    /// when the last sync failed or the database was poisoned before; it is closed all the same.
    pub fn close(self) -> Result<()> {
        if self.inner.shared.follows { Ok(()) } else { self.inner.close_and_tell() }
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Database {
    fn own<'a>(&self, table: &'a Table) -> Result<&'a Table> {
        table.check_is_of(&self.inner.shared, "the one asked").map(|()| table)
    }
}

impl ReadTables for Database {
    type Rows = Range;

    fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.own(table)?.get(key)
    }

    fn range(&self, table: &Table, range: impl KeyBounds) -> Result<Range> {
        Ok(self.own(table)?.range(range))
    }

    fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<Range> {
        Ok(self.own(table)?.prefix(prefix))
    }

    fn contains_key(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.own(table)?.contains_key(key)
    }

    fn multi_get<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        self.own(table)?.multi_get(keys)
    }

    fn first(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.own(table)?.first()
    }

    fn last(&self, table: &Table) -> Result<Option<(Bytes, Bytes)>> {
        self.own(table)?.last()
    }
}

impl Database {
    /// Starts an executor with so many shards: threads that each own a part of the keys, and do
    /// what is submitted for them. As many as there are processors is best. See [`PerCore`].
    ///
    /// It draws which shard owns which keys by the tables that there are. So it is best made after
    /// a load, and once for a long time.
    ///
    /// # Errors
    ///
    /// - `Invalid`: there are no shards, or more than
    ///   [`MAX_SHARDS`](crate::base::limits::MAX_SHARDS);
    /// - `Unavailable`: a thread cannot be started, or this is a forked child;
    /// - `Closed`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let users = db.table("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("alan", "1912")?;
    ///
    /// let cores = db.per_core(2)?;
    /// let sharded = cores.table(&users)?;
    ///
    /// // Look-ups, each on the shard that owns the key.
    /// let mut batch = cores.batch();
    /// batch.get(&sharded, "alan").get(&sharded, "kurt");
    /// let values = batch.run()?;
    /// assert_eq!((values.get(0), values.get(1)), (Some(&b"1912"[..]), None));
    ///
    /// // A closure on the shard that owns a key.
    /// let task = sharded.submit("ada", move |_shard| {
    ///     users.put("ada", "1852")?;
    ///     Ok(users.get("ada")?)
    /// })?;
    /// assert_eq!(task.wait()?.as_deref(), Some(&b"1852"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn per_core(&self, shards: usize) -> Result<PerCore> {
        let slots = self.inner.ctx.tables.slots_in_order();
        PerCore::start(&self.inner.shared, Arc::clone(&self.inner) as _, &slots, shards)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests;
