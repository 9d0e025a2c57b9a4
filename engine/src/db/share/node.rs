//! Nodes that read the log all the time: followers and standbys.
//!
//! A node has a directory of its own with a database in it, in a subdirectory with a number. When
//! the node restarts from a checkpoint, it makes the next subdirectory. Handles of the database
//! before keep what they show; once there are none, its subdirectory is removed (`places.rs`).
//!
//! Thread safety: one step at a time, by the node's thread or a stepper, behind `applier`.
//! `current` is held for a few instructions. One node at a time has a directory, by its lock.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use super::apply::{Applier, EntryApplied};
use super::places::Places;
use super::takeover::{self, RestApplied};
use super::{open_log, restore};
use crate::db::open::{files_of, lock};
use crate::db::{Database, OpenHow};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::os::{DirectoryLock, create_directory};
use crate::replica::{NextEntry, SharedLog};

/// While there is no next entry, a node asks for it so often, and less and less often.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_millis(600);

/// Of so many answers that there is none, one has the node look whether it was deleted.
const LOOKS: u32 = 8;

/// A registered node says how far it is so often, if it has news.
const REGISTERS: Duration = Duration::from_secs(10);

/// After a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// How far a follower or a standby is.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NodeStatus {
    /// Where the store is.
    pub store: String,
    /// The directory of its database.
    pub directory: PathBuf,
    /// Its last commit, by the numbers of the writer. It only grows.
    pub commit: u64,
    /// The last entry of the log that it has applied.
    pub entry: u64,
    /// Milliseconds since it last knew that there is no more; at most the interval of the writer
    /// and its own in addition is what it lags. `u64::MAX` until it has come to the end once.
    pub lag_ms: u64,
    /// How often it has started from a checkpoint.
    pub restarts: u64,
    /// How often it was away for too long: the writer had deleted what it had not yet applied, and
    /// it started from the newest checkpoint. [`Options::share_retention`] and
    /// [`Options::follower_name`] keep more.
    pub missed: u64,
    /// Reads of the store.
    pub gets: u64,
    /// Why it does not go on, if so: it tries again.
    pub note: Option<String>,
}

/// A node that ends when its owner lets it drop.
pub(super) struct NodeHandle(Arc<Node>);

/// What followers and standbys are.
pub(super) struct Node {
    log: Arc<SharedLog>,
    url: String,
    options: Options,
    directory: PathBuf,
    places: Places,
    /// Databases that were replaced, as long as others have handles of them.
    replaced: Mutex<Vec<Current>>,
    _lock: DirectoryLock,
    applier: Mutex<Option<Applier>>,
    current: RwLock<Option<Current>>,
    progress: Mutex<Progress>,
    /// Answers in a row that there is no next entry.
    misses: AtomicU32,
    stop: AtomicBool,
    woken: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The database of the moment.
#[derive(Clone)]
struct Current {
    db: Database,
    path: PathBuf,
}

struct Progress {
    commit: u64,
    entry: u64,
    restarts: u64,
    missed: u64,
    /// What the store was told, and when.
    registered: Option<(u64, Instant)>,
    known_at: Option<Instant>,
    note: Option<String>,
}

impl Node {
    /// Opens what the directory has, or restores the newest checkpoint into it.
    fn open(url: &str, directory: &Path, options: &Options) -> Result<Arc<Node>> {
        let options = options.clone().object_store(url).share(false);
        options.check()?;
        let files = files_of(&options);
        let (log, _) = open_log(url, &options, &files, 0)?;
        create_directory(&*files, directory).map_err(|e| Error::io("create", directory, e))?;
        let lock = lock(directory, &options, OpenHow::Existing)?;
        let progress = Progress {
            commit: 0,
            entry: 0,
            restarts: 0,
            missed: 0,
            registered: None,
            known_at: None,
            note: None,
        };
        let node = Arc::new(Node {
            log,
            url: url.to_string(),
            options,
            directory: directory.to_path_buf(),
            places: Places::new(&files, directory),
            replaced: Mutex::default(),
            _lock: lock,
            applier: Mutex::default(),
            current: RwLock::default(),
            progress: Mutex::new(progress),
            misses: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            woken: Condvar::new(),
            thread: Mutex::default(),
        });
        let mut applier = node.applier.lock();
        match node.resume()? {
            Some(found) => *applier = Some(found),
            None => node.restart(&mut applier)?,
        }
        node.clean();
        drop(applier);
        node.register()?;
        Ok(node)
    }

    /// Starts the thread, but where steps come in their turn.
    fn start(self: &Arc<Self>) -> Result<()> {
        if self.options.stepped {
            return Ok(());
        }
        let node = Arc::clone(self);
        let named = std::thread::Builder::new().name("terrace-follower".into());
        let spawned = named.spawn(move || node.run()).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}"))
        })?;
        *self.thread.lock() = Some(spawned);
        Ok(())
    }

    fn run(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let pause = match self.step() {
                Ok(true) => continue,
                Ok(false) => {
                    let misses = self.misses.load(Ordering::Relaxed);
                    (FIRST_PAUSE * 2u32.pow(misses.min(6))).min(IDLE)
                }
                Err(_) => PAUSE,
            };
            let mut progress = self.progress.lock();
            if !self.stop.load(Ordering::Acquire) {
                self.woken.wait_for(&mut progress, pause);
            }
        }
    }

    /// Applies the next entry, or starts from a checkpoint; whether there was something to do.
    pub(super) fn step(&self) -> Result<bool> {
        let mut applier = self.applier.lock();
        let did = self.register().and_then(|()| self.advance(&mut applier));
        let mut progress = self.progress.lock();
        progress.note = did.as_ref().err().map(ToString::to_string);
        if let Some(applier) = applier.as_ref().filter(|_| did.is_ok()) {
            debug_assert!(applier.position.lsn >= progress.commit, "the watermark only grows");
            progress.commit = applier.position.lsn;
            progress.entry = applier.position.entry;
        }
        if matches!(did, Ok(false)) {
            progress.known_at = Some(Instant::now());
        }
        did
    }

    /// Tells the store how far the node is, if it has a name and news that is due.
    fn register(&self) -> Result<()> {
        let Some(name) = &self.options.follower_name else { return Ok(()) };
        let (entry, told) = {
            let progress = self.progress.lock();
            (progress.entry, progress.registered)
        };
        let is_due = |(known, at): (u64, Instant)| {
            known < entry && (self.options.stepped || at.elapsed() >= REGISTERS)
        };
        if told.is_none_or(is_due) {
            self.log.register(name, entry)?;
            self.progress.lock().registered = Some((entry, Instant::now()));
        }
        Ok(())
    }

    fn advance(&self, applier: &mut Option<Applier>) -> Result<bool> {
        let Some(reader) = applier else {
            self.restart(applier)?;
            return Ok(true);
        };
        let number = reader.next()?;
        let misses = self.misses.load(Ordering::Relaxed);
        let looks = self.options.stepped || misses.is_multiple_of(LOOKS);
        let entry = match self.log.next_entry(number, looks)? {
            NextEntry::There(entry) => entry,
            NextEntry::Absent => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                return Ok(false);
            }
            NextEntry::Deleted => {
                self.restart(applier)?;
                self.progress.lock().missed += 1;
                return Ok(true);
            }
        };
        self.misses.store(0, Ordering::Relaxed);
        if reader.apply(&entry, &self.log)? == EntryApplied::Leaps {
            self.restart(applier)?;
        }
        Ok(true)
    }

    /// Goes on with the database of an earlier opening.
    fn resume(&self) -> Result<Option<Applier>> {
        for path in self.places.candidates()? {
            let db = match Database::open_with(&path, &self.options, OpenHow::Existing) {
                Ok(db) => db,
                // It was being restored.
                Err(error) if error.kind() == ErrorKind::Invalid => continue,
                Err(error) => return Err(error),
            };
            if let Some(applier) = Applier::resumed(db)? {
                self.show(&applier, path);
                return Ok(Some(applier));
            }
        }
        Ok(None)
    }

    /// Starts from the newest checkpoint of the log.
    fn restart(&self, applier: &mut Option<Applier>) -> Result<()> {
        let end = self.log.end()?;
        let found = match end.checkpoint {
            0 => None,
            number => restore::checkpoint(&self.log, number)?,
        };
        let Some(found) = found else {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the store {} has no shared database with a checkpoint yet; open one with \
                     Options::share",
                    self.log.address()
                ),
            ));
        };
        self.clean();
        let path = self.places.next()?;
        restore::restore(&self.log, &found.manifest, &path, &self.options)?;
        let db = Database::open_with(&path, &self.options, OpenHow::Existing)?;
        let reader = Applier::restored(db, &found, &self.log)?;
        self.progress.lock().restarts += 1;
        let before = self.show(&reader, path);
        *applier = Some(reader);
        self.replaced.lock().extend(before);
        self.clean();
        Ok(())
    }

    /// Shows a database from now on, and lets no caller but the reader write to it.
    fn show(&self, applier: &Applier, path: PathBuf) -> Option<Current> {
        applier.db.inner.shared().follows.store(true, Ordering::Release);
        let current = Current { db: applier.db.clone(), path };
        let mut progress = self.progress.lock();
        let position = &applier.position;
        (progress.commit, progress.entry) = (progress.commit.max(position.lsn), position.entry);
        drop(progress);
        self.current.write().replace(current)
    }

    /// Removes the subdirectories of databases that nothing uses any more.
    fn clean(&self) {
        let mut replaced = self.replaced.lock();
        replaced.retain(|Current { db, .. }| Arc::strong_count(&db.inner) > 1);
        let current = self.current.read();
        let kept: BTreeSet<PathBuf> =
            replaced.iter().chain(current.as_ref()).map(|it| it.path.clone()).collect();
        drop(current);
        self.places.clean(&kept);
    }

    pub(super) fn database(&self) -> Result<Database> {
        let current = self.current.read();
        current.as_ref().map(|current| current.db.clone()).ok_or_else(Error::closed)
    }

    pub(super) fn status(&self) -> NodeStatus {
        let path = self.current.read().as_ref().map(|current| current.path.clone());
        let progress = self.progress.lock();
        NodeStatus {
            store: self.log.address(),
            directory: path.unwrap_or_else(|| self.directory.clone()),
            commit: progress.commit,
            entry: progress.entry,
            lag_ms: progress.known_at.map_or(u64::MAX, |at| at.elapsed().as_millis() as u64),
            restarts: progress.restarts,
            missed: progress.missed,
            gets: self.log.counts().gets,
            note: progress.note.clone(),
        }
    }

    /// Ends the thread.
    fn halt(&self) {
        {
            let _progress = self.progress.lock();
            self.stop.store(true, Ordering::Release);
        }
        self.woken.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            thread.join().unwrap_or(());
        }
    }

    /// Claims the log, applies what is left, and opens the database to write.
    ///
    /// # Errors
    ///
    /// As [`Standby::promote`](super::Standby::promote).
    pub(super) fn promote(&self) -> Result<Database> {
        self.halt();
        let claimed = takeover::claim(&self.url, &self.options)?;
        let mut guard = self.applier.lock();
        let applier = guard.as_mut().ok_or_else(Error::closed)?;
        if takeover::apply_rest(&claimed, applier)? == RestApplied::Restart {
            self.restart(&mut guard)?;
            let applier = guard.as_mut().ok_or_else(Error::closed)?;
            takeover::apply_all(&claimed, applier)?;
        }
        let applier = guard.take().ok_or_else(Error::closed)?;
        let current = self.current.write().take().ok_or_else(Error::closed)?;
        let path = current.path;
        drop(current.db);
        let db = takeover::finish(claimed, applier, &path, &self.options)?;
        if let Some(name) = &self.options.follower_name {
            // If it stays, it holds a few checkpoints back.
            self.log.unregister(name).unwrap_or(());
        }
        Ok(db)
    }

    pub(super) fn close(&self) -> Result<()> {
        // No request is made again, so that the thread ends soon.
        self.log.stop();
        self.halt();
        drop(self.applier.lock().take());
        match self.current.write().take() {
            Some(current) => current.db.close(),
            None => Ok(()),
        }
    }
}

impl NodeHandle {
    /// Opens a node, and starts its thread.
    pub(super) fn start(url: &str, path: &Path, options: &Options) -> Result<NodeHandle> {
        let node = Node::open(url, path, options)?;
        node.start()?;
        Ok(NodeHandle(node))
    }
}

impl std::ops::Deref for NodeHandle {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        // No caller is left to take the error.
        drop(self.0.close());
    }
}

impl std::fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NodeHandle").field(&self.0.directory).finish()
    }
}
