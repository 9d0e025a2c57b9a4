//! Filling an empty tree from sorted input: every node is written once.

use super::keys::Keys;
use super::node::{SLOTS, Slot};
use super::root::Root;
use super::tree::Tree;
use crate::error::{Error, Result};

/// How many slots of a node are filled: the rest is for what comes later.
const FILL: usize = 10;

/// A node that was written but for its sibling.
#[derive(Clone, Copy, Debug)]
struct Written {
    at: u64,
    low: u64,
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
        let mut level = self.load_level(slots.inspect(|_| count += 1), true)?;
        if level.is_empty() {
            return Ok(0);
        }
        let mut height = 0;
        while level.len() > 1 {
            let slots = level.iter().map(|node| Ok(Slot { id: node.at, other: node.low }));
            level = self.load_level(slots, false)?;
            height += 1;
        }
        let mut writer = self.nodes.writer();
        writer.set(self.root.at, Root::encode(level[0].at, height));
        writer.persist()?;
        self.nodes.pool.release(old)?;
        Ok(count)
    }

    /// Writes the nodes of one level, each once its right sibling's place is known.
    fn load_level(
        &self,
        slots: impl Iterator<Item = Result<Slot>>,
        leaves: bool,
    ) -> Result<Vec<Written>> {
        let mut slots = slots.peekable();
        let (mut nodes, mut writer) = (Vec::new(), self.nodes.writer());
        let (mut at, mut last) = (0, None);
        while slots.peek().is_some() {
            let content: Vec<Slot> =
                slots.by_ref().take(if leaves { FILL } else { FILL + 1 }).collect::<Result<_>>()?;
            let here = if at == 0 { self.nodes.pool.get()? } else { at };
            at = if slots.peek().is_some() { self.nodes.pool.get()? } else { 0 };
            // The first node of a level starts before all keys.
            let low = match last.replace(content[content.len() - 1]) {
                None => 0,
                Some(last) if leaves => self.nodes.keys.bound(&mut writer, last, content[0])?,
                Some(_) => content[0].other,
            };
            let (leftmost, rest) = match leaves {
                true => (0, &content[..]),
                false => (content[0].id, &content[1..]),
            };
            let spread = |i: usize| i * SLOTS / rest.len();
            let rest: Vec<_> = rest.iter().enumerate().map(|(i, s)| (spread(i), *s)).collect();
            self.nodes.write(&mut writer, here, (at, low, leftmost), &rest)?;
            writer.order();
            nodes.push(Written { at: here, low });
        }
        writer.persist()?;
        Ok(nodes)
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
