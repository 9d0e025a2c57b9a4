//! What nodes share that have nothing in common but an object store: a log of entries.
//!
//! [`entry`] and [`encode`] know the bytes, [`shared_log`] the objects and how one is claimed,
//! [`writer`] appends.
//! `docs/internals/shared-store.md` has the design, and the argument for every order of pauses.

mod encode;
mod entry;
mod followers;
mod groups;
mod head;
mod identity;
mod names;
mod parts;
mod prepares;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe;
mod register;
mod shared_log;
mod under_way;
mod writer;

pub(crate) use encode::NewBody;
pub(crate) use entry::{Entry, EntryBody, EntryKind, LogCheckpoint, SharedTable};
pub(crate) use followers::FollowerPlace;
pub(crate) use groups::{GroupKind, SegmentGroups, ShippedGroup, records_of};
pub(crate) use head::LogHead;
pub(crate) use identity::Identity;
pub(crate) use names::{data_name, data_number, entry_name};
pub(crate) use parts::{LargePart, PartKind};
pub(crate) use prepares::{DataPiece, PrepareHead, SharedPrepare};
pub(crate) use register::Register;
pub(crate) use shared_log::{LogEnd, NextEntry, SharedLog};
pub(crate) use under_way::EntryReads;
pub(crate) use writer::{CLAIM_TRIES, LogWriter};

#[cfg(test)]
mod tests;
