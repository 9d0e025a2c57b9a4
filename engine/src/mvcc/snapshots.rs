//! The snapshots that somebody holds, and the horizon: which versions of a key still count.
//!
//! Thread safety: every call takes the one mutex for a few instructions.
//!
//! Invariants:
//!
//! 1. A snapshot's LSN is read from the visible watermark under the mutex, and so is a horizon.
//!    Hence a snapshot registered after a horizon was taken is not older than the horizon's
//!    newest LSN, and versions dropped by that horizon are invisible to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Watermark;
use crate::record::Lsn;

/// The registered snapshots of one database.
#[derive(Debug)]
pub(crate) struct SnapshotRegistry {
    visible: Arc<Watermark>,
    /// LSN → how many snapshots stand at it, and since when there has been one.
    held: Mutex<BTreeMap<Lsn, (usize, Instant)>>,
}

impl SnapshotRegistry {
    /// An empty registry over the database's visible watermark.
    pub(crate) fn new(visible: Arc<Watermark>) -> Arc<SnapshotRegistry> {
        Arc::new(SnapshotRegistry { visible, held: Mutex::new(BTreeMap::new()) })
    }

    /// Registers a snapshot of everything visible now.
    pub(crate) fn register(self: &Arc<Self>) -> Registered {
        let mut held = self.held.lock();
        let lsn = self.visible.get();
        held.entry(lsn).or_insert_with(|| (0, Instant::now())).0 += 1;
        Registered { registry: Arc::clone(self), lsn }
    }

    /// What a compaction that starts now has to keep.
    pub(crate) fn horizon(&self) -> Horizon {
        let held = self.held.lock();
        let newest = self.visible.get();
        let mut lsns: Vec<Lsn> = held.keys().copied().collect();
        if lsns.last() != Some(&newest) {
            lsns.push(newest);
        }
        debug_assert!(lsns.is_sorted(), "no snapshot is newer than the watermark (invariant 1)");
        Horizon { lsns }
    }

    /// How many snapshots are held, and the oldest one's LSN.
    pub(crate) fn held(&self) -> (usize, Option<Lsn>) {
        let held = self.held.lock();
        (held.values().map(|(count, _)| count).sum(), held.keys().next().copied())
    }

    /// For how long the oldest one has been held.
    pub(crate) fn oldest_age(&self) -> Option<Duration> {
        self.held.lock().values().next().map(|(_, since)| since.elapsed())
    }
}

/// A registered snapshot; dropping it lets its versions go.
#[derive(Debug)]
pub(crate) struct Registered {
    registry: Arc<SnapshotRegistry>,
    lsn: Lsn,
}

impl Registered {
    /// The LSN up to which it sees.
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut held = self.registry.held.lock();
        if let Some((count, _)) = held.get_mut(&self.lsn) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.lsn);
            }
        }
    }
}

/// The LSNs at which somebody reads, or could come to read: ascending, the newest last.
#[derive(Clone, Debug)]
pub(crate) struct Horizon {
    lsns: Vec<Lsn>,
}

impl Horizon {
    /// Of one reader alone.
    pub(crate) fn at(lsn: Lsn) -> Horizon {
        Horizon { lsns: vec![lsn] }
    }

    /// The newest LSN: readers at or above it are served by what this horizon keeps.
    pub(crate) fn newest(&self) -> Lsn {
        self.lsns.last().copied().unwrap_or(0)
    }

    /// The LSNs at which somebody reads: ascending, the newest last.
    pub(crate) fn readers(&self) -> &[Lsn] {
        &self.lsns
    }

    /// The oldest LSN at which somebody reads.
    pub(crate) fn oldest(&self) -> Lsn {
        self.lsns.first().copied().unwrap_or(0)
    }

    /// Whether some reader sees the version `seq` of a key whose next newer version is `newer`.
    pub(crate) fn needs(&self, seq: Lsn, newer: Lsn) -> bool {
        debug_assert!(seq < newer, "versions come newest first");
        let i = self.lsns.partition_point(|&lsn| lsn < seq);
        self.lsns.get(i).is_some_and(|&lsn| lsn < newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn horizon_keeps_what_a_snapshot_sees() {
        let visible = Arc::new(Watermark::new(10));
        let registry = SnapshotRegistry::new(Arc::clone(&visible));
        let at_ten = registry.register();
        visible.raise(20);
        let horizon = registry.horizon();
        assert!(horizon.needs(8, 15), "the snapshot at 10 sees 8");
        assert!(!horizon.needs(8, 9), "the snapshot at 10 sees 9 instead");
        assert!(!horizon.needs(12, 15), "nobody reads between 12 and 15");
        drop(at_ten);
        assert!(!registry.horizon().needs(8, 15));
        assert_eq!(registry.held(), (0, None));
    }
}
