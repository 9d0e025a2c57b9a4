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

/// A tombstone, and what most comparisons ask for: so they follow no pointer.
#[derive(Clone, Debug)]
pub(super) struct TombstoneItem {
    start_bytes: u64,
    /// Those of no end are the greatest.
    end_bytes: u64,
    seq: Lsn,
    pub(super) tombstone: Arc<Tombstone>,
}

impl TombstoneItem {
    pub(super) fn new(tombstone: Arc<Tombstone>) -> TombstoneItem {
        let KeyInterval { start, end } = &tombstone.interval;
        let end_bytes = end.as_ref().map_or(u64::MAX, |end| first_bytes(end));
        TombstoneItem { start_bytes: first_bytes(start), end_bytes, seq: tombstone.seq, tombstone }
    }

    /// By start, of one start the newest first.
    pub(super) fn order(&self, other: &TombstoneItem) -> Ordering {
        let by_bytes = self.start_bytes.cmp(&other.start_bytes);
        let by_start = || self.start().cmp(other.start());
        by_bytes.then_with(by_start).then_with(|| other.seq.cmp(&self.seq))
    }

    /// No end is the last end of all.
    fn ends_before(&self, other: &TombstoneItem) -> bool {
        let is_less = || match (&self.tombstone.interval.end, &other.tombstone.interval.end) {
            (Some(end), Some(other)) => end < other,
            (end, _) => end.is_some(),
        };
        self.end_bytes < other.end_bytes || (self.end_bytes == other.end_bytes && is_less())
    }

    /// Whether it reaches beyond `key`, of which `bytes` are the first.
    fn ends_after(&self, key: &[u8], bytes: u64) -> bool {
        self.end_bytes > bytes
            || (self.end_bytes == bytes && self.tombstone.interval.ends_after(key))
    }
}

/// Of some tombstones: the one that ends first, and the sequence numbers between which theirs are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach<'a> {
    ends_first: &'a TombstoneItem,
    pub(crate) oldest: Lsn,
    pub(crate) newest: Lsn,
}

impl Reach<'_> {
    /// Whether one of them ends at `end` or before.
    pub(crate) fn has_end_by(&self, end: &[u8]) -> bool {
        let is_by = |own: &[u8]| own <= end;
        match self.ends_first.end_bytes.cmp(&first_bytes(end)) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.ends_first.tombstone.interval.end.as_deref().is_some_and(is_by),
        }
    }
}

/// The first bytes of a key, as a number of the same order.
fn first_bytes(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    key.iter().zip(&mut bytes).for_each(|(from, to)| *to = *from);
    u64::from_be_bytes(bytes)
}

/// What a tree is made of: a tombstone, or a tree of tombstones.
pub(super) trait Span {
    fn start(&self) -> &[u8];
    fn start_bytes(&self) -> u64;
    /// The tombstone that ends first, the one that ends last, and both sequence numbers.
    fn ends_first(&self) -> &TombstoneItem;
    fn ends_last(&self) -> &TombstoneItem;
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

impl Span for TombstoneItem {
    fn start(&self) -> &[u8] {
        &self.tombstone.interval.start
    }

    fn start_bytes(&self) -> u64 {
        self.start_bytes
    }

    fn ends_first(&self) -> &TombstoneItem {
        self
    }

    fn ends_last(&self) -> &TombstoneItem {
        self
    }

    fn oldest(&self) -> Lsn {
        self.seq
    }

    fn newest(&self) -> Lsn {
        self.seq
    }

    fn stab(&self, key: &[u8], which: &impl Fn(&Tombstone) -> bool, best: &mut Lsn) {
        let ends_after = || self.ends_after(key, first_bytes(key));
        if self.seq > *best && ends_after() && which(&self.tombstone) {
            *best = self.seq;
        }
    }

    fn overlapping<'a, B>(
        &'a self,
        interval: &KeyInterval,
        _wants: &impl Fn(&Reach<'_>) -> bool,
        visit: &mut impl FnMut(&'a Arc<Tombstone>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let overlaps = self.tombstone.interval.overlaps(interval);
        if overlaps { visit(&self.tombstone) } else { ControlFlow::Continue(()) }
    }
}

/// Spans by start, one at least.
#[derive(Debug)]
pub(super) struct IntervalTree<T> {
    items: Vec<T>,
    /// The reach of the subtree of each span.
    nodes: Vec<Node>,
}

/// Of the subtree of a span: which spans have the tombstones that end first and last, and sequence
/// numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
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
            match self.items[mid].start_bytes().cmp(&bytes) {
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
    fn first_end(&self, n: usize) -> &TombstoneItem {
        self.items[self.nodes[n].ends_first as usize].ends_first()
    }

    fn last_end(&self, n: usize) -> &TombstoneItem {
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
            let is_first = self.first_end(below).ends_before(self.first_end(mid));
            let is_last = self.last_end(mid).ends_before(self.last_end(below));
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
        if self.nodes[mid].newest <= *best || !self.last_end(mid).ends_after(key, first_bytes(key))
        {
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
        let from = (&*interval.start, first_bytes(&interval.start));
        if !ends_last.ends_after(from.0, from.1) || !is_wanted() {
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

    fn start_bytes(&self) -> u64 {
        self.items[0].start_bytes()
    }

    fn ends_first(&self) -> &TombstoneItem {
        self.first_end(self.root())
    }

    fn ends_last(&self) -> &TombstoneItem {
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
