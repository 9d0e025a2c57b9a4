//! Extents in an object store: one extent is one object, which is written once and never changed.
//!
//! `docs/internals/object-store.md` has the design and the argument why a power cut between any two
//! requests loses nothing.

mod client;
mod clock;
mod directory;
mod fence;
mod memory;
mod name;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe;
#[cfg(feature = "object")]
mod remote;
mod store;
mod tails;
mod tier;

#[cfg(test)]
mod tests;
