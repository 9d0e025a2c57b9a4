//! Extents: sorted, immutable records in checksummed blocks, with a filter and an index. The
//! bytes are described in section 3 of `docs/format.md`.
//!
//! A file for each part: [`block`], [`filter`], [`summary`], [`index`], [`ranges`] and [`footer`]
//! know their own bytes; [`builder`] lays them out; [`reader`] opens, searches and owns an extent;
//! [`cursor`] walks it, and [`blocks`] walks several for a merge; [`ahead`] has them read many
//! blocks at once, and [`awaited`] knows what a range lacks; [`values`] keeps large values apart
//! from the records; [`verify`] checks all of it; [`read_frequency`] counts reads.

mod ahead;
mod awaited;
mod block;
mod blocks;
mod builder;
mod compress;
mod cursor;
mod filter;
mod footer;
mod found;
mod frame;
mod heads;
mod index;
mod meta;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe;
mod ranges;
mod read_frequency;
mod reader;
mod salvage;
mod summary;
mod values;
mod verify;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use ahead::{InLevel, ReadAhead, WHOLE};
pub(crate) use block::{Block, Blocks};
pub(crate) use blocks::{Ahead, BlockWalk};
pub(crate) use builder::{BuiltExtent, ExtentBuffer, ExtentBuilder, Filling, Format};
pub(crate) use cursor::ExtentCursor;
pub(crate) use found::{FoundExtents, find_extents};
#[cfg(feature = "bench")]
pub(crate) use heads::Lanes;
pub(crate) use heads::OwnedHeads;
pub(crate) use meta::{Described, ExtentMeta};
#[cfg(feature = "bench")]
pub(crate) use reader::set_hashed;
pub(crate) use reader::{
    CachedBlocks, ComingPart, Estimate, Extent, Fetched, Found, FoundPlace, LookUpStep,
    MissingPart, WholeBlock,
};
pub(crate) use summary::BlockSummary;
pub(crate) use values::{
    Layout, ValueExtent, ValueExtents, ValueMeta, ValueUse, ValueWriter, values_of,
};

/// The cache of blocks.
pub(crate) type BlockCache = crate::cache::FramePool<Block>;

/// The ways to the blocks of an extent.
pub(crate) type BlockSwips = crate::cache::Swips<Block>;
