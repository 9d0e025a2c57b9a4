//! The root: where it is and how high, in one word.

use crate::memtable::VersionLock;
use crate::pm::Region;

/// The place of a tree's root, in a word of the region.
#[derive(Debug)]
pub(crate) struct Root {
    /// Offset of the word.
    pub(crate) at: u64,
    /// Held while a new root is put on top.
    pub(crate) lock: VersionLock,
}

/// Nodes lie at multiples of 64: the height has the low bits.
const HEIGHT: u64 = 63;

impl Root {
    pub(crate) fn new(at: u64) -> Root {
        Root { at, lock: VersionLock::default() }
    }

    /// Offset of the root, and its level.
    pub(crate) fn get(&self, region: &Region) -> (u64, u32) {
        let word = region.word(self.at);
        (word & !HEIGHT, (word & HEIGHT) as u32)
    }

    /// The word.
    pub(crate) fn encode(node: u64, height: u32) -> u64 {
        debug_assert!(node & HEIGHT == 0 && u64::from(height) <= HEIGHT, "{node}, {height}");
        node | u64::from(height)
    }
}
