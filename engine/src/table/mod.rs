//! The map that users hold: tables, batches, snapshots, ranges.

mod applying;
mod atomic;
mod awaited;
mod batch;
mod bulk;
mod changed;
mod columns;
mod core;
mod handle;
mod lent;
mod merge;
mod pace;
mod pending;
mod range;
mod reader;
mod reads;
mod row_change;
mod run_writer;
mod runs;
mod shared;
mod snapshot;
mod unshipped;
mod wakeup;
mod write;

pub use batch::WriteBatch;
pub use bulk::{BulkLoad, Existing};
pub use columns::{KeyIter, ValueIter};
pub use handle::Table;
pub use pending::PendingCommit;
pub use range::Range;
pub(crate) use reader::TableReader;
pub use reads::ReadTables;
pub use snapshot::Snapshot;

pub(crate) use self::core::{
    Change, DrainRound, Pinned, TableBatch, TableCore, TableSlot, TableTarget,
};
pub(crate) use applying::Applying;
pub(crate) use awaited::Awaited;
pub(crate) use changed::ChangedTables;
pub(crate) use pace::Pace;
pub(crate) use run_writer::RunWriter;
pub(crate) use runs::{Joined, NewRun};
pub(crate) use shared::{Keep, Shared};
pub(crate) use unshipped::{UnshippedRun, UnshippedRuns};
pub(crate) use wakeup::Wakeup;
