//! The one-direction-shift B+-tree (Yan, Zhang, Ji, Dong and Ji, "One-Direction Shift B+-Tree Based
//! on Persistent Memory", 2021), single-threaded, with keys and values of eight bytes.
//!
//! A slot is live if its identity is neither zero nor that of the live slot before it, and its key
//! is greater than that slot's and smaller than where the right sibling starts. Why a cut anywhere
//! is harmless is said of the engine's own index, which is the same tree for many threads and for
//! records: `engine/src/pindex`. What differs: a split leaves what it has moved in the left node,
//! where the policy allows that, until the right node leaves the chain again.

use std::cell::Cell;

use terrace::Result;
use terrace::bench::{Ground, GroundWriter};

use super::PersistentTree;
use super::node::{Live, NODE, SLOTS, Slot, id_at};
use super::shift::{Plan, Policy};

const SIBLING: u64 = 0;
/// Where the node's keys start.
const LOW: u64 = 8;
/// The child for keys before the first slot's; zero in a leaf.
const LEFTMOST: u64 = 16;
/// Which slots are live: not flushed, and worked out again when the tree is opened.
const BITMAP: u64 = 24;

/// Nodes lie at multiples of 64: the root's height has the low bits of its word.
const HEIGHT: u64 = 63;

/// The tree.
#[derive(Debug)]
pub struct OdsTree {
    ground: Ground,
    policy: Policy,
    unlinks: Cell<u64>,
}

/// An inner node on the way to a leaf, and the slot taken; `None` for the first child.
type Step = (u64, Option<usize>);

impl OdsTree {
    /// Bytes in a node.
    pub const NODE: u32 = NODE as u32;

    /// An empty tree.
    ///
    /// # Errors
    ///
    /// `Full`.
    pub fn create(ground: Ground, policy: Policy) -> Result<OdsTree> {
        let tree = OdsTree { ground, policy, unlinks: Cell::new(0) };
        let (root, mut writer) = (tree.ground.take()?, tree.ground.writer());
        tree.write(&mut writer, root, [0; 3], &[])?;
        writer.fence();
        drop(writer);
        tree.ground.set_root(root);
        Ok(tree)
    }

    /// A tree that is there: which slots are live is worked out, and what a cut left is cleared.
    #[cfg(test)]
    pub(crate) fn open(ground: Ground, policy: Policy) -> OdsTree {
        let tree = OdsTree { ground, policy, unlinks: Cell::new(0) };
        tree.visit(|node| tree.rebuild(node));
        tree
    }

    /// Empty leaves, and inner nodes above them, that were taken out.
    pub fn unlinks(&self) -> u64 {
        self.unlinks.get()
    }

    #[cfg(test)]
    fn rebuild(&self, node: u64) {
        let high = self.high(node);
        let (mut live, mut before) = (Live::default(), self.field(node, LEFTMOST));
        let mut last = 0;
        for at in 0..SLOTS {
            let slot = self.slot(node, at);
            let key = self.key(node, slot);
            if slot.id != 0 && slot.id != before && key > last && (high == 0 || key < high) {
                live = live.with(at);
                (before, last) = (slot.id, key);
            }
        }
        self.clear(&mut self.ground.writer(), node, live.holes());
        self.set_live(node, live);
    }

    fn field(&self, node: u64, field: u64) -> u64 {
        self.ground.word(node + field)
    }

    pub(crate) fn slot(&self, node: u64, slot: usize) -> Slot {
        let at = node + id_at(slot);
        Slot { id: self.ground.word(at), other: self.ground.word(at + 8) }
    }

    fn live(&self, node: u64) -> Live {
        Live(self.field(node, BITMAP) as u16)
    }

    fn set_live(&self, node: u64, live: Live) {
        self.ground.store(node + BITMAP, u64::from(live.0));
    }

    fn is_leaf(&self, node: u64) -> bool {
        self.field(node, LEFTMOST) == 0
    }

    fn key(&self, node: u64, slot: Slot) -> u64 {
        if self.is_leaf(node) { slot.id } else { slot.other }
    }

    /// Where the right sibling starts; zero where there is none.
    fn high(&self, node: u64) -> u64 {
        match self.field(node, SIBLING) {
            0 => 0,
            sibling => self.field(sibling, LOW),
        }
    }

    fn root(&self) -> (u64, u64) {
        let word = self.ground.root();
        (word & !HEIGHT, word & HEIGHT)
    }

    /// The node of a level (leaves are level 0) that a key belongs in.
    fn descend(&self, key: u64, level: u64) -> u64 {
        let (root, height) = self.root();
        let mut node = self.move_right(root, key);
        for _ in level..height {
            node = self.move_right(self.child(node, self.route(node, key)), key);
        }
        node
    }

    /// Goes along the chain as far as a key lies beyond.
    fn move_right(&self, mut node: u64, key: u64) -> u64 {
        while self.field(node, SIBLING) != 0 && self.high(node) <= key {
            node = self.field(node, SIBLING);
        }
        node
    }

    /// The slot of the child for a key; `None` for the first child.
    fn route(&self, node: u64, key: u64) -> Option<usize> {
        let below = |slot: &usize| self.slot(node, *slot).other <= key;
        self.live(node).slots().take_while(below).last()
    }

    fn child(&self, node: u64, slot: Option<usize>) -> u64 {
        slot.map_or_else(|| self.field(node, LEFTMOST), |slot| self.slot(node, slot).id)
    }

    /// The first live slot whose key is not smaller.
    fn find(&self, node: u64, live: Live, key: u64) -> usize {
        let not_smaller = |slot: &usize| self.key(node, self.slot(node, *slot)) >= key;
        live.slots().find(not_smaller).unwrap_or(SLOTS)
    }

    fn write(
        &self,
        writer: &mut GroundWriter<'_>,
        at: u64,
        [sibling, low, leftmost]: [u64; 3],
        slots: &[(usize, Slot)],
    ) -> Result<()> {
        let (mut words, mut live) = ([Slot::default(); SLOTS], Live::default());
        for (slot, content) in slots {
            words[*slot] = *content;
            live = live.with(*slot);
        }
        let header = [(SIBLING, sibling), (LOW, low), (LEFTMOST, leftmost)];
        header.into_iter().for_each(|(field, word)| writer.set(at + field, word));
        writer.set(at + BITMAP, u64::from(live.0));
        for (slot, content) in words.iter().enumerate() {
            writer.set(at + id_at(slot), content.id);
            writer.set(at + id_at(slot) + 8, content.other);
        }
        writer.commit(at)
    }

    /// Puts a slot into a node that has holes, or has them once it is moved together.
    fn put_in(
        &self,
        writer: &mut GroundWriter<'_>,
        (node, mut live): (u64, Live),
        key: u64,
        slot: Slot,
    ) -> bool {
        let mut plan = self.policy.plan(live, self.find(node, live, key));
        if plan == Plan::Compact {
            live = self.compact(writer, node, live);
            self.set_live(node, live);
            plan = self.policy.plan(live, self.find(node, live, key));
        }
        if plan == Plan::Full {
            return false;
        }
        let live = self.put(writer, node, live, plan, slot);
        self.set_live(node, live);
        writer.fence();
        true
    }

    /// Splits a full node, with `slot` in its place in one half. The parent does not know yet.
    fn split(&self, writer: &mut GroundWriter<'_>, node: u64, key: u64, slot: Slot) -> Result<()> {
        let (at, live) = (self.ground.take()?, self.live(node));
        let position = live.slots().take_while(|s| *s < self.find(node, live, key)).count();
        let mut slots: Vec<Slot> = live.slots().map(|at| self.slot(node, at)).collect();
        match self.policy {
            Policy::OneDirection => {
                let middle = slots.len() / 2;
                let packed = self.link(writer, (node, at), &slots[middle..], false)?;
                let left = live.first(middle);
                self.clear(writer, node, Live(live.0 & !left.0));
                self.set_live(node, left);
                let half = if position <= middle { (node, left) } else { (at, packed) };
                self.put_in(writer, half, key, slot);
            }
            Policy::Nearest => {
                // The new one comes along if it goes right.
                slots.insert(position, slot);
                let middle = slots.len() / 2;
                self.link(writer, (node, at), &slots[middle..], true)?;
                let left = live.first(middle - usize::from(position < middle));
                self.set_live(node, left);
                if position < middle {
                    self.put_in(writer, (node, left), key, slot);
                }
            }
        }
        Ok(())
    }

    /// Makes the right half at `at` durable, then links it; its live slots. They are packed, or the
    /// holes are spread among them.
    fn link(
        &self,
        writer: &mut GroundWriter<'_>,
        (node, at): (u64, u64),
        slots: &[Slot],
        is_spread: bool,
    ) -> Result<Live> {
        let (low, leftmost, rest) = match self.is_leaf(node) {
            true => (slots[0].id, 0, slots),
            false => (slots[0].other, slots[0].id, &slots[1..]),
        };
        let place = |i: usize| if is_spread { i * SLOTS / rest.len() } else { i };
        let slots: Vec<_> = rest.iter().enumerate().map(|(i, slot)| (place(i), *slot)).collect();
        self.write(writer, at, [self.field(node, SIBLING), low, leftmost], &slots)?;
        writer.fence();
        writer.set(node + SIBLING, at);
        writer.fence();
        Ok(self.live(at))
    }

    /// Tells the parent, at `level`, of all nodes of the chain around `key` that it does not know.
    fn adopt(&self, key: u64, level: u64) -> Result<()> {
        let mut writer = self.ground.writer();
        let (root, height) = self.root();
        if height < level {
            let (at, sibling) = (self.ground.take()?, self.field(root, SIBLING));
            let slot = Slot { id: sibling, other: self.high(root) };
            self.write(&mut writer, at, [0, 0, root], &[(0, slot)])?;
            writer.fence();
            drop(writer);
            self.ground.set_root(at | (height + 1));
            return Ok(());
        }
        let parent = self.descend(key, level);
        let mut at = self.child(parent, self.route(parent, key));
        while let Some(slot) = self.unknown(at, parent, key) {
            if !self.put_in(&mut writer, (parent, self.live(parent)), slot.other, slot) {
                self.split(&mut writer, parent, slot.other, slot)?;
                self.adopt(key, level + 1)?;
                return self.adopt(key, level);
            }
            at = slot.id;
        }
        Ok(())
    }

    /// The right sibling of the child `at`, as a slot, unless the parent knows it.
    fn unknown(&self, at: u64, parent: u64, key: u64) -> Option<Slot> {
        let slot = Slot { id: self.field(at, SIBLING), other: self.high(at) };
        let known = self.live(parent).slots().map(|slot| self.slot(parent, slot).other);
        let end = known.into_iter().find(|low| *low > key).unwrap_or_else(|| self.high(parent));
        (slot.id != 0 && (end == 0 || slot.other < end)).then_some(slot)
    }

    /// Takes out the path of the empty leaf of a key: the leaf, and the nodes above that lead to
    /// nothing else, below the node that knows the uppermost by a slot. Where that node's keys
    /// start, if its first child alone is left: there may be another path to take out.
    fn prune(&self, key: u64) -> Result<Option<u64>> {
        let Some((mut above, leaf)) = self.way(key) else { return Ok(None) };
        if self.live(leaf) != Live::default() {
            return Ok(None);
        }
        let mut path = vec![leaf];
        let (keeper, slot) = loop {
            match above.pop() {
                Some((node, Some(slot))) => break (node, slot),
                Some((node, None)) if self.live(node) == Live::default() => path.push(node),
                // The first child stays, and so does the way to the first leaf.
                _ => return Ok(None),
            }
        };
        path.reverse();
        let live = self.live(keeper);
        let before = live.slots().rfind(|at| *at < slot);
        let (mut start, mut lefts) = (self.child(keeper, before), Vec::new());
        for node in &path {
            while self.field(start, SIBLING) != *node {
                start = self.field(start, SIBLING);
            }
            lefts.push(start);
            start = self.child(start, self.live(start).slots().next_back());
        }
        let mut writer = self.ground.writer();
        writer.set(keeper + id_at(slot), 0);
        self.set_live(keeper, live.without(slot));
        writer.fence();
        for (left, node) in lefts.into_iter().zip(&path) {
            // Its keys reach further from now on: what it still holds of a split must not.
            self.clear(&mut writer, left, self.live(left).holes());
            writer.set(left + SIBLING, self.field(*node, SIBLING));
            writer.fence();
        }
        path.iter().try_for_each(|node| self.ground.release(*node))?;
        self.unlinks.set(self.unlinks.get() + path.len() as u64);
        Ok((self.live(keeper) == Live::default()).then(|| self.field(keeper, LOW)))
    }

    /// The way to the leaf of a key, from the root down, if parents know all of it.
    fn way(&self, key: u64) -> Option<(Vec<Step>, u64)> {
        let (mut node, height) = self.root();
        let mut inner = Vec::new();
        loop {
            if self.move_right(node, key) != node {
                return None;
            }
            if inner.len() as u64 == height {
                return Some((inner, node));
            }
            let slot = self.route(node, key);
            inner.push((node, slot));
            node = self.child(node, slot);
        }
    }

    /// Calls `visit` with every node, parents first.
    fn visit(&self, mut visit: impl FnMut(u64)) {
        let (mut first, _) = self.root();
        while first != 0 {
            let mut node = first;
            while node != 0 {
                visit(node);
                node = self.field(node, SIBLING);
            }
            first = self.field(first, LEFTMOST);
        }
    }
}

impl PersistentTree for OdsTree {
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        let (leaf, mut writer) = (self.descend(key, 0), self.ground.writer());
        let slot = Slot { id: key, other: value };
        if self.put_in(&mut writer, (leaf, self.live(leaf)), key, slot) {
            return Ok(());
        }
        self.split(&mut writer, leaf, key, slot)?;
        self.adopt(key, 1)
    }

    fn delete(&mut self, key: u64) -> Result<bool> {
        let leaf = self.descend(key, 0);
        let live = self.live(leaf);
        let at = self.find(leaf, live, key);
        if at == SLOTS || self.slot(leaf, at).id != key {
            return Ok(false);
        }
        let mut writer = self.ground.writer();
        writer.set(leaf + id_at(at), 0);
        self.set_live(leaf, live.without(at));
        writer.fence();
        let mut emptied = (live.without(at) == Live::default()).then_some(key);
        while let Some(key) = emptied {
            emptied = self.prune(key)?;
        }
        Ok(true)
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let leaf = self.descend(key, 0);
        let at = self.find(leaf, self.live(leaf), key);
        let found = Some(at).filter(|at| *at < SLOTS).map(|at| self.slot(leaf, at));
        Ok(found.filter(|slot| slot.id == key).map(|slot| slot.other))
    }

    fn content(&self) -> Vec<(u64, u64)> {
        let (mut node, mut all) = (self.descend(0, 0), Vec::new());
        while node != 0 {
            let slots = self.live(node).slots().map(|slot| self.slot(node, slot));
            all.extend(slots.map(|slot| (slot.id, slot.other)));
            node = self.field(node, SIBLING);
        }
        all
    }

    fn ground(&self) -> &Ground {
        &self.ground
    }

    fn nodes(&mut self) -> u64 {
        let mut nodes = 0;
        self.visit(|_| nodes += 1);
        nodes
    }
}
