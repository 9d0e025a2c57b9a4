//! Shipping of commits to a shared store, as the engine knows it. `replication` does it.

use std::fmt;

use super::Engine;
use crate::base::error::Result;

/// Ships the commits of one database.
///
/// Thread safety: any thread may call any method; the closing calls `drain`, `hurry` and `finish`,
/// in this order.
pub(crate) trait Shipping: fmt::Debug + Send + Sync {
    /// The body of the shipper's thread.
    fn run(&self, engine: &Engine);

    /// The body of the collector's thread. After a failure it rests, longer and longer.
    fn run_collector(&self, engine: &Engine);

    /// Appends an entry, if there is something to append; whether there was. Does nothing while
    /// another thread takes a step.
    ///
    /// # Errors
    ///
    /// `Fenced` if another writer has claimed the log: the database has stopped then. `Unavailable`
    /// if the store does not answer: another step tries again. Those of a checkpoint.
    fn step(&self, engine: &Engine) -> Result<bool>;

    /// Ships what there is, before a closing. Ends at the first failure: a store that is away takes
    /// five seconds. The commits are durable on this machine, and the next opening ships them.
    fn drain(&self, engine: &Engine);

    /// Whether a closing has begun.
    fn is_closing(&self) -> bool;

    /// From now on a request that fails is not made again, so that a closing does not wait for it.
    fn hurry(&self);

    /// The last steps: ships what there is, as long as the store answers, and ends every wait.
    fn finish(&self, engine: &Engine);

    /// How far it is.
    fn stats(&self, engine: &Engine) -> Option<ShareStats>;
}

/// Shipping of commits to the shared store since the opening.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ShareStats {
    /// Where the store is.
    pub store: String,
    /// The last commit that the store has.
    pub shipped: u64,
    /// Commits that are visible here and not yet there.
    pub lag_commits: u64,
    /// Bytes of commits that wait.
    pub lag_bytes: u64,
    /// The age of the oldest commit that waits, in milliseconds; 0 if none does. With all well it
    /// is below 1000: more means that the store is away or slower than commits come.
    pub lag_ms: u64,
    /// Segments that were sent.
    pub segments: u64,
    /// Bytes of commits in them, before compression.
    pub segment_bytes: u64,
    /// Checkpoints that were sent.
    pub checkpoints: u64,
    /// Bytes of extents that were sent for them.
    pub checkpoint_bytes: u64,
    /// Reads of the store.
    pub gets: u64,
    /// Writes to it.
    pub puts: u64,
    /// Lists and deletions of objects.
    pub others: u64,
    /// Why the last step of the shipping failed, or why a checkpoint that is due could not be made;
    /// `None` if all is well. Both are tried again. A checkpoint that fails holds no commit up.
    pub note: Option<String>,
    /// Why nothing is deleted from the store, if so: it is tried again, and shipping goes on.
    pub collect_note: Option<String>,
}
