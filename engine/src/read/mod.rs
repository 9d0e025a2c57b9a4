//! Lookup and range, on a view.

mod estimate;
mod get;
mod newest;
mod scan;

pub(crate) use estimate::{Estimate, estimate};
pub(crate) use get::get;
pub(crate) use newest::{changed, newest};
pub(crate) use scan::{Chunk, FrozenRows, KeyRange, Rows, backward, forward};
