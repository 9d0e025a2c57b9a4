//! Simulated files: a file system in memory that loses, after a power cut, exactly what a real
//! one may lose.
//!
//! # The crash model
//!
//! A file is a row of 512-byte sectors and a length. A write changes what the running program
//! reads at once, and adds a *pending* state to every sector it touches; a change of length adds
//! a pending length. A sync that succeeds makes the newest states durable and forgets the rest.
//! Giving back the space of a range is a write of zeros in this.
//!
//! At a power cut each sector falls, on its own, to its durable state or to **any** of the states
//! it went through since the last sync. So does the length. What lies beyond the length that
//! survived is gone; a sector within it that never became durable reads as zeros.
//!
//! Names are durable once their directory was synced. Of the creations, renames and removals
//! since then, any subset survives in which no operation on a name survives an earlier one on the
//! same name that was lost. A rename is one operation on two names. So is a new directory durable
//! once its parent was synced; one that is lost takes along all that is in it.
//!
//! # The fault model
//!
//! Any call of any kind may fail, where a test plans it ([`Fault`]): once, or for good until the
//! machine is mended.
//!
//! 1. A call that fails did nothing, a part, or all of what it was asked for. It tells `EIO` or
//!    `ENOSPC`.
//! 2. A sync that fails drops the pending states of sectors that it did not make durable, as ext4
//!    may do. The running program goes on reading its bytes, and so does the next process after a
//!    kill. Later syncs succeed, and the bytes are on no device. The length and the names lie in
//!    the file system's own journal: they stay pending.
//! 3. The device may refuse a write after the call has succeeded. Then the pending states of the
//!    file are dropped. The kernel tells the error once: to the first sync of a handle that was
//!    open by then. A handle that is opened later hears nothing.
//! 4. After an `ENOSPC` that is there for good no file gets space, after a power cut neither.
//!    Bytes that have their space can be written.
//!
//! Reads may also give less than was asked for, or flip a bit ([`ReadFaults`]).
//!
//! Thread safety: one mutex around everything; a sync is atomic with respect to writes.

mod content;
mod explore;
mod fate;
mod faults;
mod holds;
mod lines;
mod lock;
mod machine;
mod memory;
mod names;
mod pages;
mod power;
mod reached;
mod reads;
mod seen;
#[cfg(test)]
mod tests;
mod trace;

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use content::{Content, SECTOR};
pub use explore::{Explored, Explorer, Moment, Violation};
pub use fate::{Fate, Survive};
pub use faults::{Call, CallSite, Fault, Faulty, FileKind, Outcome, Reason};
use faults::{Failure, Faults};
pub use holds::HeldCalls;
use lock::GivenBack;
pub use lock::SimLock;
pub use machine::Machine;
pub use memory::SimPm;
use names::Names;
use power::Power;
pub use reached::{Reached, RequestFault, Uplink};
pub use reads::ReadFaults;
use reads::{ReadFate, Reads};
use terrace_os::schedule;
use terrace_os::{Files, OpenHow, RawFile, Sealed};
use trace::FileChange;
pub use trace::{Site, Trace};

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, Content>,
    names: Names,
    next_file: u64,
    capacity: Option<u64>,
    /// Whether databases keep the index of level 0 in the persistent memory.
    has_index: bool,
    /// What databases are opened with.
    option: Option<Arc<dyn Any + Send + Sync>>,
    /// The object store that the machine reaches.
    reaches: Option<Arc<dyn Reached>>,
    next_handle: u64,
    /// What files are since they were renamed; handles know what they were.
    renamed: BTreeMap<u64, FileKind>,
    syncs: u64,
    /// How often anything changed.
    changes: u64,
    faults: Faults,
    /// Files with a write-back that failed and that no sync has told of, each with the number of
    /// the first handle that was opened later.
    untold: BTreeMap<u64, u64>,
    /// Which sync from now on is to lie; 1 is the next one.
    lies_at: Option<u64>,
    /// Before which sync from now on the power is cut; 1 is the next one.
    cut_at: Option<(u64, Survive)>,
    reads: Option<Reads>,
    /// What of which files cannot be read.
    bad: Vec<(PathBuf, Range<u64>)>,
    /// The file system as a planned cut left it.
    found: Option<Arc<SimFiles>>,
    given_back: GivenBack,
}

impl State {
    fn after_crash(&self, survive: Survive) -> State {
        let mut fate = Fate::new(survive);
        let names = self.names.after_crash(&mut fate);
        let files = names
            .files()
            .filter_map(|id| Some((id, self.files.get(&id)?.after_crash(&mut fate))))
            .collect();
        self.with(files, names)
    }

    /// The file system as another process finds it after this one died.
    fn after_kill(&self) -> State {
        self.with(self.files.clone(), self.names.clone())
    }

    /// The state of the machine that comes up with these files.
    fn with(&self, files: BTreeMap<u64, Content>, names: Names) -> State {
        State {
            files,
            names,
            next_file: self.next_file,
            capacity: self.capacity,
            has_index: self.has_index,
            option: self.option.clone(),
            reaches: self.reaches.as_ref().map(|store| store.after_end()),
            ..State::default()
        }
    }

    /// Counts a sync. Whether it does what it says: a test may have it lie. A planned cut falls
    /// just before the sync takes effect.
    fn begin_sync(&mut self) -> bool {
        self.syncs += 1;
        self.changes += 1;
        if let Some((after, survive)) = self.cut_at.take() {
            match after {
                1 => self.found = Some(SimFiles::over(self.after_crash(survive))),
                _ => self.cut_at = Some((after - 1, survive)),
            }
        }
        self.lies_at = self.lies_at.map(|n| n.saturating_sub(1));
        self.lies_at.take_if(|n| *n == 0).is_none()
    }

    /// Counts a call, and says how it fails, if it does.
    fn begin_call(&mut self, call: Call, file: FileKind) -> Option<Failure> {
        let failure = self.faults.next(CallSite { call, file })?;
        self.changes += 1;
        if failure.fills_up {
            self.capacity = Some(0);
        }
        Some(failure)
    }

    /// Fails if there is no space for so many bytes more.
    fn check_capacity(&self, more: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity else { return Ok(()) };
        let taken: u64 = self.files.values().map(Content::taken).sum();
        if more > 0 && taken + more > capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn content(&self, file: u64) -> io::Result<&Content> {
        self.files.get(&file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn content_mut(&mut self, file: u64) -> io::Result<&mut Content> {
        self.changes += 1;
        self.files.get_mut(&file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A file system in memory.
#[derive(Debug)]
pub struct SimFiles {
    state: Arc<Mutex<State>>,
    power: Arc<Power>,
}

impl SimFiles {
    /// An empty file system.
    pub fn new() -> Arc<SimFiles> {
        SimFiles::over(State::default())
    }

    fn over(state: State) -> Arc<SimFiles> {
        let reaches = state.reaches.clone();
        let files = SimFiles { state: Arc::new(Mutex::new(state)), power: Arc::default() };
        reaches.into_iter().for_each(|store| store.attach(Uplink::of(&files)));
        Arc::new(files)
    }

    /// The file system as found after a power cut now. This one keeps running, for the handles
    /// that still have it open.
    pub fn crash(&self, survive: Survive) -> Arc<SimFiles> {
        self.cut(survive)
    }

    /// What a power cut leaves of it.
    fn cut(&self, survive: Survive) -> Arc<SimFiles> {
        SimFiles::over(self.state.lock().after_crash(survive))
    }

    /// The same file system once more, pending states and all.
    fn copy(&self) -> Arc<SimFiles> {
        SimFiles::over(self.state.lock().after_kill())
    }

    /// A hash of every name and byte of files under a path; under `/`, of the object store too.
    fn digest(&self, under: &Path) -> u128 {
        let state = self.state.lock();
        let of_file = |id: u64| {
            let name = state.names.of(id).filter(|name| name.starts_with(under))?;
            let named = name
                .as_os_str()
                .as_encoded_bytes()
                .iter()
                .fold(7u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte));
            Some(state.files.get(&id)?.digest(named))
        };
        let files = state.names.files().filter_map(of_file).fold(0, u128::wrapping_add);
        let store = state.reaches.as_ref().filter(|_| under == Path::new("/"));
        store.map_or(files, |store| files.wrapping_add(store.digest()))
    }

    /// How often anything has changed so far.
    fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    fn names_mut<T>(&self, change: impl FnOnce(&mut Names) -> T) -> T {
        let mut state = self.state.lock();
        state.changes += 1;
        change(&mut state.names)
    }

    /// Plans a power cut just before the `n`-th sync from now takes effect; what is found after
    /// it is then given by [`found`](SimFiles::found).
    pub fn cut_before_sync(&self, n: u64, survive: Survive) {
        debug_assert!(n > 0, "the next sync is number 1");
        self.state.lock().cut_at = Some((n, survive));
    }

    /// What the planned cut left, once it has come.
    pub fn found(&self) -> Option<Arc<SimFiles>> {
        self.state.lock().found.take()
    }

    /// Plans a failure.
    pub fn fail(&self, fault: Fault) {
        self.state.lock().faults.plan(fault);
    }

    /// Makes bytes of a file unreadable.
    pub fn make_unreadable(&self, path: &Path, place: Range<u64>) {
        self.state.lock().bad.push((path.to_path_buf(), place));
    }

    /// Makes the `n`-th write from now fail, once; of its bytes those in the sectors before its
    /// middle arrive.
    pub fn fail_write_after(&self, n: u64) {
        let fault = Fault::once(Faulty::AnyWrite, n);
        self.fail(Fault { outcome: Outcome::Partial, ..fault });
    }

    /// Makes the `n`-th sync from now fail, once, and drop what it should have made durable.
    pub fn fail_sync_after(&self, n: u64) {
        self.fail(Fault::once(Faulty::AnySync, n));
    }

    /// Counts a call, and says how it fails, if it does.
    fn begin_call(&self, call: Call, file: FileKind) -> Option<Failure> {
        let failure = self.state.lock().begin_call(call, file)?;
        self.power.note_failure();
        Some(failure)
    }

    /// A planted bug: the `n`-th sync from now succeeds and makes nothing durable.
    pub fn lose_sync(&self, n: u64) {
        self.state.lock().lies_at = Some(n);
    }

    /// Lets reads of files go wrong from now on, or no more; how many did so far.
    pub fn fault_reads(&self, faults: Option<ReadFaults>) -> u64 {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.reads, faults.map(Reads::new));
        before.map_or(0, |reads| reads.struck)
    }

    /// Bounds the sum of all files' lengths; growth beyond it fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// How many syncs were called for, of files and directories.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Makes names in a directory durable, whatever failed before.
    pub fn sync_directory(&self, path: &Path) -> io::Result<()> {
        terrace_os::Directory::at(path).sync(self)
    }
}

impl Files for SimFiles {
    fn open_raw(&self, path: &Path, how: OpenHow, _: Sealed) -> io::Result<Box<dyn RawFile>> {
        if how == OpenHow::CreateNew {
            self.power.before_change(|| Site::of_file(FileChange::Create, path));
        }
        let file = FileKind::of_file(path);
        let call = if how == OpenHow::CreateNew { Call::Create } else { Call::Open };
        let is_there = self.state.lock().names.get(path).is_some();
        let failure = match is_there == (how == OpenHow::CreateNew) {
            true => None,
            false => self.begin_call(call, file),
        };
        if !Failure::lets_pass(failure) {
            Failure::end(failure)?;
        }
        let mut state = self.state.lock();
        let id = match (state.names.get(path), how) {
            (Some(_), OpenHow::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(id), _) => id,
            (None, OpenHow::CreateNew) => {
                let id = state.next_file;
                state.next_file += 1;
                state.files.insert(id, Content::default());
                state.names.create(path, id);
                state.changes += 1;
                state.given_back.note(path);
                id
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Failure::end(failure)?;
        let (writable, handle) = (how != OpenHow::Read, state.next_handle);
        state.next_handle += 1;
        let locked = state.given_back.of(path);
        drop(state);
        let (state, power) = (Arc::clone(&self.state), Arc::clone(&self.power));
        let path = path.to_path_buf();
        Ok(Box::new(SimFile { state, power, id, handle, file, writable, path, locked }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.power.before_change(|| Site::of_file(FileChange::Rename, to));
        let failure = self.begin_call(Call::Rename, FileKind::of_file(to));
        if Failure::lets_pass(failure) {
            self.names_mut(|names| names.rename(from, to))?;
            let mut state = self.state.lock();
            state.given_back.note(to);
            if let Some(id) = state.names.get(to) {
                state.renamed.insert(id, FileKind::of_file(to));
            }
        }
        Failure::end(failure)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.power.before_change(|| Site::of_file(FileChange::Remove, path));
        let failure = self.begin_call(Call::Remove, FileKind::of_file(path));
        if Failure::lets_pass(failure) {
            self.names_mut(|names| names.remove(path))?;
            self.state.lock().given_back.note(path);
        }
        Failure::end(failure)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        Failure::end(self.begin_call(Call::List, FileKind::of_directory(directory)))?;
        let state = self.state.lock();
        match state.names.has_directory(directory) {
            true => Ok(state.names.list(directory)),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn directories(&self, directory: &Path) -> io::Result<Vec<String>> {
        Failure::end(self.begin_call(Call::List, FileKind::of_directory(directory)))?;
        Ok(self.state.lock().names.directories(directory))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.power.before_change(|| Site::of_file(FileChange::Remove, path));
        self.names_mut(|names| names.remove_directory(path))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let failure = self.begin_call(Call::CreateDirectory, FileKind::of_directory(path));
        if Failure::lets_pass(failure) {
            self.names_mut(|names| names.create_directory(path));
        }
        Failure::end(failure)
    }

    fn sync_names(&self, path: &Path, _: Sealed) -> io::Result<()> {
        self.power.before_change(|| Site::of_file(FileChange::SyncDirectory, path));
        self.power.before_step();
        let failure = self.begin_call(Call::SyncDirectory, FileKind::of_directory(path));
        let mut state = self.state.lock();
        if state.begin_sync() && Failure::lets_pass(failure) {
            state.names.sync(path);
        }
        Failure::end(failure)
    }
}

#[derive(Debug)]
struct SimFile {
    state: Arc<Mutex<State>>,
    power: Arc<Power>,
    id: u64,
    /// Handles have ascending numbers.
    handle: u64,
    /// What the file was when it was opened.
    file: FileKind,
    writable: bool,
    /// Its name when it was opened.
    path: PathBuf,
    /// How often the lock of its directory had been given back by then.
    locked: u64,
}

impl SimFile {
    fn before(&self, change: FileChange) {
        self.power.before_change(|| {
            let state = self.state.lock();
            Site::of_file(change, state.names.of(self.id).unwrap_or(Path::new("")))
        });
    }

    /// Counts a call, and says how it fails, if it does.
    fn begin_call(&self, call: Call) -> Option<Failure> {
        let mut state = self.state.lock();
        let file = state.renamed.get(&self.id).copied().unwrap_or(self.file);
        let failure = state.begin_call(call, file)?;
        drop(state);
        self.power.note_failure();
        Some(failure)
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.writable {
            true => Ok(()),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl RawFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        schedule::point(schedule::PointKind::File);
        self.power.holds.pass(Call::Read, &self.path);
        Failure::end(self.begin_call(Call::Read))?;
        let mut state = self.state.lock();
        let end = offset + buffer.len() as u64;
        let is_in = |bad: &Range<u64>| offset < bad.end && bad.start < end;
        if state.bad.iter().any(|(path, bad)| *path == self.path && is_in(bad)) {
            return Err(io::Error::other("simulated bad sector"));
        }
        let n = state.content(self.id)?.read(buffer, offset);
        match state.reads.as_mut().map_or(ReadFate::Works, Reads::next) {
            ReadFate::Works => Ok(n),
            ReadFate::Fails => Err(io::Error::other("simulated I/O error in a read")),
            ReadFate::Short => Ok(n.div_ceil(2)),
            ReadFate::Flips(at) => {
                if n > 0 {
                    buffer[at % n] ^= 1 << (at % 7);
                }
                Ok(n)
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.power.holds.pass(Call::Write, &self.path);
        self.check_writable()?;
        self.before(FileChange::Write);
        let failure = self.begin_change(Call::Write)?;
        let mut state = self.state.lock();
        let (from, to) = (offset, offset + bytes.len() as u64);
        state.check_capacity(state.content(self.id)?.lacking(from, to))?;
        let middle = (offset + bytes.len() as u64 / 2) / SECTOR * SECTOR;
        let arrive = match failure.map(|failure| failure.outcome) {
            Some(Outcome::Undone) => 0,
            Some(Outcome::Partial) => middle.saturating_sub(offset) as usize,
            _ => bytes.len(),
        };
        if arrive > 0 {
            state.content_mut(self.id)?.write(&bytes[..arrive], offset);
        }
        if failure.is_some_and(|failure| failure.outcome == Outcome::LateWriteBack) {
            state.content_mut(self.id)?.drop_pending();
            let later = state.next_handle;
            state.untold.insert(self.id, later);
            return Ok(());
        }
        Failure::end(failure)
    }

    fn sync(&self) -> io::Result<()> {
        let path = self.state.lock().names.of(self.id).map(Path::to_path_buf);
        self.power.holds.pass(Call::Sync, &path.unwrap_or_default());
        self.before(FileChange::Sync);
        self.power.before_step();
        let failure = self.begin_call(Call::Sync);
        let mut state = self.state.lock();
        let is_true = state.begin_sync();
        let mut fate = Fate::new(Survive::Seeded(state.changes));
        let content = state.content_mut(self.id)?;
        match failure.map(|failure| failure.outcome) {
            None | Some(Outcome::Done) if is_true => content.sync(),
            None | Some(Outcome::Done) => {}
            Some(Outcome::Partial) => content.sync_some(&mut fate),
            Some(_) => content.drop_pending(),
        }
        let handle = self.handle;
        let is_told = state.untold.get(&self.id).is_some_and(|later| handle < *later);
        if is_told {
            state.untold.remove(&self.id);
        }
        match (failure, is_told) {
            (None, true) => Err(io::Error::other("simulated I/O error: an earlier write-back")),
            (failure, _) => Failure::end(failure),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.before(FileChange::Resize);
        let failure = self.begin_change(Call::Resize)?;
        if Failure::lets_pass(failure) {
            let mut state = self.state.lock();
            let more = len.saturating_sub(state.content(self.id)?.len());
            state.check_capacity(more)?;
            state.content_mut(self.id)?.set_len(len);
        }
        Failure::end(failure)
    }

    fn preallocate(&self, from: u64, to: u64) -> io::Result<()> {
        self.check_writable()?;
        self.before(FileChange::Preallocate);
        let failure = self.begin_change(Call::Preallocate)?;
        let to = match failure.map(|failure| failure.outcome) {
            None | Some(Outcome::Done) => to,
            Some(Outcome::Partial) => from + (to - from) / 2 / SECTOR * SECTOR,
            Some(_) => from,
        };
        let mut state = self.state.lock();
        state.check_capacity(state.content(self.id)?.lacking(from, to))?;
        let content = state.content_mut(self.id)?;
        content.fill_holes(from, to);
        content.set_len(to.max(content.len()));
        Failure::end(failure)
    }

    fn punch(&self, from: u64, len: u64) -> io::Result<bool> {
        self.check_writable()?;
        self.before(FileChange::Punch);
        let failure = self.begin_change(Call::Punch)?;
        if Failure::lets_pass(failure) {
            self.state.lock().content_mut(self.id)?.punch(from, from + len);
        }
        Failure::end(failure)?;
        Ok(true)
    }

    fn will_need(&self, _offset: u64, _len: u64) {}

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().content(self.id)?.len())
    }
}
