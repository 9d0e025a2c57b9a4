//! The map that users hold: tables, batches, snapshots, ranges.

mod batch;
mod bell;
mod bulk;
mod changed;
mod core;
mod gate;
mod handle;
mod pace;
mod pending;
mod range;
mod runs;
mod shared;
mod snapshot;

pub use batch::WriteBatch;
pub use bulk::{BulkLoad, Existing};
pub use handle::Table;
pub use pending::PendingCommit;
pub use range::Range;
pub use snapshot::Snapshot;

pub(crate) use self::core::{Change, DrainRound, Pinned, TableCore, TableSlot};
pub(crate) use bell::Bell;
pub(crate) use changed::ChangedTables;
pub(crate) use gate::Gate;
pub(crate) use pace::Pace;
pub(crate) use runs::{Joined, NewRun};
pub(crate) use shared::{Keep, Shared};
