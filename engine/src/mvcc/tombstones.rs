//! Range tombstones: what a range delete leaves. A tombstone hides every version of its keys that
//! is older than itself. It hides nothing of its own sequence number, since range deletes come
//! first within a commit.
//!
//! A set answers a stabbing query: which is the newest tombstone over a key. It also gives those
//! that have keys of an interval. A set is a few sorted runs, at most three of each tier of sizes,
//! so adding a tombstone copies little. A run is a tree of leaves, and a leaf a tree of tombstones,
//! so removing some copies their leaves only.
//!
//! Source: runs in powers of four as in tiered compaction, after Bentley and Saxe's decomposition.
//!
//! Thread safety: sets never change; of a tombstone, where its record lies does, by compare and
//! swap. [`TombstoneList`] replaces its set as a whole, and tries again if another thread was
//! faster. There is no lock: commits add tombstones between ticket and finish, where a stopped
//! thread must not hold up earlier commits.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::KeyInterval;
use super::interval_tree::{IntervalTree, Node, Reach, Span, TombstoneItem};
use crate::base::memory::Gauge;
use crate::base::record::Lsn;
use crate::os::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::os::sync::shared::ArcSwap;

/// Tombstones of a leaf.
const LEAF: usize = 128;

/// Runs of a tier, at most. One more is merged with them.
const RUNS_OF_TIER: usize = 3;

/// The tier of a run: those of each have four times as many tombstones as those of the one below.
fn tier(len: usize) -> u32 {
    len.ilog2() / 2
}

/// Where no record lies: of a tombstone that was removed.
const REMOVED: u64 = u64::MAX;

/// A range tombstone.
#[derive(Debug)]
pub(crate) struct Tombstone {
    pub(crate) interval: KeyInterval,
    pub(crate) seq: Lsn,
    /// Where its record lies in the region; 0 for one of an extent. It changes by compare and swap,
    /// so that a record is counted out of one zone, once.
    at: AtomicU64,
}

impl Tombstone {
    /// A tombstone over keys of an extent.
    pub(crate) fn new(interval: KeyInterval, seq: Lsn) -> Tombstone {
        Tombstone::of_record(interval, seq, 0)
    }

    /// That of the record at `at` in the region.
    pub(crate) fn of_record(interval: KeyInterval, seq: Lsn, at: u64) -> Tombstone {
        Tombstone { interval, seq, at: AtomicU64::new(at) }
    }

    /// Where its record lies.
    pub(crate) fn at(&self) -> u64 {
        self.at.load(Ordering::Acquire)
    }

    /// Marks it removed; where its record lay until then. `None` if it was removed before.
    pub(crate) fn remove(&self) -> Option<u64> {
        Some(self.at.swap(REMOVED, Ordering::AcqRel)).filter(|at| *at != REMOVED)
    }

    /// Bytes of its keys.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.interval.start.len() + self.interval.end.as_ref().map_or(0, Vec::len)
    }
}

/// Tombstones by start, of one start the newest first.
type Leaf = Arc<IntervalTree<TombstoneItem>>;

/// A sorted run of tombstones, never empty.
#[derive(Clone, Debug)]
struct Run {
    leaves: Arc<IntervalTree<Leaf>>,
    len: usize,
}

impl Run {
    fn new(mut items: Vec<TombstoneItem>) -> Option<Run> {
        items.sort_by(TombstoneItem::order);
        let leaves =
            items.chunks(LEAF).filter_map(|some| IntervalTree::new(some.to_vec()).map(Arc::new));
        Run::of(leaves.collect())
    }

    fn of(leaves: Vec<Leaf>) -> Option<Run> {
        let len = leaves.iter().map(|leaf| leaf.items().len()).sum();
        Some(Run { leaves: Arc::new(IntervalTree::new(leaves)?), len })
    }

    fn items(&self) -> impl Iterator<Item = &TombstoneItem> {
        self.leaves.items().iter().flat_map(|leaf| leaf.items())
    }

    /// Those that start at `key` or behind it, in order.
    fn iter_from<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = &'a Arc<Tombstone>> + use<'a> {
        let leaves = self.leaves.items();
        // The leaf in front may end behind the key.
        let leaf = self.leaves.first_from(key).saturating_sub(1);
        let (first, rest) = (&leaves[leaf], &leaves[leaf + 1..]);
        let items = first.items()[first.first_from(key)..].iter();
        items.chain(rest.iter().flat_map(|leaf| leaf.items())).map(|item| &item.tombstone)
    }

    /// The run without those over keys of `interval` that go, of those that `wants` accepts; they
    /// are added to `gone`. Leaves of which none goes are those of this run. `None` if none is
    /// left.
    fn without(
        &self,
        interval: &KeyInterval,
        wants: &impl Fn(&Reach<'_>) -> bool,
        goes: &impl Fn(&Tombstone) -> bool,
        gone: &mut Vec<Arc<Tombstone>>,
    ) -> Option<Run> {
        let mut leaves = Vec::with_capacity(self.leaves.items().len());
        let before = gone.len();
        for leaf in self.leaves.items() {
            let first = gone.len();
            let mut look = |one: &Arc<Tombstone>| {
                gone.extend(goes(one).then(|| Arc::clone(one)));
                ControlFlow::<()>::Continue(())
            };
            let all = leaf.overlapping(interval, wants, &mut look);
            debug_assert!(all.is_continue(), "no visit ends the search");
            if gone.len() == first {
                leaves.push(Arc::clone(leaf));
                continue;
            }
            // A search visits in the order of the leaf.
            let mut go = gone[first..].iter().peekable();
            let stays = |one: &&TombstoneItem| {
                go.next_if(|next| Arc::ptr_eq(next, &one.tombstone)).is_none()
            };
            let items = leaf.items().iter().filter(stays).cloned().collect();
            leaves.extend(IntervalTree::new(items).map(Arc::new));
        }
        if gone.len() == before { Some(self.clone()) } else { Run::of(leaves) }
    }
}

/// A set of range tombstones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tombstones {
    /// The largest first.
    runs: Vec<Run>,
}

impl FromIterator<Arc<Tombstone>> for Tombstones {
    fn from_iter<I: IntoIterator<Item = Arc<Tombstone>>>(items: I) -> Tombstones {
        let items = items.into_iter().map(TombstoneItem::new).collect();
        Tombstones { runs: Run::new(items).into_iter().collect() }
    }
}

impl Tombstones {
    /// This set and one more run.
    fn and(&self, run: &Run) -> Tombstones {
        let mut runs = self.runs.clone();
        let (mut items, mut len) = (Vec::new(), run.len);
        loop {
            let smaller = runs.partition_point(|other| tier(other.len) > tier(len));
            let smaller_yet = runs.partition_point(|other| tier(other.len) >= tier(len));
            let is_full = smaller_yet - smaller == RUNS_OF_TIER;
            let merged = if is_full { smaller } else { smaller_yet };
            if merged == runs.len() {
                break;
            }
            for other in runs.drain(merged..) {
                len += other.len;
                items.extend(other.items().cloned());
            }
        }
        if items.is_empty() {
            runs.push(run.clone());
            return Tombstones { runs };
        }
        items.extend(run.items().cloned());
        runs.extend(Run::new(items));
        Tombstones { runs }
    }

    /// The set without those over keys of `interval` that go, of those that `wants` accepts; they
    /// are added to `gone`.
    fn without(
        &self,
        interval: &KeyInterval,
        wants: &impl Fn(&Reach<'_>) -> bool,
        goes: &impl Fn(&Tombstone) -> bool,
        gone: &mut Vec<Arc<Tombstone>>,
    ) -> Tombstones {
        let runs = self.runs.iter().filter_map(|run| run.without(interval, wants, goes, gone));
        let mut runs: Vec<Run> = runs.collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.len));
        let set = Tombstones { runs: Vec::with_capacity(runs.len()) };
        runs.iter().fold(set, |set, run| set.and(run))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Tombstone>> {
        self.runs.iter().flat_map(Run::items).map(|item| &item.tombstone)
    }

    /// The greatest sequence number; 0 if there is none.
    pub(crate) fn newest(&self) -> Lsn {
        self.runs.iter().map(|run| run.leaves.newest()).max().unwrap_or(0)
    }

    /// Those that have keys of `interval`, in no order. Its cost grows with their number, and with
    /// the logarithm of the others.
    pub(crate) fn overlapping(&self, interval: &KeyInterval) -> Vec<&Arc<Tombstone>> {
        self.wanted(interval, |_| true)
    }

    /// Those of them that `wants` accepts, and perhaps some others: a search passes over parts of
    /// the set in which it accepts none.
    pub(crate) fn wanted(
        &self,
        interval: &KeyInterval,
        wants: impl Fn(&Reach<'_>) -> bool,
    ) -> Vec<&Arc<Tombstone>> {
        let mut found = Vec::new();
        let mut visit = |tombstone| {
            found.push(tombstone);
            ControlFlow::<()>::Continue(())
        };
        for run in &self.runs {
            let all = run.leaves.overlapping(interval, &wants, &mut visit);
            debug_assert!(all.is_continue(), "no visit ends the search");
        }
        found
    }

    /// The first answer of `visit`, which is given those that have keys of `interval`, in no order.
    pub(crate) fn find_overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
        mut visit: impl FnMut(&'a Arc<Tombstone>) -> Option<B>,
    ) -> Option<B> {
        let mut visit = |tombstone| match visit(tombstone) {
            Some(found) => ControlFlow::Break(found),
            None => ControlFlow::Continue(()),
        };
        self.runs
            .iter()
            .find_map(|run| run.leaves.overlapping(interval, &|_| true, &mut visit).break_value())
    }

    /// Those that start at `key` or behind it, in the order of their starts.
    pub(crate) fn iter_from<'a>(
        &'a self,
        key: &[u8],
    ) -> impl Iterator<Item = &'a Arc<Tombstone>> + use<'a> {
        let mut runs: Vec<_> = self.runs.iter().map(|run| run.iter_from(key).peekable()).collect();
        std::iter::from_fn(move || {
            let starts = runs.iter_mut().enumerate();
            let starts = starts.filter_map(|(n, run)| Some((&run.peek()?.interval.start, n)));
            let (_, first) = starts.min()?;
            runs[first].next()
        })
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

    /// The sequence number of the newest one that covers all of `interval` and is not newer than
    /// `at`; 0 if there is none.
    pub(crate) fn newest_covering(&self, interval: &KeyInterval, at: Lsn) -> Lsn {
        self.stab(&interval.start, |t| t.seq <= at && t.interval.covers(interval))
    }

    fn stab(&self, key: &[u8], which: impl Fn(&Tombstone) -> bool) -> Lsn {
        let mut best = 0;
        for run in &self.runs {
            run.leaves.stab(key, &which, &mut best);
        }
        best
    }

    /// The one that starts at `start` with `seq`. Runs are of one time each, as a rule.
    fn find(&self, start: &[u8], seq: Lsn) -> Option<&Arc<Tombstone>> {
        let runs = self.runs.iter().map(|run| (run, &run.leaves));
        let mut runs = runs.filter(|(_, of)| (of.oldest()..=of.newest()).contains(&seq));
        runs.find_map(|(run, _)| {
            run.iter_from(start).take_while(|t| t.interval.start == start).find(|t| t.seq == seq)
        })
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        memory_of(self.iter()) as usize
    }
}

/// Bytes of memory that range tombstones take in a set.
fn memory_of<'a>(all: impl IntoIterator<Item = &'a Arc<Tombstone>>) -> u64 {
    let each = size_of::<Tombstone>() + size_of::<TombstoneItem>() + size_of::<Node>();
    all.into_iter().map(|tombstone| (each + tombstone.raw_bytes()) as u64).sum()
}

impl Drop for TombstoneList {
    fn drop(&mut self) {
        self.gauge.sub(self.memory());
    }
}

/// The range tombstones of a memtable or a level 0. An empty list costs a reader one load.
#[derive(Debug, Default)]
pub(crate) struct TombstoneList {
    /// At least as many as there are: raised before tombstones are added, lowered after they are
    /// removed.
    count: AtomicUsize,
    set: ArcSwap<Tombstones>,
    /// Bytes of memory.
    bytes: AtomicU64,
    /// Counts the memory of those of all lists.
    gauge: Arc<Gauge>,
}

impl TombstoneList {
    /// An empty one, counted by `gauge`.
    pub(crate) fn counted(gauge: &Arc<Gauge>) -> TombstoneList {
        TombstoneList {
            count: AtomicUsize::new(0),
            set: ArcSwap::default(),
            bytes: AtomicU64::new(0),
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
        let bytes = memory_of(&items);
        self.gauge.add(bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Sorted before: another try costs no more than what it is merged with.
        if let Some(run) = Run::new(items.into_iter().map(TombstoneItem::new).collect()) {
            self.set.rcu(move |set| set.and(&run));
        }
    }

    /// Removes those with keys of `interval` that `which` takes, and returns them. `wants` accepts
    /// what has any of them.
    pub(crate) fn remove(
        &self,
        interval: &KeyInterval,
        wants: impl Fn(&Reach<'_>) -> bool,
        which: impl Fn(&Tombstone) -> bool,
    ) -> Vec<Arc<Tombstone>> {
        let mut gone = Vec::new();
        self.set.rcu(|set| {
            gone.clear();
            let rest = set.without(interval, &wants, &which, &mut gone);
            if gone.is_empty() { Arc::clone(set) } else { Arc::new(rest) }
        });
        self.count.fetch_sub(gone.len(), Ordering::AcqRel);
        let bytes = memory_of(&gone);
        self.gauge.sub(bytes);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        gone
    }

    /// Whether the one that starts at `start` with `seq` lies at `at`.
    pub(crate) fn holds(&self, start: &[u8], seq: Lsn, at: u64) -> bool {
        self.load().is_some_and(|set| set.find(start, seq).is_some_and(|t| t.at() == at))
    }

    /// Moves the tombstone that starts at `start` with `seq` from `from` to `to`; whether it was at
    /// `from`. Costs a search, and one word.
    pub(crate) fn relocate(&self, start: &[u8], seq: Lsn, from: u64, to: u64) -> bool {
        let set = self.set.load();
        let moves = |t: &Arc<Tombstone>| {
            t.at.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        set.find(start, seq).is_some_and(moves)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
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

    fn is_tiered(set: &Tombstones) -> bool {
        let tiers: Vec<_> = set.runs.iter().map(|run| std::cmp::Reverse(tier(run.len))).collect();
        tiers.is_sorted() && tiers.chunk_by(|a, b| a == b).all(|some| some.len() <= RUNS_OF_TIER)
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
            let over = list.iter().filter(|t| t.interval.overlaps(&interval)).count();
            let sets = [list.iter().cloned().collect(), Tombstones::clone(&one_by_one.set.load())];
            for set in sets {
                prop_assert_eq!(set.overlapping(&interval).len(), over);
                let ends_by = |t: &Tombstone| t.interval.end.as_ref().is_some_and(|e| *e <= last);
                let wanted = set.wanted(&interval, |reach| reach.has_end_by(&last));
                let wanted = wanted.into_iter().filter(|t| ends_by(t)).count();
                let ends = |t: &&Arc<Tombstone>| t.interval.overlaps(&interval) && ends_by(t);
                prop_assert_eq!(wanted, list.iter().filter(ends).count());
                let newer = set.wanted(&interval, |reach| reach.newest > older);
                let newer = newer.into_iter().filter(|t| t.seq > older).count();
                let over = |t: &&Arc<Tombstone>| t.interval.overlaps(&interval);
                let is_newer = |t: &&Arc<Tombstone>| over(t) && t.seq > older;
                prop_assert_eq!(newer, list.iter().filter(is_newer).count());
                let covers = |t: &&Arc<Tombstone>| {
                    let hides = t.seq <= at && t.interval.contains(&key);
                    hides && t.interval.covers(&interval)
                };
                let covering = list.iter().filter(covers).map(|t| t.seq).max().unwrap_or(0);
                prop_assert_eq!(set.newest_covering(&interval, at), covering);
                let behind: Vec<_> = set.iter_from(&key).map(|t| &t.interval.start).collect();
                prop_assert!(behind.is_sorted());
                let from = list.iter().filter(|t| t.interval.start >= key).count();
                prop_assert_eq!(behind.len(), from);
                prop_assert_eq!(set.newest(), list.iter().map(|t| t.seq).max().unwrap_or(0));
                prop_assert_eq!(set.len(), list.len());
                prop_assert_eq!(set.newest_over(&key, at), newest);
                prop_assert_eq!(set.hide(&interval, older, at), hidden);
                prop_assert!(is_tiered(&set), "{:?}", set);
            }
            prop_assert_eq!(one_by_one.load().is_some(), !list.is_empty());
            let gone = one_by_one.remove(&interval, |reach| reach.oldest <= at, |t| t.seq <= at);
            let goes = |t: &Arc<Tombstone>| t.seq <= at && t.interval.overlaps(&interval);
            prop_assert!(gone.iter().all(goes));
            prop_assert_eq!(gone.len(), list.iter().filter(|t| goes(t)).count());
            let left = one_by_one.set.load();
            prop_assert_eq!(left.len() + gone.len(), list.len());
            prop_assert_eq!(left.iter().count(), left.len());
            prop_assert!(is_tiered(&left), "{:?}", left);
            prop_assert_eq!(one_by_one.memory(), left.memory() as u64);
        }
    }

    /// Bug: each drained column copied and sorted all range tombstones of its table, so 150,000
    /// range deletes took 152 seconds. Cause: a run was one list. Now removing copies the leaves
    /// that have some of the removed keys, and keeps the others.
    #[test]
    fn removing_some_of_many_copies_their_leaves_only() {
        let key = |n: u64| n.to_be_bytes().to_vec();
        let one = |n: u64| KeyInterval { start: key(n * 10), end: Some(key(n * 10 + 3)) };
        let list = TombstoneList::default();
        list.add((0..100_000).map(|n| Arc::new(Tombstone::new(one(n), n + 1))).collect());
        let before = list.set.load_full();
        let column = KeyInterval { start: key(500_000), end: Some(key(510_000)) };
        assert_eq!(list.remove(&column, |_| true, |_| true).len(), 1000);
        let after = list.set.load_full();
        let leaves = |set: &Tombstones| -> crate::os::HashSet<usize> {
            let all = set.runs.iter().flat_map(|run| run.leaves.items());
            all.map(|leaf| Arc::as_ptr(leaf).addr()).collect()
        };
        let copied = leaves(&after).difference(&leaves(&before)).count();
        assert!(copied <= 2, "the leaves at both ends of the column, not {copied}");
        assert_eq!(after.len(), 99_000);
        assert!(list.relocate(&key(20), 3, 0, 64));
        assert!(Arc::ptr_eq(&list.set.load_full(), &after), "one that moves copies nothing");
    }

    #[test]
    fn one_is_found_where_it_was_copied_to() {
        let list = TombstoneList::default();
        let one = Tombstone::of_record(KeyInterval::all(), 3, 64);
        list.add(vec![Arc::new(one)]);
        assert!(list.holds(b"", 3, 64) && !list.holds(b"", 3, 128) && !list.holds(b"a", 3, 64));
        assert!(!list.relocate(b"", 3, 72, 128), "it is somewhere else");
        assert!(list.relocate(b"", 3, 64, 128) && list.holds(b"", 3, 128));
        assert_eq!(list.load().map(|set| set.len()), Some(1));
        assert!(list.memory() > 0);
        let gone = list.remove(&KeyInterval::all(), |_| true, |_| true);
        assert_eq!((gone[0].remove(), gone[0].remove()), (Some(128), None), "counted out once");
        assert!(!list.relocate(b"", 3, 128, 192));
    }
}
