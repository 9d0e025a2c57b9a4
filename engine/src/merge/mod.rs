//! Clips sorted inputs to a part, copies what lies in memory, merges range tombstones, and decides
//! which versions still count.

mod buffered;
mod fragments;
mod retain;

pub(crate) use buffered::{BufferedCursor, clip};
pub(crate) use fragments::{Fragments, Walk};
pub(crate) use retain::{Retain, Retention};
