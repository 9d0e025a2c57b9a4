//! The door through which the figures reach the index: records in memory, and the index of
//! production over them, with nothing of commit around.
//!
//! Only with the feature `bench`; no part of the stable interface.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::options::{Mode, Options};
use crate::base::progress::Meter;
use crate::base::record::{Kind, LSN_MAX};
use crate::engine::Database;
use crate::memtable::{Index, encode_record, record_at, records_in, set_seq};
use crate::mvcc::pin;
use crate::os::{Files, OpenHow, RealFiles};
use crate::pindex::forest::Forest;
use crate::pindex::tree::Tree;
use crate::pm::{Media, Region};

mod allocators;
mod ground;

pub use allocators::{Allocation, PoolAllocator, VolatileAllocator, ZoneAllocator};
pub use ground::{Ground, GroundWriter};

/// Persistent memory that costs no more than memory.
const EMULATED: Mode = Mode::Emulated { delay: Duration::ZERO };

/// Has searches in row tables of all databases of the process go by hints, which they do, or not.
pub fn follow_hints(on: bool) {
    crate::level0::FOLLOWS_HINTS.store(on, Ordering::Relaxed);
}

/// Nanoseconds that the process has spent in searches of places in row tables, look-ups of single
/// keys left out.
pub fn row_search_nanos() -> u64 {
    crate::level0::SEARCH_NANOS.load(Ordering::Relaxed)
}

/// Records one behind the other, as they lie in a zone, in the memory that a region in `file` mode
/// has. Nothing of it is ever written to a file.
///
/// Thread safety: any number of threads append and read.
#[derive(Debug)]
pub struct Arena {
    region: Arc<Region>,
    tail: AtomicU64,
}

impl Arena {
    /// Room for `bytes`. `scratch` is a directory for an empty file.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn new(scratch: &Path, bytes: u64) -> Result<Arena> {
        let path = scratch.join("arena");
        let open = || RealFiles::default().open(&path, OpenHow::CreateNew);
        let file = open().map_err(|e| Error::io("make", &path, e))?;
        let region = Region::new(Media::File(file), &path, bytes)?;
        RealFiles::default().remove(&path).map_err(|e| Error::io("remove", &path, e))?;
        Ok(Arena { region: Arc::new(region), tail: AtomicU64::new(0) })
    }

    /// Room for `bytes` in a file that is mapped as a region in mode `emulated`.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn emulated(path: &Path, bytes: u64) -> Result<Arena> {
        let files: Arc<dyn Files> = Arc::new(RealFiles::default());
        let media = Media::create(&files, path, bytes, EMULATED)?;
        let region = Arc::new(Region::new(media, path, bytes)?);
        Ok(Arena { region, tail: AtomicU64::new(0) })
    }

    /// Appends whole lines, streamed where that pays, and fences them; their offset.
    ///
    /// # Errors
    ///
    /// None where the arena is mapped.
    pub fn append_durably(&self, bytes: &[u8]) -> Result<u64> {
        let at = self.tail.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.region.persist([self.region.write(at, bytes)])?;
        Ok(at)
    }

    /// Appends a record; its offset. `buffer` saves an allocation.
    pub fn append(&self, key: &[u8], seq: u64, value: &[u8], buffer: &mut Vec<u8>) -> u64 {
        buffer.clear();
        encode_put(buffer, key, seq, value);
        self.append_encoded(buffer)
    }

    /// Appends bytes that hold encoded records; the offset of the first.
    pub fn append_encoded(&self, bytes: &[u8]) -> u64 {
        let at = self.tail.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        // What is not persisted may be forgotten at once.
        drop(self.region.write(at, bytes));
        at
    }

    /// The key and the value of the record at `at`.
    pub fn read(&self, at: u64) -> (&[u8], &[u8]) {
        let record = record_at(&self.region, at);
        (record.key, record.value)
    }

    /// The offset behind the last record.
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    /// Forgets what was appended from `tail` on, to which no index points any more.
    pub fn truncate(&mut self, tail: u64) {
        *self.tail.get_mut() = tail;
    }

    /// The bytes from `at` on.
    pub fn bytes(&self, at: u64, len: u64) -> &[u8] {
        self.region.bytes(at, len)
    }
}

/// The memtable's index over the records of an [`Arena`].
#[derive(Debug)]
pub struct RecordIndex {
    index: Index,
    region: Arc<Region>,
}

impl RecordIndex {
    /// An empty index.
    pub fn new(arena: &Arena) -> RecordIndex {
        let region = Arc::clone(&arena.region);
        RecordIndex { index: Index::new(Arc::clone(&region)), region }
    }

    /// The index of the records at these offsets, which ascend from part to part and in each, built
    /// in one go.
    pub fn build(arena: &Arena, parts: &[Vec<u64>]) -> RecordIndex {
        let region = Arc::clone(&arena.region);
        RecordIndex { index: Index::build(Arc::clone(&region), parts, &|_| {}), region }
    }

    /// Makes the record at `at` findable.
    pub fn insert(&self, key: &[u8], seq: u64, at: u64) {
        self.index.insert(key, seq, at);
    }

    /// Forgets a version; its offset, if it was there.
    pub fn remove(&self, key: &[u8], seq: u64) -> Option<u64> {
        self.index.remove(key, seq)
    }

    /// Makes all records in a range of the arena findable; how many.
    pub fn insert_all(&self, at: u64, len: u64) -> u64 {
        let records = records_in(&self.region, at, len);
        records.map(|(at, record)| self.index.insert(record.key, record.seq, at)).count() as u64
    }

    /// The offset of the newest version of `key`.
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        self.index.get(key, LSN_MAX).map(|(_, at)| at)
    }

    /// Shows the offsets of up to `rows` versions from `from` on.
    pub fn scan(&self, from: &[u8], rows: usize, mut show: impl FnMut(u64)) {
        let mut cursor = self.index.cursor();
        cursor.seek(from, LSN_MAX);
        for _ in 0..rows {
            let Some((_, at)) = cursor.version() else { return };
            show(at);
            cursor.next();
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.index.memory()
    }

    /// Frees what was taken out of an index of any kind, as far as no reader may still see it.
    pub fn collect() {
        crossbeam_epoch::pin().flush();
    }
}

/// The persistent index of one table over the records of an [`Arena`], in a region of its own on
/// tmpfs: each change is flushed and fenced when its call returns.
#[derive(Debug)]
pub struct PersistentIndex {
    forest: Forest,
    tree: Tree,
}

/// Whose index it is, and the opening that used it last.
const OWNER: ([u8; 16], u64) = ([7; 16], 1);

/// The table.
const TABLE: u32 = 1;

impl PersistentIndex {
    /// An empty index at `path`, in a region of about so many bytes; a key takes about 28.
    ///
    /// # Errors
    ///
    /// `Full`, or another I/O error.
    pub fn create(arena: &Arena, path: &Path, bytes: u64) -> Result<PersistentIndex> {
        let files: Arc<dyn Files> = Arc::new(RealFiles::default());
        let records = bytes.max(4 << 20) / 2;
        let (_, len) = Forest::region_lens(records);
        let media = Media::create(&files, path, len, EMULATED)?;
        let region = Arc::new(Region::new(media, path, len)?);
        let forest = Forest::format(&region, (&arena.region, records), OWNER.0)?;
        forest.begin(OWNER.1)?;
        Ok(PersistentIndex { tree: forest.create(TABLE)?, forest })
    }

    /// The index at `path`, over the records that it was made for.
    ///
    /// # Errors
    ///
    /// `Invalid` where there is none, `Corrupt`, or an I/O error.
    pub fn open(arena: &Arena, path: &Path) -> Result<PersistentIndex> {
        let files: Arc<dyn Files> = Arc::new(RealFiles::default());
        let (media, len) = Media::open(&files, path, false, EMULATED)?;
        let region = Arc::new(Region::new(media, path, len)?);
        let missing = || Error::invalid(format!("{} holds no index", path.display()));
        let reads = (1, &Meter::silent());
        let forest = Forest::open(&region, &arena.region, OWNER, reads)?.ok_or_else(missing)?;
        forest.begin(OWNER.1)?;
        Ok(PersistentIndex { tree: forest.take(TABLE).ok_or_else(missing)?, forest })
    }

    /// The sequence number up to which all records are in it, durably.
    pub fn merged(&self) -> u64 {
        self.forest.merged()
    }

    /// Bytes of persistent memory that its nodes and bounds take.
    pub fn bytes(&self) -> u64 {
        self.forest.bytes()
    }

    /// Says that all records up to `seq` are in it.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn set_merged(&self, seq: u64) -> Result<()> {
        self.forest.raise_merged(seq)
    }

    /// Makes the record at `at` findable, durably.
    ///
    /// # Errors
    ///
    /// `Full`, or an I/O error.
    pub fn insert(&self, key: &[u8], seq: u64, at: u64) -> Result<()> {
        let _guard = pin();
        self.tree.insert(key, seq, at).map(drop)
    }

    /// The offset of the newest version of `key`.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        let _guard = pin();
        Ok(self.tree.get(key, LSN_MAX)?.map(|(_, at)| at))
    }

    /// Shows the offsets of up to `rows` versions from `from` on.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn scan(&self, from: &[u8], rows: usize, mut show: impl FnMut(u64)) -> Result<()> {
        let _guard = pin();
        let mut cursor = self.tree.cursor();
        cursor.seek(from, LSN_MAX)?;
        for _ in 0..rows {
            let Some((_, at)) = cursor.version() else { break };
            show(at);
            cursor.next()?;
        }
        Ok(())
    }
}

/// Encodes a put behind what `buffer` has, of whole records.
pub fn encode_put(buffer: &mut Vec<u8>, key: &[u8], seq: u64, value: &[u8]) {
    let at = buffer.len();
    encode_record(buffer, 1, Kind::Put, key, value);
    set_seq(&mut buffer[at..], seq);
}

/// The checksum that everything on the media has.
pub fn checksum(bytes: &[u8]) -> u32 {
    crate::base::record::checksum(&[], bytes)
}

/// Options for a database whose background jobs run in calls of [`step`] alone.
pub fn stepped(mut options: Options) -> Options {
    options.stepped = true;
    options
}

/// Runs the most urgent background job of such a database; whether there was one.
///
/// # Errors
///
/// Those of the job.
pub fn step(db: &Database) -> Result<bool> {
    db.step()
}

/// Steps of the read path that the figure `read-path` takes back, for all of the process.
pub mod read_path {
    use crate::cache::FrameArena;
    use crate::sstable::{Lanes, set_hashed};

    /// Look-ups find blocks by a hash, under the lock of a shard, and count a reference, as before
    /// there were swips; or no longer.
    pub fn use_hashes(hashes: bool) {
        set_hashed(hashes);
    }

    /// Databases that are opened from now on have their blocks in huge pages, or on the heap.
    pub fn use_huge_pages(huge: bool) {
        FrameArena::allow(huge);
    }

    /// The names of the searches that this processor has, the slowest first.
    pub fn searches() -> Vec<String> {
        Lanes::available().into_iter().map(|lanes| format!("{lanes:?}")).collect()
    }

    /// Has blocks searched by the search of this name; by the best one with any other.
    pub fn use_search(name: &str) {
        let lanes = Lanes::available().into_iter().find(|lanes| format!("{lanes:?}") == name);
        Lanes::force(lanes);
    }
}
