//! The map that users hold: tables, batches, snapshots, ranges.

mod atomic;
mod awaited;
mod batch;
mod bulk;
mod core;
mod extent_writer;
mod handle;
mod pace;
mod pending;
mod range;
mod reads;
mod runs;
mod shared;
mod write;

pub(crate) use self::core::{
    Change, ChangedTables, DrainRound, Pinned, TableBatch, TableCore, TableSlot, TableTarget,
};
pub(crate) use awaited::Awaited;
pub use batch::WriteBatch;
pub use bulk::{BulkLoad, Existing};
pub(crate) use extent_writer::{ExtentWriter, WriteMemory};
pub use handle::Table;
pub(crate) use pace::{Pace, Wakeup};
pub use pending::PendingCommit;
#[cfg(test)]
pub(crate) use range::CHUNKS;
pub use range::{KeyIter, Range, ValueIter};
pub(crate) use reads::TableReader;
pub use reads::{ReadTables, Snapshot};
pub(crate) use runs::{Joined, NewRun, RunWriter};
pub(crate) use shared::{Applying, Keep, Shared, UnshippedRun, UnshippedRuns};
