//! Persistent memory: one mapped, byte-addressable region, and the ways to make bytes in it
//! durable. All access to the region goes through [`Region`]; offsets are stored, never
//! addresses.

pub(crate) mod alloc;
mod flush;
mod geometry;
mod mapped;
mod mapping;
mod media;
mod region;
#[cfg(any(test, all(feature = "bench", feature = "testing")))]
mod simulated;
mod span;
mod superblock;
mod zeros;

pub(crate) use geometry::{Geometry, LINE, PAGE, STREAM_SLOTS};
pub(crate) use region::{Media, Region};
pub(crate) use span::{Dirty, Durable, Fenced, Flushed, PmCounts, Purpose, Span, Spent, SpentOn};
pub(crate) use superblock::{Incarnations, Lived, Superblock};
