//! The allocator of the region (Halloc): fixed pools of objects and of zones, one 8-byte index
//! entry each, no log. Taking an object costs one persist whatever its size; what a crash leaks is
//! found by the scan at open.

mod buddies;
mod objects;
mod pages;
mod pool;
mod salts;
mod scan;
mod segments;
mod streams;
mod volatile;
mod zone;
mod zones;

pub(crate) use objects::ObjectPool;
pub(crate) use pages::{PagePool, PageRange};
#[cfg(any(test, feature = "testing"))]
pub(crate) use pool::{Pool, PoolEntry};
pub(crate) use scan::ZoneScan;
#[cfg(any(test, feature = "testing"))]
pub(crate) use segments::SegmentHeader;
pub(crate) use segments::{Segments, Slices};
pub(crate) use streams::{StreamKind, StreamObject, StreamPool};
pub(crate) use volatile::VolatilePool;
pub(crate) use zone::{Seal, ZONE_HEADER, ZoneHeader};
pub(crate) use zones::{Link, Zone, ZonePool};
