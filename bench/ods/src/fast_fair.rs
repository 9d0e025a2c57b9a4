//! FAST&FAIR (Hwang, Kim, Won and Nam, "Endurable Transient Inconsistency in Byte-Addressable
//! Persistent B+-Tree", FAST 2018), single-threaded.
//!
//! Nodes of 256 bytes: a header of 32, 14 slots of (key, pointer), of which the first with a null
//! pointer ends the node. Insertions and deletions shift; a slot whose pointer repeats the one
//! before it is not there.
//!
//! Where the published code is not safe, this is:
//!
//! * A deletion flushes a line when its *last* slot was shifted, not its first: else the next
//!   line's first slot can be overwritten while its copy is still on its way.
//!   [`DeleteOrder::Published`] does it as published, to be counted.
//! * Slot 0 of a leaf is hidden by the node's own offset, not by the null that would end the node.
//! * A split clears all slots it moves, so that what is behind the end is null.
//! * Opening finishes splits and clears doubles.

use terrace::Result;
use terrace::bench::{Ground, GroundWriter};

use super::PersistentTree;
use super::node::{LINE, NODE, SLOTS, id_at, line_of};

const LEFTMOST: u64 = 0;
const SIBLING: u64 = 8;
const LEVEL: u64 = 16;

/// Slots for entries: the last is for the null.
const USABLE: usize = SLOTS - 1;

/// When a deletion flushes the lines it shifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOrder {
    /// Once the last slot of the line was shifted.
    Safe,
    /// When the first slot of a line was shifted, as in the published code. A power cut can lose
    /// an entry.
    Published,
}

/// The tree.
#[derive(Debug)]
pub struct FastFair {
    ground: Ground,
    order: DeleteOrder,
}

impl FastFair {
    /// Bytes in a node.
    pub const NODE: u32 = NODE as u32;

    /// An empty tree.
    ///
    /// # Errors
    ///
    /// As the region's persists.
    pub fn create(ground: Ground, order: DeleteOrder) -> Result<FastFair> {
        let tree = FastFair { ground, order };
        let root = tree.write(0, 0, 0, &[])?;
        tree.ground.set_root(root);
        Ok(tree)
    }

    /// A tree that is there; what was cut short is finished.
    #[cfg(test)]
    pub(crate) fn open(ground: Ground) -> Result<FastFair> {
        let tree = FastFair { ground, order: DeleteOrder::Safe };
        tree.recover()?;
        Ok(tree)
    }

    fn key(&self, node: u64, slot: usize) -> u64 {
        self.ground.word(node + id_at(slot))
    }

    fn pointer(&self, node: u64, slot: usize) -> u64 {
        self.ground.word(node + id_at(slot) + 8)
    }

    fn field(&self, node: u64, field: u64) -> u64 {
        self.ground.word(node + field)
    }

    /// What the pointer before a slot is: a slot that repeats it is not there.
    fn before(&self, node: u64, slot: usize) -> u64 {
        match (slot, self.field(node, LEFTMOST)) {
            (0, 0) => node,
            (0, leftmost) => leftmost,
            _ => self.pointer(node, slot - 1),
        }
    }

    /// Slots up to the end.
    fn len(&self, node: u64) -> usize {
        (0..SLOTS).find(|slot| self.pointer(node, *slot) == 0).unwrap_or(SLOTS)
    }

    fn entries(&self, node: u64) -> Vec<(u64, u64)> {
        let there = |slot: &usize| self.pointer(node, *slot) != self.before(node, *slot);
        let slots = (0..self.len(node)).filter(there);
        slots.map(|slot| (self.key(node, slot), self.pointer(node, slot))).collect()
    }

    fn write(&self, leftmost: u64, sibling: u64, level: u64, of: &[(u64, u64)]) -> Result<u64> {
        let (at, mut writer) = (self.ground.take()?, self.ground.writer());
        writer.set(at + LEFTMOST, leftmost);
        writer.set(at + SIBLING, sibling);
        writer.set(at + LEVEL, level);
        for slot in 0..SLOTS {
            let (key, pointer) = of.get(slot).copied().unwrap_or_default();
            writer.set(at + id_at(slot), key);
            writer.set(at + id_at(slot) + 8, pointer);
        }
        writer.commit(at)?;
        writer.fence();
        Ok(at)
    }

    /// The node of a level for a key.
    fn descend(&self, key: u64, level: u64) -> u64 {
        let mut node = self.ground.root();
        while self.field(node, LEVEL) > level {
            let entries = self.entries(node);
            let below = entries.iter().take_while(|(sep, _)| *sep <= key);
            node = below.last().map_or_else(|| self.field(node, LEFTMOST), |(_, child)| *child);
        }
        node
    }

    fn put(&self, node: u64, key: u64, pointer: u64) -> Result<()> {
        let (len, mut writer) = (self.len(node), self.ground.writer());
        let mut slot = len;
        while slot > 0 && self.key(node, slot - 1) > key {
            writer.set(node + id_at(slot) + 8, self.pointer(node, slot - 1));
            writer.set(node + id_at(slot), self.key(node, slot - 1));
            if line_of(slot - 1) != line_of(slot) {
                writer.fence();
            }
            slot -= 1;
        }
        writer.set(node + id_at(slot) + 8, self.before(node, slot));
        writer.set(node + id_at(slot), key);
        writer.set(node + id_at(slot) + 8, pointer);
        writer.fence();
        Ok(())
    }

    fn add(&self, key: u64, pointer: u64, level: u64) -> Result<()> {
        let node = self.descend(key, level);
        if self.len(node) < USABLE {
            return self.put(node, key, pointer);
        }
        let entries = self.entries(node);
        let middle = entries.len() / 2;
        let (sep, child) = entries[middle];
        let (leftmost, rest) = match level {
            0 => (0, &entries[middle..]),
            _ => (child, &entries[middle + 1..]),
        };
        let right = self.write(leftmost, self.field(node, SIBLING), level, rest)?;
        let mut writer = self.ground.writer();
        writer.set(node + SIBLING, right);
        writer.fence();
        self.cut(&mut writer, node, middle);
        self.put(if key < sep { node } else { right }, key, pointer)?;
        self.link(node, sep, right, level)
    }

    /// Ends a node before a slot: the null first that ends it, and those behind before anything
    /// is put in again.
    fn cut(&self, writer: &mut GroundWriter<'_>, node: u64, slot: usize) {
        for slot in slot..SLOTS {
            if self.pointer(node, slot) != 0 {
                writer.set(node + id_at(slot) + 8, 0);
            }
        }
        writer.fence();
    }

    /// Tells the level above of a right half.
    fn link(&self, node: u64, sep: u64, right: u64, level: u64) -> Result<()> {
        if self.ground.root() == node {
            let root = self.write(node, 0, level + 1, &[(sep, right)])?;
            self.ground.set_root(root);
            return Ok(());
        }
        self.add(sep, right, level + 1)
    }

    fn remove(&self, node: u64, slot: usize) -> Result<()> {
        if self.order == DeleteOrder::Published {
            self.remove_as_published(node, slot);
            return Ok(());
        }
        let (len, mut writer) = (self.len(node), self.ground.writer());
        writer.set(node + id_at(slot) + 8, self.before(node, slot));
        for to in slot..len {
            let (key, pointer) = (self.key(node, to + 1), self.pointer(node, to + 1));
            writer.set(node + id_at(to), key);
            writer.set(node + id_at(to) + 8, pointer);
            if line_of(to) != line_of(to + 1) {
                writer.fence();
            }
        }
        writer.fence();
        Ok(())
    }

    /// Flushes a line once, when its first slot was shifted; what follows stays in the cache.
    fn remove_as_published(&self, node: u64, slot: usize) {
        let (len, mut writer) = (self.len(node), self.ground.writer());
        self.ground.store(node + id_at(slot) + 8, self.before(node, slot));
        for to in slot..len {
            let (key, pointer) = (self.key(node, to + 1), self.pointer(node, to + 1));
            self.ground.store(node + id_at(to), key);
            if id_at(to).is_multiple_of(LINE) {
                writer.set(node + id_at(to) + 8, pointer);
                writer.fence();
            } else {
                self.ground.store(node + id_at(to) + 8, pointer);
            }
        }
    }

    /// What opening does: every node in turn, from the left, level by level.
    #[cfg(test)]
    fn recover(&self) -> Result<()> {
        let mut first = self.ground.root();
        loop {
            let (mut node, level) = (first, self.field(first, LEVEL));
            first = self.field(first, LEFTMOST);
            while node != 0 {
                self.mend(node, level)?;
                node = self.field(node, SIBLING);
            }
            if first == 0 {
                return Ok(());
            }
        }
    }

    #[cfg(test)]
    fn mend(&self, node: u64, level: u64) -> Result<()> {
        // The chain is read from level to level: parents were mended before.
        let right = self.field(node, SIBLING);
        if right != 0 {
            // A right half starts with the smallest key below it; an inner one's is its child's.
            let mut low = right;
            while self.field(low, LEFTMOST) != 0 {
                low = self.field(low, LEFTMOST);
            }
            if let Some((sep, _)) = self.entries(low).first().copied() {
                let from = (0..self.len(node)).find(|slot| self.key(node, *slot) >= sep);
                if let Some(from) = from {
                    let mut writer = self.ground.writer();
                    self.cut(&mut writer, node, from);
                    writer.fence();
                }
                if self.descend(sep, level) != right {
                    self.link(node, sep, right, level)?;
                }
            }
        }
        while let Some(double) =
            (0..self.len(node)).find(|slot| self.pointer(node, *slot) == self.before(node, *slot))
        {
            self.remove(node, double)?;
        }
        let mut writer = self.ground.writer();
        self.cut(&mut writer, node, self.len(node));
        writer.fence();
        Ok(())
    }
}

impl PersistentTree for FastFair {
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        self.add(key, value, 0)
    }

    fn delete(&mut self, key: u64) -> Result<bool> {
        let leaf = self.descend(key, 0);
        let slot = (0..self.len(leaf)).find(|slot| self.key(leaf, *slot) == key);
        slot.map_or(Ok(false), |slot| self.remove(leaf, slot).map(|()| true))
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let entries = self.entries(self.descend(key, 0));
        Ok(entries.into_iter().find(|(found, _)| *found == key).map(|(_, value)| value))
    }

    fn content(&self) -> Vec<(u64, u64)> {
        let (mut node, mut all) = (self.descend(0, 0), Vec::new());
        while node != 0 {
            all.extend(self.entries(node));
            node = self.field(node, SIBLING);
        }
        all
    }

    fn ground(&self) -> &Ground {
        &self.ground
    }

    fn nodes(&mut self) -> u64 {
        let (mut first, mut nodes) = (self.ground.root(), 0);
        while first != 0 {
            let mut node = first;
            while node != 0 {
                nodes += 1;
                node = self.field(node, SIBLING);
            }
            first = self.field(first, LEFTMOST);
        }
        nodes
    }
}
