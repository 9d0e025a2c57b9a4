//! Allocators for the figure `alloc`.

use std::path::Path;
use std::sync::Arc;

use super::ground::{Ground, costs};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Mode;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::{Files, RealFiles};
use crate::pm::alloc::{Frees, Link, VolatilePool, ZonePool};
use crate::pm::{Geometry, Media, Region};

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
        let object = self.0.take()?;
        let mut writer = self.0.writer();
        writer.commit(object)?;
        writer.fence();
        Ok(object)
    }

    fn release(&self, object: u64) -> Result<()> {
        self.0.release(object)
    }

    fn costs(&self) -> (u64, u64) {
        self.0.costs()
    }
}

/// The project's zones: one persist of two lines, whatever their size.
#[derive(Debug)]
pub struct ZoneAllocator {
    region: Arc<Region>,
    zones: ZonePool,
    units: u32,
    ordinal: AtomicU64,
}

impl ZoneAllocator {
    /// Zones of `bytes` in a new region of about `size` bytes.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn create(path: &Path, size: u64, mode: Mode, bytes: u64) -> Result<ZoneAllocator> {
        let files: Arc<dyn Files> = Arc::new(RealFiles::default());
        let geometry = Geometry::for_size(size);
        let media = Media::create(&files, path, geometry.region_len(), mode)?;
        let region = Arc::new(Region::new(media, path, geometry.region_len())?);
        region.persist(ZonePool::format(&region, geometry))?;
        let (zones, ..) = ZonePool::open(&region, geometry)?;
        let (units, ordinal) = (geometry.units_for(bytes), AtomicU64::new(0));
        Ok(ZoneAllocator { region, zones, units, ordinal })
    }
}

impl Allocation for ZoneAllocator {
    fn allocate(&self) -> Result<u64> {
        let ordinal = self.ordinal.fetch_add(1, Ordering::Relaxed) + 1;
        let (units, least) = (self.units, self.units);
        let zone = self.zones.link(&Link {
            stream: 0,
            ordinal,
            incarnation: 1,
            units,
            least,
            frees: Frees::Nothing,
        })?;
        Ok(u64::from(zone.number))
    }

    fn release(&self, object: u64) -> Result<()> {
        self.zones.release(&[object as u32]).map(|_| ())
    }

    fn costs(&self) -> (u64, u64) {
        costs(&self.region)
    }
}

/// Copies in units that no zone has: nothing is made durable.
#[derive(Debug)]
pub struct VolatileAllocator {
    region: Arc<Region>,
    pool: Arc<VolatilePool>,
    bytes: Vec<u8>,
    next: AtomicU64,
}

impl VolatileAllocator {
    /// Copies of `bytes` in a new region of about `size` bytes.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn create(path: &Path, size: u64, mode: Mode, bytes: u64) -> Result<VolatileAllocator> {
        let ZoneAllocator { region, zones, .. } = ZoneAllocator::create(path, size, mode, bytes)?;
        let pool = VolatilePool::new(&region, &Arc::new(zones));
        let (bytes, next) = (vec![7; bytes as usize], AtomicU64::new(0));
        Ok(VolatileAllocator { region, pool, bytes, next })
    }
}

impl Allocation for VolatileAllocator {
    fn allocate(&self) -> Result<u64> {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        if self.pool.keep((key, 0), &self.bytes) {
            return Ok(key);
        }
        Err(Error::new(ErrorKind::Full, "the region is full of copies"))
    }

    /// They go in the order they came, a piece at a time, when units are needed.
    fn release(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn costs(&self) -> (u64, u64) {
        costs(&self.region)
    }
}
