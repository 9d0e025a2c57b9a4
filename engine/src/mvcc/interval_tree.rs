//! An interval tree that never changes: spans in the order of their starts, the root of `lo..hi` in
//! its middle. Each subtree knows the spans that end first and last, and the sequence numbers of
//! its oldest and its newest tombstone. So a search passes over what it does not want.
//!
//! Source: the interval tree of Cormen and others, augmented by sequence numbers.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::{KeyInterval, Tombstone, is_from};
use crate::base::record::Lsn;

/// Of some tombstones: the one that ends first, and the sequence numbers between which theirs are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach<'a> {
    ends_first: &'a Tombstone,
    pub(crate) oldest: Lsn,
    pub(crate) newest: Lsn,
}

impl Reach<'_> {
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

/// The first bytes of a key, as a number of the same order.
pub(super) fn first_bytes(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    key.iter().zip(&mut bytes).for_each(|(from, to)| *to = *from);
    u64::from_be_bytes(bytes)
}

/// What a tree is made of: a tombstone, or a tree of tombstones.
pub(super) trait Span {
    fn start(&self) -> &[u8];
    /// The tombstone that ends first, the one that ends last, and both sequence numbers.
    fn ends_first(&self) -> &Tombstone;
    fn ends_last(&self) -> &Tombstone;
    fn oldest(&self) -> Lsn;
    fn newest(&self) -> Lsn;
    /// Raises `best` to the greatest sequence number over `key`, of those that `which` accepts.
    fn stab(&self, key: &[u8], which: &impl Fn(&Tombstone) -> bool, best: &mut Lsn);
    /// Gives `visit` each tombstone that has keys of `interval` and, as far as subtrees tell, is of
    /// those that `wants` accepts, until it breaks.
    fn overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
        wants: &impl Fn(&Reach<'_>) -> bool,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B>;
}

impl Span for Arc<Tombstone> {
    fn start(&self) -> &[u8] {
        &self.interval.start
    }

    fn ends_first(&self) -> &Tombstone {
        self
    }

    fn ends_last(&self) -> &Tombstone {
        self
    }

    fn oldest(&self) -> Lsn {
        self.seq
    }

    fn newest(&self) -> Lsn {
        self.seq
    }

    fn stab(&self, key: &[u8], which: &impl Fn(&Tombstone) -> bool, best: &mut Lsn) {
        if self.seq > *best && self.interval.ends_after(key) && which(self) {
            *best = self.seq;
        }
    }

    fn overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
        _wants: &impl Fn(&Reach<'_>) -> bool,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if self.interval.overlaps(interval) { visit(self) } else { ControlFlow::Continue(()) }
    }
}

/// Spans by start, one at least.
#[derive(Debug)]
pub(super) struct IntervalTree<T> {
    items: Vec<T>,
    /// The reach of the subtree of each span.
    nodes: Vec<Node>,
}

/// Of a span, how its start begins. Of its subtree, which spans have the tombstones that end first
/// and last, and sequence numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// A search compares it before it follows pointers to the start itself.
    first_bytes: u64,
    ends_first: u32,
    ends_last: u32,
    oldest: Lsn,
    newest: Lsn,
}

impl<T: Span> IntervalTree<T> {
    /// Of spans in the order of their starts; `None` of none.
    pub(super) fn new(items: Vec<T>) -> Option<IntervalTree<T>> {
        debug_assert!(items.windows(2).all(|w| w[0].start() <= w[1].start()), "spans by start");
        let node = |(n, item): (u32, &T)| Node {
            first_bytes: first_bytes(item.start()),
            ends_first: n,
            ends_last: n,
            oldest: item.oldest(),
            newest: item.newest(),
        };
        let nodes = (0..).zip(&items).map(node).collect();
        let mut tree = IntervalTree { items, nodes };
        tree.measure(0, tree.items.len()).map(|_| tree)
    }

    pub(super) fn items(&self) -> &[T] {
        &self.items
    }

    /// Where the first span lies that starts at `key` or behind it.
    pub(super) fn first_from(&self, key: &[u8]) -> usize {
        let bytes = first_bytes(key);
        let (mut lo, mut hi) = (0, self.items.len());
        while lo < hi {
            let mid = lo.midpoint(hi);
            match self.nodes[mid].first_bytes.cmp(&bytes) {
                Ordering::Less => lo = mid + 1,
                Ordering::Equal if self.items[mid].start() < key => lo = mid + 1,
                _ => hi = mid,
            }
        }
        lo
    }

    fn root(&self) -> usize {
        self.items.len() / 2
    }

    /// Of the subtree of a span, the tombstone that ends first, and the one that ends last.
    fn first_end(&self, n: usize) -> &Tombstone {
        self.items[self.nodes[n].ends_first as usize].ends_first()
    }

    fn last_end(&self, n: usize) -> &Tombstone {
        self.items[self.nodes[n].ends_last as usize].ends_last()
    }

    /// Works the nodes of `lo..hi` out, from the leaves up; its root.
    fn measure(&mut self, lo: usize, hi: usize) -> Option<usize> {
        if lo == hi {
            return None;
        }
        let mid = lo.midpoint(hi);
        for below in [self.measure(lo, mid), self.measure(mid + 1, hi)].into_iter().flatten() {
            let other = self.nodes[below];
            let is_first = ends_before(self.first_end(below), self.first_end(mid));
            let is_last = ends_before(self.last_end(mid), self.last_end(below));
            let node = &mut self.nodes[mid];
            node.ends_first = if is_first { other.ends_first } else { node.ends_first };
            node.ends_last = if is_last { other.ends_last } else { node.ends_last };
            node.oldest = node.oldest.min(other.oldest);
            node.newest = node.newest.max(other.newest);
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
        if self.nodes[mid].newest <= *best || !self.last_end(mid).interval.ends_after(key) {
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
        wants: &impl Fn(&Reach<'_>) -> bool,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if lo == hi {
            return ControlFlow::Continue(());
        }
        let mid = lo.midpoint(hi);
        let (ends_first, ends_last) = (self.first_end(mid), self.last_end(mid));
        let Node { oldest, newest, .. } = self.nodes[mid];
        let is_wanted = || wants(&Reach { ends_first, oldest, newest });
        if !ends_last.interval.ends_after(&interval.start) || !is_wanted() {
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

    fn ends_first(&self) -> &Tombstone {
        self.first_end(self.root())
    }

    fn ends_last(&self) -> &Tombstone {
        self.last_end(self.root())
    }

    fn oldest(&self) -> Lsn {
        self.nodes[self.root()].oldest
    }

    fn newest(&self) -> Lsn {
        self.nodes[self.root()].newest
    }

    fn stab(&self, key: &[u8], which: &impl Fn(&Tombstone) -> bool, best: &mut Lsn) {
        self.stab_in((0, self.items.len()), key, which, best);
    }

    fn overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
        wants: &impl Fn(&Reach<'_>) -> bool,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.overlapping_in((0, self.items.len()), interval, wants, visit)
    }
}
