//! Where extents are kept: files on an SSD, cut into extents by a map of what is free.

mod space;
mod ssd;

pub(crate) use ssd::{ExtentStore, Location, Reserved, SpaceUse};
