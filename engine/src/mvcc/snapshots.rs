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
//!
//! How many versions are kept for readers alone, grouped by these readers. So an extent or a level
//! 0 knows when versions can go without looking at them again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Clock, Time, Watermark};
use crate::base::record::Lsn;
use crate::os::sync::Mutex;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::{ForkGuard, time};

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

/// The first and the last LSN at which some reader needs a version.
pub(crate) type Readers = (Lsn, Lsn);

/// The most groups of readers that are told apart. Beyond that neighbours are joined, and wait for
/// each other.
const MOST: usize = 32;

/// While there are writers, dropping versions is worth it if one in `WORTH` can go. Other versions
/// are written again anyway when their keys are, and at last when writers rest.
const WORTH: u64 = 8;

/// Whether it is worth going over `all` versions to drop the `obsolete` ones. `rests` says that no
/// thread writes.
pub(crate) fn is_worth(obsolete: u64, all: u64, rests: bool) -> bool {
    obsolete > 0 && (rests || obsolete.saturating_mul(WORTH) >= all)
}

/// How much is kept for which readers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptFor {
    /// Ascending, none of the same readers twice.
    groups: Vec<(Readers, u64)>,
}

impl KeptFor {
    /// Notes something that is kept for `readers`.
    pub(crate) fn add(&mut self, readers: Readers) {
        debug_assert!(readers.0 <= readers.1, "the first comes first");
        match self.groups.binary_search_by_key(&readers, |(of, _)| *of) {
            Ok(at) => self.groups[at].1 += 1,
            Err(at) => {
                self.groups.insert(at, (readers, 1));
                if self.groups.len() > MOST {
                    self.join_closest();
                }
            }
        }
    }

    /// Joins the two neighbours that are the fewest LSNs apart.
    fn join_closest(&mut self) {
        let joined =
            |pair: &[(Readers, u64)]| -> Readers { (pair[0].0.0, pair[0].0.1.max(pair[1].0.1)) };
        let lengths = self.groups.windows(2).map(joined).map(|(first, last)| last - first);
        let Some((at, _)) = lengths.enumerate().min_by_key(|(_, length)| *length) else { return };
        let together = (joined(&self.groups[at..]), self.groups[at].1 + self.groups[at + 1].1);
        self.groups.splice(at..at + 2, []);
        // It may be as long as one that is there.
        match self.groups.binary_search_by_key(&together.0, |(of, _)| *of) {
            Ok(at) => self.groups[at].1 += together.1,
            Err(at) => self.groups.insert(at, together),
        }
    }

    /// How much there is.
    pub(crate) fn count(&self) -> u64 {
        self.groups.iter().map(|(_, count)| count).sum()
    }

    /// How many versions no reader of `readers` needs. At least as many go when the records are
    /// looked at. `readers` ascend.
    pub(crate) fn obsolete(&self, readers: &[Lsn]) -> u64 {
        let is_left = |(first, last): Readers| {
            let at = readers.partition_point(|lsn| *lsn < first);
            readers.get(at).is_some_and(|lsn| *lsn <= last)
        };
        self.groups.iter().filter(|(of, _)| !is_left(*of)).map(|(_, count)| count).sum()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.groups.capacity() * size_of::<(Readers, u64)>()
    }
}

impl Horizon {
    /// The readers that see the version `seq` of a key, if any; its next newer version is `newer`.
    /// A version that is newer than the horizon has readers still to come.
    pub(crate) fn readers_of(&self, seq: Lsn, newer: Lsn) -> Option<Readers> {
        debug_assert!(seq < newer, "versions come newest first");
        if seq > self.newest() {
            return Some((seq, newer - 1));
        }
        let from = self.lsns.partition_point(|lsn| *lsn < seq);
        let to = self.lsns.partition_point(|lsn| *lsn < newer);
        self.between(from, to)
    }

    /// The readers at an LSN below `seq`, if any.
    pub(crate) fn readers_below(&self, seq: Lsn) -> Option<Readers> {
        self.between(0, self.lsns.partition_point(|lsn| *lsn < seq))
    }

    fn between(&self, from: usize, to: usize) -> Option<Readers> {
        let readers = self.lsns.get(from..to)?;
        Some((*readers.first()?, *readers.last()?))
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

    mod kept {
        use std::sync::Arc;

        use proptest::prelude::*;

        use super::super::*;
        use crate::mvcc::{SnapshotRegistry, Watermark};

        #[test]
        fn a_version_is_kept_for_those_who_see_it() {
            let visible = Arc::new(Watermark::new(10));
            let registry = SnapshotRegistry::new(Arc::clone(&visible));
            let _ten = registry.register();
            visible.raise(20);
            let _twenty = registry.register();
            visible.raise(30);
            let horizon = registry.horizon();
            assert_eq!(horizon.readers_of(5, 15), Some((10, 10)));
            assert_eq!(horizon.readers_of(5, 25), Some((10, 20)));
            assert_eq!(horizon.readers_of(11, 20), None);
            assert_eq!(horizon.readers_of(31, 40), Some((31, 39)), "later readers are unknown");
            assert_eq!(
                (horizon.readers_below(10), horizon.readers_below(25)),
                (None, Some((10, 20)))
            );
        }

        #[test]
        fn it_goes_group_by_group() {
            let mut kept = KeptFor::default();
            [(10, 10), (10, 20), (20, 20), (20, 20)].into_iter().for_each(|of| kept.add(of));
            assert_eq!((kept.count(), kept.obsolete(&[10, 20, 30])), (4, 0));
            assert_eq!(kept.obsolete(&[10, 30]), 2, "the reader at 20 alone kept two");
            assert_eq!(kept.obsolete(&[20, 30]), 1);
            assert_eq!(kept.obsolete(&[15, 30]), 3, "a reader in between counts as one of them");
            assert_eq!(kept.obsolete(&[30]), 4);
        }

        #[test]
        fn few_among_many_wait_until_nobody_writes() {
            assert!(!is_worth(0, 0, true));
            assert!(is_worth(1, 8, false) && !is_worth(1, 9, false) && is_worth(1, 9, true));
        }

        proptest! {
            /// However many groups there are, nothing is lost, and nothing goes too early; with the
            /// last reader all goes.
            #[test]
            fn groups_that_are_joined_wait_for_all_of_theirs(
                all in prop::collection::vec((1u64..500, 0u64..40), 0..200),
                readers in prop::collection::btree_set(1u64..600, 0..6),
            ) {
                let mut kept = KeptFor::default();
                all.iter().for_each(|(first, more)| kept.add((*first, first + more)));
                let readers: Vec<Lsn> = readers.into_iter().collect();
                let goes = |(first, more): &&(Lsn, Lsn)| {
                    !readers.iter().any(|lsn| (*first..=first + more).contains(lsn))
                };
                prop_assert!(kept.groups.len() <= MOST);
                prop_assert!(kept.groups.windows(2).all(|pair| pair[0].0 < pair[1].0));
                prop_assert_eq!(kept.count(), all.len() as u64);
                prop_assert!(kept.obsolete(&readers) <= all.iter().filter(goes).count() as u64);
                prop_assert_eq!(kept.obsolete(&[600]), all.len() as u64);
            }
        }
    }
}
