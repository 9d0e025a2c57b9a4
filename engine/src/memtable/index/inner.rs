//! Inner nodes: separators, and links to the nodes between them.
//!
//! Thread safety: reads are optimistic. A thread that changes a node holds its lock.
//!
//! Invariants:
//!
//! 1. The first `len` separators ascend. What is below child `i` lies at or behind separator `i -
//!    1` and before separator `i`.
//! 2. A separator without a spill is plain (`Separator::is_plain`): prefix and digest say all of
//!    it.
//! 3. A link or a spill is followed only after a version check behind its load. Then it was in the
//!    node within the caller's epoch, and what it leads to is still there.

use crossbeam_epoch::Guard;

use super::Sought;
use super::heap::{Heap, SpillLink};
use super::leaf::Leaf;
use super::lock::{
    Held, Optimistic, Version, VersionLock, Word, close_gap, count_below, open_gap, words,
};
use super::prefix::Separator;
use super::prefix::{Place, Prefix};
use crate::base::record::{common, slice};
use crate::os::sync::optimistic::{AtomicPtr, Ordering};
use crate::os::{LINE, prefetch_lines};

/// A node with up to `I` separators and `I + 1` children, which end in leaves of `L` entries.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Inner<const L: usize, const I: usize> {
    pub(super) lock: VersionLock,
    len: Word,
    prefix: Prefix,
    digests: [Word; I],
    /// Child 0.
    first: Link,
    /// The children behind each separator.
    rest: [Link; I],
    /// The separators of which prefix and digest do not say all.
    spills: [SpillLink; I],
}

/// A node of either kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node<'g, const L: usize, const I: usize> {
    Inner(&'g Inner<L, I>),
    Leaf(&'g Leaf<L>),
}

/// A link to a node: its address, and whether it is a leaf in the lowest bit.
#[derive(Debug, Default)]
struct Link(AtomicPtr<u8>);

/// The value of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child(*mut u8);

const LEAF: usize = 1;

impl Child {
    /// A leaf that goes into the tree.
    pub(super) fn leaf<const L: usize>(leaf: Box<Leaf<L>>) -> Child {
        Child(Box::into_raw(leaf).cast::<u8>().map_addr(|at| at | LEAF))
    }

    /// An inner node that goes into the tree.
    pub(super) fn inner<const L: usize, const I: usize>(inner: Box<Inner<L, I>>) -> Child {
        Child(Box::into_raw(inner).cast())
    }

    /// Hints that the node will be searched.
    #[inline(always)]
    fn prefetch<const L: usize, const I: usize>(self) {
        if self.0.addr() & LEAF != 0 {
            Leaf::<L>::prefetch(self.0.cast_const().cast());
        } else {
            prefetch_lines(self.0, LINE + size_of::<[Word; I]>());
        }
    }

    /// The node.
    ///
    /// # Safety
    ///
    /// The node is there for all of `'g`, and of the kind with these sizes.
    #[inline(always)]
    unsafe fn follow<'g, const L: usize, const I: usize>(self) -> Node<'g, L, I> {
        // SAFETY: the caller's promise; the bit tells the kinds apart.
        unsafe {
            if self.0.addr() & LEAF != 0 {
                Node::Leaf(&*self.0.map_addr(|at| at & !LEAF).cast())
            } else {
                Node::Inner(&*self.0.cast())
            }
        }
    }
}

impl Link {
    #[inline(always)]
    fn get(&self) -> Child {
        Child(self.0.load(Ordering::Acquire))
    }

    fn set(&self, to: Child) {
        self.0.store(to.0, Ordering::Release);
    }
}

impl<const L: usize, const I: usize> Default for Inner<L, I> {
    fn default() -> Inner<L, I> {
        Inner {
            lock: VersionLock::default(),
            len: Word::default(),
            prefix: Prefix::default(),
            digests: words(),
            first: Link::default(),
            rest: std::array::from_fn(|_| Link::default()),
            spills: std::array::from_fn(|_| SpillLink::default()),
        }
    }
}

impl<const L: usize, const I: usize> Inner<L, I> {
    /// How many separators it holds; there is one child more.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// Whether it has no room.
    pub(super) fn is_full(&self) -> bool {
        self.len() == I
    }

    /// The child below which `sought` belongs. Holds if the version does.
    #[inline(always)]
    pub(super) fn route(&self, sought: Sought<'_>, version: Version) -> Optimistic<usize> {
        let len = self.len();
        let digest = match self.prefix.place(sought.key, &self.lock, version)? {
            Place::Before => return Ok(0),
            Place::After => return Ok(len),
            Place::Within(digest) => digest,
        };
        let digests = &self.digests[..len];
        let mut first = count_below(digests, digest);
        let mut end = first;
        while end < len && digests[end].get() == digest {
            end += 1;
        }
        while first < end {
            let middle = first.midpoint(end);
            let spill = self.spills[middle].get();
            self.lock.check(version)?;
            // SAFETY: not null, and the spill of a separator within the caller's epoch, which
            // keeps it (invariant 3).
            let behind = !spill.is_null()
                && unsafe { sought.order_of((&(*spill).bytes, (*spill).seq)) }.is_gt();
            if behind {
                end = middle;
            } else {
                first = middle + 1;
            }
        }
        Ok(first)
    }

    /// Child `at`, which is there for as long as the guard.
    #[inline(always)]
    pub(super) fn child<'g>(
        &'g self,
        at: usize,
        version: Version,
        _guard: &'g Guard,
    ) -> Optimistic<Node<'g, L, I>> {
        let child = self.link(at).get();
        child.prefetch::<L, I>();
        self.lock.check(version)?;
        // SAFETY: linked here within the epoch of the guard (invariant 3); a tree has nodes of
        // one pair of sizes.
        Ok(unsafe { child.follow() })
    }

    /// Hints that child `at` will be read, if there is one.
    pub(super) fn prefetch_child(&self, at: usize) {
        if at <= self.len() {
            self.link(at).get().prefetch::<L, I>();
        }
    }

    #[inline(always)]
    fn link(&self, at: usize) -> &Link {
        if at == 0 { &self.first } else { &self.rest[at - 1] }
    }

    /// Puts a separator and the child behind it at separator `at`. There is room.
    pub(super) fn insert(
        &self,
        held: &Held<'_>,
        at: usize,
        separator: Separator,
        child: Child,
        heap: Heap<'_>,
    ) {
        let len = self.len();
        let prefix = self.prefix.bytes();
        if len == 0 || !separator.bytes.starts_with(&prefix) {
            let mut contents = self.take(held, heap);
            contents.separators.insert(at, separator);
            contents.children.insert(at + 1, child);
            self.fill(&contents, heap);
            return;
        }
        open_gap(&self.digests, at, len);
        for i in (at..len).rev() {
            self.rest[i + 1].set(self.rest[i].get());
            self.spills[i + 1].set(self.spills[i].get());
        }
        self.rest[at].set(child);
        self.write(at, &separator, prefix.len(), heap);
        self.len.set(len as u64 + 1);
    }

    /// Writes separator `at`.
    fn write(&self, at: usize, separator: &Separator, prefix: usize, heap: Heap<'_>) {
        self.digests[at].set(slice(&separator.bytes, prefix));
        self.spills[at].set(if separator.is_plain(prefix) {
            std::ptr::null_mut()
        } else {
            heap.spill(&separator.bytes, separator.seq)
        });
    }

    /// Takes child `at` out; a neighbour's range grows by its own. There are others.
    pub(super) fn remove(&self, _: &Held<'_>, at: usize, heap: Heap<'_>) {
        let len = self.len();
        debug_assert!(at <= len && len > 0, "child {at} of {len} is not the last one");
        if at == 0 {
            self.first.set(self.rest[0].get());
        }
        let gap = at.saturating_sub(1);
        heap.retire_spill(self.spills[gap].get());
        close_gap(&self.digests, gap, len);
        for i in gap + 1..len {
            self.rest[i - 1].set(self.rest[i].get());
            self.spills[i - 1].set(self.spills[i].get());
        }
        self.len.set(len as u64 - 1);
    }

    /// Moves the upper half to a new node; what separates the two. With `behind`, the half is the
    /// last child alone: keys that come in order then leave full nodes behind.
    pub(super) fn split(
        &self,
        held: &Held<'_>,
        behind: bool,
        heap: Heap<'_>,
    ) -> (Separator, Box<Inner<L, I>>) {
        let mut contents = self.take(held, heap);
        let (separator, upper) = contents.split(behind);
        self.fill(&contents, heap);
        let right: Box<Inner<L, I>> = heap.node();
        right.fill(&upper, heap);
        (separator, right)
    }

    /// Moves both halves to new nodes below this one, which is the root and stays it.
    pub(super) fn deepen(&self, held: &Held<'_>, heap: Heap<'_>) {
        let mut lower = self.take(held, heap);
        let (separator, upper) = lower.split(false);
        let [left, right]: [Box<Inner<L, I>>; 2] = [heap.node(), heap.node()];
        left.fill(&lower, heap);
        right.fill(&upper, heap);
        let children = vec![Child::inner(left), Child::inner(right)];
        self.fill(&Contents { separators: vec![separator], children }, heap);
    }

    /// Everything in it, copied out. It has to be filled again before the lock is released.
    fn take(&self, held: &Held<'_>, heap: Heap<'_>) -> Contents {
        let len = self.len();
        let prefix = self.prefix.bytes();
        debug_assert!(self.lock.check(held.version()).is_ok(), "the lock held is this node's");
        let separators = (0..len).map(|i| {
            let separator = self.separator(held, i, &prefix);
            heap.retire_spill(self.spills[i].get());
            separator
        });
        let separators = separators.collect();
        let children = (0..=len).map(|i| self.link(i).get()).collect();
        Contents { separators, children }
    }

    /// A copy of separator `at`, behind the node's prefix.
    fn separator(&self, _: &Held<'_>, at: usize, prefix: &[u8]) -> Separator {
        let spill = self.spills[at].get();
        if spill.is_null() {
            return Separator::plain(prefix, self.digests[at].get());
        }
        // SAFETY: the holder of the lock alone takes spills out.
        let own = unsafe { &*spill };
        Separator { bytes: own.bytes.to_vec(), seq: own.seq }
    }

    /// Moves all children of the next node here. Both are neighbours below `parent`, on its
    /// separator `at`, and all three locks are held. They fit.
    pub(super) fn absorb(
        &self,
        held: &Held<'_>,
        (right, held_right): (&Inner<L, I>, &Held<'_>),
        (parent, held_parent): (&Inner<L, I>, &Held<'_>),
        at: usize,
        heap: Heap<'_>,
    ) {
        let between = parent.separator(held_parent, at, &parent.prefix.bytes());
        let mut contents = self.take(held, heap);
        let behind = right.take(held_right, heap);
        right.len.set(0);
        contents.separators.push(between);
        contents.separators.extend(behind.separators);
        contents.children.extend(behind.children);
        self.fill(&contents, heap);
    }

    /// Moves all children of its only child here. The child is an inner node, and both locks are
    /// held.
    pub(super) fn pull_up(
        &self,
        held: &Held<'_>,
        (child, held_child): (&Inner<L, I>, &Held<'_>),
        heap: Heap<'_>,
    ) {
        debug_assert_eq!(self.len(), 0, "the child is the only one");
        drop(self.take(held, heap));
        let contents = child.take(held_child, heap);
        child.len.set(0);
        self.fill(&contents, heap);
    }

    /// Fills it again; the prefix is as long as it can be.
    pub(super) fn fill(&self, contents: &Contents, heap: Heap<'_>) {
        let Contents { separators, children } = contents;
        // Separators are sorted: what the first and the last share, all share.
        let shared = match &separators[..] {
            [] => 0,
            [first, .., last] => common(&first.bytes, &last.bytes),
            [only] => only.bytes.len(),
        };
        let first = separators.first();
        self.prefix.set(first.map_or(&[], |first| &first.bytes[..shared]), heap);
        for (i, separator) in separators.iter().enumerate() {
            self.write(i, separator, shared, heap);
        }
        for (i, child) in children.iter().enumerate() {
            self.link(i).set(*child);
        }
        self.len.set(separators.len() as u64);
    }

    /// Gives the memory back that lies outside the node: it is out of the tree.
    pub(super) fn retire(&self, heap: Heap<'_>) {
        self.prefix.retire(heap);
        for spill in &self.spills[..self.len()] {
            heap.retire_spill(spill.get());
        }
    }

    /// The children, for the owner of the tree.
    pub(super) fn children(&mut self) -> Vec<Child> {
        (0..=self.len()).map(|i| self.link(i).get()).collect()
    }
}

/// What a node holds, outside of it.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) separators: Vec<Separator>,
    pub(super) children: Vec<Child>,
}

impl Contents {
    /// Cuts off the upper half.
    fn split(&mut self, behind: bool) -> (Separator, Contents) {
        let len = self.separators.len();
        let middle = if behind { len - 1 } else { len / 2 };
        let mut upper = self.separators.split_off(middle);
        let separator = upper.remove(0);
        let children = self.children.split_off(middle + 1);
        (separator, Contents { separators: upper, children })
    }
}

/// A child that no other thread can see any more.
impl Child {
    /// The node, to be taken apart and freed.
    ///
    /// # Safety
    ///
    /// The caller owns the tree, and uses each child once.
    pub(super) unsafe fn own<const L: usize, const I: usize>(self) -> Owned<L, I> {
        // SAFETY: the caller's promise; links are made from boxes, and the bit tells the kinds
        // apart.
        unsafe {
            if self.0.addr() & LEAF != 0 {
                Owned::Leaf(Box::from_raw(self.0.map_addr(|at| at & !LEAF).cast()))
            } else {
                Owned::Inner(Box::from_raw(self.0.cast()))
            }
        }
    }
}

/// A node that was taken out of a tree.
pub(super) enum Owned<const L: usize, const I: usize> {
    Inner(Box<Inner<L, I>>),
    Leaf(Box<Leaf<L>>),
}
