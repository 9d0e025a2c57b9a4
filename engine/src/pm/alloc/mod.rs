//! The allocator of the region (Halloc): fixed pools of objects and of zones, one 8-byte index
//! entry each, no log. Taking an object costs one persist whatever its size; what a crash leaks is
//! found by the scan at open.

mod objects;
mod pages;
mod segments;
mod streams;
mod volatile;
mod zone;
mod zones;

pub(crate) use objects::ObjectPool;
pub(crate) use pages::{PagePool, PageRange};
pub(crate) use segments::{Segments, Slices};
pub(crate) use streams::{StreamKind, StreamObject, StreamPool};
pub(crate) use volatile::VolatilePool;
pub(crate) use zone::{Seal, ZONE_HEADER, ZoneHeader, ZoneScan};
pub(crate) use zones::{Frees, Link, StreamZone, Zone, ZonePool};

#[cfg(any(test, feature = "testing"))]
pub(crate) use segments::SegmentHeader;
#[cfg(any(test, feature = "testing"))]
pub(crate) use segments::{Pool, PoolEntry};
