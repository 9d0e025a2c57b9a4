//! Extents in an object store: one extent is one object, which is written once and never changed.
//!
//! `docs/internals/object-store.md` has the design and the argument why a power cut between any two
//! requests loses nothing.

mod client;
mod clock;
mod directory;
mod fence;
mod known;
#[cfg(any(test, feature = "testing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "unit tests use all of it"))]
mod memory;
mod name;
mod open;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe;
#[cfg(feature = "object")]
mod remote;
#[cfg(any(test, feature = "testing", feature = "bench"))]
mod slow;
mod store;
mod tails;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;
mod tier;
mod transfers;

pub(crate) use client::{Client, ObjectRead, TaggedValue};
pub(crate) use name::{LAST_EPOCH, ObjectId, ObjectNames, SHARED_DATA, SHARED_PIECES, shared_name};
pub(crate) use open::{OBJECT_FILES, Settings, open_client, open_reader, owner};
#[cfg(any(test, feature = "testing", feature = "bench"))]
pub(crate) use slow::Distance;
pub(crate) use store::{Failure, FailureKind, ObjectInfo, PutWhen, Span, Tag};
pub(crate) use tier::{Collected, Fetch, ObjectTier, Planted};
pub(crate) use transfers::{ExtentSink, MOST_BYTES as MOST_SENT, Sends, Transfers, Uploads};

#[cfg(test)]
mod tests;
