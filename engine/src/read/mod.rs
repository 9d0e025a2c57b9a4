//! Lookup and range, on a view.

mod apart;
mod estimate;
mod get;
mod key_bounds;
mod key_range;
mod many;
mod newest;
mod operands;
mod rows;
mod scan;

use crate::record::Lsn;

pub(crate) use apart::Lookups;
pub(crate) use estimate::estimate;
pub(crate) use get::{LentValue, Lookup, contains, find, get, lend, lend_near};
pub use key_bounds::KeyBounds;
pub(crate) use key_range::KeyRange;
pub(crate) use many::{
    AskedParts, MissingParts, ask_ahead, bring, find_many, missing, near, side_by_side, together,
};
pub(crate) use newest::{changed, newest};
pub(crate) use rows::{Chunk, FrozenRows, Rows};
pub(crate) use scan::{backward, forward};

/// The moment as of which something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsOf {
    /// The last commit that is seen.
    pub(crate) lsn: Lsn,
    /// Everything at or below it has expired, as if it were deleted.
    pub(crate) expired: Lsn,
}
