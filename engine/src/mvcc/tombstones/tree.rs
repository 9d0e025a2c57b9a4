//! An interval tree that never changes: spans in the order of their starts, the root of `lo..hi` in
//! its middle. Each subtree knows the span that ends last, and its newest tombstone.
//!
//! Source: the interval tree of Cormen and others, augmented by sequence numbers.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Tombstone;
use crate::mvcc::{KeyInterval, is_from};
use crate::record::Lsn;

/// Of some tombstones: the one that ends last, and the greatest sequence number.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    ends_last: Arc<Tombstone>,
    newest: Lsn,
}

impl Reach {
    /// That of both.
    fn and(&mut self, other: &Reach) {
        let (own, others) = (&self.ends_last.interval.end, &other.ends_last.interval.end);
        // No end is the last end of all.
        if own.as_ref().is_some_and(|own| others.as_ref().is_none_or(|end| end > own)) {
            self.ends_last = Arc::clone(&other.ends_last);
        }
        self.newest = self.newest.max(other.newest);
    }
}

/// What a tree is made of: a tombstone, or a tree of tombstones.
pub(super) trait Span {
    fn start(&self) -> &[u8];
    fn reach(&self) -> Reach;
    /// Raises `best` to the greatest sequence number over `key`, of those that `which` accepts.
    fn stab(&self, key: &[u8], which: &impl Fn(&Tombstone) -> bool, best: &mut Lsn);
    /// Gives `visit` each tombstone that has keys of `interval`, until it breaks.
    fn overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B>;
}

impl Span for Arc<Tombstone> {
    fn start(&self) -> &[u8] {
        &self.interval.start
    }

    fn reach(&self) -> Reach {
        Reach { ends_last: Arc::clone(self), newest: self.seq }
    }

    fn stab(&self, key: &[u8], which: &impl Fn(&Tombstone) -> bool, best: &mut Lsn) {
        if self.seq > *best && self.interval.ends_after(key) && which(self) {
            *best = self.seq;
        }
    }

    fn overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
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
        let Reach { ends_last, newest } = &self.reach[mid];
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
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if lo == hi {
            return ControlFlow::Continue(());
        }
        let mid = lo.midpoint(hi);
        if !self.reach[mid].ends_last.interval.ends_after(&interval.start) {
            return ControlFlow::Continue(());
        }
        self.overlapping_in((lo, mid), interval, visit)?;
        if !interval.ends_after(self.items[mid].start()) {
            return ControlFlow::Continue(());
        }
        self.items[mid].overlapping(interval, visit)?;
        self.overlapping_in((mid + 1, hi), interval, visit)
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
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.overlapping_in((0, self.items.len()), interval, visit)
    }
}
