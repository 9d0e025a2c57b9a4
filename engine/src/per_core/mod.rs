//! Per-core execution: pinned threads, each of which owns a shard of the keys
//! (docs/internals/per-core.md).
//!
//! A caller names a table and a key, and the executor does the work on the thread that owns them.
//! So what a look-up touches lies in the caches of one processor, and what it counts is written by
//! one thread. Batches of look-ups pin one epoch for each shard, and take one view for each table.
//!
//! Thread safety: every handle may be used from any thread. A shard's thread shares with others the
//! engine itself, which any thread may call. So a closure may read and write the keys of every
//! shard: it is right there, and only slower.
//!
//! Invariants:
//!
//! 1. A key of a table has one shard for as long as the executor lives ([`shard_map`]).
//! 2. Each request is answered once: by the shard's thread, or with `Closed` when it is dropped
//!    before it began ([`request`]).
//! 3. A shard's thread holds no epoch and no view while it waits for a request, nor while it runs a
//!    closure, except inside of [`ShardScope::read`].
//! 4. A shard's thread never waits for another shard.

mod executor;
mod get_batch;
mod reads;
mod request;
mod server;
mod shard_map;
mod state;
mod task;

pub use executor::{PerCore, ShardedTable};
pub use get_batch::{FoundValues, GetBatch, PendingGets};
pub use reads::{ShardScope, TableReads};
pub use state::ShardStats;
pub use task::ShardTask;
