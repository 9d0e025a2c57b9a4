//! What changes the shape of the tree: splits of full nodes, merges of thin ones, and the removal
//! of empty ones.
//!
//! Thread safety: locks are taken along a path, each at the version at which the path passed the
//! node. A thread that holds all of them knows that the path is still one.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use super::heap::Heap;
use super::inner::{Child, Contents, Inner, Node};
use super::leaf::Leaf;
use super::lock::{Held, Optimistic, Restart, Version};
use super::prefix::Separator;
use super::{Counts, Index, roomy, thin};
use super::{Records, Sought};

/// A node passed on the way down, and the child taken.
struct Step<'g, const L: usize, const I: usize> {
    inner: &'g Inner<L, I>,
    version: Version,
    at: usize,
}

impl<'g, const L: usize, const I: usize> Step<'g, L, I> {
    fn lock(&self) -> Optimistic<Held<'g>> {
        self.inner.lock.upgrade(self.version)
    }

    /// The places of the child taken with the neighbour behind, and with the one before.
    fn pairs(&self) -> Optimistic<impl Iterator<Item = (usize, usize)>> {
        let (at, len) = (self.at, self.inner.len());
        self.inner.lock.check(self.version)?;
        let behind = (at < len).then_some((at, at + 1));
        let before = (at > 0).then(|| (at - 1, at));
        Ok(behind.into_iter().chain(before))
    }

    fn leaf<'a>(&'a self, at: usize, guard: &'a Guard) -> Optimistic<Option<&'a Leaf<L>>> {
        Ok(match self.inner.child(at, self.version, guard)? {
            Node::Leaf(leaf) => Some(leaf),
            Node::Inner(_) => None,
        })
    }

    fn inner_child<'a>(
        &'a self,
        at: usize,
        guard: &'a Guard,
    ) -> Optimistic<Option<&'a Inner<L, I>>> {
        Ok(match self.inner.child(at, self.version, guard)? {
            Node::Inner(inner) => Some(inner),
            Node::Leaf(_) => None,
        })
    }
}

/// The way to a leaf.
struct Path<'g, const L: usize, const I: usize> {
    steps: Vec<Step<'g, L, I>>,
    leaf: &'g Leaf<L>,
    version: Version,
}

impl<R: Records, const L: usize, const I: usize> Index<R, L, I> {
    fn path<'g>(&'g self, sought: Sought<'_>, guard: &'g Guard) -> Optimistic<Path<'g, L, I>> {
        let mut steps = Vec::with_capacity(8);
        let (leaf, version) = self.descend(sought, guard, |inner, version, at| {
            steps.push(Step { inner, version, at });
        })?;
        Ok(Path { steps, leaf, version })
    }

    /// Splits the leaf that `sought` belongs in, or the topmost of the full nodes right above it,
    /// which have to give room first.
    pub(super) fn make_room(&self, sought: Sought<'_>, guard: &Guard) -> Optimistic<()> {
        let heap = Heap::new(guard, &self.counts.memory);
        let Path { steps, leaf, version } = self.path(sought, guard)?;
        if !leaf.is_full() {
            return Ok(());
        }
        let full = steps.iter().rev().take_while(|step| step.inner.is_full()).count();
        let roomy = steps.len() - full;
        let Some(parent) = roomy.checked_sub(1).map(|i| &steps[i]) else {
            self.root.deepen(&steps[0].lock()?, heap);
            return Ok(());
        };
        let held_parent = parent.lock()?;
        let (separator, right) = if let Some(step) = steps.get(roomy) {
            let held = step.lock()?;
            let (separator, right) = step.inner.split(&held, step.at == step.inner.len(), heap);
            (separator, Child::inner(right))
        } else {
            let held = leaf.lock.upgrade(version)?;
            let (separator, right) = leaf.split(&held, sought, &*self.records, heap)?;
            (separator, Child::leaf(right))
        };
        parent.inner.insert(&held_parent, parent.at, separator, right, heap);
        Ok(())
    }

    /// Takes the leaf that `sought` belongs in out of the tree, if it is empty, with the nodes
    /// above that would be left without children. The root keeps one child.
    fn prune(&self, sought: Sought<'_>, guard: &Guard) -> Optimistic<()> {
        let heap = Heap::new(guard, &self.counts.memory);
        let Path { steps, leaf, version } = self.path(sought, guard)?;
        if leaf.len() > 0 {
            return leaf.lock.check(version);
        }
        let held_leaf = leaf.lock.upgrade(version)?;
        // From the leaf upwards: nodes with one child go with it, the first with more stays.
        let lone = steps.iter().rev().take_while(|step| step.inner.len() == 0).count();
        let Some(stays) = (steps.len() - lone).checked_sub(1) else { return Ok(()) };
        let going = &steps[stays + 1..];
        let held_parent = steps[stays].lock()?;
        let held = going.iter().map(Step::lock).collect::<Result<Vec<_>, Restart>>()?;
        steps[stays].inner.remove(&held_parent, steps[stays].at, heap);
        leaf.retire(heap);
        held_leaf.retire();
        // SAFETY: nodes come out of boxes; the one link to the topmost of these is gone, the
        // others' links are in nodes that go with them, and the locks, held at versions that
        // are never seen again, make this the only thread that retires them.
        unsafe { heap.retire_node::<Leaf<L>>(leaf) };
        for (step, held) in going.iter().zip(held) {
            step.inner.retire(heap);
            held.retire();
            // SAFETY: as above.
            unsafe { heap.retire_node::<Inner<L, I>>(step.inner) };
        }
        Ok(())
    }
    /// Repairs the shape around the leaf that `sought` belongs in, and above it. Empty nodes go.
    /// Thin ones are merged with a neighbour. A root with one inner child gets that child's
    /// children.
    pub(super) fn tidy(&self, sought: Sought<'_>, guard: &Guard) {
        self.persist(|| self.prune(sought, guard));
        if self.persist(|| self.merge_leaf(sought, guard)) {
            // Each time a node goes.
            while self.persist(|| self.merge_inner(sought, guard)) {}
        }
    }

    /// Merges the leaf that `sought` belongs in with a neighbour below the same parent, if it is
    /// thin and one has room; whether the parent is thin then.
    fn merge_leaf(&self, sought: Sought<'_>, guard: &Guard) -> Optimistic<bool> {
        let heap = Heap::new(guard, &self.counts.memory);
        let Path { steps, leaf, version } = self.path(sought, guard)?;
        let Some(parent) = steps.last() else { return Ok(false) };
        let is_thin = leaf.len() <= thin(L);
        leaf.lock.check(version)?;
        for (left_at, right_at) in parent.pairs()?.filter(|_| is_thin) {
            let (Some(left), Some(right)) =
                (parent.leaf(left_at, guard)?, parent.leaf(right_at, guard)?)
            else {
                continue;
            };
            let (left_version, right_version) = (left.lock.read()?, right.lock.read()?);
            if !roomy(left.len() + right.len(), L) {
                continue;
            }
            let held_parent = parent.lock()?;
            let held_left = left.lock.upgrade(left_version)?;
            let held_right = right.lock.upgrade(right_version)?;
            left.absorb(&held_left, right, &*self.records, heap);
            parent.inner.remove(&held_parent, right_at, heap);
            right.retire(heap);
            held_right.retire();
            // SAFETY: out of a box; the one link to it is gone, and the lock, held at a version
            // that is never seen again, makes this the only thread that retires it.
            unsafe { heap.retire_node::<Leaf<L>>(right) };
            break;
        }
        Ok(parent.inner.len() <= thin(I))
    }

    /// Merges the lowest thin node on the way to `sought` with a neighbour, or moves the children
    /// of an only child into the root; whether it did.
    fn merge_inner(&self, sought: Sought<'_>, guard: &Guard) -> Optimistic<bool> {
        let Path { steps, .. } = self.path(sought, guard)?;
        for pair in steps.windows(2).rev() {
            let [parent, step] = pair else { continue };
            if step.inner.len() <= thin(I) && self.merge_below(parent, guard)? {
                return Ok(true);
            }
        }
        let [root, child, ..] = &steps[..] else { return Ok(false) };
        if root.inner.len() > 0 {
            return Ok(false);
        }
        let heap = Heap::new(guard, &self.counts.memory);
        let (held_root, held_child) = (root.lock()?, child.lock()?);
        root.inner.pull_up(&held_root, (child.inner, &held_child), heap);
        child.inner.retire(heap);
        held_child.retire();
        // SAFETY: as in `merge_leaf`.
        unsafe { heap.retire_node::<Inner<L, I>>(child.inner) };
        Ok(true)
    }

    /// Merges the child taken, an inner node, with a neighbour, if both fit in one.
    fn merge_below(&self, parent: &Step<'_, L, I>, guard: &Guard) -> Optimistic<bool> {
        let heap = Heap::new(guard, &self.counts.memory);
        for (left_at, right_at) in parent.pairs()? {
            let (Some(left), Some(right)) =
                (parent.inner_child(left_at, guard)?, parent.inner_child(right_at, guard)?)
            else {
                continue;
            };
            let (left_version, right_version) = (left.lock.read()?, right.lock.read()?);
            if !roomy(left.len() + right.len() + 2, I + 1) {
                continue;
            }
            let held_parent = parent.lock()?;
            let held_left = left.lock.upgrade(left_version)?;
            let held_right = right.lock.upgrade(right_version)?;
            let above = (parent.inner, &held_parent);
            left.absorb(&held_left, (right, &held_right), above, left_at, heap);
            parent.inner.remove(&held_parent, right_at, heap);
            right.retire(heap);
            held_right.retire();
            // SAFETY: as in `merge_leaf`.
            unsafe { heap.retire_node::<Inner<L, I>>(right) };
            return Ok(true);
        }
        Ok(false)
    }
}

// Building an index from sorted records: leaves are filled one after the other, and nothing is
// searched, moved or split.
//
// Thread safety: each part is built by one thread, and no other thread has the index yet.

/// A node is filled to this share, in eighths: the next inserts shall find room.
const FILL: usize = 6;

/// A subtree whose place among its neighbours is known by its first and its last record.
struct Built {
    child: Child,
    first: u64,
    last: u64,
}

/// A leaf that is in no tree yet.
struct Filled<const L: usize> {
    leaf: Box<Leaf<L>>,
    first: u64,
    last: u64,
}

impl<R: Records + Sync, const L: usize, const I: usize> Index<R, L, I> {
    /// The index of the records at these offsets. The parts ascend, and so do the records in each
    /// of them (by key, the newest version first), without duplicates. Each part is built by a
    /// thread of its own; `seen` is shown the records of a leaf when they are in the cache. Costs
    /// a read of each record.
    pub(crate) fn build(
        records: Arc<R>,
        parts: &[Vec<u64>],
        seen: &(dyn Fn(&[u64]) + Sync),
    ) -> Index<R, L, I>
    where
        R: Send,
    {
        let mut index = Index::new(records);
        let (records, counts) = (&*index.records, &index.counts);
        let filled: Vec<Vec<Filled<L>>> = crate::os::thread::scope(|scope| {
            let fill = |part: &'_ [u64]| leaves(part, records, counts, seen);
            let spawn = |part| scope.spawn(move || fill(part));
            let threads: Vec<_> = parts.iter().skip(1).map(|part| spawn(part.as_slice())).collect();
            let first = parts.first().map(|part| fill(part));
            let joined = threads.into_iter().map(|t| match t.join() {
                Ok(leaves) => leaves,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            first.into_iter().chain(joined).collect()
        });
        let guard = crossbeam_epoch::pin();
        let heap = Heap::new(&guard, &counts.memory);
        let mut level: Vec<Built> = filled.into_iter().flatten().map(Built::from).collect();
        while level.len() > I + 1 {
            let above = |group: &[Built]| parent::<L, I, R>(group, records, heap);
            level = level.chunks(share(I + 1)).map(above).collect();
        }
        if level.is_empty() {
            let leaf = heap.node::<Leaf<L>>();
            level.push(Built { child: Child::leaf(leaf), first: 0, last: 0 });
        }
        let contents = contents(&level, records);
        let len = parts.iter().map(Vec::len).sum();
        counts.len.store(len, super::Ordering::Relaxed);
        // The one leaf of the empty index goes. From here to the new root nothing may panic, or the
        // leaf would go twice.
        index.take_apart(&guard);
        index.root.fill(&contents, Heap::new(&guard, &index.counts.memory));
        index
    }
}

impl<const L: usize> From<Filled<L>> for Built {
    fn from(filled: Filled<L>) -> Built {
        let Filled { leaf, first, last } = filled;
        Built { child: Child::leaf(leaf), first, last }
    }
}

/// How much of a node's room is filled.
fn share(room: usize) -> usize {
    (room * FILL / 8).max(2)
}

fn leaves<R: Records, const L: usize>(
    part: &[u64],
    records: &R,
    counts: &Counts,
    seen: &(dyn Fn(&[u64]) + Sync),
) -> Vec<Filled<L>> {
    let guard = crossbeam_epoch::pin();
    let heap = Heap::new(&guard, &counts.memory);
    let len = share(L).min(L);
    let fill = |(n, offsets): (usize, &[u64])| {
        // Sorted records lie anywhere: those of the leaf after the next are on their way meanwhile.
        let ahead = part.iter().skip((n + 2) * len).take(len);
        ahead.for_each(|at| records.prefetch(*at));
        let leaf: Box<Leaf<L>> = heap.node();
        leaf.fill(offsets, records, heap);
        seen(offsets);
        Filled { leaf, first: offsets[0], last: offsets[offsets.len() - 1] }
    };
    part.chunks(len).enumerate().map(fill).collect()
}

fn parent<const L: usize, const I: usize, R: Records>(
    group: &[Built],
    records: &R,
    heap: Heap<'_>,
) -> Built {
    let inner = heap.node::<Inner<L, I>>();
    inner.fill(&contents(group, records), heap);
    Built { child: Child::inner(inner), first: group[0].first, last: group[group.len() - 1].last }
}

fn contents<R: Records>(group: &[Built], records: &R) -> Contents {
    let between =
        |w: &[Built]| Separator::between(records.locate(w[0].last), records.locate(w[1].first));
    Contents {
        separators: group.windows(2).map(between).collect(),
        children: group.iter().map(|built| built.child).collect(),
    }
}
