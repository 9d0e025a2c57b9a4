//! Shrinking: empty leaves leave the tree, and with them inner nodes that lead to nothing else.
//!
//! A path is removed: the empty leaf, and above it the nodes that have no child but the one on the
//! path. It ends below a node that knows the uppermost by a slot, the *keeper*. (A node's first
//! child stays, however empty, as long as it has others: its keys would have to go to another
//! parent.) The keeper drops the path. Then, from the top, each node leaves its chain. Between any
//! two of these stores the rest of the path is in its chains and unknown to parents, as right
//! halves of splits are (tree invariant 2). Memory is given back last.
//!
//! Everything is read before anything is locked, and all locks are taken at the versions read. So
//! no thread waits while it holds one.

use super::keys::Place;
use super::node::Node;
use super::nodes::{Attempt, Stop};
use super::tree::Tree;
use crate::memtable::{Held, Version};
#[cfg(test)]
use crate::os::sync::atomic::Ordering;

/// A node as of a version.
type Seen<'t> = (Node<'t>, Version);

/// What is on the way to a leaf: inner nodes from the root down, each with the slot taken.
struct Way<'t> {
    inner: Vec<(Node<'t>, Version, Option<usize>)>,
    leaf: Seen<'t>,
}

impl Tree {
    /// Takes out the path of the empty leaf of `sought`. If that leaves the keeper with its first
    /// child alone, where its keys start: there may be another path to take out.
    pub(crate) fn prune(&self, sought: Place<'_>) -> Attempt<Option<u64>> {
        let Some(way) = self.way(sought)? else { return Ok(None) };
        let (mut above, mut path) = (way.inner, vec![way.leaf]);
        if !self.nodes.live(way.leaf.0, way.leaf.1)?.is_empty() {
            return Ok(None);
        }
        let (keeper, keeper_version, slot) = loop {
            match above.pop() {
                Some((node, version, Some(slot))) => break (node, version, slot),
                Some((node, version, None)) if self.nodes.live(node, version)?.is_empty() => {
                    path.push((node, version));
                }
                // The first child stays, and so does the way to the first leaf.
                _ => return Ok(None),
            }
        };
        path.reverse();
        let lefts = self.lefts(keeper, keeper_version, slot, &path)?;
        let keeper_held = self.nodes.lock(keeper.at).upgrade(keeper_version)?;
        let mut held: Vec<Held<'_>> = Vec::new();
        for (node, version) in lefts.iter().chain(&path) {
            held.push(self.nodes.lock(node.at).upgrade(*version)?);
        }
        let live = self.nodes.live_held(keeper, &keeper_held)?;
        // A node starts where its first child does: one bound for all of the path.
        let low = path[0].0.low();
        debug_assert!(path.iter().all(|(node, _)| node.low() == low), "{path:?}");
        let mut writer = self.nodes.writer();
        let live = self.nodes.take(&mut writer, keeper, live, slot);
        self.nodes.set_live(keeper, live);
        writer.fence();
        for (((left, _), (node, _)), left_held) in lefts.iter().zip(&path).zip(&held) {
            // Its keys reach further from now on: what it still holds of a split is cleared first.
            self.nodes.live_held(*left, left_held)?;
            writer.set(left.at + Node::SIBLING, node.sibling());
            writer.fence();
        }
        drop((held, keeper_held));
        for (node, _) in &path {
            self.nodes.pool.release(node.at)?;
        }
        self.nodes.keys.release(low)?;
        #[cfg(test)]
        self.nodes.counts.unlinks.fetch_add(path.len() as u64, Ordering::Relaxed);
        Ok(live.is_empty().then(|| keeper.low()))
    }

    /// The way to the leaf of `sought`, if parents know all of it.
    fn way(&self, sought: Place<'_>) -> Attempt<Option<Way<'_>>> {
        let (at, height) = self.root.get(&self.nodes.region);
        let mut version = self.nodes.lock(at).read()?;
        if self.root.get(&self.nodes.region) != (at, height) {
            return Err(Stop::Restart);
        }
        let (mut node, mut inner) = (self.nodes.node(at), Vec::new());
        loop {
            let (right, right_version) = self.move_right(node, version, sought)?;
            if right.at != node.at {
                return Ok(None);
            }
            if inner.len() == height as usize {
                return Ok(Some(Way { inner, leaf: (node, right_version) }));
            }
            let slot = self.route_slot(node, version, sought)?;
            inner.push((node, version, slot));
            let child = slot.map_or_else(|| node.leftmost(), |slot| node.slot(slot).id);
            self.nodes.lock(node.at).check(version)?;
            let child_version = self.nodes.lock(child).read()?;
            self.nodes.lock(node.at).check(version)?;
            (node, version) = (self.nodes.node(child), child_version);
        }
    }

    /// The left neighbour of each node of a path, from the top.
    fn lefts(
        &self,
        keeper: Node<'_>,
        version: Version,
        slot: usize,
        path: &[Seen<'_>],
    ) -> Attempt<Vec<Seen<'_>>> {
        let live = self.nodes.live(keeper, version)?;
        let before = live.slots().rfind(|at| *at < slot);
        let mut start = before.map_or_else(|| keeper.leftmost(), |at| keeper.slot(at).id);
        let mut parent = (keeper.at, version);
        let mut lefts = Vec::new();
        for (node, _) in path {
            self.nodes.lock(parent.0).check(parent.1)?;
            let (mut left, mut left_version) = (start, self.nodes.lock(start).read()?);
            self.nodes.lock(parent.0).check(parent.1)?;
            while self.nodes.node(left).sibling() != node.at {
                let next = self.nodes.node(left).sibling();
                self.nodes.lock(left).check(left_version)?;
                if next == 0 {
                    // A parent knows a node that the chain does not: not in one moment.
                    return Err(Stop::Restart);
                }
                let next_version = self.nodes.lock(next).read()?;
                self.nodes.lock(left).check(left_version)?;
                (left, left_version) = (next, next_version);
            }
            let left_node = self.nodes.node(left);
            lefts.push((left_node, left_version));
            if !left_node.is_leaf() {
                let live = self.nodes.live(left_node, left_version)?;
                let last = live.slots().next_back();
                start = last.map_or_else(|| left_node.leftmost(), |at| left_node.slot(at).id);
            }
            parent = (left, left_version);
        }
        Ok(lefts)
    }
}
