//! Blocks in persistent memory that holds no records yet: a cache below the block cache, in `dax`
//! and `emulated`. (In `file` mode the region is an image in DRAM, which the block cache has.)

use std::sync::Arc;

use crate::alloc::{VolatilePool, ZonePool};
use crate::cache::Below;
use crate::pm::Region;

impl Below for VolatilePool {
    fn get(&self, extent: u64, offset: u32) -> Option<Vec<u8>> {
        VolatilePool::get(self, (extent, offset))
    }

    fn keep(&self, extent: u64, offset: u32, bytes: &[u8]) {
        // Without room it is read from its medium again.
        VolatilePool::keep(self, (extent, offset), bytes);
    }
}

/// The cache below the block cache, where that is of use. A read-only opening has none, since it
/// writes nothing to the region.
pub(crate) fn of(
    region: &Arc<Region>,
    zones: &Arc<ZonePool>,
    read_only: bool,
) -> Option<Arc<VolatilePool>> {
    (region.is_mapped() && !read_only).then(|| VolatilePool::new(region, zones))
}
