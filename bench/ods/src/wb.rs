//! wB+-tree (Chen and Jin, "Persistent B+-Trees in Non-Volatile Main Memory", VLDB 2015), with
//! bitmap and slot array, single-threaded.
//!
//! Nodes of 512 bytes: a header line with a bitmap, links and a slot array, and 28 entries in no
//! order. The slot array lists the entries in order; a bit of the bitmap says whether it is valid,
//! the others which entries count. A change first takes the validity away, then writes entry and
//! slot array, then the bitmap, each durable before the next. A split logs the new header of the
//! node it splits. Opening redoes the log, rebuilds slot arrays that are not valid, and tells
//! parents of right halves that they do not know.

use terrace::Result;
use terrace::bench::Ground;

use super::PersistentTree;

const BITMAP: u64 = 0;
const NEXT: u64 = 8;
const LEFTMOST: u64 = 16;
const LEVEL: u64 = 24;
const SLOTS: u64 = 32;
const ENTRIES: u64 = 64;

/// Entries in a node.
const LEN: usize = 28;

/// The bit of the bitmap that says that the slot array is valid.
const VALID: u64 = 1;

/// Words of a node's header.
const HEADER: usize = 8;

/// Offset of the log in the region: whether it counts, the node, and (a line on) its new header.
const LOG: u64 = 512;

/// The tree.
#[derive(Debug)]
pub struct WbTree {
    ground: Ground,
}

/// A key, its pointer, and the entry that holds them.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    pointer: u64,
    at: usize,
}

impl WbTree {
    /// Bytes in a node.
    pub const NODE: u32 = 512;

    /// An empty tree.
    ///
    /// # Errors
    ///
    /// As the region's persists.
    pub fn create(ground: Ground) -> Result<WbTree> {
        let tree = WbTree { ground };
        let root = tree.write([VALID, 0, 0, 0], &[])?;
        tree.ground.set_root(root);
        Ok(tree)
    }

    /// A tree that is there; what was cut short is finished.
    #[cfg(test)]
    pub(crate) fn open(ground: Ground) -> Result<WbTree> {
        let tree = WbTree { ground };
        if tree.ground.word(LOG) != 0 {
            tree.redo()?;
        }
        let mut first = tree.ground.root();
        while first != 0 {
            let mut node = first;
            while node != 0 {
                tree.mend(node)?;
                node = tree.field(node, NEXT);
            }
            first = tree.field(first, LEFTMOST);
        }
        Ok(tree)
    }

    fn field(&self, node: u64, field: u64) -> u64 {
        self.ground.word(node + field)
    }

    fn entry(&self, node: u64, at: usize) -> Entry {
        let place = node + ENTRIES + at as u64 * 16;
        Entry { key: self.ground.word(place), pointer: self.ground.word(place + 8), at }
    }

    /// The entries that count, in order: as the slot array lists them.
    fn entries(&self, node: u64) -> Vec<Entry> {
        let slots: Vec<u8> =
            (0..4).flat_map(|word| self.field(node, SLOTS + word * 8).to_le_bytes()).collect();
        let list = slots[1..].iter().take(usize::from(slots[0]));
        list.map(|at| self.entry(node, usize::from(*at))).collect()
    }

    fn slot_words(entries: &[Entry]) -> [u64; 4] {
        let mut bytes = [0u8; 32];
        bytes[0] = entries.len() as u8;
        for (byte, entry) in bytes[1..].iter_mut().zip(entries) {
            *byte = entry.at as u8;
        }
        std::array::from_fn(|word| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[word * 8..word * 8 + 8]);
            u64::from_le_bytes(eight)
        })
    }

    fn bits(entries: &[Entry]) -> u64 {
        entries.iter().fold(VALID, |bits, entry| bits | 2 << entry.at)
    }

    fn write(&self, [_, next, leftmost, level]: [u64; 4], of: &[(u64, u64)]) -> Result<u64> {
        let (at, mut writer) = (self.ground.take()?, self.ground.writer());
        let entry =
            |(at, (key, pointer)): (usize, &(u64, u64))| Entry { key: *key, pointer: *pointer, at };
        let entries: Vec<Entry> = of.iter().enumerate().map(entry).collect();
        for (field, value) in
            [(BITMAP, WbTree::bits(&entries)), (NEXT, next), (LEFTMOST, leftmost), (LEVEL, level)]
        {
            writer.set(at + field, value);
        }
        for (word, value) in WbTree::slot_words(&entries).into_iter().enumerate() {
            writer.set(at + SLOTS + word as u64 * 8, value);
        }
        for slot in 0..LEN {
            let (key, pointer) = of.get(slot).copied().unwrap_or_default();
            writer.set(at + ENTRIES + slot as u64 * 16, key);
            writer.set(at + ENTRIES + slot as u64 * 16 + 8, pointer);
        }
        writer.commit(at)?;
        writer.fence();
        Ok(at)
    }

    fn descend(&self, key: u64, level: u64) -> u64 {
        let mut node = self.ground.root();
        while self.field(node, LEVEL) > level {
            let entries = self.entries(node);
            let below = entries.iter().take_while(|entry| entry.key <= key);
            node = below.last().map_or_else(|| self.field(node, LEFTMOST), |entry| entry.pointer);
        }
        node
    }

    /// Makes `entries` those of the node, one of which may be `new`.
    fn change(&self, node: u64, entries: &[Entry], new: Option<Entry>) -> Result<()> {
        let mut writer = self.ground.writer();
        writer.set(node + BITMAP, self.field(node, BITMAP) & !VALID);
        writer.fence();
        if let Some(new) = new {
            writer.set(node + ENTRIES + new.at as u64 * 16, new.key);
            writer.set(node + ENTRIES + new.at as u64 * 16 + 8, new.pointer);
        }
        for (word, value) in WbTree::slot_words(entries).into_iter().enumerate() {
            writer.set(node + SLOTS + word as u64 * 8, value);
        }
        writer.fence();
        writer.set(node + BITMAP, WbTree::bits(entries));
        writer.fence();
        Ok(())
    }

    fn put(&self, node: u64, key: u64, pointer: u64) -> Result<()> {
        let mut entries = self.entries(node);
        let free = (0..LEN).find(|at| entries.iter().all(|entry| entry.at != *at));
        let at = free.expect("invariant: a node is split before it is full");
        let place = entries.partition_point(|entry| entry.key < key);
        let new = Entry { key, pointer, at };
        entries.insert(place, new);
        self.change(node, &entries, Some(new))
    }

    fn add(&self, key: u64, pointer: u64, level: u64) -> Result<()> {
        let node = self.descend(key, level);
        let entries = self.entries(node);
        if entries.len() < LEN {
            return self.put(node, key, pointer);
        }
        let (left, moved) = entries.split_at(LEN / 2);
        let (sep, leftmost, rest) = match level {
            0 => (moved[0].key, 0, moved),
            _ => (moved[0].key, moved[0].pointer, &moved[1..]),
        };
        let rest: Vec<(u64, u64)> = rest.iter().map(|entry| (entry.key, entry.pointer)).collect();
        let right = self.write([VALID, self.field(node, NEXT), leftmost, level], &rest)?;
        let links = [WbTree::bits(left), right, self.field(node, LEFTMOST), level];
        self.log(node, &[&links[..], &WbTree::slot_words(left)].concat())?;
        self.redo()?;
        self.put(if key < sep { node } else { right }, key, pointer)?;
        self.link(node, sep, right, level)
    }

    /// Logs a node's new header: first that, then that it counts.
    fn log(&self, node: u64, header: &[u64]) -> Result<()> {
        debug_assert_eq!(header.len(), HEADER, "a line");
        let mut writer = self.ground.writer();
        writer.set(LOG + 8, node);
        for (word, value) in header.iter().enumerate() {
            writer.set(LOG + 64 + word as u64 * 8, *value);
        }
        writer.fence();
        writer.set(LOG, 1);
        writer.fence();
        Ok(())
    }

    /// Does what the log says, and empties it.
    fn redo(&self) -> Result<()> {
        let (node, mut writer) = (self.ground.word(LOG + 8), self.ground.writer());
        for word in 0..HEADER as u64 {
            writer.set(node + word * 8, self.ground.word(LOG + 64 + word * 8));
        }
        writer.fence();
        writer.set(LOG, 0);
        writer.fence();
        Ok(())
    }

    fn link(&self, node: u64, sep: u64, right: u64, level: u64) -> Result<()> {
        if self.ground.root() == node {
            let root = self.write([VALID, 0, node, level + 1], &[(sep, right)])?;
            self.ground.set_root(root);
            return Ok(());
        }
        self.add(sep, right, level + 1)
    }

    #[cfg(test)]
    fn mend(&self, node: u64) -> Result<()> {
        let bitmap = self.field(node, BITMAP);
        if bitmap & VALID == 0 {
            let counts = (0..LEN).filter(|at| bitmap & 2 << at != 0);
            let mut entries: Vec<Entry> = counts.map(|at| self.entry(node, at)).collect();
            entries.sort_unstable_by_key(|entry| entry.key);
            self.change(node, &entries, None)?;
        }
        let right = self.field(node, NEXT);
        if right != 0 {
            let mut low = right;
            while self.field(low, LEFTMOST) != 0 {
                low = self.field(low, LEFTMOST);
            }
            if self.field(low, BITMAP) & VALID == 0 {
                self.mend(low)?;
            }
            let level = self.field(node, LEVEL);
            if let Some(sep) = self.entries(low).first().map(|entry| entry.key)
                && self.descend(sep, level) != right
            {
                self.link(node, sep, right, level)?;
            }
        }
        Ok(())
    }
}

impl PersistentTree for WbTree {
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        self.add(key, value, 0)
    }

    fn delete(&mut self, key: u64) -> Result<bool> {
        let leaf = self.descend(key, 0);
        let mut entries = self.entries(leaf);
        let Some(at) = entries.iter().position(|entry| entry.key == key) else {
            return Ok(false);
        };
        entries.remove(at);
        self.change(leaf, &entries, None)?;
        Ok(true)
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let entries = self.entries(self.descend(key, 0));
        Ok(entries.into_iter().find(|entry| entry.key == key).map(|entry| entry.pointer))
    }

    fn content(&self) -> Vec<(u64, u64)> {
        let (mut node, mut all) = (self.descend(0, 0), Vec::new());
        while node != 0 {
            all.extend(self.entries(node).into_iter().map(|entry| (entry.key, entry.pointer)));
            node = self.field(node, NEXT);
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
                node = self.field(node, NEXT);
            }
            first = self.field(first, LEFTMOST);
        }
        nodes
    }
}
