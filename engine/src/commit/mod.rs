//! Commit without a log (ROR): a group is durable when its records are durable in zones and
//! recovery can prove it. `docs/commit.md` has the argument.

mod batch;
mod bucket;
mod committer;
mod feed;
mod floor;
mod group;
mod lsn_ranges;
mod pending_floor;
mod poison;
mod publisher;
mod recover;
mod ring;
mod salvage;
mod sequencer;
mod spaces;
mod stored;
mod subentry;
mod write;

pub(crate) use batch::{Batch, CommitTable, Target};
pub(crate) use committer::{Committer, Pending};
pub(crate) use feed::{FULL_SEGMENT, Feed, HandedOver};
pub(crate) use floor::{Floor, Gidx, JournalMark};
pub(crate) use group::{Group, LockRecord, Resolution};
pub(crate) use lsn_ranges::LsnRanges;
pub(crate) use poison::Poison;
pub(crate) use recover::{Accepted, Evidence, Recovered, recover};
pub(crate) use salvage::{Passed, Payload, ReadableZones, bytes_to_read, readable};
pub(crate) use sequencer::Start;
pub(crate) use sequencer::{Step, reached};
pub(crate) use stored::{StoredGroup, StreamPlaces};
pub(crate) use subentry::{Content, RESUME, Resume, payloads_of};
pub(crate) use write::{CommitRequest, OneGroup};

#[cfg(all(test, not(feature = "loom")))]
pub(crate) use sequencer::stop_at;
#[cfg(any(test, feature = "testing"))]
pub(crate) use subentry::{SALT_AT, SUB_HEADER, SubEntry};

#[cfg(test)]
mod tests;
