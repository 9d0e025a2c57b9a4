//! Which versions exist for whom: snapshots and their horizon, the watermarks of commit, the
//! drained map, and the epochs that say when bytes may be used again.

mod drained;
mod epoch;
mod snapshots;
mod watermark;

pub(crate) use drained::{DrainedMap, KeyInterval};
pub(crate) use epoch::{defer, drive, pin};
pub(crate) use snapshots::{Horizon, Registered, SnapshotRegistry};
pub(crate) use watermark::Watermark;
