//! Range tombstones: what a range delete leaves. A tombstone hides every version of its keys that
//! is older than itself. It hides nothing of its own sequence number, since range deletes come
//! first within a commit.
//!
//! A set answers a stabbing query: which is the newest tombstone over a key. A set is a few sorted
//! runs. Each run is at least twice as large as the next, so adding a tombstone copies little. A
//! run is an implicit search tree over the starts. Each subtree knows its greatest end and its
//! greatest sequence number.
//!
//! Source: the interval tree of Cormen and others, augmented by sequence numbers; runs in powers of
//! two as in Bentley and Saxe's decomposition.
//!
//! Thread safety: sets never change. [`TombstoneList`] replaces its set as a whole, by compare and
//! swap, and tries again if another thread was faster. There is no lock: commits add tombstones
//! between ticket and finish, where a stopped thread must not hold up earlier commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{KeyInterval, is_from};
use crate::memory::Gauge;
use crate::record::Lsn;
use arc_swap::ArcSwap;

/// A range tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) interval: KeyInterval,
    pub(crate) seq: Lsn,
    /// Where its record lies in the region; 0 for one of an extent.
    pub(crate) at: u64,
}

impl Tombstone {
    /// A tombstone over keys of an extent.
    pub(crate) fn new(interval: KeyInterval, seq: Lsn) -> Tombstone {
        Tombstone { interval, seq, at: 0 }
    }

    /// Bytes of its keys.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.interval.start.len() + self.interval.end.as_ref().map_or(0, Vec::len)
    }
}

/// Of a subtree: the tombstone that ends last, and the greatest sequence number.
#[derive(Clone, Copy, Debug)]
struct Reach {
    ends_last: usize,
    newest: Lsn,
}

/// Tombstones by start, of one start the newest first. The root of `lo..hi` is its middle.
#[derive(Debug)]
struct Run {
    items: Vec<Arc<Tombstone>>,
    reach: Vec<Reach>,
}

impl Run {
    fn new(mut items: Vec<Arc<Tombstone>>) -> Run {
        let place = |t: &Arc<Tombstone>| std::cmp::Reverse(t.seq);
        items.sort_by(|a, b| a.interval.start.cmp(&b.interval.start).then(place(a).cmp(&place(b))));
        let reach = (0..items.len()).map(|i| Reach { ends_last: i, newest: items[i].seq });
        let mut run = Run { reach: reach.collect(), items };
        run.measure(0, run.items.len());
        run
    }

    fn measure(&mut self, lo: usize, hi: usize) -> Option<Reach> {
        if lo == hi {
            return None;
        }
        let mid = lo.midpoint(hi);
        let mut reach = self.reach[mid];
        for below in [self.measure(lo, mid), self.measure(mid + 1, hi)].into_iter().flatten() {
            let end = |i: usize| self.items[i].interval.end.as_ref();
            // No end is the last end of all.
            let later = match (end(below.ends_last), end(reach.ends_last)) {
                (Some(below), Some(own)) => below > own,
                (None, own) => own.is_some(),
                (Some(_), None) => false,
            };
            if later {
                reach.ends_last = below.ends_last;
            }
            reach.newest = reach.newest.max(below.newest);
        }
        self.reach[mid] = reach;
        Some(reach)
    }

    /// Raises `best` to the greatest sequence number over `key`, of those that `which` accepts.
    fn stab(
        &self,
        (lo, hi): (usize, usize),
        key: &[u8],
        which: &impl Fn(&Tombstone) -> bool,
        best: &mut Lsn,
    ) {
        if lo == hi {
            return;
        }
        let mid = lo.midpoint(hi);
        let Reach { ends_last, newest } = self.reach[mid];
        if newest <= *best || !self.items[ends_last].interval.ends_after(key) {
            return;
        }
        self.stab((lo, mid), key, which, best);
        let item = &self.items[mid];
        if is_from(&item.interval.start, key) {
            if item.seq > *best && item.interval.ends_after(key) && which(item) {
                *best = item.seq;
            }
            self.stab((mid + 1, hi), key, which, best);
        }
    }
}

/// A set of range tombstones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tombstones {
    /// The largest first.
    runs: Vec<Arc<Run>>,
}

impl FromIterator<Arc<Tombstone>> for Tombstones {
    fn from_iter<I: IntoIterator<Item = Arc<Tombstone>>>(items: I) -> Tombstones {
        Tombstones::default().and(items.into_iter().collect())
    }
}

impl Tombstones {
    /// This set and some more.
    fn and(&self, mut items: Vec<Arc<Tombstone>>) -> Tombstones {
        let mut runs = self.runs.clone();
        while let Some(last) = runs.pop_if(|run| run.items.len() < 2 * items.len()) {
            items.extend(last.items.iter().cloned());
        }
        if !items.is_empty() {
            runs.push(Arc::new(Run::new(items)));
        }
        Tombstones { runs }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.items.len()).sum()
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Tombstone>> {
        self.runs.iter().flat_map(|run| &run.items)
    }

    /// The sequence number of the newest one over `key` that is not newer than `at`; 0 if there is
    /// none.
    pub(crate) fn newest_over(&self, key: &[u8], at: Lsn) -> Lsn {
        self.stab(key, |tombstone| tombstone.seq <= at)
    }

    /// Whether one, newer than `older` and not newer than `at`, hides all of `interval`.
    pub(crate) fn hide(&self, interval: &KeyInterval, older: Lsn, at: Lsn) -> bool {
        let hides = |t: &Tombstone| t.seq > older && t.seq <= at && t.interval.covers(interval);
        self.stab(&interval.start, hides) > 0
    }

    fn stab(&self, key: &[u8], which: impl Fn(&Tombstone) -> bool) -> Lsn {
        let mut best = 0;
        for run in &self.runs {
            run.stab((0, run.items.len()), key, &which, &mut best);
        }
        best
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        memory_of(self.iter()) as usize
    }
}

/// Bytes of memory that range tombstones take in a set.
fn memory_of<'a>(all: impl IntoIterator<Item = &'a Arc<Tombstone>>) -> u64 {
    let each = size_of::<Tombstone>() + size_of::<Arc<Tombstone>>() + size_of::<Reach>();
    all.into_iter().map(|tombstone| (each + tombstone.raw_bytes()) as u64).sum()
}

impl Drop for TombstoneList {
    fn drop(&mut self) {
        self.gauge.sub(self.set.load().memory() as u64);
    }
}

/// The range tombstones of a memtable or a level 0. An empty list costs a reader one load.
#[derive(Debug, Default)]
pub(crate) struct TombstoneList {
    /// At least as many as there are: raised before tombstones are added, lowered after they are
    /// removed.
    count: AtomicUsize,
    set: ArcSwap<Tombstones>,
    /// Counts the memory of those of all lists.
    gauge: Arc<Gauge>,
}

impl TombstoneList {
    /// An empty one, counted by `gauge`.
    pub(crate) fn counted(gauge: &Arc<Gauge>) -> TombstoneList {
        TombstoneList {
            count: AtomicUsize::new(0),
            set: ArcSwap::default(),
            gauge: Arc::clone(gauge),
        }
    }

    /// The set of this moment; `None` if it is empty.
    pub(crate) fn load(&self) -> Option<Arc<Tombstones>> {
        let some = (self.count.load(Ordering::Acquire) > 0).then(|| self.set.load_full());
        some.filter(|set| set.len() > 0)
    }

    /// Adds some.
    pub(crate) fn add(&self, items: Vec<Arc<Tombstone>>) {
        self.count.fetch_add(items.len(), Ordering::AcqRel);
        self.gauge.add(memory_of(&items));
        self.set.rcu(move |set| set.and(items.clone()));
    }

    /// Removes those that `which` takes, and returns them.
    pub(crate) fn remove(&self, which: impl Fn(&Tombstone) -> bool) -> Vec<Arc<Tombstone>> {
        let split = |set: &Tombstones| -> (Vec<_>, Vec<_>) {
            set.iter().cloned().partition(|tombstone| which(tombstone))
        };
        if split(&self.set.load()).0.is_empty() {
            return Vec::new();
        }
        let before = self.set.rcu(|set| split(set).1.into_iter().collect::<Tombstones>());
        let (gone, _) = split(&before);
        self.count.fetch_sub(gone.len(), Ordering::AcqRel);
        self.gauge.sub(memory_of(&gone));
        gone
    }

    /// Whether the one that starts at `start` with `seq` lies at `at`.
    pub(crate) fn holds(&self, start: &[u8], seq: Lsn, at: u64) -> bool {
        self.load().is_some_and(|set| set.iter().any(|t| t.is(start, seq) && t.at == at))
    }

    /// Moves the tombstone that starts at `start` with `seq` from `from` to `to`; whether it was at
    /// `from`.
    pub(crate) fn relocate(&self, start: &[u8], seq: Lsn, from: u64, to: u64) -> bool {
        let is_it = |t: &Tombstone| t.is(start, seq) && t.at == from;
        if !self.set.load().iter().any(|t| is_it(t)) {
            return false;
        }
        let moved = |t: &Arc<Tombstone>| match is_it(t) {
            true => Arc::new(Tombstone { at: to, ..Tombstone::clone(t) }),
            false => Arc::clone(t),
        };
        let before = self.set.rcu(|set| set.iter().map(moved).collect::<Tombstones>());
        before.iter().any(|t| is_it(t))
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.load().map_or(0, |set| set.memory() as u64)
    }
}

impl Tombstone {
    fn is(&self, start: &[u8], seq: Lsn) -> bool {
        self.seq == seq && self.interval.start == start
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tombstones over few short keys.
    pub(crate) fn tombstones(
        count: std::ops::Range<usize>,
    ) -> impl Strategy<Value = Vec<Arc<Tombstone>>> {
        let key = || prop::collection::vec(0u8..4, 0..3);
        let one = (key(), prop::option::weighted(0.8, key()), 1u64..14);
        prop::collection::vec(one, count).prop_map(|list| {
            let new = |(start, end, seq)| Tombstone::new(KeyInterval { start, end }, seq);
            let full = |t: &Tombstone| !t.interval.is_empty();
            list.into_iter().map(new).filter(full).map(Arc::new).collect()
        })
    }

    proptest! {
        #[test]
        fn sets_are_lists(
            list in tombstones(0..40),
            key in prop::collection::vec(0u8..4, 0..4),
            last in prop::collection::vec(0u8..4, 0..4),
            older in 0u64..14,
            at in 0u64..15,
        ) {
            let one_by_one = TombstoneList::default();
            list.iter().for_each(|t| one_by_one.add(vec![Arc::clone(t)]));
            let interval = KeyInterval::closed(&key, &last);
            let over = list.iter().filter(|t| t.seq <= at && t.interval.contains(&key));
            let newest = over.map(|t| t.seq).max().unwrap_or(0);
            let hidden = list.iter().any(|t| {
                let hides = t.seq <= at && t.seq > older;
                hides && t.interval.contains(&key) && t.interval.covers(&interval)
            });
            let sets = [list.iter().cloned().collect(), Tombstones::clone(&one_by_one.set.load())];
            for set in sets {
                prop_assert_eq!(set.len(), list.len());
                prop_assert_eq!(set.newest_over(&key, at), newest);
                prop_assert_eq!(set.hide(&interval, older, at), hidden);
                let sizes: Vec<_> = set.runs.iter().map(|run| run.items.len()).collect();
                prop_assert!(sizes.windows(2).all(|w| w[0] >= 2 * w[1]), "{:?}", sizes);
            }
            prop_assert_eq!(one_by_one.load().is_some(), !list.is_empty());
            let gone = one_by_one.remove(|t| t.seq <= at);
            prop_assert!(gone.iter().all(|t| t.seq <= at));
            prop_assert_eq!(one_by_one.set.load().len() + gone.len(), list.len());
        }
    }

    #[test]
    fn one_is_found_where_it_was_copied_to() {
        let list = TombstoneList::default();
        let one = Tombstone { at: 64, ..Tombstone::new(KeyInterval::all(), 3) };
        list.add(vec![Arc::new(one)]);
        assert!(list.holds(b"", 3, 64) && !list.holds(b"", 3, 128) && !list.holds(b"a", 3, 64));
        assert!(!list.relocate(b"", 3, 72, 128), "it is somewhere else");
        assert!(list.relocate(b"", 3, 64, 128) && list.holds(b"", 3, 128));
        assert_eq!(list.load().map(|set| set.len()), Some(1));
        assert!(list.memory() > 0);
    }
}
