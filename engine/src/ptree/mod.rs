//! `ptree`: ordered indexes that live in persistent memory.
//!
//! [`OdsTree`] is a map from `u64` to `u64` in one mapped region, [`BytesTree`] one from byte
//! strings to byte strings. Every operation is durable when it returns, and opening takes no longer
//! for a large tree than for a small one: nothing is replayed or rebuilt. The first touch of a node
//! after a restart flushes it, in case a process was killed, and works out which of its slots
//! count. That is all of recovery.
//!
//! It is the one-direction-shift B+-tree of Yan, Zhang, Ji, Dong and Ji ("One-Direction Shift
//! B+-Tree Based on Persistent Memory", 2021), made safe for any value and any order of
//! operations, and concurrent; see `docs/format.md`, section 4.

mod bytes;
mod bytes_range;
mod ends;
mod fixed;
pub(crate) mod forest;
mod format;
mod grow;
mod heap;
mod keys;
mod load;
mod node;
mod node_writer;
mod nodes;
mod options;
mod prune;
mod range;
mod refs;
#[cfg(any(test, feature = "bench"))]
pub mod rivals;
mod root;
mod seal;
mod shift;
mod stats;
mod tree;
pub(crate) mod unread;
pub(crate) mod versions;

#[cfg(any(test, feature = "bench", feature = "testing"))]
pub(crate) use format::Shape;
#[cfg(any(test, feature = "testing"))]
pub(crate) use seal::ForestSeal;

#[cfg(test)]
mod tests;

pub use bytes::BytesTree;
pub use bytes_range::BytesRange;
pub use fixed::{OdsRange, OdsTree};
pub use options::{Options, Policy};
pub use stats::Stats;
