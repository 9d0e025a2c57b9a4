//! The snapshots that readers hold, and the horizon: which versions of a key still count.
//!
//! Thread safety: every call takes the one mutex for a few instructions, but for
//! [`register_at`](SnapshotRegistry::register_at), which has it while its moment is looked for.
//!
//! Invariants:
//!
//! 1. A snapshot's LSN is read from the visible watermark under the mutex, and so is a horizon.
//!    Hence a snapshot registered after a horizon was taken is not older than the horizon's
//!    newest LSN, and versions dropped by that horizon are invisible to it. The clock is read
//!    with it, so the same holds for its time, and what has expired by then.
//! 2. A snapshot may stand at an LSN that has its place in the order and is not visible yet
//!    ([`register_with`](SnapshotRegistry::register_with)). No horizon names it until it is. It is
//!    one of the snapshots that come after the horizon's newest LSN. Nothing reads by it before.

mod kept;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Clock, Time, Watermark};
use crate::os::ForkGuard;
use crate::os::sync::Mutex;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::time;
use crate::record::Lsn;

pub(crate) use kept::{KeptFor, Readers, is_worth};

/// The registered snapshots of one database.
#[derive(Debug)]
pub(crate) struct SnapshotRegistry {
    visible: Arc<Watermark>,
    clock: Arc<Clock>,
    held: Mutex<BTreeMap<Lsn, Held>>,
    fork: ForkGuard,
    /// The end of the last horizon: no snapshot below it is registered any more.
    #[cfg(debug_assertions)]
    given: Watermark,
    /// How often the last snapshot at an LSN was released.
    releases: AtomicU64,
}

/// Snapshots that stand at one LSN.
#[derive(Debug)]
struct Held {
    count: usize,
    /// Since when there has been one.
    since: Instant,
    /// The time of the first of them.
    time: Time,
}

impl SnapshotRegistry {
    /// An empty registry over the database's visible watermark.
    #[cfg(test)]
    pub(crate) fn new(visible: Arc<Watermark>) -> Arc<SnapshotRegistry> {
        SnapshotRegistry::with_clock(visible, Clock::of_machine())
    }

    /// An empty registry over the database's visible watermark and its clock.
    pub(crate) fn with_clock(visible: Arc<Watermark>, clock: Arc<Clock>) -> Arc<SnapshotRegistry> {
        Arc::new(SnapshotRegistry {
            visible,
            clock,
            held: Mutex::new(BTreeMap::new()),
            fork: ForkGuard::new(),
            #[cfg(debug_assertions)]
            given: Watermark::new(0),
            releases: AtomicU64::new(0),
        })
    }

    /// Registers a snapshot of everything visible now.
    pub(crate) fn register(self: &Arc<Self>) -> Registered {
        self.register_at(|visible| visible.get())
    }

    /// Registers a snapshot of everything visible now and of the commits up to `lsn`, which has its
    /// place in the order (invariant 2). The caller waits for it before it reads.
    pub(crate) fn register_with(self: &Arc<Self>, lsn: Lsn) -> Registered {
        self.register_at(|visible| visible.get().max(lsn))
    }

    /// Registers a snapshot of what `moment` reads of the watermark. Meanwhile no other thread
    /// registers a snapshot or takes a horizon. It allocates only afterwards, so `moment` may be
    /// one in which nothing is allocated.
    pub(crate) fn register_at(
        self: &Arc<Self>,
        moment: impl FnOnce(&Watermark) -> Lsn,
    ) -> Registered {
        let mut held = self.held.lock();
        let (lsn, time) = (moment(&self.visible), self.clock.now());
        #[cfg(debug_assertions)]
        assert!(lsn >= self.given.get(), "a compaction keeps what a new snapshot sees");
        let first = || Held { count: 0, since: time::now(), time };
        held.entry(lsn).or_insert_with(first).count += 1;
        Registered { registry: Arc::clone(self), lsn, time }
    }

    /// What a compaction that starts now has to keep.
    pub(crate) fn horizon(&self) -> Horizon {
        let held = self.held.lock();
        let newest = self.visible.get();
        let mut lsns: Vec<Lsn> = held.range(..newest).map(|(lsn, _)| *lsn).collect();
        lsns.push(newest);
        debug_assert!(lsns.is_sorted(), "the newest LSN is the last (invariants 1 and 2)");
        #[cfg(debug_assertions)]
        self.given.raise(newest);
        let now = self.clock.now();
        // One that is not visible yet may be older than those before it in the order.
        let time = held.values().map(|held| held.time).min().unwrap_or(now);
        debug_assert!(time <= now, "no snapshot is of a later time (invariant 1)");
        Horizon { lsns, time, now }
    }

    /// How many snapshots are held, and the oldest one's LSN.
    pub(crate) fn held(&self) -> (usize, Option<Lsn>) {
        let held = self.held.lock();
        (held.values().map(|held| held.count).sum(), held.keys().next().copied())
    }

    /// How often the last snapshot at an LSN was released: as long as it stays the same, versions
    /// that readers need stay needed.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Acquire)
    }

    /// For how long the oldest one has been held.
    pub(crate) fn oldest_age(&self) -> Option<Duration> {
        self.held.lock().values().next().map(|held| time::since(held.since))
    }
}

/// A registered snapshot; dropping it lets its versions go.
#[derive(Debug)]
pub(crate) struct Registered {
    registry: Arc<SnapshotRegistry>,
    lsn: Lsn,
    time: Time,
}

impl Registered {
    /// The LSN up to which it sees.
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// The moment by which it goes: what has expired later is there for it.
    pub(crate) fn time(&self) -> Time {
        self.time
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.registry.fork.is_forked() {
            // The parent's snapshot. A thread of the parent may have held the mutex at the fork.
            return;
        }
        let mut held = self.registry.held.lock();
        if let Some(at_lsn) = held.get_mut(&self.lsn) {
            at_lsn.count -= 1;
            if at_lsn.count == 0 {
                held.remove(&self.lsn);
                self.registry.releases.fetch_add(1, Ordering::Release);
            }
        }
    }
}

/// The LSNs at which a reader reads, or could come to read: ascending, the newest last.
#[derive(Clone, Debug)]
pub(crate) struct Horizon {
    lsns: Vec<Lsn>,
    time: Time,
    now: Time,
}

impl Horizon {
    /// Of one reader alone.
    pub(crate) fn of(reader: &Registered) -> Horizon {
        let Registered { lsn, time, .. } = *reader;
        Horizon { lsns: vec![lsn], time, now: time }
    }

    /// The newest LSN: readers at or above it are served by what this horizon keeps.
    pub(crate) fn newest(&self) -> Lsn {
        self.lsns.last().copied().unwrap_or(0)
    }

    /// The LSNs at which a reader reads: ascending, the newest last.
    pub(crate) fn readers(&self) -> &[Lsn] {
        &self.lsns
    }

    /// The oldest LSN at which a reader reads.
    pub(crate) fn oldest(&self) -> Lsn {
        self.lsns.first().copied().unwrap_or(0)
    }

    /// The earliest moment by which a reader reads.
    pub(crate) fn oldest_time(&self) -> Time {
        self.time
    }

    /// The moment at which it was taken.
    pub(crate) fn now(&self) -> Time {
        self.now
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
        assert!(horizon.readers_of(8, 15).is_some(), "the snapshot at 10 sees 8");
        assert!(horizon.readers_of(8, 9).is_none(), "the snapshot at 10 sees 9 instead");
        assert!(horizon.readers_of(12, 15).is_none(), "no reader between 12 and 15");
        drop(at_ten);
        assert!(registry.horizon().readers_of(8, 15).is_none());
        assert_eq!(registry.held(), (0, None));
    }

    /// A snapshot that waits for commits stands above the watermark. A horizon that named it would
    /// drop versions of readers between the two.
    #[test]
    fn horizon_ends_at_the_watermark_below_a_snapshot_that_waits() {
        let visible = Arc::new(Watermark::new(10));
        let registry = SnapshotRegistry::new(Arc::clone(&visible));
        let waits = registry.register_with(30);
        assert_eq!((waits.lsn(), registry.register_with(7).lsn()), (30, 10));
        assert_eq!(registry.horizon().readers(), [10]);
        visible.raise(20);
        let between = registry.register();
        assert_eq!(registry.horizon().readers(), [20]);
        assert!(registry.horizon().oldest_time() <= waits.time());
        visible.raise(40);
        assert_eq!(registry.horizon().readers(), [20, 30, 40]);
        drop((waits, between));
        assert_eq!(registry.horizon().readers(), [40]);
    }
}
