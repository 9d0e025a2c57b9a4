//! `ptree`: ordered indexes that live in persistent memory.
//!
//! [`OdsTree`] is a map from `u64` to `u64` in one mapped region. Every operation is durable when
//! it returns, and opening takes no longer for a large tree than for a small one: nothing is
//! replayed or rebuilt. A node that is touched for the first time after a restart works out which
//! of its slots count, and that is all of recovery.
//!
//! It is the one-direction-shift B+-tree of Yan, Zhang, Ji, Dong and Ji ("One-Direction Shift
//! B+-Tree Based on Persistent Memory", 2021), made safe for any value and any order of
//! operations, and concurrent; see `docs/format.md`, section 4.

mod fixed;
mod format;
mod grow;
mod keys;
mod load;
mod node;
mod nodes;
mod options;
mod pen;
mod prune;
mod range;
#[cfg(any(test, feature = "bench"))]
pub mod rivals;
mod root;
mod shift;
mod tree;

#[cfg(test)]
mod tests;

pub use fixed::{OdsRange, OdsTree, Stats};
#[cfg(any(test, feature = "testing"))]
pub(crate) use format::Shape;
pub use options::{Options, Policy};
