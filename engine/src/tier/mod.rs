//! Where extents are kept: files on an SSD, cut into extents by a map of what is free.

mod location;
// No option leads here yet: unit tests use all of it, and fuzzing its decoders.
#[cfg(any(test, feature = "testing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "unit tests use all of it"))]
mod object;
mod space;
mod ssd;

pub(crate) use location::Location;
#[cfg(any(test, feature = "testing"))]
pub(crate) use object::probe as object_probe;
pub(crate) use ssd::{
    EXTENT_BYTES, ExtentStore, Held, Reading, SpaceReservation, is_extent_file_name,
};
