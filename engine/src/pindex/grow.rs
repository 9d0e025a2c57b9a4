//! Growth: splits, links in parents, new roots.
//!
//! A split is safe at every store because one store decides: the left node's new sibling. Before it
//! no reader can reach the right node, which is durable with its pool entry. After it, the slots of
//! the left node that the right one holds too are holes, since the right node starts there (node
//! invariant 2). They refer to records, so they are cleared before the parent learns of the right
//! node. Until then readers reach the right node only through the left one, so no record is freed
//! meanwhile. A parent that does not know the right node is no error (tree invariant 2).

use super::keys::Place;
use super::node::{Live, Node, NodeWriter, SLOTS, Slot, id_at, line_of};
use super::nodes::{Attempt, NodeHead, Nodes, Root, Stop};
use super::tree::Tree;
use crate::base::error::Result;
use crate::memtable::Held;

#[cfg(test)]
use crate::os::sync::atomic::Ordering;

/// What goes into the right half of a split.
struct Half {
    at: u64,
    low: u64,
    leftmost: u64,
    slots: Vec<(usize, Slot)>,
}

impl Tree {
    /// Splits a full node, with `slot` in its place before the live slot `next` in one half.
    /// Durable on return; the parent does not know yet.
    pub(crate) fn split(
        &self,
        _held: &Held<'_>,
        node: Node<'_>,
        live: Live,
        next: usize,
        slot: Slot,
        writer: &mut NodeWriter<'_>,
    ) -> Result<()> {
        // First what can fail.
        let at = self.nodes.pool.get()?;
        let position = live.slots().take_while(|at| *at < next).count();
        let mut all: Vec<Slot> = live.slots().map(|at| node.slot(at)).collect();
        // The new one comes along if it goes right.
        all.insert(position, slot);
        let middle = all.len() / 2;
        let right = self.half(writer, node, (all[middle - 1], &all[middle..]), at)?;
        self.link(node, &right, writer)?;
        let left = live.first(middle - usize::from(position < middle));
        self.nodes.clear(node, Live(live.0 & !left.0));
        self.nodes.set_live(node, left);
        if position < middle {
            let next = left.slots().nth(position).unwrap_or(SLOTS);
            let plan = left.plan(next).expect("invariant: a half has holes");
            let left = self.nodes.put(writer, node, left, plan, slot);
            self.nodes.set_live(node, left);
        }
        #[cfg(test)]
        self.nodes.counts.splits.fetch_add(1, Ordering::Relaxed);
        writer.fence();
        Ok(())
    }

    /// What goes into the right half at `at`, behind the slot `last`, with the holes spread among
    /// the slots.
    fn half(
        &self,
        writer: &mut NodeWriter<'_>,
        node: Node<'_>,
        (last, slots): (Slot, &[Slot]),
        at: u64,
    ) -> Result<Half> {
        let (low, leftmost, rest) = if node.is_leaf() {
            let bound = self.nodes.keys.bound(writer, last, slots[0]);
            (bound.inspect_err(|_| self.nodes.pool.put_back(at))?, 0, slots)
        } else {
            (slots[0].other, slots[0].id, &slots[1..])
        };
        let place = |i: usize| i * SLOTS / rest.len();
        let slots = rest.iter().enumerate().map(|(i, slot)| (place(i), *slot)).collect();
        Ok(Half { at, low, leftmost, slots })
    }

    /// Makes the right half durable, then links it.
    fn link(&self, node: Node<'_>, right: &Half, writer: &mut NodeWriter<'_>) -> Result<()> {
        let Half { low, leftmost, .. } = *right;
        let head = NodeHead { sibling: node.sibling(), low, leftmost };
        self.nodes.write(writer, right.at, head, &right.slots)?;
        writer.fence();
        writer.set(node.at + Node::SIBLING, right.at);
        writer.fence();
        Ok(())
    }

    /// Tells the parent, at `level`, of all nodes of the chain around `sought` that it does not
    /// know.
    pub(crate) fn adopt(&self, sought: Place<'_>, level: u32) -> Attempt<()> {
        let (root, height) = self.root.get(&self.nodes.region);
        if height < level {
            self.raise(root, height)?;
            return Err(Stop::Restart);
        }
        let (parent, version) = self.descend(sought, level)?;
        let child = self.route(parent, version, sought)?;
        let held = self.nodes.lock(parent.at).upgrade(version)?;
        let mut live = self.nodes.live_held(parent, &held)?;
        let (mut at, mut writer) = (child, self.nodes.writer());
        while let Some(slot) = self.unknown(at, parent, live, sought)? {
            let next = self.behind(parent, live, slot.other);
            let Some(plan) = live.plan(next) else {
                self.split(&held, parent, live, next, slot, &mut writer)?;
                drop(held);
                self.persist(|| self.adopt(sought, level + 1))?;
                return Err(Stop::Restart);
            };
            live = self.nodes.put(&mut writer, parent, live, plan, slot);
            self.nodes.set_live(parent, live);
            writer.fence();
            at = slot.id;
        }
        Ok(())
    }

    /// The right sibling of the child `at`, as a slot, unless the parent, which is held, knows it.
    fn unknown(
        &self,
        at: u64,
        parent: Node<'_>,
        live: Live,
        sought: Place<'_>,
    ) -> Attempt<Option<Slot>> {
        let version = self.nodes.lock(at).read()?;
        // This node is touched before its sibling can be reached without it. What it still holds of
        // the split is cleared before the sibling drops that.
        self.nodes.live(self.nodes.node(at), version)?;
        let sibling = self.nodes.node(at).sibling();
        self.nodes.lock(at).check(version)?;
        if sibling == 0 {
            return Ok(None);
        }
        // In the chain for as long as the parent is held (tree invariant 3).
        let low = self.nodes.node(sibling).low();
        let known = live.slots().map(|slot| parent.slot(slot));
        let mut beyond = known.filter(|s| self.nodes.keys.seek(s.other, sought).is_gt());
        let end = match (beyond.next(), parent.sibling()) {
            (Some(next), _) => next.other,
            (None, 0) => 0,
            (None, next) => self.nodes.node(next).low(),
        };
        let ours = end == 0 || self.nodes.keys.bounds(low, end).is_lt();
        Ok(ours.then_some(Slot { id: sibling, other: low }))
    }

    /// The first live slot of an inner node whose key is greater.
    fn behind(&self, node: Node<'_>, live: Live, key: u64) -> usize {
        let greater = |slot: &usize| self.nodes.keys.bounds(node.slot(*slot).other, key).is_gt();
        live.slots().find(greater).unwrap_or(SLOTS)
    }

    /// Puts a new root over the old one.
    fn raise(&self, root: u64, height: u32) -> Attempt<()> {
        let version = self.root.lock.read()?;
        if self.root.get(&self.nodes.region) != (root, height) {
            return Err(Stop::Restart);
        }
        let _held = self.root.lock.upgrade(version)?;
        let node_version = self.nodes.lock(root).read()?;
        let sibling = self.nodes.node(root).sibling();
        self.nodes.lock(root).check(node_version)?;
        let mut writer = self.nodes.writer();
        let at = self.nodes.pool.get()?;
        let mut slots = Vec::new();
        if sibling != 0 {
            slots.push((0, Slot { id: sibling, other: self.nodes.node(sibling).low() }));
        }
        self.nodes.write(
            &mut writer,
            at,
            NodeHead { leftmost: root, ..NodeHead::default() },
            &slots,
        )?;
        writer.fence();
        writer.set(self.root.at, Root::encode(at, height + 1));
        writer.fence();
        Ok(())
    }
}

// Changes within one node: putting a slot in its place by shifting others into the nearest hole,
// and taking one out where it is. The source shifts to holes on the right alone. Either side, by
// lines, flushes the fewest.
//
// Why a cut anywhere is harmless (invariant 2 of `node.rs`; stores to a line persist in order,
// and a line is flushed and fenced before the next one is stored to):
//
// * *Shifting right*, slot i to i + 1, from the hole down: the identity is stored first, so that
//   slot i + 1 repeats slot i and is a hole; then the other word. What was in slot i + 1 lies in
//   slot i + 2 already, which comes to life by the same store.
// * *Shifting left*, slot i + 1 to i, from the hole up: slot i is a hole. It is emptied, its other
//   word is stored, then its identity. With that it comes to life, and slot i + 1 becomes a hole
//   that repeats it.
// * *Placing* is the last step of both: the slot is a hole or has its double next to it. It is
//   emptied, gets the other word, then the identity.
// * *Taking out* stores a zero as the identity.

/// How a slot gets into a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Into a hole that is there.
    Into(usize),
    /// The slots from `at` up to the hole go right by one.
    Right { at: usize, hole: usize },
    /// The slots from the one behind the hole up to `at` go left by one.
    Left { hole: usize, at: usize },
}

impl Plan {
    /// How many lines it stores to.
    fn lines(self) -> u64 {
        match self {
            Plan::Into(_) => 1,
            Plan::Right { at, hole } => line_of(hole) - line_of(at) + 1,
            Plan::Left { hole, at } => line_of(at) - line_of(hole) + 1,
        }
    }

    fn moves(self) -> usize {
        match self {
            Plan::Into(_) => 0,
            Plan::Right { at, hole } => hole - at,
            Plan::Left { hole, at } => at - hole,
        }
    }
}

impl Live {
    /// How a slot gets in before the live slot `next` (or at the end, where that is `SLOTS`): to
    /// the nearest hole on either side, by lines. `None` where there is no hole.
    pub(crate) fn plan(self, next: usize) -> Option<Plan> {
        let after = (0..next).rev().find(|slot| self.has(*slot)).map_or(0, |slot| slot + 1);
        if after < next {
            return Some(Plan::Into(after));
        }
        let right = (next..SLOTS).find(|slot| !self.has(*slot));
        let right = right.map(|hole| Plan::Right { at: next, hole });
        let left = (0..after).rev().find(|slot| !self.has(*slot));
        let left = left.map(|hole| Plan::Left { hole, at: after - 1 });
        right.into_iter().chain(left).min_by_key(|plan| (plan.lines(), plan.moves()))
    }
}

impl Nodes {
    /// Puts `slot` in by `plan`; which slots are live then. The last line is not ordered yet.
    pub(crate) fn put(
        &self,
        writer: &mut NodeWriter<'_>,
        node: Node<'_>,
        live: Live,
        plan: Plan,
        slot: Slot,
    ) -> Live {
        match plan {
            Plan::Into(at) => {
                place(writer, node, at, slot);
                live.with(at)
            }
            Plan::Right { at, hole } => {
                for from in (at..hole).rev() {
                    let Slot { id, other } = node.slot(from);
                    writer.set(node.at + id_at(from + 1), id);
                    writer.set(node.at + id_at(from + 1) + 8, other);
                    if line_of(from) != line_of(from + 1) {
                        writer.fence();
                    }
                }
                place(writer, node, at, slot);
                live.with(hole)
            }
            Plan::Left { hole, at } => {
                for to in hole..at {
                    place(writer, node, to, node.slot(to + 1));
                    if line_of(to) != line_of(to + 1) {
                        writer.fence();
                    }
                }
                place(writer, node, at, slot);
                live.with(hole)
            }
        }
    }

    /// Takes a live slot out; which are live then. Not ordered yet.
    pub(crate) fn take(
        &self,
        writer: &mut NodeWriter<'_>,
        node: Node<'_>,
        live: Live,
        slot: usize,
    ) -> Live {
        debug_assert!(live.has(slot), "slot {slot} of {live:?} is live");
        writer.set(node.at + id_at(slot), 0);
        live.without(slot)
    }
}

/// Fills a slot that is a hole, or whose content lies in the slot behind it too.
fn place(writer: &mut NodeWriter<'_>, node: Node<'_>, at: usize, slot: Slot) {
    let to = node.at + id_at(at);
    if node.slot(at).id != 0 {
        writer.set(to, 0);
    }
    writer.set(to + 8, slot.other);
    writer.set(to, slot.id);
}
