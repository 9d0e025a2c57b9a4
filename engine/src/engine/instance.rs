//! A running instance of the engine: its threads and its lock, which end with the last handle.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::{Engine, history, threads_of};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::events::{ClosedInfo, OpenedInfo};
use crate::base::operator;
use crate::base::options::{BackgroundTuning, Failpoint};
use crate::base::progress::{self, CLOSE, Meter};
use crate::jobs::mark_close;
use crate::jobs::memory::OBJECT_THREADS;
use crate::mvcc::is_waited_for;
use crate::os::DirectoryLock;
use crate::os::sync::locks::Mutex;
use crate::os::thread::JoinHandle;
use crate::scheduler::{Scheduler, spawn};

/// Ships the commits of one database.
///
/// Thread safety: any thread may call any method; the closing calls `drain`, `hurry` and `finish`,
/// in this order.
pub(crate) trait Shipping: fmt::Debug + Send + Sync {
    /// The body of the shipper's thread.
    fn run(&self, engine: &Engine);

    /// The body of the thread that sends checkpoints.
    fn run_checkpoints(&self, engine: &Engine);

    /// The body of the collector's thread. After a failure it rests, longer and longer.
    fn run_collector(&self, engine: &Engine);

    /// Appends an entry, if there is something to append; whether there was. Does nothing while
    /// another thread takes a step.
    ///
    /// # Errors
    ///
    /// `Fenced` if another writer has claimed the log: the database has stopped then. `Unavailable`
    /// if the store does not answer: another step tries again. Those of a checkpoint.
    fn step(&self, engine: &Engine) -> Result<bool>;

    /// Ships what there is, before a closing. Ends at the first failure: a store that is away takes
    /// five seconds. The commits are durable on this machine, and the next opening ships them.
    fn drain(&self, engine: &Engine);

    /// Whether a closing has begun that gives a checkpoint up which has sent so many bytes.
    fn is_closing(&self, sent: u64) -> bool;

    /// From now on a request that fails is not made again, so that a closing does not wait for it.
    fn hurry(&self);

    /// The last steps: ships what there is, as long as the store answers, and ends every wait.
    fn finish(&self, engine: &Engine);

    /// How far it is.
    fn stats(&self, engine: &Engine) -> Option<ShareStats>;
}

/// Shipping of commits to the shared store since the opening.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ShareStats {
    /// Where the store is.
    pub store: String,
    /// The claim of this opening, by its number in the log: a later writer has a larger one.
    pub claim: u64,
    /// The last commit that the store has.
    pub shipped: u64,
    /// Commits that are visible here and not yet there.
    pub lag_commits: u64,
    /// Bytes of commits that wait.
    pub lag_bytes: u64,
    /// The age of the oldest commit that waits, in milliseconds; 0 if none does. With all well it
    /// is below 1000: more means that the store is away or slower than commits come.
    pub lag_ms: u64,
    /// Segments that were sent.
    pub segments: u64,
    /// Bytes of commits in them, before compression.
    pub segment_bytes: u64,
    /// Checkpoints that were sent.
    pub checkpoints: u64,
    /// Bytes of extents that were sent for them.
    pub checkpoint_bytes: u64,
    /// Reads of the store.
    pub gets: u64,
    /// Writes to it.
    pub puts: u64,
    /// Lists and deletions of objects.
    pub others: u64,
    /// Why the last step of the shipping failed, or why a checkpoint that is due could not be made;
    /// `None` if all is well. Both are tried again. A checkpoint that fails holds no commit up.
    pub note: Option<String>,
    /// Why nothing is deleted from the store, if so: it is tried again, and shipping goes on.
    pub collect_note: Option<String>,
}

/// What handles keep alive.
pub(crate) struct Instance {
    engine: Arc<Engine>,
    /// The background's own, then its workers.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// What keeps zones ready where that takes long, work on objects where there is an object
    /// store, the three of shipping where the database is shared.
    other_threads: Mutex<Vec<JoinHandle<()>>>,
    /// What came of the closing. Who closes holds it, and so a second caller waits for the first.
    closed: Mutex<Option<Result<()>>>,
}

impl Instance {
    /// Starts the background of an opened engine.
    pub(crate) fn start(engine: Engine, lock: DirectoryLock) -> Result<Arc<Instance>> {
        let engine = Arc::new(engine);
        engine.set_budget(engine.options.background_tuning);
        engine.shared.gate.keep(lock);
        let (threads, other_threads, closed) = <_>::default();
        let inner = Arc::new(Instance { engine, threads, other_threads, closed });
        inner.options.events.start()?;
        inner.options.events.send(|| inner.opened_info());
        if inner.has_background() {
            inner.spawn(&mut inner.threads.lock(), "background", Scheduler::run_background)?;
        }
        inner.start_workers()?;
        if inner.has_background() {
            let others = &mut inner.other_threads.lock();
            // Making a zone takes a sync then.
            if inner.shared.region.mode() == "file" {
                inner.spawn(others, "zones", Scheduler::keep_zones_ready)?;
            }
            let objects = inner.set.store().objects().map_or(0, |_| OBJECT_THREADS);
            for n in 0..objects {
                inner.spawn(others, &format!("objects-{n}"), move |s| s.run_objects(n))?;
            }
        }
        if let Some(interval) = history::interval(&inner) {
            let engine = Arc::clone(&inner.engine);
            let keep = move |_: &Scheduler| history::keep(&engine, interval);
            inner.spawn(&mut inner.other_threads.lock(), "history", keep)?;
        }
        Ok(inner)
    }

    /// What runs, which outlives the handles for as long as a thread uses it.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn opened_info(&self) -> OpenedInfo {
        let opened = self.opened;
        OpenedInfo {
            mode: self.shared.region.mode(),
            read_only: self.shared.read_only,
            ms: opened.total_ms,
            rebuild_ms: opened.rebuild_ms,
            records_rebuilt: opened.records_rebuilt,
            groups_accepted: opened.groups_accepted,
            ..OpenedInfo::default()
        }
    }

    /// Starts a thread of the background, one of `threads`.
    fn spawn(
        &self,
        threads: &mut Vec<JoinHandle<()>>,
        name: &str,
        body: impl FnOnce(&Scheduler) + Send + 'static,
    ) -> Result<()> {
        let spawned = spawn(&self.engine.scheduler, format!("terrace-{name}"), body);
        threads.push(spawned.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}"))
        })?);
        Ok(())
    }

    /// Starts the threads that ship commits. Where steps come in their turn, a commit that waits
    /// for the shared store takes them.
    pub(crate) fn start_shipper(&self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        if !engine.options.stepped {
            type Body = fn(&dyn Shipping, &Engine);
            let bodies: [(&str, Body); 3] = [
                ("shipper", |it, of| it.run(of)),
                ("checkpoints", |it, of| it.run_checkpoints(of)),
                ("collector", |it, of| it.run_collector(of)),
            ];
            for (name, body) in bodies {
                let engine = Arc::clone(&engine);
                self.spawn(&mut self.other_threads.lock(), name, move |_| {
                    if let Some(shipper) = engine.shipper.get() {
                        body(&**shipper, &engine);
                    }
                })?;
            }
        } else if let Some(feed) = self.engine.shared.committer.feed() {
            let engine = Arc::downgrade(&engine);
            feed.drive_by(move || {
                // What failed is tried again, or ends the wait.
                if let Some(engine) = engine.upgrade()
                    && let Ok(_inside) = engine.shared.gate.enter_call()
                    && let Some(shipper) = engine.shipper.get()
                {
                    drop(shipper.step(&engine));
                }
            });
        }
        Ok(())
    }

    /// Starts workers until there are as many as the budget has room for; those beyond it rest.
    fn start_workers(&self) -> Result<()> {
        let mut threads = self.threads.lock();
        for n in threads.len().max(1)..self.engine.scheduler.workers.threads() {
            self.spawn(&mut threads, &format!("compaction-{n}"), move |s| s.run_worker(n))?;
        }
        Ok(())
    }

    /// Changes what the background may use.
    pub(crate) fn tune_background(&self, tuning: BackgroundTuning) -> Result<()> {
        let _inside = self.engine.shared.enter_call()?;
        self.engine.set_budget(tuning);
        self.start_workers()
    }

    /// Closes for all handles. Each caller waits until it is closed, and has what came of it.
    pub(crate) fn close(&self) -> Result<()> {
        let shared = &self.engine.shared;
        if shared.fork.is_forked() {
            // The parent's database: the child has neither its threads nor the right to write.
            return shared.check_open();
        }
        self.check_closable()?;
        if shared.region.has(Failpoint::SecondCloseReturns) && self.closed.is_locked() {
            return Ok(());
        }
        let mut closed = self.closed.lock();
        let is_first = closed.is_none();
        let done = closed.get_or_insert_with(|| self.close_once());
        let done = done.as_ref().map_or_else(|error| Err(error.again()), |()| Ok(()));
        drop(closed);
        if is_first {
            // A waker may close the database too, on such a thread: it waits for this closing, and
            // this one for it from here on alone.
            shared.awaited.stop();
            let events = &self.engine.options.events;
            let error = || done.as_ref().err().map(ToString::to_string);
            events.stop(|| ClosedInfo { error: error(), ..ClosedInfo::default() });
        }
        done
    }

    /// As [`Instance::close`], for a user: also waits until all events are told.
    pub(crate) fn close_and_tell(&self) -> Result<()> {
        if self.engine.shared.fork.is_forked() {
            return self.close();
        }
        self.check_closable()?;
        let closed = self.close();
        self.engine.options.events.wait();
        closed
    }

    fn check_closable(&self) -> Result<()> {
        let shared = &self.engine.shared;
        check_closing(shared.gate.is_inside() || progress::is_told_of(&shared.events))
    }

    /// The order of it is in `os/gate.rs`.
    fn close_once(&self) -> Result<()> {
        let engine = &self.engine;
        let (shared, meter) = (&engine.shared, Meter::new(&engine.options, CLOSE));
        meter.plan(5);
        // It goes on whatever it is told.
        let step = |steps| meter.did(steps).unwrap_or(());
        step(0);
        if let Some(shipper) = engine.shipper.get() {
            shipper.drain(engine);
        }
        step(1);
        shared.shut();
        engine.ctx.manual.close();
        if let Some(objects) = engine.set.store().objects() {
            // No request is made again, so that no thread waits for the store.
            objects.stop();
        }
        // Afterwards only the background writes to the journal.
        shared.gate.wait_for_calls();
        self.end_threads();
        if let Some(shipper) = engine.shipper.get() {
            shipper.finish(engine);
        }
        step(1);
        debug_assert!(engine.ctx.claims.is_empty(), "no compaction is under way without a thread");
        let merged = engine.scheduler.merge_at_close(&meter);
        let marked = merged.and_then(|()| match shared.read_only {
            true => Ok(()),
            false => mark_close(&engine.ctx),
        });
        // Also where that failed: a commit that has its ticket may be writing to the region.
        shared.committer.shut();
        let settled = marked.and_then(|()| match shared.read_only {
            true => Ok(0),
            false => engine.ctx.sync_floor(),
        });
        engine.wait_for_readers();
        step(1);
        let gave_back = match shared.poison.check() {
            Ok(()) => {
                let is_there = engine.set.check_directory();
                // What the file system does not take back stays with the files.
                is_there.inspect(|()| {
                    drop(engine.set.store().give_back_all());
                    engine.delete_objects_at_close();
                })
            }
            Err(_) => Ok(()),
        };
        step(1);
        shared.gate.bar();
        // After a failure the content of the index is unknown, so nothing is sealed.
        let sealed = settled.and_then(|_| match &engine.forest {
            Some(forest) => forest.seal((threads_of(&engine.options), &meter)),
            None => Ok(()),
        });
        if let Some(cache) = &engine.secondary_cache {
            cache.close();
        }
        engine.release_memory();
        meter.end().unwrap_or(());
        shared.gate.give_back();
        sealed.and(gave_back)
    }

    /// Ends the threads of the background, which see that the gate is shut.
    fn end_threads(&self) {
        let engine = &self.engine;
        engine.scheduler.wake_all();
        engine.history_wakeup.wake();
        let threads = std::mem::take(&mut *self.threads.lock());
        if let Some(shipper) = engine.shipper.get() {
            shipper.hurry();
        }
        if let Some(feed) = engine.shared.committer.feed() {
            feed.wake();
        }
        let others = std::mem::take(&mut *self.other_threads.lock());
        for thread in threads.into_iter().chain(others) {
            if thread.join().is_err() {
                engine.shared.stop_because("a background thread panicked");
            }
        }
    }

    /// The same, to be dropped elsewhere.
    fn taken(&mut self) -> Instance {
        Instance {
            engine: Arc::clone(&self.engine),
            threads: std::mem::take(&mut self.threads),
            other_threads: std::mem::take(&mut self.other_threads),
            closed: std::mem::take(&mut self.closed),
        }
    }
}

/// Fails where a closing would wait for this thread: for its call or step, with which it
/// `is_inside` of the gate, or for what it reads, in whichever database.
pub(crate) fn check_closing(is_inside: bool) -> Result<()> {
    if !(is_inside || is_waited_for() || operator::is_running()) {
        return Ok(());
    }
    let message = "a call of the database is under way on this thread, as in a merge operator, a \
                   function that is told of progress or a closure that a value is lent to: a \
                   closing would wait for it; close on another thread";
    Err(Error::invalid(message))
}

impl std::ops::Deref for Instance {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.engine.shared.fork.is_forked() {
            // The parent's database: what its parts hold is not this process's to give back.
            std::mem::forget(self.taken());
        } else if self.check_closable().is_ok() {
            // No caller is left to take the error. A caller that needs it calls `close`.
            drop(self.close());
        } else if self.closed.get_mut().is_none() {
            // The last handle went with a closure or an operator on a thread that a closing waits
            // for. Without another thread the directory stays locked until the process ends.
            let left = ManuallyDrop::new(self.taken());
            let closes = crate::os::thread::Builder::new().name("terrace-close".into());
            drop(closes.spawn(move || drop(ManuallyDrop::into_inner(left))));
        }
    }
}
