//! Walks several sorted inputs as one, clips them to a part, copies what lies in memory, and
//! decides which versions still count.

mod buffered;
mod clip;
mod fragments;
mod key_prefixes;
mod merging;
mod retain;

pub(crate) use buffered::BufferedCursor;
pub(crate) use clip::ClippedCursor;
pub(crate) use fragments::{Fragments, Walk};
pub(crate) use merging::MergingCursor;
pub(crate) use retain::{Retain, Retention};

#[cfg(test)]
pub(crate) use merging::tests;
