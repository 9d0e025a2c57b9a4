//! Nodes that read the log all the time: followers and standbys.
//!
//! A node has a directory of its own with a database in it, in a subdirectory with a number. When
//! the node restarts from a checkpoint, it makes the next subdirectory. Handles of the database
//! before keep what they show; once there are none, its subdirectory is removed (`places.rs`).
//!
//! Thread safety: one step at a time, by the node's thread or a stepper, behind `applier`.
//! `current` is held for a few instructions. One node at a time has a directory, by its lock.

mod advance;
mod progress;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::apply::Applier;
use super::checkpoint::{self, DataPlace, FoundCheckpoint};
use super::log::{FollowerPlace, SharedLog};
use super::places::Places;
use super::registration::Registration;
use super::status::NodeStatus;
use super::takeover;
use super::{OpenedLog, open_log, tell_role};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::operator;
use crate::base::options::Options;
use crate::base::progress::{is_told, is_told_of, refused_inside};
use crate::engine::open::files_of;
use crate::engine::{Database, OpenHow, check_closing};
use crate::mvcc::is_waited_for;
use crate::os::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::os::sync::locks::{Condvar, Mutex, RwLock};
use crate::os::thread::JoinHandle;
use crate::os::{DirectoryLock, NotOpen, time};
use crate::storage::ObjectTier;
use advance::FailedStart;
use progress::{NodeProgress, PAUSE, rest_after};

/// While there is no next entry, a node asks for it so often, and less and less often.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_millis(600);

/// A node that reads data in the store starts from a newer checkpoint after so many. The writer
/// keeps data of twice as many for a registered one.
const MOST_BEHIND: u32 = 8;

/// How often a start finds that the data of its checkpoint was deleted meanwhile.
const TRIES: u32 = 8;

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Follower,
    /// It has all data itself, and may become the writer.
    Standby,
}

/// What followers and standbys are.
pub(super) struct Node {
    log: Arc<SharedLog>,
    registration: Registration,
    url: String,
    options: Options,
    role: &'static str,
    /// Its data is read in the store, and this machine has a bounded part of it.
    reads_store: bool,
    pub(super) directory: PathBuf,
    places: Places,
    /// Databases that were replaced, as long as others have handles of them.
    replaced: Mutex<Vec<Current>>,
    applier: Mutex<Option<Applier>>,
    current: RwLock<Option<Current>>,
    progress: Mutex<NodeProgress>,
    /// Answers in a row that there is no next entry, and entries in a row that were applied.
    misses: AtomicU32,
    hits: AtomicU32,
    /// Checkpoints since the one that it started from.
    behind: AtomicU32,
    /// Why a start from the newest checkpoint failed, if it would fail again.
    failed_start: Mutex<Option<FailedStart>>,
    stop: AtomicBool,
    woken: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Until the node ends. The last field: it is dropped after the databases.
    lock: Mutex<Option<DirectoryLock>>,
}

/// The database of the moment.
#[derive(Clone)]
struct Current {
    db: Database,
    path: PathBuf,
    /// As [`Applier::base`].
    base: u64,
}

impl Node {
    /// Opens what the directory has, or restores the newest checkpoint into it.
    pub(super) fn open(
        url: &str,
        directory: &Path,
        (options, kind): (&Options, NodeKind),
    ) -> Result<Arc<Node>> {
        let mut options = options.clone().object_store(url).share(false);
        let reads_store = kind == NodeKind::Follower && options.object_cache > 0;
        let role = if kind == NodeKind::Follower { "follower" } else { "standby" };
        (options.follows, options.stays_far) = (Some(role), reads_store);
        options.check()?;
        let files = files_of(&options);
        let OpenedLog { log, nonce } = open_log(url, &options, &files, 0)?;
        let named = (options.follower_name.as_deref(), nonce);
        let registration = Registration::of_node(&log, named, options.stepped)?;
        let (places, lock) = Places::enter(directory, &mut options)?;
        let node = Arc::new(Node {
            log,
            registration,
            url: url.to_string(),
            options,
            role,
            reads_store,
            directory: directory.to_path_buf(),
            places,
            replaced: Mutex::default(),
            applier: Mutex::default(),
            current: RwLock::default(),
            progress: Mutex::new(NodeProgress::none(directory)),
            misses: AtomicU32::new(0),
            hits: AtomicU32::new(0),
            // What an earlier opening has applied is not known.
            behind: AtomicU32::new(MOST_BEHIND),
            failed_start: Mutex::default(),
            stop: AtomicBool::new(false),
            woken: Condvar::new(),
            thread: Mutex::default(),
            lock: Mutex::new(Some(lock)),
        });
        node.begin().inspect_err(|_| node.registration.give_up())?;
        Ok(node)
    }

    /// Goes on where an earlier opening was, or starts from the newest checkpoint.
    fn begin(&self) -> Result<()> {
        let mut applier = self.applier.lock();
        match self.resume()? {
            Some(found) => *applier = Some(found),
            None => self.restart(&mut applier)?,
        }
        self.clean();
        let kept = self.register()?;
        if self.is_left_behind(applier.as_ref(), kept) {
            self.start_anew(&mut applier)?;
        }
        Ok(())
    }

    /// Starts the thread, but where steps come in their turn.
    pub(super) fn start(self: &Arc<Self>) -> Result<()> {
        if self.options.stepped {
            return Ok(());
        }
        let node = Arc::clone(self);
        let named = crate::os::thread::Builder::new().name("terrace-follower".into());
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| node.run())).is_err() {
                node.stop_because("the thread terrace-follower panicked");
            }
        };
        let spawned = named.spawn(run).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}"))
        })?;
        *self.thread.lock() = Some(spawned);
        Ok(())
    }

    fn run(&self) {
        let mut rest = PAUSE;
        while !self.stop.load(Ordering::Acquire) {
            let did = self.step();
            rest = rest_after(&did, rest);
            let pause = match did {
                Ok(true) => continue,
                Ok(false) => {
                    let misses = self.misses.load(Ordering::Relaxed);
                    (FIRST_PAUSE * 2u32.pow(misses.saturating_sub(1).min(6))).min(IDLE)
                }
                Err(_) => rest,
            };
            let mut progress = self.progress.lock();
            if !self.stop.load(Ordering::Acquire) {
                self.woken.wait_for(&mut progress, pause);
            }
        }
    }

    /// Nothing is applied any more, and no promotion makes a writer of what is there: what memory
    /// has of it may be wrong. Reads go on.
    fn stop_because(&self, what: &str) {
        if let Some(current) = &*self.current.read() {
            current.db.inner.shared.stop_because(what);
        }
        self.progress.lock().note = Some(format!("{what}; open the node again"));
    }

    /// Applies the next entry, or starts from a checkpoint; whether there was something to do.
    pub(super) fn step(&self) -> Result<bool> {
        Self::check_outside()?;
        let mut applier = self.applier.lock();
        let did = self.check_log(applier.as_mut()).and_then(|()| {
            let kept = self.register()?;
            self.registration.beating(|| self.advance(&mut applier, kept))
        });
        let mut progress = self.progress.lock();
        let failure = did.as_ref().err().map(ToString::to_string);
        progress.note = failure.or_else(|| self.registration.untold());
        if matches!(did, Ok(false)) {
            progress.known_at = Some(time::now());
            drop(progress);
            if self.registration.arrived() {
                // No other step may follow. If it fails, the next one tells it.
                self.register().map(drop).unwrap_or(());
            }
        }
        did
    }

    /// Notes how far the database is that is shown.
    pub(super) fn note_position(&self, applier: &Applier) {
        let (position, mut progress) = (applier.position, self.progress.lock());
        debug_assert!(position.lsn >= progress.commit, "the watermark only grows");
        (progress.commit, progress.entry) = (position.lsn, position.entry);
    }

    /// A node of another log tells nothing there, since a follower of its name may have told, and
    /// takes nothing from there.
    fn check_log(&self, reader: Option<&mut Applier>) -> Result<()> {
        reader.map_or(Ok(()), |reader| reader.check_log(&self.log))
    }

    /// Tells the store how far the node is, if it is registered and that is due. As
    /// [`Registration::tell_news`].
    fn register(&self) -> Result<u64> {
        let entry = self.progress.lock().entry;
        self.registration.tell_news(FollowerPlace { entry, base: self.oldest_base(), beat: 0 })
    }

    /// Whether the writer has deleted data that a reader needs: it is known to keep data from the
    /// checkpoint `kept` on alone, or a read has found none.
    fn is_left_behind(&self, reader: Option<&Applier>, kept: u64) -> bool {
        reader.is_some_and(|reader| {
            let misses = objects_of(&reader.db).is_some_and(ObjectTier::is_left_behind);
            reader.base > 0 && (misses || reader.base < kept)
        })
    }

    /// Starts from the newest checkpoint, since the writer has deleted data.
    fn start_anew(&self, applier: &mut Option<Applier>) -> Result<()> {
        let newest = self.log.end()?.checkpoint;
        if let Some(reader) = applier.as_ref().filter(|reader| reader.base == newest) {
            // The writer keeps that: the store has lost a part of it.
            objects_of(&reader.db).into_iter().for_each(ObjectTier::is_not_left_behind);
            return Ok(());
        }
        self.restart(applier)?;
        self.progress.lock().missed += 1;
        Ok(())
    }

    /// The oldest checkpoint of which one of its databases reads data in the store; 0 for none.
    fn oldest_base(&self) -> u64 {
        let replaced = self.replaced.lock();
        let current = self.current.read();
        let bases = replaced.iter().chain(current.as_ref()).map(|it| it.base);
        bases.filter(|base| *base > 0).min().unwrap_or(0)
    }

    /// Goes on with the database of an earlier opening.
    fn resume(&self) -> Result<Option<Applier>> {
        for path in self.places.candidates()? {
            let options = self.places.options_of(&path);
            let db = match Database::open_unshared(&path, &options, OpenHow::Existing) {
                // Emulated memory ends with the machine's run. The store has all of it.
                Err(error)
                    if error.kind() == ErrorKind::Unavailable && error.damage().is_some() =>
                {
                    continue;
                }
                opened => opened?,
            };
            let Some(mut applier) = Applier::resumed(db)? else { continue };
            // Others ask the store for nothing yet.
            if applier.base > 0 || self.options.follower_name.is_some() {
                applier.check_log(&self.log)?;
            }
            if self.may_resume(&applier)? {
                self.show(&applier, path);
                return Ok(Some(applier));
            }
        }
        Ok(None)
    }

    /// Whether the data is there that a database of an earlier opening reads in the store.
    fn may_resume(&self, applier: &Applier) -> Result<bool> {
        let is_kept = self.options.follower_name.is_some();
        Ok(match (applier.base, self.reads_store) {
            (0, _) => true,
            (_, false) => false,
            (base, true) => is_kept || self.log.end()?.checkpoint == base,
        })
    }

    /// The newest checkpoint. The writer keeps its data until the node has it, or as long as the
    /// node reads it.
    fn newest(&self) -> Result<FoundCheckpoint> {
        let found = self.registration.start(|number, next| {
            let (oldest, known) = (self.oldest_base(), self.progress.lock().entry);
            let base = if oldest == 0 { number } else { oldest.min(number) };
            let entry = (next - 1).min(if known == 0 { next } else { known });
            FollowerPlace { entry, base, beat: 0 }
        })?;
        found.ok_or_else(|| self.log.empty(ErrorKind::Unavailable))
    }

    /// Starts from the newest checkpoint of the log. One that fails holds nothing back until it is
    /// tried again: that begins with another checkpoint.
    fn restart(&self, applier: &mut Option<Applier>) -> Result<()> {
        self.try_restart(applier).inspect_err(|_| _ = self.registration.arrived())
    }

    fn try_restart(&self, applier: &mut Option<Applier>) -> Result<()> {
        // There may be another one by now.
        applier.iter_mut().for_each(Applier::forget_log);
        self.check_log(applier.as_mut())?;
        let mut tries = 0;
        loop {
            let found = self.newest()?;
            let base = found.manifest.number;
            self.check_start(&found)?;
            tries += 1;
            match self.registration.beating(|| self.restart_from(&found, applier)) {
                // The node stood still for so long that the writer has gone on without it.
                Err(error) if tries < TRIES && self.registration.is_deleted(&error, base)? => {}
                done => return done,
            }
        }
    }

    fn restart_from(&self, found: &FoundCheckpoint, applier: &mut Option<Applier>) -> Result<()> {
        let (found_at, shown) = (found.last, self.progress.lock().commit);
        if found_at < shown {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the writer has deleted data that the follower reads in the store, and its \
                     newest checkpoint, of commit {found_at}, is older than what the follower \
                     shows, commit {shown}; register it with the option follower_name"
                ),
            ));
        }
        self.clean();
        let path = self.places.next()?;
        let place = if self.reads_store { DataPlace::Store } else { DataPlace::Here };
        let options = self.places.options_of(&path);
        let made = checkpoint::restore(&self.log, &found.manifest, (&path, place), &options)?;
        let db = Database::open_made(&path, &options, made)?;
        let mut reader = Applier::restored(db, (found, place), &self.log)?;
        reader.check_log(&self.log)?;
        let applied = takeover::apply_to(&self.log, found, &mut reader);
        applied.inspect_err(|error| self.note_failed_start(found, reader.expected(), error))?;
        self.progress.lock().restarts += 1;
        self.behind.store(0, Ordering::Relaxed);
        let before = self.show(&reader, path);
        *applier = Some(reader);
        self.replaced.lock().extend(before);
        self.clean();
        Ok(())
    }

    /// Shows a database from now on. The status comes later: who has seen a commit there finds it
    /// in the database.
    fn show(&self, applier: &Applier, path: PathBuf) -> Option<Current> {
        tell_role(&applier.db.inner, self.role, applier.position.lsn);
        let current = Current { db: applier.db.clone(), path: path.clone(), base: applier.base };
        let replaced = self.current.write().replace(current);
        let mut progress = self.progress.lock();
        progress.directory = path;
        let position = &applier.position;
        (progress.commit, progress.entry) = (progress.commit.max(position.lsn), position.entry);
        replaced
    }

    /// Removes the subdirectories of databases that nothing uses any more.
    fn clean(&self) {
        let is_used = |it: &Current| Arc::strong_count(&it.db.inner) > 1;
        let mut replaced = self.replaced.lock();
        let (used, unused) = std::mem::take(&mut *replaced).into_iter().partition(is_used);
        *replaced = used;
        drop(replaced);
        // The last handle closes a database, and that waits for what is read: no lock is held that
        // a reader may ask for.
        drop::<Vec<Current>>(unused);
        let (replaced, current) = (self.replaced.lock(), self.current.read());
        let kept: BTreeSet<PathBuf> =
            replaced.iter().chain(current.as_ref()).map(|it| it.path.clone()).collect();
        drop((replaced, current));
        self.places.clean(&kept);
    }

    /// Fails where a step may wait for this thread, as for what it reads in a database that was
    /// replaced: it would wait for the step.
    fn check_outside() -> Result<()> {
        operator::check_outside()?;
        if is_told() {
            return Err(refused_inside());
        }
        if !is_waited_for() {
            return Ok(());
        }
        Err(Error::invalid(
            "the follower has to start from the newest checkpoint, and a closure that a value is \
             lent to is under way on this thread; ask for its database outside of the closure",
        ))
    }

    pub(super) fn database(&self) -> Result<Database> {
        operator::check_outside()?;
        let current = || self.current.read().as_ref().map(|current| current.db.clone());
        let db = current().ok_or_else(Error::closed)?;
        if !objects_of(&db).is_some_and(ObjectTier::is_left_behind) {
            return Ok(db);
        }
        Self::check_outside()?;
        // A step starts anew too, but this reader waits for none.
        let mut applier = self.applier.lock();
        if self.is_left_behind(applier.as_ref(), 0) {
            self.start_anew(&mut applier)?;
        }
        drop(applier);
        current().ok_or_else(Error::closed)
    }

    pub(super) fn status(&self) -> NodeStatus {
        // First: the database of the commit told is then at least as new.
        let progress = self.progress.lock().clone();
        progress.status(&self.log)
    }

    /// In a forked child, where the locks of the parent's node may be held for ever.
    pub(super) fn status_in_child(&self) -> NodeStatus {
        let note = Some(Error::not_open(NotOpen::Forked).to_string());
        NodeProgress { note, ..NodeProgress::none(&self.directory) }.status(&self.log)
    }

    /// Fails where the end of it would wait for this thread. It goes on then. A promotion that has
    /// taken the database out waits for what is read there, and holds what this end needs.
    pub(super) fn check_closable(&self) -> Result<()> {
        let (replaced, current) = (self.replaced.lock(), self.current.read());
        let is_inside = |it: &Current| {
            let shared = &it.db.inner.shared;
            shared.gate.is_inside() || is_told_of(&shared.events)
        };
        check_closing(replaced.iter().chain(current.as_ref()).any(is_inside))
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

    /// Applies what is left, claims the log, and opens the database to write. The node ends,
    /// whatever comes of it: its thread has ended, and a claim may be in the log though its answer
    /// is lost.
    pub(super) fn promote(&self) -> Result<Database> {
        self.check_closable()?;
        self.halt();
        let promoted = self.try_promote();
        if let Err(error) = &promoted
            && error.kind() != ErrorKind::Closed
        {
            let note = format!("the promotion failed: {error}; open the standby again");
            self.progress.lock().note = Some(note);
        }
        let closed = self.close();
        promoted.and_then(|db| closed.map(|()| db))
    }

    fn try_promote(&self) -> Result<Database> {
        if let Some(current) = &*self.current.read() {
            current.db.inner.shared.poison.check()?;
        }
        let claiming = open_log(&self.url, &self.options, &files_of(&self.options), 0)?;
        let mut guard = self.applier.lock();
        let mut tries = 0;
        let claimed = loop {
            let applier = guard.as_mut().ok_or_else(Error::closed)?;
            // There may be another one since the last step.
            applier.forget_log();
            applier.check_log(&self.log)?;
            let is_last = tries == TRIES;
            match takeover::claim(&claiming, applier, &self.registration, is_last)? {
                Some(claimed) => break claimed,
                None if !is_last => self.restart(&mut guard)?,
                None => return Err(self.log.overtaken()),
            }
            tries += 1;
        };
        let applier = guard.take().ok_or_else(Error::closed)?;
        // The end of the node closes the current database, also if this fails.
        let path = self.current.read().as_ref().ok_or_else(Error::closed)?.path.clone();
        let options = self.places.options_of(&path);
        let db = takeover::finish(claimed, applier, &path, &options)?;
        self.registration.end();
        Ok(db)
    }

    /// Closes the database and those that were replaced, and gives the directory back.
    pub(super) fn close(&self) -> Result<()> {
        self.check_closable()?;
        // No request is made again, so that the thread ends soon.
        self.log.client.stop();
        self.halt();
        drop(self.applier.lock().take());
        // A call that holds the applier may register this node once more.
        self.registration.arrived();
        // No lock is held meanwhile: a closure that a value is lent to may ask for the status. A
        // second call waits for the same closings.
        let replaced = self.replaced.lock().clone();
        let current = self.current.read().clone();
        // What one of them could not write, the database of the moment has.
        replaced.into_iter().for_each(|it| it.db.inner.close().unwrap_or(()));
        let closed = current.map_or(Ok(()), |current| current.db.inner.close());
        drop(std::mem::take(&mut *self.replaced.lock()));
        let (lock, current) = (self.lock.lock().take(), self.current.write().take());
        // No node is opened again in the directory of one that was promoted.
        if let Some(current) = current.as_ref().filter(|_| lock.is_some()) {
            self.places.clean(&BTreeSet::from([current.path.clone()]));
        }
        drop((current, lock));
        closed
    }
}

/// The objects that a database reads.
fn objects_of(db: &Database) -> Option<&ObjectTier> {
    db.inner.set.store().objects().map(|tier| &**tier)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
