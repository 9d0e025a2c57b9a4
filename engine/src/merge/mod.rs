//! Walking several sorted inputs as one, seeing only a part of one, and deciding which versions
//! still count.

mod clip;
mod fragments;
mod heads;
mod merging;
mod retain;

pub(crate) use clip::ClippedCursor;
pub(crate) use fragments::{Fragments, Walk};
pub(crate) use merging::MergingCursor;
pub(crate) use retain::Retain;

#[cfg(test)]
pub(crate) use merging::tests;
