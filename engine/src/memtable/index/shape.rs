//! What changes the shape of the tree: splits of full nodes, and the removal of empty ones.
//!
//! Thread safety: locks are taken along a path, each at the version it was passed at, so holding
//! all of them shows that the path is still one.

use crossbeam_epoch::Guard;

use super::Index;
use super::heap::Heap;
use super::inner::{Child, Inner};
use super::leaf::Leaf;
use super::lock::{Held, Optimistic, Restart, Version};
use super::records::{Records, Sought};

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
    pub(super) fn prune(&self, sought: Sought<'_>, guard: &Guard) -> Optimistic<()> {
        let heap = Heap::new(guard, &self.counts.memory);
        let Path { steps, leaf, version } = self.path(sought, guard)?;
        let held_leaf = leaf.lock.upgrade(version)?;
        if leaf.len() > 0 {
            return Ok(());
        }
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
}
