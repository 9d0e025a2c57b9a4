//! The tree: descents, and operations on one leaf.
//!
//! Sources: the one-direction-shift tree (Yan et al., 2021), on FAST&FAIR (Hwang et al., 2018). The
//! chain of siblings that a reader may follow is a B-link tree's (Lehman and Yao, 1981). The locks
//! are optimistic (Leis et al., "The ART of practical synchronization", 2016).
//!
//! Thread safety: any number of threads read and write at once. Readers write nothing, except for
//! the first touch of a node after a restart. They read words through atomics and check versions. A
//! writer locks what it changes until that is durable, so that no reader sees what a power cut
//! could take back. In `file` mode writers take turns, since each waits for a sync anyway.
//!
//! Order of locks: the `file` mode's turn; then nodes from the root down, and any order among those
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

use std::cmp::Ordering;
use std::sync::Arc;

use super::keys::Keys;
use super::node::{Live, Node, SLOTS, Slot, id_at};
use super::nodes::{Attempt, Nodes, Stop};
use super::root::Root;
use super::shift::Plan;
use crate::error::{ErrorKind, Result};
use crate::memtable::Version;
use crate::options::Failpoint;
use crate::os::sync::locks::{Mutex, MutexGuard};
use crate::os::sync::optimistic::Patience;

/// A tree of words.
#[derive(Debug)]
pub(crate) struct Tree<K> {
    /// Shared with other trees of the region, where there are any.
    pub(crate) nodes: Arc<Nodes<K>>,
    pub(crate) root: Root,
    /// Held by a writer in `file` mode.
    turn: Option<Mutex<()>>,
}

/// A place in a leaf: the first live slot whose key is not smaller, and whether it is equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) slot: usize,
    pub(crate) found: bool,
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

impl<K: Keys> Tree<K> {
    pub(crate) fn new(nodes: Arc<Nodes<K>>, root: Root) -> Tree<K> {
        let turn = (nodes.region.mode() == "file").then(Mutex::default);
        Tree { nodes, root, turn }
    }

    /// Waits for this writer's turn, where they take turns.
    pub(crate) fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.as_ref().map(Mutex::lock)
    }

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
    pub(crate) fn descend(
        &self,
        sought: K::Sought<'_>,
        level: u32,
    ) -> Attempt<(Node<'_>, Version)> {
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
        sought: K::Sought<'_>,
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
        sought: K::Sought<'_>,
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
        sought: K::Sought<'_>,
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
    pub(crate) fn find(
        &self,
        leaf: Node<'_>,
        live: Live,
        version: Version,
        sought: K::Sought<'_>,
    ) -> Attempt<Place> {
        for slot in live.slots() {
            let content = leaf.slot(slot);
            self.nodes.lock(leaf.at).check(version)?;
            match self.nodes.keys.seek_leaf(content, sought) {
                Ordering::Less => {}
                order => return Ok(Place { slot, found: order.is_eq() }),
            }
        }
        Ok(Place { slot: SLOTS, found: false })
    }

    /// The slot with the key.
    pub(crate) fn get(&self, sought: K::Sought<'_>) -> Result<Option<Slot>> {
        self.persist(|| {
            let (leaf, version) = self.descend(sought, 0)?;
            let live = self.nodes.live(leaf, version)?;
            let place = self.find(leaf, live, version, sought)?;
            let slot = place.found.then(|| leaf.slot(place.slot));
            self.nodes.lock(leaf.at).check(version)?;
            Ok(slot)
        })
    }

    /// Puts a slot in, or in place of the slot with the same key, which is returned as it was.
    /// Durable on return.
    ///
    /// # Errors
    ///
    /// `Full`; otherwise as [`crate::pm::Region::sync`].
    pub(crate) fn insert(&self, sought: K::Sought<'_>, slot: Slot) -> Result<Option<Slot>> {
        let _turn = self.turn();
        match self.persist(|| self.try_insert(sought, slot))? {
            Inserted::New => Ok(None),
            Inserted::Replaced(before) => Ok(Some(before)),
            Inserted::Split => {
                match self.persist(|| self.adopt(sought, 1)) {
                    // The parent learns of it when there is room (invariant 2).
                    Err(error) if error.kind() != ErrorKind::Full => Err(error),
                    _ => Ok(None),
                }
            }
        }
    }

    fn try_insert(&self, sought: K::Sought<'_>, slot: Slot) -> Attempt<Inserted> {
        let (leaf, version) = self.descend(sought, 0)?;
        let mut live = self.nodes.live(leaf, version)?;
        let mut place = self.find(leaf, live, version, sought)?;
        let held = self.nodes.lock(leaf.at).upgrade(version)?;
        if place.found {
            let before = leaf.slot(place.slot);
            self.replace(leaf, place.slot, (before, slot))?;
            return Ok(Inserted::Replaced(before));
        }
        let mut writer = self.nodes.writer();
        let mut plan = self.nodes.policy.plan(live, place.slot);
        if plan == Plan::Compact {
            live = self.nodes.compact(&mut writer, leaf, live);
            self.nodes.set_live(leaf, live);
            self.nodes.counts.compactions.fetch_add(1, crate::os::sync::atomic::Ordering::Relaxed);
            place = self.find(leaf, live, held.version(), sought)?;
            plan = self.nodes.policy.plan(live, place.slot);
        }
        if plan == Plan::Full {
            self.split(&held, leaf, live, place.slot, slot, &mut writer)?;
            return Ok(Inserted::Split);
        }
        live = self.nodes.put(&mut writer, leaf, live, plan, slot);
        self.nodes.set_live(leaf, live);
        writer.persist()?;
        Ok(Inserted::New)
    }

    /// Replaces a live slot of a leaf that is held by another one of the same key: one store.
    fn replace(&self, leaf: Node<'_>, slot: usize, (old, new): (Slot, Slot)) -> Result<()> {
        debug_assert!(old.id == new.id || old.other == new.other, "one word says it all");
        let mut writer = self.nodes.writer();
        if old.id == new.id {
            writer.set(leaf.at + id_at(slot) + 8, new.other);
        } else {
            writer.set(leaf.at + id_at(slot), new.id);
        }
        writer.persist()
    }

    /// Puts a slot in place of the one with the key, which is returned as it was.
    pub(crate) fn update(&self, sought: K::Sought<'_>, slot: Slot) -> Result<Option<Slot>> {
        self.update_if(sought, slot, |_| true)
    }

    /// The same where the one that is there is wanted.
    pub(crate) fn update_if(
        &self,
        sought: K::Sought<'_>,
        slot: Slot,
        wanted: impl Fn(Slot) -> bool,
    ) -> Result<Option<Slot>> {
        let _turn = self.turn();
        self.persist(|| {
            let (leaf, version) = self.descend(sought, 0)?;
            let live = self.nodes.live(leaf, version)?;
            let place = self.find(leaf, live, version, sought)?;
            if !place.found {
                self.nodes.lock(leaf.at).check(version)?;
                return Ok(None);
            }
            let _held = self.nodes.lock(leaf.at).upgrade(version)?;
            let before = leaf.slot(place.slot);
            if !wanted(before) {
                return Ok(None);
            }
            self.replace(leaf, place.slot, (before, slot))?;
            Ok(Some(before))
        })
    }

    /// Takes out the slot with the key; the slot as it was. Durable on return.
    ///
    /// # Errors
    ///
    /// As [`crate::pm::Region::sync`].
    pub(crate) fn delete(&self, sought: K::Sought<'_>) -> Result<Option<Slot>> {
        let _turn = self.turn();
        let (deleted, emptied) = self.persist(|| {
            let (leaf, version) = self.descend(sought, 0)?;
            let live = self.nodes.live(leaf, version)?;
            let place = self.find(leaf, live, version, sought)?;
            if !place.found {
                self.nodes.lock(leaf.at).check(version)?;
                return Ok((None, false));
            }
            let _held = self.nodes.lock(leaf.at).upgrade(version)?;
            let (before, mut writer) = (leaf.slot(place.slot), self.nodes.writer());
            let live = self.nodes.take(&mut writer, leaf, live, place.slot);
            self.nodes.set_live(leaf, live);
            if self.nodes.region.has(Failpoint::RetireLater) {
                writer.leave();
            }
            writer.persist()?;
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
