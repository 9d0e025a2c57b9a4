//! A running instance of the engine: its threads and its lock, which end with the last handle.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::engine::Engine;
use super::jobs::mark_close;
use super::scheduler::{OBJECT_THREADS, Scheduler, spawn};
use crate::error::{Error, ErrorKind, Result};
use crate::options::BackgroundTuning;
use crate::os::DirectoryLock;
use crate::table::Shared;
use crate::txn::Registry;

fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}"))
}

/// What handles keep alive.
pub(super) struct Instance {
    engine: Arc<Engine>,
    /// The background's own, then its workers.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Keeps zones ready, where that takes long.
    zone_keeper: Mutex<Option<JoinHandle<()>>>,
    /// Work on objects, where there is an object store.
    object_workers: Mutex<Vec<JoinHandle<()>>>,
    /// Ships commits, where the database is shared.
    shipper_thread: Mutex<Option<JoinHandle<()>>>,
    /// Given back at last.
    lock: Mutex<Option<DirectoryLock>>,
}

impl Instance {
    /// Starts the background of an opened engine.
    pub(super) fn start(engine: Engine, lock: DirectoryLock) -> Result<Arc<Instance>> {
        let engine = Arc::new(engine);
        engine.set_budget(engine.options.background);
        let mut threads = Vec::new();
        if engine.has_background() {
            let name = "terrace-background".to_string();
            let spawned = spawn(&engine.scheduler, name, Scheduler::run_background);
            threads.push(spawned.map_err(|e| no_thread(&e))?);
        }
        let (threads, lock) = (Mutex::new(threads), Mutex::new(Some(lock)));
        let inner = Arc::new(Instance {
            engine,
            threads,
            zone_keeper: Mutex::default(),
            object_workers: Mutex::default(),
            shipper_thread: Mutex::default(),
            lock,
        });
        inner.start_workers()?;
        if inner.has_background() && inner.has_slow_links() {
            let name = "terrace-zones".to_string();
            let spawned = spawn(&inner.engine.scheduler, name, Scheduler::keep_zones_ready);
            *inner.zone_keeper.lock() = Some(spawned.map_err(|e| no_thread(&e))?);
        }
        if inner.has_background() && inner.set.store().objects().is_some() {
            for n in 0..OBJECT_THREADS {
                let name = format!("terrace-objects-{n}");
                let spawned = spawn(&inner.engine.scheduler, name, move |s| s.run_objects(n));
                inner.object_workers.lock().push(spawned.map_err(|e| no_thread(&e))?);
            }
        }
        Ok(inner)
    }

    /// Starts the thread that ships commits. Where steps come in their turn, a commit that waits
    /// for the shared store takes them.
    pub(super) fn start_shipper(&self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        if !engine.options.stepped {
            let named = std::thread::Builder::new().name("terrace-shipper".into());
            let spawned = named.spawn(move || {
                if let Some(shipper) = engine.shipper.get() {
                    shipper.run(&engine);
                }
            });
            *self.shipper_thread.lock() = Some(spawned.map_err(|e| no_thread(&e))?);
        } else if let Some(feed) = self.engine.shared.committer.feed() {
            let engine = Arc::downgrade(&engine);
            feed.drive_by(move || {
                // What failed is tried again, or ends the wait.
                if let Some(engine) = engine.upgrade()
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
            let name = format!("terrace-compaction-{n}");
            let spawned = spawn(&self.engine.scheduler, name, move |s| s.run_worker(n));
            threads.push(spawned.map_err(|e| no_thread(&e))?);
        }
        Ok(())
    }

    /// Changes what the background may use.
    pub(super) fn tune_background(&self, tuning: BackgroundTuning) -> Result<()> {
        self.engine.shared.check_open()?;
        self.engine.set_budget(tuning);
        self.start_workers()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.engine.shared
    }

    pub(super) fn transactions(&self) -> &Arc<Registry> {
        &self.engine.transactions
    }

    pub(super) fn path(&self) -> &Path {
        &self.engine.path
    }

    /// Closes for all handles; a second time does nothing.
    pub(super) fn close(&self) -> Result<()> {
        let engine = &self.engine;
        if engine.shared.fork.is_forked() {
            // The parent's database: the child has neither its threads nor the right to write.
            return engine.shared.check_open();
        }
        if let Some(shipper) = engine.shipper.get() {
            shipper.drain(engine);
        }
        if !engine.shared.close() {
            return Ok(());
        }
        // Waits for large commits: afterwards only the background writes to the journal.
        drop(engine.shared.large.write());
        // Tables that are being dropped take stock of the index first.
        drop(engine.shared.ddl.lock());
        engine.ctx.stop.store(true, Ordering::Release);
        engine.scheduler.wake_all();
        if let Some(objects) = engine.set.store().objects() {
            // No request is made again, so that no thread waits for the store.
            objects.stop();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        if let Some(shipper) = engine.shipper.get() {
            shipper.hurry();
        }
        if let Some(feed) = engine.shared.committer.feed() {
            feed.wake();
        }
        let object_workers = std::mem::take(&mut *self.object_workers.lock());
        let single = [&self.zone_keeper, &self.shipper_thread];
        let single = single.map(|thread| thread.lock().take());
        let all = threads.into_iter().chain(object_workers).chain(single.into_iter().flatten());
        for thread in all {
            if thread.join().is_err() {
                engine.shared.stop_because("a background thread panicked");
            }
        }
        if let Some(shipper) = engine.shipper.get() {
            shipper.finish(engine);
        }
        debug_assert!(engine.ctx.claims.is_empty(), "no compaction is under way without a thread");
        let merged = engine.scheduler.merge_at_close();
        let is_left = engine.leave_index();
        let settled = merged.and_then(|()| match engine.shared.read_only {
            true => Ok(0),
            false => mark_close(&engine.ctx).and_then(|()| {
                engine.shared.committer.shut();
                engine.ctx.sync_floor()
            }),
        });
        // After a failure the content of the index is unknown, so nothing is sealed.
        let sealed = settled.and_then(|_| if is_left { engine.seal_index() } else { Ok(()) });
        let gave_back = match engine.shared.poison.check() {
            Ok(()) => {
                let is_there = engine.set.check_directory();
                is_there.and_then(|()| engine.set.store().give_back_all().map(drop))
            }
            Err(_) => Ok(()),
        };
        engine.shared.awaited.stop();
        engine.release_memory();
        drop(self.lock.lock().take());
        sealed.and(gave_back)
    }
}

impl std::ops::Deref for Instance {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // No caller is left to take the error. A caller that needs it calls `close`.
        drop(self.close());
    }
}
