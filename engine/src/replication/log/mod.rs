//! What nodes share that have nothing in common but an object store: a log of entries.
//!
//! [`entry`] and [`encode`] know the bytes, [`shared_log`] the objects and how one is claimed,
//! [`end`] finds the last one, [`writer`] appends.
//! `docs/internals/shared-store.md` has the design, and the argument for every order of pauses.

mod end;
mod entry;
mod groups;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe;
mod registers;
mod shared_log;
mod writer;

pub(crate) use end::LogEnd;
#[cfg(test)]
pub(crate) use entry::LogClaim;
pub(crate) use entry::{
    Entry, EntryBody, EntryHeader, EntryKind, LogCheckpoint, NewBody, SharedTable,
};
pub(crate) use groups::{
    DataPiece, GroupKind, LargePart, PartKind, PrepareHead, SegmentGroups, SharedPrepare,
    ShippedGroup, records_of,
};
pub(crate) use registers::{FollowerPlace, Register, RegisteredReader, SignSeen};
#[cfg(test)]
pub(crate) use shared_log::READS_AT_ONCE;
pub(crate) use shared_log::{
    EntryReads, LogHead, NextEntry, PieceId, SharedLog, data_number, entry_name,
};
pub(crate) use writer::{CLAIM_TRIES, Identity, LogWriter};

#[cfg(test)]
mod tests;
