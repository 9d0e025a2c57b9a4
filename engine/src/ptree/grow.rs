//! Growth: splits, links in parents, new roots.
//!
//! A split is safe at every store because one store decides: the left node's new sibling. Before it
//! no reader can reach the right node, which is durable with its pool entry. After it, the slots of
//! the left node that the right one holds too are holes, since the right node starts there (node
//! invariant 2). The source clears them at once, which costs lines. Where words are all there is to
//! a key, it is enough to clear them before the right node leaves the chain again. Where words
//! refer to records, they are cleared before the parent learns of the right node. Until then
//! readers reach the right node only through the left one, so no record is freed meanwhile. A
//! parent that does not know the right node is no error (tree invariant 2).

use super::Policy;
use super::keys::Keys;
use super::node::{Live, Node, SLOTS, Slot};
use super::node_writer::NodeWriter;
use super::nodes::{Attempt, Stop};
use super::root::Root;
use super::shift::Plan;
use super::tree::Tree;
use crate::error::Result;
use crate::memtable::Held;
use crate::os::sync::atomic::Ordering;

/// What goes into the right half of a split.
struct Half {
    at: u64,
    low: u64,
    leftmost: u64,
    slots: Vec<(usize, Slot)>,
}

impl<K: Keys> Tree<K> {
    /// Splits a full node, with `slot` in its place before the live slot `next` in one half.
    /// Durable on return; the parent does not know yet.
    pub(crate) fn split(
        &self,
        held: &Held<'_>,
        node: Node<'_>,
        live: Live,
        next: usize,
        slot: Slot,
        writer: &mut NodeWriter<'_>,
    ) -> Result<()> {
        // First what can fail.
        let at = self.nodes.pool.get()?;
        let position = live.slots().take_while(|at| *at < next).count();
        let slots: Vec<Slot> = live.slots().map(|at| node.slot(at)).collect();
        match self.nodes.policy {
            Policy::OneDirection => {
                let middle = slots.len() / 2;
                let last = if position == middle { slot } else { slots[middle - 1] };
                let right = self.half(writer, node, (last, &slots[middle..]), (at, false))?;
                self.link(node, &right, writer)?;
                let packed = live_of(&right.slots);
                let left = first(live, middle);
                self.nodes.clear(node, Live(live.0 & !left.0));
                self.nodes.set_live(node, left);
                if position <= middle {
                    self.put_half(held, node, left, position, slot, writer)?;
                } else {
                    let gone = middle + usize::from(!node.is_leaf());
                    let node = self.nodes.node(at);
                    self.put_half(held, node, packed, position - gone, slot, writer)?;
                }
            }
            Policy::Nearest => {
                // The new one comes along if it goes right.
                let mut all = slots;
                all.insert(position, slot);
                let middle = all.len() / 2;
                let right =
                    self.half(writer, node, (all[middle - 1], &all[middle..]), (at, true))?;
                self.link(node, &right, writer)?;
                let left = first(live, middle - usize::from(position < middle));
                if K::REFERS {
                    self.nodes.clear(node, Live(live.0 & !left.0));
                }
                self.nodes.set_live(node, left);
                if position < middle {
                    self.put_half(held, node, left, position, slot, writer)?;
                }
            }
        }
        self.nodes.counts.splits.fetch_add(1, Ordering::Relaxed);
        writer.persist()
    }

    /// What goes into the right half at `at`, behind the slot `last`: packed, or with the holes
    /// spread among the slots.
    fn half(
        &self,
        writer: &mut NodeWriter<'_>,
        node: Node<'_>,
        (last, slots): (Slot, &[Slot]),
        (at, spread): (u64, bool),
    ) -> Result<Half> {
        let (low, leftmost, rest) = if node.is_leaf() {
            let bound = self.nodes.keys.bound(writer, last, slots[0]);
            (bound.inspect_err(|_| self.nodes.pool.put_back(at))?, 0, slots)
        } else {
            (slots[0].other, slots[0].id, &slots[1..])
        };
        let place = |i: usize| if spread { i * SLOTS / rest.len() } else { i };
        let slots = rest.iter().enumerate().map(|(i, slot)| (place(i), *slot)).collect();
        Ok(Half { at, low, leftmost, slots })
    }

    /// Makes the right half durable, then links it.
    fn link(&self, node: Node<'_>, right: &Half, writer: &mut NodeWriter<'_>) -> Result<()> {
        let head = (node.sibling(), right.low, right.leftmost);
        self.nodes.write(writer, right.at, head, &right.slots)?;
        writer.persist()?;
        writer.set(node.at + Node::SIBLING, right.at);
        writer.order();
        Ok(())
    }

    /// Puts a slot into a half that has holes.
    fn put_half(
        &self,
        _held: &Held<'_>,
        node: Node<'_>,
        live: Live,
        position: usize,
        slot: Slot,
        writer: &mut NodeWriter<'_>,
    ) -> Result<()> {
        let next = live.slots().nth(position).unwrap_or(SLOTS);
        let plan = self.nodes.policy.plan(live, next);
        let (live, plan) = if plan == Plan::Compact {
            let live = self.nodes.compact(writer, node, live);
            let next = live.slots().nth(position).unwrap_or(SLOTS);
            (live, self.nodes.policy.plan(live, next))
        } else {
            (live, plan)
        };
        let live = self.nodes.put(writer, node, live, plan, slot);
        self.nodes.set_live(node, live);
        writer.persist()
    }

    /// Tells the parent, at `level`, of all nodes of the chain around `sought` that it does not
    /// know.
    pub(crate) fn adopt(&self, sought: K::Sought<'_>, level: u32) -> Attempt<()> {
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
            let mut plan = self.nodes.policy.plan(live, self.behind(parent, live, slot.other));
            if plan == Plan::Compact {
                live = self.nodes.compact(&mut writer, parent, live);
                self.nodes.set_live(parent, live);
                plan = self.nodes.policy.plan(live, self.behind(parent, live, slot.other));
            }
            if plan == Plan::Full {
                let next = self.behind(parent, live, slot.other);
                self.split(&held, parent, live, next, slot, &mut writer)?;
                drop(held);
                self.persist(|| self.adopt(sought, level + 1))?;
                return Err(Stop::Restart);
            }
            live = self.nodes.put(&mut writer, parent, live, plan, slot);
            self.nodes.set_live(parent, live);
            writer.persist()?;
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
        sought: K::Sought<'_>,
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
        self.nodes.write(&mut writer, at, (0, 0, root), &slots)?;
        writer.persist()?;
        writer.set(self.root.at, Root::encode(at, height + 1));
        Ok(writer.persist()?)
    }
}

/// The first `count` of the live slots.
fn first(live: Live, count: usize) -> Live {
    live.slots().take(count).fold(Live::default(), Live::with)
}

fn live_of(slots: &[(usize, Slot)]) -> Live {
    slots.iter().fold(Live::default(), |live, (slot, _)| live.with(*slot))
}
