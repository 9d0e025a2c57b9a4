//! Where extents are kept: files on an SSD, cut into extents by a map of what is free.

mod location;
mod space;
mod ssd;

pub(crate) use location::Location;
pub(crate) use ssd::{
    EXTENT_BYTES, ExtentStore, Held, Reading, SpaceReservation, is_extent_file_name,
};
