//! Which versions exist for whom: snapshots and their horizon, the watermarks of commit, the
//! drained map, range tombstones, and the epochs that say when bytes may be used again.

mod drained;
mod epoch;
mod interval;
mod snapshots;
mod tombstones;
mod watermark;

pub(crate) use drained::DrainedMap;
pub(crate) use epoch::{defer, drive, is_pinned, pin};
pub(crate) use interval::{KeyInterval, after, union};
pub(crate) use snapshots::{Horizon, Registered, SnapshotRegistry};
pub(crate) use tombstones::{Tombstone, TombstoneList, Tombstones};
pub(crate) use watermark::Watermark;

#[cfg(test)]
pub(crate) use tombstones::tests::tombstones;
