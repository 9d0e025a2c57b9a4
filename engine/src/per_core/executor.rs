//! The executor: its handles, its threads, and its end.

use std::sync::Arc;

use super::reads::ShardScope;
use super::request::{QUEUE, ShardRequest};
use super::server::{ShardServer, is_shard};
use super::shard_map::{ShardMap, ShardMaps};
use super::state::{ExecutorState, ShardCounts, ShardStats, ended};
use super::task;
use super::task::ShardTask;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::MAX_SHARDS;
use crate::mvcc::pin;
use crate::os::allowed_cores;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::channel::{SyncSender, TrySendError, sync_channel};
use crate::os::sync::locks::{Mutex, RwLock};
use crate::os::thread::JoinHandle;
use crate::table::{Keep, Shared, Table, TableSlot};

/// What all handles of an executor share. It ends with the last of them.
pub(super) struct Executor {
    pub(super) state: Arc<ExecutorState>,
    maps: ShardMaps,
    /// By shard.
    senders: Vec<SyncSender<ShardRequest>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    #[expect(dead_code, reason = "it keeps the database open, and goes after the threads")]
    keep: Keep,
}

impl Executor {
    fn start(
        shared: &Arc<Shared>,
        keep: Keep,
        slots: &[Arc<TableSlot>],
        shards: usize,
    ) -> Result<Executor> {
        if shards == 0 || shards > MAX_SHARDS {
            return Err(Error::invalid(format!(
                "{shards} shards: an executor has 1 to {MAX_SHARDS}, best as many as there are \
                 processors"
            )));
        }
        let pinned = pin();
        shared.check_open()?;
        let maps = ShardMaps::draw(slots, shards, &pinned);
        drop(pinned);
        let state = Arc::new(ExecutorState {
            shared: Arc::clone(shared),
            slots: RwLock::default(),
            counts: (0..shards).map(|_| ShardCounts::default()).collect(),
            is_closed: AtomicBool::new(false),
        });
        let (senders, threads) = (Vec::with_capacity(shards), Mutex::default());
        let mut executor = Executor { state, maps, senders, threads, keep };
        let cores = allowed_cores();
        for number in 0..shards {
            let core = cores.get(number % cores.len().max(1)).copied();
            executor.start_shard(number, core)?;
        }
        Ok(executor)
    }

    fn start_shard(&mut self, number: usize, core: Option<usize>) -> Result<()> {
        let (sender, requests) = sync_channel(QUEUE);
        let server = ShardServer::new(&self.state);
        let named = crate::os::thread::Builder::new().name(format!("terrace-shard-{number}"));
        let spawned = named.spawn(move || server.run(number, core, &requests));
        let thread = spawned.map_err(|error| {
            let message = format!("cannot start the thread of shard {number}: {error}");
            Error::new(ErrorKind::Unavailable, message)
        })?;
        self.senders.push(sender);
        self.threads.get_mut().push(thread);
        Ok(())
    }

    /// How many shards there are.
    pub(super) fn shards(&self) -> usize {
        self.state.counts.len()
    }

    /// Puts a request into the queue of a shard. While it is full, a thread that is not a shard's
    /// waits. A request that is refused answers itself.
    pub(super) fn send(&self, shard: usize, request: ShardRequest) -> Result<()> {
        let sender = &self.senders[shard];
        if !is_shard() {
            return sender.send(request).map_err(|_| ended());
        }
        sender.try_send(request).map_err(|refused| match refused {
            TrySendError::Disconnected(_) => ended(),
            TrySendError::Full(_) => Error::new(
                ErrorKind::Full,
                format!(
                    "{QUEUE} requests wait for shard {shard}, and a shard does not wait for \
                     another; submit fewer, or from another thread"
                ),
            ),
        })
    }

    fn join(&self) {
        // A shard's thread waits for no shard: they end by themselves.
        if is_shard() || self.state.shared.fork.is_forked() {
            return;
        }
        // With the mutex, so that a second caller waits too. What panics in them is caught.
        self.threads.lock().drain(..).for_each(|thread| thread.join().unwrap_or(()));
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::Release);
        if self.state.shared.fork.is_forked() {
            // A thread of the parent may have been in a queue.
            std::mem::forget(std::mem::take(&mut self.senders));
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        // Threads that wait for a request see the end of the queue.
        self.senders.clear();
        self.join();
    }
}

/// An executor whose threads each own a part of the keys. Made by
/// [`Database::per_core`](crate::Database::per_core), which has an example.
///
/// Each shard is a thread that runs on one processor alone, where the system allows that (Linux).
/// Which shard owns a key is drawn when the executor is made: a small table is one shard's, a large
/// one is cut into ranges of keys, or by a hash if it does not lie on disk yet. It stays so for as
/// long as the executor lives; a new one draws it anew.
///
/// Requests of a shard run one after the other, in the order in which they were submitted. So
/// closures for one key never run at once.
///
/// It pays for batches of look-ups and for closures that read much: they find what they need in the
/// caches of their processor, and share no written memory. Single look-ups cost more than
/// [`Table::get`], since each is handed over and back. Writes and transactions cost what they cost
/// elsewhere.
///
/// Clones are the same executor. It keeps the database open, and ends with the last handle.
#[derive(Clone)]
pub struct PerCore {
    pub(super) executor: Arc<Executor>,
}

impl PerCore {
    pub(crate) fn start(
        shared: &Arc<Shared>,
        keep: Keep,
        slots: &[Arc<TableSlot>],
        shards: usize,
    ) -> Result<PerCore> {
        let executor = Arc::new(Executor::start(shared, keep, slots, shards)?);
        Ok(PerCore { executor })
    }

    /// How many shards it has.
    pub fn shards(&self) -> usize {
        self.executor.shards()
    }

    /// Whether it was closed, or its last handle went: for tests, which hold no handle.
    #[cfg(test)]
    pub(crate) fn closes(&self) -> impl Fn() -> bool + use<> {
        let state = Arc::clone(&self.executor.state);
        move || state.is_closed.load(Ordering::Acquire)
    }

    /// A handle of `table` for this executor. It knows which shard owns a key.
    ///
    /// # Errors
    ///
    /// `Invalid` if the table is of another database; `Closed`.
    pub fn table(&self, table: &Table) -> Result<ShardedTable> {
        let state = &self.executor.state;
        state.check_open()?;
        table.check_is_of(&state.shared, "the executor")?;
        let mut slots = state.slots.write();
        let known = slots.iter().position(|slot| Arc::ptr_eq(slot, &table.slot));
        let number = known.unwrap_or(slots.len());
        if known.is_none() {
            slots.push(Arc::clone(&table.slot));
        }
        let map = self.executor.maps.of(&table.slot);
        Ok(ShardedTable { executor: Arc::clone(&self.executor), table: table.clone(), number, map })
    }

    /// Has shard `shard` run `f`, and does not wait for it. While the queue of the shard is full,
    /// it waits for a place in it.
    ///
    /// `f` holds up all that is submitted to its shard, so it should not wait for long. It may read
    /// and write keys of every shard, and run transactions. A panic in it ends it alone.
    ///
    /// # Errors
    ///
    /// - `Invalid`: there is no such shard;
    /// - `Full`: this is the thread of a shard, and the queue is full;
    /// - `Closed`: the executor or the database was closed.
    pub fn submit_to<T, F>(&self, shard: usize, f: F) -> Result<ShardTask<T>>
    where
        T: Send + 'static,
        F: FnOnce(&ShardScope<'_>) -> Result<T> + Send + 'static,
    {
        submit_to(&self.executor, shard, f)
    }

    /// What each shard has done, by its number.
    pub fn stats(&self) -> Vec<ShardStats> {
        self.executor.state.counts.iter().map(ShardCounts::stats).collect()
    }

    /// Ends the executor for all handles. Work that has not begun ends with `Closed`. Closures that
    /// run are waited for, by a second call too.
    ///
    /// # Errors
    ///
    /// `Invalid` on the thread of a shard, as in a closure: it would wait for itself.
    pub fn close(self) -> Result<()> {
        task::refuse_to_wait(true)?;
        let executor = &self.executor;
        executor.state.is_closed.store(true, Ordering::Release);
        if !executor.state.shared.fork.is_forked() {
            // A shard that has ended takes no more, which is as well.
            let stops = executor.senders.iter().map(|sender| sender.send(ShardRequest::Stop));
            stops.for_each(|sent| sent.unwrap_or(()));
        }
        executor.join();
        Ok(())
    }
}

impl std::fmt::Debug for PerCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerCore").field("shards", &self.shards()).finish_non_exhaustive()
    }
}

fn submit_to<T, F>(executor: &Executor, shard: usize, f: F) -> Result<ShardTask<T>>
where
    T: Send + 'static,
    F: FnOnce(&ShardScope<'_>) -> Result<T> + Send + 'static,
{
    executor.state.check_open()?;
    let shards = executor.shards();
    if shard >= shards {
        let message =
            format!("there is no shard {shard}: they have the numbers 0 to {}", shards - 1);
        return Err(Error::invalid(message));
    }
    let (work, task) = task::work(f);
    executor.send(shard, ShardRequest::Work(work))?;
    Ok(task)
}

/// A table, with the shards that own its keys. Made by [`PerCore::table`].
///
/// Clones are the same table. As [`Table`] it follows its table through renaming and truncation.
#[derive(Clone)]
pub struct ShardedTable {
    executor: Arc<Executor>,
    table: Table,
    /// In the list of the executor.
    pub(super) number: usize,
    map: Arc<ShardMap>,
}

impl ShardedTable {
    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The shard that owns `key`, whether there is such a key or not.
    #[inline]
    pub fn shard_of(&self, key: impl AsRef<[u8]>) -> usize {
        self.map.shard_of(key.as_ref())
    }

    /// Has the shard that owns `key` run `f`. See [`PerCore::submit_to`].
    ///
    /// # Errors
    ///
    /// As [`PerCore::submit_to`].
    ///
    /// # Examples
    ///
    /// Changes of a row that its shard makes in order need no transaction among themselves:
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let counters = db.table("counters")?;
    /// let sharded = db.per_core(2)?.table(&counters)?;
    /// let mut tasks = Vec::new();
    /// for _ in 0..10 {
    ///     let counters = counters.clone();
    ///     tasks.push(sharded.submit("visits", move |_| {
    ///         let old = counters.get("visits")?.map_or(0, |old| old[0]);
    ///         counters.put("visits", [old + 1])
    ///     })?);
    /// }
    /// tasks.into_iter().try_for_each(|task| task.wait())?;
    /// assert_eq!(counters.get("visits")?.as_deref(), Some(&[10][..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn submit<T, F>(&self, key: impl AsRef<[u8]>, f: F) -> Result<ShardTask<T>>
    where
        T: Send + 'static,
        F: FnOnce(&ShardScope<'_>) -> Result<T> + Send + 'static,
    {
        submit_to(&self.executor, self.shard_of(key), f)
    }

    /// Whether it is of this executor.
    #[inline]
    pub(super) fn is_of(&self, executor: &Arc<Executor>) -> bool {
        Arc::ptr_eq(&self.executor, executor)
    }
}

impl std::fmt::Debug for ShardedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardedTable").field("table", &self.table.name()).finish_non_exhaustive()
    }
}
