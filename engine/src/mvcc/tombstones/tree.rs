//! An interval tree that never changes: spans in the order of their starts, the root of `lo..hi` in
//! its middle. Each subtree knows the spans that end first and last, and the sequence numbers of
//! its oldest and its newest tombstone. So a search passes over what it does not want.
//!
//! Source: the interval tree of Cormen and others, augmented by sequence numbers.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Tombstone;
use crate::mvcc::{KeyInterval, is_from};
use crate::record::Lsn;

/// Of some tombstones: those that end first and last, and the sequence numbers between which theirs
/// are.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    ends_first: Arc<Tombstone>,
    ends_last: Arc<Tombstone>,
    pub(crate) oldest: Lsn,
    pub(crate) newest: Lsn,
}

impl Reach {
    /// That of both.
    fn and(&mut self, other: &Reach) {
        if ends_before(&self.ends_last, &other.ends_last) {
            self.ends_last = Arc::clone(&other.ends_last);
        }
        if ends_before(&other.ends_first, &self.ends_first) {
            self.ends_first = Arc::clone(&other.ends_first);
        }
        self.oldest = self.oldest.min(other.oldest);
        self.newest = self.newest.max(other.newest);
    }

    /// Whether one of them ends at `end` or before.
    pub(crate) fn has_end_by(&self, end: &[u8]) -> bool {
        self.ends_first.interval.end.as_deref().is_some_and(|own| own <= end)
    }
}

/// No end is the last end of all.
fn ends_before(one: &Tombstone, other: &Tombstone) -> bool {
    let end = one.interval.end.as_ref();
    end.is_some_and(|end| other.interval.end.as_ref().is_none_or(|other| other > end))
}

/// What a tree is made of: a tombstone, or a tree of tombstones.
pub(super) trait Span {
    fn start(&self) -> &[u8];
    fn reach(&self) -> Reach;
    /// Raises `best` to the greatest sequence number over `key`, of those that `which` accepts.
    fn stab(&self, key: &[u8], which: &impl Fn(&Tombstone) -> bool, best: &mut Lsn);
    /// Gives `visit` each tombstone that has keys of `interval` and, as far as subtrees tell, is of
    /// those that `wants` accepts, until it breaks.
    fn overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
        wants: &impl Fn(&Reach) -> bool,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B>;
}

impl Span for Arc<Tombstone> {
    fn start(&self) -> &[u8] {
        &self.interval.start
    }

    fn reach(&self) -> Reach {
        let (ends_first, ends_last) = (Arc::clone(self), Arc::clone(self));
        Reach { ends_first, ends_last, oldest: self.seq, newest: self.seq }
    }

    fn stab(&self, key: &[u8], which: &impl Fn(&Tombstone) -> bool, best: &mut Lsn) {
        if self.seq > *best && self.interval.ends_after(key) && which(self) {
            *best = self.seq;
        }
    }

    fn overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
        _wants: &impl Fn(&Reach) -> bool,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if self.interval.overlaps(interval) { visit(self) } else { ControlFlow::Continue(()) }
    }
}

/// Spans by start, one at least.
#[derive(Debug)]
pub(super) struct IntervalTree<T> {
    items: Vec<T>,
    reach: Vec<Reach>,
}

impl<T: Span> IntervalTree<T> {
    /// Of spans in the order of their starts; `None` of none.
    pub(super) fn new(items: Vec<T>) -> Option<IntervalTree<T>> {
        debug_assert!(items.windows(2).all(|w| w[0].start() <= w[1].start()), "spans by start");
        let reach = items.iter().map(Span::reach).collect();
        let mut tree = IntervalTree { items, reach };
        tree.measure(0, tree.items.len()).map(|_| tree)
    }

    pub(super) fn items(&self) -> &[T] {
        &self.items
    }

    /// Where the first span lies that starts at `key` or behind it.
    pub(super) fn first_from(&self, key: &[u8]) -> usize {
        self.items.partition_point(|item| item.start() < key)
    }

    /// The greatest sequence number.
    pub(super) fn newest(&self) -> Lsn {
        self.reach[self.items.len() / 2].newest
    }

    fn measure(&mut self, lo: usize, hi: usize) -> Option<usize> {
        if lo == hi {
            return None;
        }
        let mid = lo.midpoint(hi);
        for below in [self.measure(lo, mid), self.measure(mid + 1, hi)].into_iter().flatten() {
            let below = self.reach[below].clone();
            self.reach[mid].and(&below);
        }
        Some(mid)
    }

    fn stab_in(
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
        let Reach { ends_last, newest, .. } = &self.reach[mid];
        if *newest <= *best || !ends_last.interval.ends_after(key) {
            return;
        }
        self.stab_in((lo, mid), key, which, best);
        if is_from(self.items[mid].start(), key) {
            self.items[mid].stab(key, which, best);
            self.stab_in((mid + 1, hi), key, which, best);
        }
    }

    fn overlapping_in<'a, B>(
        &'a self,
        (lo, hi): (usize, usize),
        interval: &KeyInterval,
        wants: &impl Fn(&Reach) -> bool,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if lo == hi {
            return ControlFlow::Continue(());
        }
        let mid = lo.midpoint(hi);
        let reach = &self.reach[mid];
        if !reach.ends_last.interval.ends_after(&interval.start) || !wants(reach) {
            return ControlFlow::Continue(());
        }
        self.overlapping_in((lo, mid), interval, wants, visit)?;
        if !interval.ends_after(self.items[mid].start()) {
            return ControlFlow::Continue(());
        }
        self.items[mid].overlapping(interval, wants, visit)?;
        self.overlapping_in((mid + 1, hi), interval, wants, visit)
    }
}

impl<T: Span> Span for Arc<IntervalTree<T>> {
    fn start(&self) -> &[u8] {
        self.items[0].start()
    }

    fn reach(&self) -> Reach {
        self.reach[self.items.len() / 2].clone()
    }

    fn stab(&self, key: &[u8], which: &impl Fn(&Tombstone) -> bool, best: &mut Lsn) {
        self.stab_in((0, self.items.len()), key, which, best);
    }

    fn overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
        wants: &impl Fn(&Reach) -> bool,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.overlapping_in((0, self.items.len()), interval, wants, visit)
    }
}
