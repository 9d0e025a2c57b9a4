//! The tree: descents, and operations on one leaf.
//!
//! Sources: the one-direction-shift tree (Yan et al., 2021), on FAST&FAIR (Hwang et al., 2018). The
//! chain of siblings that a reader may follow is a B-link tree's (Lehman and Yao, 1981). The locks
//! are optimistic (Leis et al., "The ART of practical synchronization", 2016).
//!
//! Thread safety: any number of threads read and write at once. Readers write nothing, except for
//! the first touch of a node after a restart. They read words through atomics and check versions. A
//! writer locks what it changes until that is durable, so that no reader sees what a power cut
//! could take back.
//!
//! Order of locks: nodes from the root down, and any order among those
//! of a level where a parent is held. A thread that holds a node never *waits* for another node's
//! lock. If it does not get the lock at once, it releases all locks and begins again. (To read a
//! child under its parent's lock it does wait: a child's holder needs nothing but that child.)
//!
//! Invariants (those of one node: `node.rs`):
//!
//! 1. The nodes of a level are a chain by their siblings, from the first on, ascending. A node's
//!    keys start at its `low` and end before its sibling's. `low` never changes.
//! 2. Every link in a parent leads to a node of the chain below, and a parent's slot has its
//!    child's `low`. The converse holds except for splits of which the parent was not told: their
//!    right halves are found through the chain, and the next writer that passes adds them.
//! 3. Nodes leave the chain, and slots come and go in a parent, only under that parent's lock. A
//!    node that left is reused as a node, and its lock's version goes on.
//!
//! Reading ranges: a leaf at a time, as it is at one moment.

use std::cmp::Ordering;
use std::sync::Arc;

use super::keys::Place;
use super::node::{Live, Node, SLOTS, Slot, id_at};
use super::nodes::{Attempt, Nodes, Root, Stop};
use crate::base::error::Result;
use crate::base::options::Failpoint;
use crate::memtable::Version;
use crate::os::sync::optimistic::Patience;

/// The index of a table: an ordered set of slots.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Shared with the other trees of the region.
    pub(super) nodes: Arc<Nodes>,
    pub(super) root: Root,
}

/// The first live slot of a leaf whose key is not smaller, and whether it is equal.
#[derive(Clone, Copy, Debug)]
struct LeafPosition {
    slot: usize,
    found: bool,
}

/// What an attempt to insert came to.
enum Inserted {
    /// The slot is there; there was none with its key.
    New,
    /// The other word was replaced: the slot as it was.
    Replaced(Slot),
    /// The leaf was split, and the slot is in one half; a level above does not know yet.
    Split,
}

impl Tree {
    /// Tries until it is done or cannot be.
    pub(crate) fn persist<T>(&self, mut attempt: impl FnMut() -> Attempt<T>) -> Result<T> {
        let mut patience = Patience::default();
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Restart) => patience.wait(),
            }
        }
    }

    /// The node of `level` (leaves are level 0) that `sought` belongs in; restarts where the tree
    /// is not as high.
    pub(crate) fn descend(&self, sought: Place<'_>, level: u32) -> Attempt<(Node<'_>, Version)> {
        let (at, height) = self.root.get(&self.nodes.region);
        let mut version = self.nodes.lock(at).read()?;
        if self.root.get(&self.nodes.region) != (at, height) || level > height {
            return Err(Stop::Restart);
        }
        let mut node = self.nodes.node(at);
        let mut below = height;
        loop {
            (node, version) = self.move_right(node, version, sought)?;
            if below == level {
                return Ok((node, version));
            }
            let child = self.route(node, version, sought)?;
            let child_version = self.nodes.lock(child).read()?;
            self.nodes.lock(node.at).check(version)?;
            (node, version) = (self.nodes.node(child), child_version);
            below -= 1;
        }
    }

    /// Goes along the chain as far as `sought` lies beyond.
    pub(crate) fn move_right<'t>(
        &'t self,
        mut node: Node<'t>,
        mut version: Version,
        sought: Place<'_>,
    ) -> Attempt<(Node<'t>, Version)> {
        loop {
            let live = self.nodes.live(node, version)?;
            // A live key that is greater ends the matter: the sibling starts beyond it.
            let last = live.slots().next_back().map(|slot| node.slot(slot));
            self.nodes.lock(node.at).check(version)?;
            if last.is_some_and(|slot| self.nodes.compare(node, slot, sought).is_gt()) {
                return Ok((node, version));
            }
            let sibling = node.sibling();
            if sibling == 0 {
                self.nodes.lock(node.at).check(version)?;
                return Ok((node, version));
            }
            // The offset is one of a node only while the version stands.
            self.nodes.lock(node.at).check(version)?;
            let next_version = self.nodes.lock(sibling).read()?;
            self.nodes.lock(node.at).check(version)?;
            let next = self.nodes.node(sibling);
            let low = next.low();
            self.nodes.lock(sibling).check(next_version)?;
            if self.nodes.keys.seek(low, sought).is_gt() {
                return Ok((node, version));
            }
            (node, version) = (next, next_version);
        }
    }

    /// The child of an inner node for `sought`, which was checked.
    pub(crate) fn route(
        &self,
        node: Node<'_>,
        version: Version,
        sought: Place<'_>,
    ) -> Attempt<u64> {
        let slot = self.route_slot(node, version, sought)?;
        let child = slot.map_or_else(|| node.leftmost(), |slot| node.slot(slot).id);
        self.nodes.lock(node.at).check(version)?;
        debug_assert_ne!(child, 0, "an inner node has children (invariant 2)");
        Ok(child)
    }

    /// Which slot has that child; `None` for the leftmost.
    pub(crate) fn route_slot(
        &self,
        node: Node<'_>,
        version: Version,
        sought: Place<'_>,
    ) -> Attempt<Option<usize>> {
        let live = self.nodes.live(node, version)?;
        let mut before = None;
        for slot in live.slots() {
            let key = node.slot(slot).other;
            self.nodes.lock(node.at).check(version)?;
            if self.nodes.keys.seek(key, sought).is_gt() {
                break;
            }
            before = Some(slot);
        }
        Ok(before)
    }

    /// Where `sought` is in a leaf; counts once the version was checked.
    fn find(
        &self,
        leaf: Node<'_>,
        live: Live,
        version: Version,
        sought: Place<'_>,
    ) -> Attempt<LeafPosition> {
        for slot in live.slots() {
            let content = leaf.slot(slot);
            self.nodes.lock(leaf.at).check(version)?;
            match self.nodes.keys.seek_leaf(content, sought) {
                Ordering::Less => {}
                order => return Ok(LeafPosition { slot, found: order.is_eq() }),
            }
        }
        Ok(LeafPosition { slot: SLOTS, found: false })
    }

    /// Puts a slot in, or in place of the slot with the same key, which is returned as it was.
    /// Durable on return.
    pub(super) fn put(&self, sought: Place<'_>, slot: Slot) -> Result<Option<Slot>> {
        match self.persist(|| self.try_insert(sought, slot))? {
            Inserted::New => Ok(None),
            Inserted::Replaced(before) => Ok(Some(before)),
            Inserted::Split => {
                match self.persist(|| self.adopt(sought, 1)) {
                    // The parent learns of it when there is room (invariant 2).
                    Err(error) if !error.may_pass() => Err(error),
                    _ => Ok(None),
                }
            }
        }
    }

    fn try_insert(&self, sought: Place<'_>, slot: Slot) -> Attempt<Inserted> {
        let (leaf, version) = self.descend(sought, 0)?;
        let live = self.nodes.live(leaf, version)?;
        let position = self.find(leaf, live, version, sought)?;
        let held = self.nodes.lock(leaf.at).upgrade(version)?;
        if position.found {
            return Ok(Inserted::Replaced(self.replace(leaf, position.slot, slot)));
        }
        let mut writer = self.nodes.writer();
        let Some(plan) = live.plan(position.slot) else {
            self.split(&held, leaf, live, position.slot, slot, &mut writer)?;
            return Ok(Inserted::Split);
        };
        let live = self.nodes.put(&mut writer, leaf, live, plan, slot);
        self.nodes.set_live(leaf, live);
        writer.fence();
        Ok(Inserted::New)
    }

    /// Replaces a live slot of a leaf that is held by another one of the same key, which is one
    /// store; the slot as it was.
    fn replace(&self, leaf: Node<'_>, at: usize, new: Slot) -> Slot {
        let (before, mut writer) = (leaf.slot(at), self.nodes.writer());
        debug_assert_eq!(before.other, new.other, "the identity says it all");
        writer.set(leaf.at + id_at(at), new.id);
        writer.fence();
        before
    }

    /// Puts a slot in place of the one with its key, if that has the identity `wanted`; whether it
    /// did.
    pub(super) fn update(&self, sought: Place<'_>, slot: Slot, wanted: u64) -> Result<bool> {
        self.persist(|| {
            let (leaf, version) = self.descend(sought, 0)?;
            let live = self.nodes.live(leaf, version)?;
            let position = self.find(leaf, live, version, sought)?;
            if !position.found {
                self.nodes.lock(leaf.at).check(version)?;
                return Ok(false);
            }
            let _held = self.nodes.lock(leaf.at).upgrade(version)?;
            let is_wanted = leaf.slot(position.slot).id == wanted;
            if is_wanted {
                self.replace(leaf, position.slot, slot);
            }
            Ok(is_wanted)
        })
    }

    /// Takes out the slot with the key; the slot as it was. Durable on return.
    pub(super) fn delete(&self, sought: Place<'_>) -> Result<Option<Slot>> {
        let (deleted, emptied) = self.persist(|| {
            let (leaf, version) = self.descend(sought, 0)?;
            let live = self.nodes.live(leaf, version)?;
            let position = self.find(leaf, live, version, sought)?;
            if !position.found {
                self.nodes.lock(leaf.at).check(version)?;
                return Ok((None, false));
            }
            let _held = self.nodes.lock(leaf.at).upgrade(version)?;
            let (before, mut writer) = (leaf.slot(position.slot), self.nodes.writer());
            let live = self.nodes.take(&mut writer, leaf, live, position.slot);
            self.nodes.set_live(leaf, live);
            if self.nodes.region.has(Failpoint::RetireLater) {
                writer.leave();
            }
            writer.fence();
            Ok((Some(before), live.is_empty()))
        })?;
        if emptied {
            let mut again = self.persist(|| self.prune(sought))?;
            while let Some(low) = again {
                again = self.persist(|| self.prune(self.nodes.keys.sought(low)))?;
            }
        }
        Ok(deleted)
    }
}

/// A leaf that was read.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The live slots, ascending.
    pub(crate) slots: Vec<Slot>,
    /// Where its keys start; zero for the first leaf.
    pub(crate) low: u64,
    /// Where the next leaf starts; zero for the last.
    pub(crate) high: u64,
}

impl Tree {
    /// The leaf that `sought` belongs in.
    pub(crate) fn chunk(&self, sought: Place<'_>) -> Result<Chunk> {
        self.persist(|| {
            let (leaf, version) = self.descend(sought, 0)?;
            let live = self.nodes.live(leaf, version)?;
            let slots = live.slots().map(|slot| leaf.slot(slot)).collect();
            let sibling = leaf.sibling();
            let low = leaf.low();
            self.nodes.lock(leaf.at).check(version)?;
            let high = match sibling {
                0 => 0,
                sibling => {
                    let high = self.nodes.node(sibling).low();
                    // It was the sibling all along, so it was in the chain when it was read.
                    self.nodes.lock(leaf.at).check(version)?;
                    high
                }
            };
            Ok(Chunk { slots, low, high })
        })
    }

    /// Calls `visit` with every node and its level, leaves last. No other thread may write
    /// meanwhile.
    pub(crate) fn visit<'t>(&'t self, mut visit: impl FnMut(Node<'t>, u32)) {
        let (root, height) = self.root.get(&self.nodes.region);
        let mut first = root;
        for level in (0..=height).rev() {
            let mut at = first;
            first = self.nodes.node(at).leftmost();
            while at != 0 {
                let node = self.nodes.node(at);
                visit(node, level);
                at = node.sibling();
            }
        }
    }
}
