//! Commit without a log (ROR): a group is durable when its records are durable in zones and
//! recovery can prove it. `docs/commit.md` has the argument.

mod batch;
mod blobs;
mod bucket;
mod committer;
mod fed;
mod feed;
mod floor;
mod floor_writer;
mod group;
mod pending_floor;
mod poison;
mod publisher;
mod recover;
mod resume;
mod ring;
mod salvage;
mod shut;
mod spaces;
mod start;
mod steps;
mod subentry;
#[cfg(test)]
mod tests;
mod ticket;
mod turnstile;
mod unread;
mod wait_queue;
mod write;

pub(crate) use batch::{Batch, CommitTable, Target};
pub(crate) use committer::{Committer, Pending};
pub(crate) use fed::{FedGroup, FedGroups};
pub(crate) use feed::{FULL_SEGMENT, Feed};
pub(crate) use floor::{Floor, Gidx, JournalMark};
pub(crate) use group::{Group, LockRecord, Resolution};
pub(crate) use poison::Poison;
pub(crate) use recover::{Accepted, Evidence, Recovered, recover};
pub(crate) use resume::{RESUME, Resume};
pub(crate) use salvage::{LsnRanges, Payload, ReadableZones, readable};
pub(crate) use start::Start;
#[cfg(all(test, not(feature = "loom")))]
pub(crate) use steps::stop_at;
pub(crate) use steps::{Step, reached};
pub(crate) use subentry::{Content, payloads_of};
#[cfg(any(test, feature = "testing"))]
pub(crate) use subentry::{SALT_AT, SUB_HEADER, SubEntry};
pub(crate) use unread::Passed;
pub(crate) use write::{CommitRequest, OneGroup};
