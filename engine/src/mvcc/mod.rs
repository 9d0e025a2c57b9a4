//! Which versions each reader sees: snapshots and their horizon, the watermarks of commit, the
//! drained map and range tombstones. Also the clock, the times at which records were written, and
//! the epochs that say when bytes may be used again.

mod clock;
mod epoch;
mod epoch_arc;
mod interval;
mod interval_tree;
mod snapshots;
mod tombstones;

use crate::base::record::Lsn;
use crate::os::sync::{AtomicU64, Ordering};

pub(crate) use clock::{Clock, Time, TimeMark, Timeline, micros};
pub(crate) use epoch::{
    DeferQueue, EpochGuard, Hold, Runner, about_to_wait, defer, drive, is_pinned, is_waited_for,
    pin, retire,
};
pub(crate) use epoch_arc::{EpochArc, Replaced};
pub(crate) use interval::{DrainedMap, IntervalSet, KeyInterval, after, is_from, union};
pub(crate) use interval_tree::Reach;
pub(crate) use snapshots::{Horizon, KeptFor, Readers, Registered, SnapshotRegistry, is_worth};
pub(crate) use tombstones::{Tombstone, TombstoneList, Tombstones};

#[cfg(any(test, feature = "testing"))]
pub(crate) use epoch::drive_all;
#[cfg(test)]
pub(crate) use epoch::drive_until;

#[cfg(any(test, feature = "testing"))]
pub use clock::by_hand::HandClock;
#[cfg(test)]
pub(crate) use tombstones::tests::tombstones;

/// An LSN up to which something holds (visible, durable).
///
/// Thread safety: any thread raises, any number read. A reader that sees `n` sees everything that
/// was done before `n` was raised to (release/acquire).
#[derive(Debug)]
pub(crate) struct Watermark(AtomicU64);

impl Watermark {
    /// A watermark at `lsn`.
    pub(crate) fn new(lsn: Lsn) -> Watermark {
        Watermark(AtomicU64::new(lsn))
    }

    /// The LSN it stands at.
    pub(crate) fn get(&self) -> Lsn {
        self.0.load(Ordering::Acquire)
    }

    /// Raises it to `lsn`, unless it is higher already.
    pub(crate) fn raise(&self, lsn: Lsn) {
        self.0.fetch_max(lsn, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests;
