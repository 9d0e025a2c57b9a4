//! How far shipping is.

use crate::db::engine::Engine;
use crate::os::sync::atomic::Ordering;
use crate::os::time;

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

/// How far shipping is, where the database is shared.
pub(in crate::db) fn stats(engine: &Engine) -> Option<ShareStats> {
    let (shipper, feed) = (engine.shipper.get()?, engine.shared.committer.feed()?);
    let (counts, asked) = (&shipper.counts, shipper.log.counts());
    let shipped = feed.acknowledged();
    // What came since the shipper's last look is no older than that.
    let since = counts.waiting_since.lock().or_else(|| {
        counts.looked_at.lock().filter(|_| shipped < engine.shared.committer.visible())
    });
    let number = |counter: &crate::os::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    Some(ShareStats {
        store: shipper.log.address(),
        shipped,
        lag_commits: engine.shared.committer.visible().saturating_sub(shipped),
        lag_bytes: feed.queued(),
        lag_ms: since.map_or(0, |since| time::since(since).as_millis() as u64),
        segments: number(&counts.segments),
        segment_bytes: number(&counts.segment_bytes),
        checkpoints: number(&counts.checkpoints),
        checkpoint_bytes: number(&counts.checkpoint_bytes),
        gets: asked.gets + asked.heads,
        puts: asked.puts,
        others: asked.deletes + asked.lists,
        note: counts.failure.lock().clone(),
        collect_note: counts.collect_failure.lock().clone(),
    })
}
