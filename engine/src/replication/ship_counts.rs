//! How far shipping is.

use std::time::Instant;

use super::log::SharedLog;
use crate::engine::Engine;
use crate::engine::shipping::ShareStats;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::time;

/// What was shipped since the opening.
#[derive(Debug, Default)]
pub(super) struct ShipCounts {
    pub(super) segments: AtomicU64,
    pub(super) segment_bytes: AtomicU64,
    pub(super) checkpoints: AtomicU64,
    pub(super) checkpoint_bytes: AtomicU64,
    /// When the oldest commit that waits was handed over; `None` if none was seen to wait.
    pub(super) waiting_since: Mutex<Option<Instant>>,
    /// When the last step began: no later one has looked at the feed.
    pub(super) looked_at: Mutex<Option<Instant>>,
    pub(super) failure: Mutex<Option<String>>,
    /// Why nothing is deleted, if so. Shipping goes on.
    pub(super) collect_failure: Mutex<Option<String>>,
}

impl ShipCounts {
    /// How far it is, where the database is shared.
    pub(super) fn stats(&self, log: &SharedLog, engine: &Engine) -> Option<ShareStats> {
        let feed = engine.shared.committer.feed()?;
        let asked = log.counts();
        let shipped = feed.acknowledged();
        // What came since the shipper's last look is no older than that.
        let since = self.waiting_since.lock().or_else(|| {
            self.looked_at.lock().filter(|_| shipped < engine.shared.committer.visible())
        });
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Some(ShareStats {
            store: log.address(),
            shipped,
            lag_commits: engine.shared.committer.visible().saturating_sub(shipped),
            lag_bytes: feed.queued(),
            lag_ms: since.map_or(0, |since| time::since(since).as_millis() as u64),
            segments: number(&self.segments),
            segment_bytes: number(&self.segment_bytes),
            checkpoints: number(&self.checkpoints),
            checkpoint_bytes: number(&self.checkpoint_bytes),
            gets: asked.gets + asked.heads,
            puts: asked.puts,
            others: asked.deletes + asked.lists,
            note: self.failure.lock().clone(),
            collect_note: self.collect_failure.lock().clone(),
        })
    }
}
