//! Reading ranges: a leaf at a time, as it is at one moment.

use super::keys::Place;
use super::node::{Node, Slot};
use super::tree::Tree;
use crate::error::Result;

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
