//! What the trees and the allocators of other designs stand on (`bench/ods`): a region, a pool of
//! objects, a writer that counts lines.

use std::path::Path;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Mode;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::{Files, RealFiles};
use crate::pm::alloc::{ObjectPool, Segments, Slices};
use crate::pm::{Dirty, Flushed, LINE, Media, PAGE, Region};
#[cfg(feature = "testing")]
use terrace_testkit::Machine;

/// Bytes in a segment of a pool.
const SEGMENT: u64 = 64 * 1024;

/// Offset of the word with the root.
const ROOT: u64 = LINE;

/// Lines flushed and fences so far.
pub(super) fn costs(region: &Region) -> (u64, u64) {
    let counts = region.counts();
    (counts.total(|c| &c.flushes), counts.total(|c| &c.fences))
}

/// A region of its own: a fixed page, of which the second line begins with the root's word, and
/// objects of one size behind it.
///
/// Thread safety: any thread reads; one thread at a time writes an object.
#[derive(Debug)]
pub struct Ground {
    region: Arc<Region>,
    pool: ObjectPool,
    lines: AtomicU64,
}

impl Ground {
    /// Bytes of the fixed page; the words behind the root's line are the caller's.
    pub const PAGE: u64 = PAGE;

    /// A new region at `path` of `size` bytes, with objects of `object` bytes, a multiple of 64.
    ///
    /// # Errors
    ///
    /// `Full`, or another I/O error.
    pub fn create(path: &Path, size: u64, mode: Mode, object: u32) -> Result<Ground> {
        let files: Arc<dyn Files> = Arc::new(RealFiles::default());
        let segments = size / SEGMENT;
        let len = PAGE + segments * SEGMENT;
        let media = Media::create(&files, path, len, mode)?;
        let region = Arc::new(Region::new(media, path, len)?);
        Ground::of(&region, (SEGMENT, segments), object)
    }

    /// The memory of a simulated machine, with `segments` segments of so many bytes.
    ///
    /// # Errors
    ///
    /// `Invalid` when the machine has no persistent memory.
    #[cfg(feature = "testing")]
    pub fn of_machine(machine: &Machine, segments: (u64, u64), object: u32) -> Result<Ground> {
        let region = Region::of_machine(machine, PAGE + segments.0 * segments.1)?;
        Ground::of(&region, segments, object)
    }

    fn of(region: &Arc<Region>, (segment, segments): (u64, u64), object: u32) -> Result<Ground> {
        let slices: Arc<dyn Segments> = Arc::new(Slices::open(region, PAGE, segment, segments)?);
        let pool = ObjectPool::open(region, &slices, 1, object);
        Ok(Ground { region: Arc::clone(region), pool, lines: AtomicU64::new(0) })
    }

    /// The word at `at`.
    pub fn word(&self, at: u64) -> u64 {
        self.region.word(at)
    }

    /// Stores a word that stays in the cache: nothing flushes it, and no line is counted.
    #[track_caller]
    pub fn store(&self, at: u64, value: u64) {
        drop(self.region.store_word(at, value));
    }

    /// What makes stores durable.
    pub fn writer(&self) -> GroundWriter<'_> {
        GroundWriter { ground: self, wet: None, flushed: Vec::new() }
    }

    /// The root's word.
    pub fn root(&self) -> u64 {
        self.word(ROOT)
    }

    /// Makes another root durable.
    pub fn set_root(&self, root: u64) {
        let mut writer = self.writer();
        writer.set(ROOT, root);
        writer.fence();
    }

    /// A free object, which is the caller's now. Nothing is written.
    ///
    /// # Errors
    ///
    /// `Full`.
    pub fn take(&self) -> Result<u64> {
        self.pool.get()
    }

    /// Frees an object that was committed, durably.
    ///
    /// # Errors
    ///
    /// `Corrupt` when its entry is damaged.
    pub fn release(&self, object: u64) -> Result<()> {
        self.pool.release(object)
    }

    /// What an allocator says that has no object left.
    pub fn full(&self, objects: u64) -> Error {
        Error::new(ErrorKind::Full, format!("all {objects} objects are taken"))
    }

    /// Lines that writers have flushed.
    pub fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// All flushes and all fences, the pool's too.
    pub fn costs(&self) -> (u64, u64) {
        costs(&self.region)
    }
}

/// Collects the stores of one operation: a line is flushed when the writer leaves it.
#[derive(Debug)]
pub struct GroundWriter<'a> {
    ground: &'a Ground,
    /// The line that was stored to last.
    wet: Option<(u64, Dirty)>,
    flushed: Vec<Flushed>,
}

impl GroundWriter<'_> {
    /// Stores a word. The line of the word before is flushed if it is another one.
    #[track_caller]
    pub fn set(&mut self, at: u64, value: u64) {
        if self.wet.as_ref().is_some_and(|(line, _)| *line != at / LINE) {
            self.flush();
        }
        let dirty = self.ground.region.store_word(at, value);
        self.wet = Some(match self.wet.take() {
            Some((line, before)) => (line, before.join(dirty)),
            None => (at / LINE, dirty),
        });
    }

    #[track_caller]
    fn flush(&mut self) {
        if let Some((_, dirty)) = self.wet.take() {
            self.ground.lines.fetch_add(1, Ordering::Relaxed);
            self.flushed.push(self.ground.region.flush(dirty));
        }
    }

    /// Says that an object is taken. The line is the pool's: it is not counted.
    ///
    /// # Errors
    ///
    /// `Corrupt` when its entry is damaged.
    #[track_caller]
    pub fn commit(&mut self, object: u64) -> Result<()> {
        let dirty = self.ground.pool.commit(object)?;
        self.flushed.push(self.ground.region.flush(dirty));
        Ok(())
    }

    /// Makes durable what was stored, before what will be.
    #[track_caller]
    pub fn fence(&mut self) {
        self.flush();
        if !self.flushed.is_empty() {
            drop(self.ground.region.fence(self.flushed.drain(..)));
        }
    }
}
