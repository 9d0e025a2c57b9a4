//! `ptree`: the index of level 0 that lives in persistent memory.
//!
//! It is a tree of versions for each table, in one mapped region. Every operation is durable when
//! it returns, and opening takes no longer for a large tree than for a small one: nothing is
//! replayed or rebuilt. The first touch of a node after a restart flushes it, in case a process
//! was killed, and works out which of its slots count. That is all of recovery.
//!
//! It is the one-direction-shift B+-tree of Yan, Zhang, Ji, Dong and Ji ("One-Direction Shift
//! B+-Tree Based on Persistent Memory", 2021), made safe for any order of operations, and
//! concurrent; see `docs/format.md`, section 4. The tree of the source, and what it is held
//! against, are in `bench/ods`.

pub(crate) mod forest;
mod grow;
mod keys;
mod node;
mod nodes;
mod prune;
mod seal;
pub(crate) mod tree;
pub(crate) mod versions;

#[cfg(any(test, feature = "testing"))]
pub(crate) use node::Shape;
#[cfg(any(test, feature = "testing"))]
pub(crate) use seal::ForestSeal;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests;
