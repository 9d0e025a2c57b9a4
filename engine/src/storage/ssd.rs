//! Extents in preallocated files.
//!
//! A caller reserves space, writes into it, syncs, and then names the place in a journal edit.
//! Which parts are taken follows from the journal alone; the store keeps no durable map. Jobs that
//! write several extents are reserved the space for all of them first ([`reservation`]), and what
//! is free goes back to the file system ([`give_back`]).
//!
//! Thread safety: every method may be called from any thread. Reads and writes take a shared lock
//! only to find their file; `allocation` is held while a file grows; `syncing` during a sync. No
//! lock is taken under another one except `handles` under `allocation` or `syncing`, and that of
//! the readers beside this process under `allocation`, in the first openings after theirs.
//!
//! Invariants:
//!
//! 1. One writer or one extent holds a unit, or the unit has no holder; then it is of one
//!    kind ([`allocation`]), and only a free one is ever taken.
//! 2. When [`sync`](ExtentStore::sync) returns, every write that returned before the call is
//!    durable, from any thread, with its file's name and length. Hence syncs are serialised: a
//!    second caller that finds nothing left to do must not overtake the first one's sync.
//! 3. After one failed sync every later sync fails: the file that failed stays dirty, and its
//!    handle refuses. So a job whose extents lie in the same file never takes them for durable.
//! 4. What is reserved is free: as many units at least, but for those that a full file system
//!    refused to a caller without a reservation.
//! 5. The file of the greatest number is never removed, so no number is used again.
//! 6. As long as a reader from before the opening is there, found units stay as they are: what the
//!    reader shows may have been removed before the opening, and the journal does not say where it
//!    lies.

mod allocation;
mod behind;
mod give_back;
mod growth;
mod held;
mod objects;
mod reservation;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::location::{Location, SpaceUse, UNIT};
use super::object::ObjectTier;
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::operations::{self, note};
use crate::base::options::Failpoint;
use crate::mvcc::about_to_wait;
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::locks::{Mutex, RwLock};
use crate::os::sync::shared::OnceLock;
use crate::os::{BesideReader, Directory, File, Files, Gate, OpenHow, Readers, reads_device};

use allocation::{Allocation, FileSpace};
use behind::Behind;

pub(crate) use behind::Reading;
pub(crate) use held::{EXTENT_BYTES, Held};
pub(crate) use reservation::SpaceReservation;

/// A read of at most so many bytes is one of a block, or of a few.
const BLOCK_READ: u32 = 64 * 1024;

#[derive(Debug)]
struct ExtentFile {
    handle: Arc<File>,
    /// Reads single blocks through the operating system's cache, where they are to be.
    blocks: OnceLock<Arc<File>>,
    /// Written since its last sync that succeeded.
    dirty: AtomicBool,
}

/// The extent files of one database.
#[derive(Debug)]
pub(crate) struct ExtentStore {
    files: Arc<dyn Files>,
    /// Each write of an extent is inside.
    gate: Arc<Gate>,
    directory: Directory,
    /// Readers beside this process, if it writes.
    readers: Arc<Readers>,
    read_only: bool,
    handles: RwLock<BTreeMap<u32, Arc<ExtentFile>>>,
    allocation: Mutex<Allocation>,
    syncing: Mutex<()>,
    /// A file was created since the directory was last synced.
    new_names: AtomicBool,
    bytes_written: AtomicU64,
    bytes_read: AtomicU64,
    reads: AtomicU64,
    /// What is held in memory of its extents.
    held: Held,
    /// Files are to be read and written past the operating system's cache.
    wants_direct: AtomicBool,
    /// From more bytes of files on, they are.
    direct_beyond: AtomicU64,
    /// Single blocks are to be read through that cache.
    caches_blocks: AtomicBool,
    /// What jobs are about to come to is read meanwhile.
    reads_behind: AtomicBool,
    behind: Behind,
    syncs: AtomicU64,
    /// What the read frequency of extents is measured by.
    read_clock: AtomicU64,
    /// Bytes given back to the file system.
    returned: AtomicU64,
    /// Units that the reserve has at least.
    least_reserve: AtomicU64,
    /// The extents that are objects, where the opening has an object store.
    objects: OnceLock<Arc<ObjectTier>>,
    /// A bug that a test has planted.
    #[cfg(any(test, feature = "testing"))]
    failpoint: OnceLock<Failpoint>,
}

impl ExtentStore {
    /// Plants a bug.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn plant(&self, bug: Option<Failpoint>) {
        bug.map(|bug| self.failpoint.get_or_init(|| bug));
    }

    /// Whether a test has planted the bug.
    #[cfg(any(test, feature = "testing"))]
    fn has(&self, bug: Failpoint) -> bool {
        self.failpoint.get() == Some(&bug)
    }

    /// Nothing can plant one.
    #[cfg(not(any(test, feature = "testing")))]
    const fn has(&self, _bug: Failpoint) -> bool {
        false
    }

    /// Opens the extent files of `directory`; free is what is not in `taken`.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a taken place overlaps another or lies outside the files; or on an I/O error.
    pub(crate) fn open(
        files: Arc<dyn Files>,
        directory: &Path,
        taken: &[Location],
        read_only: bool,
    ) -> Result<Arc<ExtentStore>> {
        let store = ExtentStore::without_files(files, directory, read_only);
        let names = store.files.list(directory).map_err(|e| Error::io("list", directory, e))?;
        for number in names.iter().filter_map(|name| file_number(name)) {
            store.open_file(number)?;
            // The process that made the file may have died before its name was durable.
            store.new_names.store(!read_only, Ordering::Release);
        }
        for at in taken.iter().filter(|at| !at.is_object()) {
            store.take(at)?;
        }
        if !read_only {
            let there = store.readers.list(0);
            let there = there.map_err(|e| Error::io("look for readers in", directory, e))?;
            store.allocation.lock().shown_to = there.into_iter().map(|it| it.id).collect();
        }
        Ok(Arc::new(store))
    }

    /// The files of the directory that it is in.
    pub(crate) fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    fn without_files(files: Arc<dyn Files>, directory: &Path, read_only: bool) -> ExtentStore {
        ExtentStore {
            readers: Arc::new(Readers::new(Arc::clone(&files), directory)),
            files,
            gate: Arc::default(),
            directory: Directory::at(directory),
            read_only,
            handles: RwLock::default(),
            allocation: Mutex::default(),
            syncing: Mutex::default(),
            new_names: AtomicBool::new(false),
            bytes_written: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            held: Held::default(),
            wants_direct: AtomicBool::new(false),
            direct_beyond: AtomicU64::new(u64::MAX),
            caches_blocks: AtomicBool::new(false),
            reads_behind: AtomicBool::new(false),
            behind: Behind::default(),
            syncs: AtomicU64::new(0),
            read_clock: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            least_reserve: AtomicU64::new(0),
            objects: OnceLock::new(),
            #[cfg(any(test, feature = "testing"))]
            failpoint: OnceLock::new(),
        }
    }

    fn open_file(&self, number: u32) -> Result<()> {
        let path = self.path(number);
        let how = if self.read_only { OpenHow::Read } else { OpenHow::Write };
        let handle = self.files.open(&path, how).map_err(|e| Error::io("open", &path, e))?;
        let len = handle.len().map_err(|e| Error::io("measure", &path, e))?;
        self.allocation.lock().files.insert(number, FileSpace::found(len / UNIT));
        let file = self.extent_file(number, handle);
        self.handles.write().insert(number, Arc::new(file));
        Ok(())
    }

    /// Has files be read and written past the operating system's cache as soon as they are larger
    /// than `bytes` together, and from then on; those that are still to be made too, as far as the
    /// file system can. Smaller ones stay in that cache, so a block that a job has just written is
    /// read without the device.
    pub(crate) fn use_direct_io_beyond(&self, bytes: u64) {
        self.direct_beyond.store(bytes, Ordering::Relaxed);
        let held = self.allocation.lock().file_bytes();
        self.choose_way(held);
    }

    /// Turns direct access on for good where files have so many bytes that it pays.
    fn choose_way(&self, file_bytes: u64) {
        let is_large = file_bytes > self.direct_beyond.load(Ordering::Relaxed);
        if !is_large || self.wants_direct.swap(true, Ordering::Relaxed) {
            return;
        }
        for file in self.handles.read().values() {
            file.handle.set_direct(true);
        }
    }

    /// Has reads of single blocks go through the operating system's cache, however others go. A
    /// file that the process may not open a second time keeps its one way.
    pub(crate) fn cache_blocks_in_system(&self) {
        self.caches_blocks.store(true, Ordering::Relaxed);
        for (number, file) in &*self.handles.read() {
            self.open_for_blocks(*number, file);
        }
    }

    fn extent_file(&self, number: u32, handle: Arc<File>) -> ExtentFile {
        let file = ExtentFile { handle, blocks: OnceLock::new(), dirty: AtomicBool::new(false) };
        if self.caches_blocks.load(Ordering::Relaxed) {
            self.open_for_blocks(number, &file);
        }
        file
    }

    /// Opens a file once more, for blocks, if the process may. It is only read, so the rule of one
    /// handle that writes holds. Without it blocks are read past the system's cache.
    fn open_for_blocks(&self, number: u32, file: &ExtentFile) {
        if let Ok(handle) = self.files.open(&self.path(number), OpenHow::Read) {
            handle.expect_random_reads();
            file.blocks.get_or_init(|| handle);
        }
    }

    /// Whether they are, all of them.
    pub(crate) fn is_direct(&self) -> bool {
        let handles = self.handles.read();
        !handles.is_empty() && handles.values().all(|file| file.handle.is_direct())
    }

    fn take(&self, at: &Location) -> Result<()> {
        let mut allocation = self.allocation.lock();
        let file = allocation.files.get_mut(&at.file);
        let file_units = file.as_ref().map(|file| file.units);
        let taken =
            file.zip(at.units()).is_some_and(|(file, (start, len))| file.found.take(start, len));
        if !taken {
            let got = match file_units {
                None => "no such file".to_string(),
                Some(units) => {
                    format!("a taken place, or one past the {} bytes there are", units * UNIT)
                }
            };
            let expected = format!("free space for {} bytes", at.len);
            return Err(self.corrupt(at, 0, expected, got));
        }
        allocation.taken_units += at.units().map_or(0, |(_, len)| len);
        Ok(())
    }

    /// Makes every write so far durable (invariant 2).
    ///
    /// # Errors
    ///
    /// `Unavailable`: what was written may never become durable, so the caller poisons the
    /// database.
    pub(crate) fn sync(&self) -> Result<()> {
        about_to_wait();
        let _inside = self.gate.enter_step().map_err(Error::not_open)?;
        let _serialised = self.syncing.lock();
        let files: Vec<_> = self.handles.read().iter().map(|(n, f)| (*n, Arc::clone(f))).collect();
        for (number, file) in files {
            if file.dirty.swap(false, Ordering::AcqRel) {
                self.syncs.fetch_add(1, Ordering::Relaxed);
                file.handle.sync().map_err(|e| {
                    // What it has is not durable, and the next sync must not pass it over.
                    file.dirty.store(true, Ordering::Release);
                    Error::io("sync", &self.path(number), e)
                })?;
            }
        }
        if self.new_names.swap(false, Ordering::AcqRel) {
            self.sync_names().inspect_err(|_| self.new_names.store(true, Ordering::Release))?;
        }
        Ok(())
    }

    /// The gate of the database that the files are of.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Readers beside this process.
    pub(crate) fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// The readers beside this process, if it writes. The journal has the edit `journaled`.
    pub(crate) fn readers_beside(&self, journaled: u64) -> io::Result<Vec<BesideReader>> {
        if self.read_only { Ok(Vec::new()) } else { self.readers.list(journaled) }
    }

    /// Whether found ranges may be used: no reader is left that may show what lies there. Where
    /// that cannot be said they may not, and the background tells.
    fn may_use_found(&self, allocation: &mut Allocation) -> bool {
        if !allocation.shown_to.is_empty() {
            let Ok(there) = self.readers.list(0) else { return false };
            allocation.shown_to.retain(|id| there.iter().any(|reader| reader.id == *id));
        }
        allocation.shown_to.is_empty()
    }

    /// The directory that the files are in.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    ///
    /// As [`Directory::sync`].
    pub(crate) fn sync_names(&self) -> Result<()> {
        let synced = self.directory.sync(&*self.files);
        synced.map_err(|e| Error::io("sync", self.directory.path(), e))
    }

    /// Reads `len` bytes from `offset` of an extent.
    ///
    /// # Errors
    ///
    /// `Corrupt` when the file or the extent ends before them; `Closed` once the database is
    /// closed.
    pub(crate) fn read(&self, at: &Location, offset: u32, len: u32) -> Result<Vec<u8>> {
        if u64::from(offset) + u64::from(len) > u64::from(at.len) {
            let got = format!("only {} in all", at.len);
            return Err(self.corrupt(at, offset, format!("{len} bytes"), got));
        }
        reads_device();
        note(|spent| spent.count_read(len));
        operations::wait(|spent| &mut spent.reading, || self.read_now(at, (offset, len)))
    }

    fn read_now(&self, at: &Location, (offset, len): (u32, u32)) -> Result<Vec<u8>> {
        if let Some(id) = at.object() {
            return self.of_this_opening(self.tier(id)?.read(id, at.len, (offset, len)));
        }
        let file = self.file(at.file, &self.path(at.file))?;
        let cached = file.blocks.get().filter(|_| len <= BLOCK_READ);
        let handle = cached.unwrap_or(&file.handle);
        let found = handle.read_vec(at.offset + u64::from(offset), len as usize);
        self.of_this_opening(self.was_read(at, (offset, len), found))
    }

    /// What a read found, unless the next opening may have written it (`os/gate.rs`).
    fn of_this_opening(&self, found: Result<Vec<u8>>) -> Result<Vec<u8>> {
        if self.gate.is_closed() { Err(Error::closed()) } else { found }
    }

    /// Counts what was read, or says what kept it from being.
    fn was_read(
        &self,
        at: &Location,
        (offset, len): (u32, u32),
        found: io::Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        match found {
            Ok(bytes) => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.bytes_read.fetch_add(u64::from(len), Ordering::Relaxed);
                Ok(bytes)
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                let got = "the end of the file".to_string();
                Err(self.corrupt(at, offset, format!("{len} bytes"), got))
            }
            Err(e) => Err(Error::io("read", &self.path(at.file), e).into_unread()),
        }
    }

    /// Gives the space of an extent back. No thread reads or writes it any more, and no durable
    /// edit names it. A store that is only read gives none out again. That of a salvage does not
    /// even know what is taken.
    pub(crate) fn release(&self, at: &Location) {
        if self.read_only {
            return;
        }
        if let Some(id) = at.object() {
            self.release_object(id);
            return;
        }
        let mut allocation = self.allocation.lock();
        let units = at.units();
        let file = allocation.files.get_mut(&at.file);
        debug_assert!(file.is_some() && units.is_some(), "only what was reserved is given back");
        if let (Some(file), Some((start, len))) = (file, units) {
            file.free.release(start, len);
            allocation.taken_units -= len;
        }
    }

    /// The extent files and their lengths in bytes.
    pub(crate) fn file_lens(&self) -> Vec<(u32, u64)> {
        let allocation = self.allocation.lock();
        allocation.files.iter().map(|(number, file)| (*number, file.units * UNIT)).collect()
    }

    /// Extents begin at multiples of so many bytes.
    pub(crate) const fn unit() -> u64 {
        UNIT
    }

    /// The tier, the file and the offset of a place, for messages.
    pub(crate) fn describe(&self, at: &Location) -> (&'static str, PathBuf, u64) {
        match at.object() {
            Some(id) => ("object", self.object_path(id), 0),
            None => ("ssd", self.path(at.file), at.offset),
        }
    }

    /// The path of an extent file.
    pub(crate) fn path(&self, file: u32) -> PathBuf {
        self.directory.path().join(format!("extents-{file:08}"))
    }

    /// How much space there is, and how much is taken.
    pub(crate) fn space(&self) -> SpaceUse {
        let allocation = self.allocation.lock();
        SpaceUse {
            files: allocation.files.len() as u64,
            file_bytes: allocation.backed_bytes(),
            taken_bytes: allocation.taken_units * UNIT,
            reserved_bytes: allocation.reserved_units * UNIT,
            returned_bytes: self.returned.load(Ordering::Relaxed),
        }
    }

    /// Bytes written since the opening.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// Bytes read since the opening.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Reads since the opening, of whatever length.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// What is held in memory of its extents.
    pub(crate) fn memory(&self) -> &Held {
        &self.held
    }

    /// How often extents were read since the opening, as far as they have told.
    pub(crate) fn read_clock(&self) -> &AtomicU64 {
        &self.read_clock
    }

    /// Syncs of extent files since the opening.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn file(&self, number: u32, path: &Path) -> Result<Arc<ExtentFile>> {
        let file = self.handles.read().get(&number).map(Arc::clone);
        file.ok_or_else(|| Error::io("open", path, io::ErrorKind::NotFound.into()))
    }

    /// Damage to `what` at an offset of a place.
    pub(crate) fn damage(
        &self,
        at: &Location,
        offset: u32,
        what: impl Into<String>,
        found: Mismatch,
    ) -> Damage {
        let (tier, file, start) = self.describe(at);
        found.at(what, tier, file, start.saturating_add(u64::from(offset)))
    }

    fn corrupt(&self, at: &Location, offset: u32, expected: String, got: String) -> Error {
        Error::corrupt(self.damage(at, offset, "extent", Mismatch::new(expected, got)))
    }
}

/// Whether a file of this name holds extents.
pub(crate) fn is_extent_file_name(name: &str) -> bool {
    file_number(name).is_some()
}

/// The number of an extent file, from its name.
fn file_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("extents-")?;
    let number = digits.parse().ok()?;
    (digits == format!("{number:08}")).then_some(number)
}

#[cfg(test)]
mod tests;
