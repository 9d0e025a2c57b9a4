//! What a tree has done and what it takes.

use super::keys::Keys;
use super::tree::Tree;
use crate::os::sync::atomic::Ordering;

/// What a tree has done and what it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Levels above the leaves.
    pub height: u32,
    /// Bytes of segments taken.
    pub bytes: u64,
    /// Since opening: cache lines of nodes that were flushed (in `file` mode: would have been).
    pub lines: u64,
    /// Since opening: flushes in all, the allocator's too. None in `file` mode.
    pub flushes: u64,
    /// Since opening: store fences. None in `file` mode.
    pub fences: u64,
    /// Since opening: syncs of the file. `file` mode only.
    pub syncs: u64,
    /// Since opening: nodes split.
    pub splits: u64,
    /// Since opening: nodes moved together.
    pub compactions: u64,
    /// Since opening: empty leaves taken out.
    pub unlinks: u64,
    /// Since opening: nodes in which something of a cut was cleared on first touch.
    pub repairs: u64,
}

impl<K: Keys> Tree<K> {
    /// What the tree has done. What lies outside of its nodes is not among its bytes.
    pub(crate) fn stats(&self) -> Stats {
        let (nodes, counts) = (&self.nodes, &self.nodes.counts);
        let pm = nodes.region.counts();
        Stats {
            height: self.root.get(&nodes.region).1,
            bytes: nodes.pool.bytes(),
            lines: counts.lines.load(Ordering::Relaxed),
            flushes: pm.total(|c| &c.flushes),
            fences: pm.total(|c| &c.fences),
            syncs: pm.total(|c| &c.syncs),
            splits: counts.splits.load(Ordering::Relaxed),
            compactions: counts.compactions.load(Ordering::Relaxed),
            unlinks: counts.unlinks.load(Ordering::Relaxed),
            repairs: counts.repairs.load(Ordering::Relaxed),
        }
    }

    /// How many nodes the tree has. Reads one word of each.
    pub(crate) fn count_nodes(&mut self) -> u64 {
        let mut nodes = 0;
        self.visit(|_, _| nodes += 1);
        nodes
    }
}
