//! Which versions each reader sees: snapshots and their horizon, the watermarks of commit, the
//! drained map and range tombstones. Also the clock, the times at which records were written, and
//! the epochs that say when bytes may be used again.

mod clock;
mod drained;
mod epoch;
mod epoch_arc;
mod interval;
mod snapshots;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests;
mod timeline;
mod tombstones;
mod watermark;

pub(crate) use clock::{Clock, Time, micros};
pub(crate) use drained::DrainedMap;
#[cfg(any(test, feature = "testing"))]
pub(crate) use epoch::drive_all;
#[cfg(test)]
pub(crate) use epoch::drive_until;
pub(crate) use epoch::{
    DeferQueue, EpochGuard, Runner, about_to_wait, defer, drive, is_pinned, is_waited_for, pin,
    retire,
};
pub(crate) use epoch_arc::{EpochArc, Replaced};
pub(crate) use interval::{IntervalSet, KeyInterval, after, is_from, union};
pub(crate) use snapshots::{Horizon, KeptFor, Readers, Registered, SnapshotRegistry, is_worth};
pub(crate) use timeline::{TimeMark, Timeline};
pub(crate) use tombstones::{Reach, Tombstone, TombstoneList, Tombstones};
pub(crate) use watermark::Watermark;

#[cfg(any(test, feature = "testing"))]
pub use clock::by_hand::HandClock;
#[cfg(test)]
pub(crate) use tombstones::tests::tombstones;
