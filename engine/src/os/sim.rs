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
//! it went through since the last sync, and so does the length. What lies beyond the length that
//! survived is gone; a sector within it that never became durable reads as zeros.
//!
//! Names are durable once their directory was synced. Of the creations, renames and removals
//! since then, any subset survives in which no operation on a name survives an earlier one on the
//! same name that was lost. A rename is one operation on two names. Directories themselves are
//! durable when made.
//!
//! Reads may fail, give less than was asked for, or flip a bit, where a test asks for it
//! ([`ReadFaults`]).
//!
//! A sync that fails drops the pending states, as ext4 may do: the running program goes on
//! reading its bytes, later syncs succeed, and the bytes are on no device.
//!
//! Thread safety: one mutex around everything; a sync is atomic with respect to writes.

mod content;
mod explore;
mod holds;
mod lines;
mod machine;
mod memory;
mod names;
mod pages;
mod power;
mod reads;
mod seen;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{Files, OpenHow, RawFile, Sealed};
use content::{Content, SECTOR};
pub use explore::{Explored, Explorer, Moment, Violation};
pub use holds::HeldSyncs;
pub use machine::Machine;
pub(crate) use memory::SimPm;
use names::Names;
use power::Power;
pub use reads::ReadFaults;
use reads::{ReadFate, Reads};
use trace::FileChange;
pub use trace::{Site, Trace};

/// What survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survive {
    /// Only what was synced.
    Nothing,
    /// Everything that was written.
    Everything,
    /// A pseudo-random choice that depends on nothing but this seed and the operations so far.
    Seeded(u64),
}

/// Chooses for [`Survive`]; splitmix64 under the seeded one.
#[derive(Debug)]
pub(crate) enum Fate {
    Nothing,
    Everything,
    Random(u64),
}

impl Fate {
    pub(crate) fn new(survive: Survive) -> Fate {
        match survive {
            Survive::Nothing => Fate::Nothing,
            Survive::Everything => Fate::Everything,
            Survive::Seeded(seed) => Fate::Random(seed),
        }
    }

    /// Which of `states` states survives: 0 is the durable one, the last the newest.
    pub(crate) fn choose(&mut self, states: usize) -> usize {
        debug_assert!(states > 0, "the durable state is always there");
        match self {
            Fate::Nothing => 0,
            Fate::Everything => states - 1,
            Fate::Random(state) => {
                *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                ((z ^ (z >> 31)) % states as u64) as usize
            }
        }
    }
}

/// A planned misfortune of the n-th sync or write from now; 1 is the next one.
#[derive(Debug, Default)]
struct Faults {
    fail: Option<u64>,
    fail_write: Option<u64>,
    lose: Option<u64>,
    cut: Option<(u64, Survive)>,
}

/// What becomes of one sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncFate {
    Works,
    Fails,
    Lies,
}

/// Counts a fault down; whether it strikes now.
fn strikes(after: &mut Option<u64>) -> bool {
    *after = after.map(|n| n.saturating_sub(1));
    after.take_if(|n| *n == 0).is_some()
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, Content>,
    names: Names,
    directories: BTreeSet<PathBuf>,
    next_file: u64,
    capacity: Option<u64>,
    /// Whether databases keep the index of level 0 in the persistent memory.
    has_index: bool,
    syncs: u64,
    /// How often anything changed.
    changes: u64,
    faults: Faults,
    reads: Option<Reads>,
    /// The file system as a planned cut left it.
    found: Option<Arc<SimFiles>>,
}

impl State {
    fn after_crash(&self, survive: Survive) -> State {
        let mut fate = Fate::new(survive);
        let names = self.names.after_crash(&mut fate);
        let files = names
            .files()
            .filter_map(|id| Some((id, self.files.get(&id)?.after_crash(&mut fate))))
            .collect();
        State {
            files,
            names,
            directories: self.directories.clone(),
            next_file: self.next_file,
            capacity: self.capacity,
            has_index: self.has_index,
            ..State::default()
        }
    }

    /// The file system as another process finds it after this one died.
    fn after_kill(&self) -> State {
        State {
            files: self.files.clone(),
            names: self.names.clone(),
            directories: self.directories.clone(),
            next_file: self.next_file,
            capacity: self.capacity,
            has_index: self.has_index,
            ..State::default()
        }
    }

    /// Counts a sync and says what becomes of it. A planned cut falls just before the sync takes
    /// effect.
    fn begin_sync(&mut self) -> SyncFate {
        self.syncs += 1;
        self.changes += 1;
        if let Some((after, survive)) = self.faults.cut.take() {
            match after {
                1 => self.found = Some(SimFiles::over(self.after_crash(survive))),
                _ => self.faults.cut = Some((after - 1, survive)),
            }
        }
        let fails = strikes(&mut self.faults.fail);
        let lies = strikes(&mut self.faults.lose);
        match (fails, lies) {
            (true, _) => SyncFate::Fails,
            (false, true) => SyncFate::Lies,
            (false, false) => SyncFate::Works,
        }
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
pub(crate) struct SimFiles {
    state: Arc<Mutex<State>>,
    power: Arc<Power>,
}

impl SimFiles {
    /// An empty file system.
    pub(crate) fn new() -> Arc<SimFiles> {
        SimFiles::over(State::default())
    }

    fn over(state: State) -> Arc<SimFiles> {
        Arc::new(SimFiles { state: Arc::new(Mutex::new(state)), power: Arc::default() })
    }

    /// The file system as found after a power cut now. This one keeps running, for whoever still
    /// has it open.
    #[cfg(test)]
    pub(crate) fn crash(&self, survive: Survive) -> Arc<SimFiles> {
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

    /// A hash of every name and byte of files under a path.
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
        state.names.files().filter_map(of_file).fold(0, u128::wrapping_add)
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
    #[cfg(test)]
    pub(crate) fn cut_before_sync(&self, n: u64, survive: Survive) {
        debug_assert!(n > 0, "the next sync is number 1");
        self.state.lock().faults.cut = Some((n, survive));
    }

    /// What the planned cut left, once it has come.
    #[cfg(test)]
    pub(crate) fn found(&self) -> Option<Arc<SimFiles>> {
        self.state.lock().found.take()
    }

    /// Makes the `n`-th sync from now fail, once, and drop what it should have made durable.
    pub(crate) fn fail_sync_after(&self, n: u64) {
        self.state.lock().faults.fail = Some(n);
    }

    /// Makes the `n`-th write from now fail, once; of its bytes those in the
    /// sectors before its middle arrive.
    pub(crate) fn fail_write_after(&self, n: u64) {
        self.state.lock().faults.fail_write = Some(n);
    }

    /// Whether the write that is to fail is still to come.
    pub(crate) fn write_will_fail(&self) -> bool {
        self.state.lock().faults.fail_write.is_some()
    }

    /// A planted bug: the `n`-th sync from now succeeds and makes nothing durable.
    #[cfg(test)]
    pub(crate) fn lose_sync(&self, n: u64) {
        self.state.lock().faults.lose = Some(n);
    }

    /// Lets reads of files go wrong from now on, or no more; how many did so far.
    pub(crate) fn fault_reads(&self, faults: Option<ReadFaults>) -> u64 {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.reads, faults.map(Reads::new));
        before.map_or(0, |reads| reads.struck)
    }

    /// Bounds the sum of all files' lengths; growth beyond it fails with `StorageFull`.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// How many syncs were called for, of files and directories.
    pub(crate) fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Flips the bits of `xor` in one byte, behind everybody's back. Nothing happens to a file or
    /// a byte that is not there.
    pub(crate) fn corrupt(&self, path: &Path, offset: u64, xor: u8) {
        let mut state = self.state.lock();
        if let Some(id) = state.names.get(path)
            && let Some(content) = state.files.get_mut(&id)
        {
            content.corrupt(offset, xor);
        }
    }
}

#[cfg(test)]
impl SimFiles {
    /// Makes names in a directory durable, whatever failed before.
    pub(crate) fn sync_directory(&self, path: &Path) -> io::Result<()> {
        super::Directory::at(path).sync(self)
    }
}

impl Files for SimFiles {
    fn open_raw(&self, path: &Path, how: OpenHow, _: Sealed) -> io::Result<Box<dyn RawFile>> {
        if how == OpenHow::CreateNew {
            self.power.before_change(|| Site::of_file(FileChange::Create, path));
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
                id
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let writable = how != OpenHow::Read;
        let (state, power) = (Arc::clone(&self.state), Arc::clone(&self.power));
        Ok(Box::new(SimFile { state, power, id, writable }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.power.before_change(|| Site::of_file(FileChange::Rename, to));
        self.names_mut(|names| names.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.power.before_change(|| Site::of_file(FileChange::Remove, path));
        self.names_mut(|names| names.remove(path))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        if !state.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(state.names.list(directory))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.directories.extend(path.ancestors().map(Path::to_path_buf));
        state.changes += 1;
        Ok(())
    }

    fn sync_names(&self, path: &Path, _: Sealed) -> io::Result<()> {
        self.power.before_change(|| Site::of_file(FileChange::SyncDirectory, path));
        self.power.before_step();
        let mut state = self.state.lock();
        match state.begin_sync() {
            SyncFate::Works => state.names.sync(path),
            SyncFate::Lies => {}
            SyncFate::Fails => return Err(io::Error::other("simulated I/O error in a sync")),
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SimFile {
    state: Arc<Mutex<State>>,
    power: Arc<Power>,
    id: u64,
    writable: bool,
}

impl SimFile {
    fn before(&self, change: FileChange) {
        self.power.before_change(|| {
            let state = self.state.lock();
            Site::of_file(change, state.names.of(self.id).unwrap_or(Path::new("")))
        });
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl RawFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state.lock();
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
        self.check_writable()?;
        self.before(FileChange::Write);
        let mut state = self.state.lock();
        let (from, to) = (offset, offset + bytes.len() as u64);
        state.check_capacity(state.content(self.id)?.lacking(from, to))?;
        let fails = strikes(&mut state.faults.fail_write);
        let middle = (offset + bytes.len() as u64 / 2) / SECTOR * SECTOR;
        let arrive = if fails { middle.saturating_sub(offset) as usize } else { bytes.len() };
        state.content_mut(self.id)?.write(&bytes[..arrive], offset);
        if fails { Err(io::Error::other("simulated I/O error in a write")) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let path = self.state.lock().names.of(self.id).map(Path::to_path_buf);
        self.power.holds.pass(&path.unwrap_or_default());
        self.before(FileChange::Sync);
        self.power.before_step();
        let mut state = self.state.lock();
        let fate = state.begin_sync();
        let content = state.content_mut(self.id)?;
        match fate {
            SyncFate::Works => content.sync(),
            SyncFate::Lies => {}
            SyncFate::Fails => {
                content.drop_pending();
                return Err(io::Error::other("simulated I/O error in a sync"));
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.before(FileChange::Resize);
        let mut state = self.state.lock();
        let more = len.saturating_sub(state.content(self.id)?.len());
        state.check_capacity(more)?;
        state.content_mut(self.id)?.set_len(len);
        Ok(())
    }

    fn preallocate(&self, from: u64, to: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.state.lock();
        state.check_capacity(state.content(self.id)?.lacking(from, to))?;
        state.content_mut(self.id)?.fill_holes(from, to);
        drop(state);
        if to > self.len()? { self.set_len(to) } else { Ok(()) }
    }

    fn punch(&self, from: u64, len: u64) -> io::Result<bool> {
        self.check_writable()?;
        self.before(FileChange::Punch);
        self.state.lock().content_mut(self.id)?.punch(from, from + len);
        Ok(true)
    }

    fn will_need(&self, _offset: u64, _len: u64) {}

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().content(self.id)?.len())
    }
}
