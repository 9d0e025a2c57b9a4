//! Allocators for the figure `alloc`.

use std::path::Path;
use std::sync::Arc;

use super::ground::Ground;
use crate::alloc::logged::LoggedPool;
use crate::error::Result;
use crate::options::Mode;
use crate::os::{Files, RealFiles};
use crate::pm::{Media, Region};

/// An allocator of objects of one size in a region of its own.
pub trait Allocation {
    /// Takes an object, durably; its offset.
    ///
    /// # Errors
    ///
    /// `Full`, or an I/O error.
    fn allocate(&self) -> Result<u64>;

    /// Gives it back, durably.
    ///
    /// # Errors
    ///
    /// An I/O error.
    fn release(&self, object: u64) -> Result<()>;

    /// Lines flushed and fences so far.
    fn costs(&self) -> (u64, u64);
}

fn costs(region: &Region) -> (u64, u64) {
    let counts = region.counts();
    (counts.total(|c| &c.flushes), counts.total(|c| &c.fences))
}

/// The project's object pool.
#[derive(Debug)]
pub struct PoolAllocator(Ground);

impl PoolAllocator {
    /// A pool of objects of `object` bytes in a new region of `size` bytes.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn create(path: &Path, size: u64, mode: Mode, object: u32) -> Result<PoolAllocator> {
        Ok(PoolAllocator(Ground::create(path, size, mode, object)?))
    }
}

impl Allocation for PoolAllocator {
    fn allocate(&self) -> Result<u64> {
        let object = self.0.pool.get()?;
        self.0.region.persist([self.0.pool.commit(object)?])?;
        Ok(object)
    }

    fn release(&self, object: u64) -> Result<()> {
        self.0.pool.release(object)
    }

    fn costs(&self) -> (u64, u64) {
        costs(&self.0.region)
    }
}

/// An allocator with a redo log and a bitmap.
#[derive(Debug)]
pub struct LoggedAllocator {
    region: Arc<Region>,
    pool: LoggedPool,
}

impl LoggedAllocator {
    /// `count` objects (a multiple of 64) of `object` bytes in a new region.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn create(path: &Path, mode: Mode, object: u64, count: u64) -> Result<LoggedAllocator> {
        let files: Arc<dyn Files> = Arc::new(RealFiles);
        let len = LoggedPool::len(object, count).next_multiple_of(4096);
        let media = Media::create(&files, path, len, mode)?;
        let region = Arc::new(Region::new(media, path, len)?);
        let pool = LoggedPool::open(&region, 0, object, count)?;
        Ok(LoggedAllocator { region, pool })
    }
}

impl Allocation for LoggedAllocator {
    fn allocate(&self) -> Result<u64> {
        self.pool.allocate()
    }

    fn release(&self, object: u64) -> Result<()> {
        self.pool.release(object)
    }

    fn costs(&self) -> (u64, u64) {
        costs(&self.region)
    }
}
