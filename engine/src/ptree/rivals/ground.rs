//! What rivals stand on: a region, a pool of nodes, a writer that counts lines.

use std::path::Path;
use std::sync::Arc;

use super::super::node_writer::NodeWriter;
use crate::alloc::{ObjectPool, Segments, Slices};
use crate::error::Result;
use crate::options::Mode;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::{Files, RealFiles};
use crate::pm::{LINE, Media, PAGE, Region};

/// A region of its own for a rival.
#[derive(Debug)]
pub struct Ground {
    pub(super) region: Arc<Region>,
    pub(super) pool: ObjectPool,
    lines: AtomicU64,
}

/// Offset of the word with the root.
const ROOT: u64 = LINE;

impl Ground {
    /// A new region at `path` of `size` bytes, with nodes of `node` bytes.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn create(path: &Path, size: u64, mode: Mode, node: u32) -> Result<Ground> {
        let files: Arc<dyn Files> = Arc::new(RealFiles::default());
        let segments = size / SEGMENT;
        let len = PAGE + segments * SEGMENT;
        let media = Media::create(&files, path, len, mode)?;
        let region = Arc::new(Region::new(media, path, len)?);
        Ground::of(&region, SEGMENT, segments, node)
    }

    pub(super) fn of(
        region: &Arc<Region>,
        segment: u64,
        segments: u64,
        node: u32,
    ) -> Result<Ground> {
        let slices: Arc<dyn Segments> = Arc::new(Slices::open(region, PAGE, segment, segments)?);
        let pool = ObjectPool::open(region, &slices, 1, node);
        Ok(Ground { region: Arc::clone(region), pool, lines: AtomicU64::new(0) })
    }

    pub(super) fn word(&self, at: u64) -> u64 {
        self.region.word(at)
    }

    pub(super) fn writer(&self) -> NodeWriter<'_> {
        NodeWriter::new(&self.region, &self.lines)
    }

    pub(super) fn root(&self) -> u64 {
        self.word(ROOT)
    }

    pub(super) fn set_root(&self, root: u64) -> Result<()> {
        let mut writer = self.writer();
        writer.set(ROOT, root);
        writer.persist()
    }

    pub(super) fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    pub(super) fn flushes(&self) -> u64 {
        self.region.counts().total(|c| &c.flushes)
    }
}

const SEGMENT: u64 = 64 * 1024;
