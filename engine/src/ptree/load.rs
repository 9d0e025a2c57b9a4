//! Filling an empty tree from sorted input: every node is written once.

use super::keys::Keys;
use super::node::{SLOTS, Slot};
use super::root::Root;
use super::tree::Tree;
use crate::error::{Error, ErrorKind, Result};

/// How many slots of a node are filled: the rest is for what comes later.
const FILL: usize = 10;

/// A node that a load took.
#[derive(Clone, Copy, Debug, Default)]
struct LoadedNode {
    at: u64,
    low: u64,
    is_leaf: bool,
    /// It says on the media that it is taken.
    is_written: bool,
}

impl<K: Keys> Tree<K> {
    /// Fills an empty tree, which no other thread uses, with slots in ascending order. One store
    /// makes all of it count. A cut before that store leaves the tree empty, and nodes that
    /// [`scan`](Tree::scan) finds.
    ///
    /// # Errors
    ///
    /// `Invalid` when the tree is not empty, `Full`, or what `slots` gives; otherwise as
    /// [`crate::pm::Region::sync`].
    pub(crate) fn load(&mut self, slots: impl Iterator<Item = Result<Slot>>) -> Result<u64> {
        let (old, height) = self.root.get(&self.nodes.region);
        let (mut used, mut count) = (height > 0, 0);
        self.visit(|node, _| used |= (0..SLOTS).any(|slot| node.slot(slot).id != 0));
        if used {
            return Err(Error::invalid("a bulk load needs an empty tree: insert instead"));
        }
        let mut taken = Vec::new();
        let loaded = self.load_levels(slots.inspect(|_| count += 1), &mut taken);
        let Some((root, height)) = loaded.or_else(|error| self.undo_load(&taken, error))? else {
            return Ok(0);
        };
        let mut writer = self.nodes.writer();
        writer.set(self.root.at, Root::encode(root, height));
        writer.persist()?;
        self.nodes.pool.release(old)?;
        Ok(count)
    }

    /// Writes all levels; the root and its height, unless there is no slot. `taken` has the nodes,
    /// also where it fails.
    fn load_levels(
        &self,
        slots: impl Iterator<Item = Result<Slot>>,
        taken: &mut Vec<LoadedNode>,
    ) -> Result<Option<(u64, u32)>> {
        self.load_level(slots, true, taken)?;
        let (mut from, mut height) = (0, 0);
        while taken.len() - from > 1 {
            let below = taken[from..].to_vec();
            from = taken.len();
            let slots = below.iter().map(|node| Ok(Slot { id: node.at, other: node.low }));
            self.load_level(slots, false, taken)?;
            height += 1;
        }
        Ok(taken.last().map(|root| (root.at, height)))
    }

    /// Frees what a load took, if it is want of space or a slot alone which failed. The memory of a
    /// bound is that of the leaf; the nodes above repeat it.
    fn undo_load<T>(&self, taken: &[LoadedNode], error: Error) -> Result<T> {
        if matches!(error.kind(), ErrorKind::Full | ErrorKind::Invalid) {
            for node in taken {
                match node.is_written {
                    true => self.nodes.pool.release(node.at)?,
                    false => self.nodes.pool.put_back(node.at),
                }
                if node.is_leaf && node.low != 0 {
                    self.nodes.keys.release(node.low)?;
                }
            }
        }
        Err(error)
    }

    /// Writes the nodes of one level, each once its right sibling's place is known.
    fn load_level(
        &self,
        slots: impl Iterator<Item = Result<Slot>>,
        is_leaf: bool,
        taken: &mut Vec<LoadedNode>,
    ) -> Result<()> {
        let mut slots = slots.peekable();
        let (mut writer, mut last, mut n) = (self.nodes.writer(), None, taken.len());
        let take =
            || self.nodes.pool.get().map(|at| LoadedNode { at, is_leaf, ..LoadedNode::default() });
        if slots.peek().is_some() {
            taken.push(take()?);
        }
        while slots.peek().is_some() {
            let content: Vec<Slot> = slots
                .by_ref()
                .take(if is_leaf { FILL } else { FILL + 1 })
                .collect::<Result<_>>()?;
            if slots.peek().is_some() {
                taken.push(take()?);
            }
            // The first node of a level starts before all keys.
            let low = match last.replace(content[content.len() - 1]) {
                None => 0,
                Some(last) if is_leaf => self.nodes.keys.bound(&mut writer, last, content[0])?,
                Some(_) => content[0].other,
            };
            let (leftmost, rest) = match is_leaf {
                true => (0, &content[..]),
                false => (content[0].id, &content[1..]),
            };
            let spread = |i: usize| i * SLOTS / rest.len();
            let rest: Vec<_> = rest.iter().enumerate().map(|(i, s)| (spread(i), *s)).collect();
            let sibling = taken.get(n + 1).map_or(0, |node| node.at);
            self.nodes.write(&mut writer, taken[n].at, (sibling, low, leftmost), &rest)?;
            writer.order();
            taken[n] = LoadedNode { low, is_written: true, ..taken[n] };
            n += 1;
        }
        writer.persist()
    }

    /// Releases nodes that no link leads to: what a cut in a split or a load can leave. Reads the
    /// whole tree.
    ///
    /// # Errors
    ///
    /// As [`crate::alloc::ObjectPool::scan`].
    pub(crate) fn scan(&mut self) -> Result<(u64, u64)> {
        let mut reached = std::collections::HashSet::new();
        self.visit(|node, _| {
            // A link may be in the caches alone. What it leads to is not free on the media.
            self.nodes.persist_found(node);
            reached.insert(node.at);
        });
        let scan = self.nodes.pool.scan(|at| reached.contains(&at))?;
        Ok((scan.used, scan.leaked))
    }
}
