//! One node: 256 bytes, a header of 32 and 14 slots of two words (`docs/format.md`, section 4).
//!
//! The two words of a slot are its **identity** and the other one. A leaf's identity is a record,
//! and an inner node's its child. The other word is the first eight bytes of the record's key, or
//! the bound that the child starts at.
//!
//! Invariants:
//!
//! 1. Only the holder of the node's lock stores to it, except to a node that no other thread can
//!    reach yet.
//! 2. A slot is *live* if its identity is neither zero nor that of the live slot before it, and its
//!    key is greater than that slot's key and smaller than where the right sibling starts. All
//!    other slots are *holes*. Every store of every operation leaves the live slots right.
//! 3. While the stamp is this opening's, the bitmap says which slots are live, and holes hold zero.
//!    So no change of a live slot, here or there, brings a hole back to life, and no hole leads to
//!    a record whose memory is another's by now.

use crate::os::sync::optimistic::step;
use crate::pm::{LINE, Region};

/// Bytes in a node.
pub(crate) const NODE: u64 = 256;

/// Slots in a node.
pub(crate) const SLOTS: usize = 14;

/// Locks that are made at a time.
pub(crate) const LEN_OF_CHUNK: u64 = if cfg!(test) { 16 } else { 4096 };

const HEADER: u64 = 32;

/// The identity and the other word of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) id: u64,
    pub(crate) other: u64,
}

/// Which slots of a node are live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live(pub(crate) u16);

impl Live {
    pub(crate) fn has(self, slot: usize) -> bool {
        self.0 & 1 << slot != 0
    }

    pub(crate) fn with(self, slot: usize) -> Live {
        Live(self.0 | 1 << slot)
    }

    pub(crate) fn without(self, slot: usize) -> Live {
        Live(self.0 & !(1 << slot))
    }

    /// The first `count` of them.
    pub(crate) fn first(self, count: usize) -> Live {
        self.slots().take(count).fold(Live::default(), Live::with)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The live slots, ascending.
    pub(crate) fn slots(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..SLOTS).filter(move |slot| self.has(*slot))
    }
}

/// A node of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) region: &'a Region,
    pub(crate) at: u64,
}

impl Node<'_> {
    /// Offset of the right sibling's offset; zero where there is none.
    pub(crate) const SIBLING: u64 = 0;
    /// Offset of where the node's keys start: it has none that is smaller.
    pub(crate) const LOW: u64 = 8;
    /// Offset of the child for keys before the first slot's; zero in a leaf.
    pub(crate) const LEFTMOST: u64 = 16;
    /// Offset of the stamp and the bitmap, which mean nothing after a restart.
    pub(crate) const BITMAP: u64 = 24;

    pub(crate) fn word(&self, field: u64) -> u64 {
        step();
        self.region.word(self.at + field)
    }

    pub(crate) fn sibling(&self) -> u64 {
        self.word(Self::SIBLING)
    }

    pub(crate) fn low(&self) -> u64 {
        self.word(Self::LOW)
    }

    pub(crate) fn leftmost(&self) -> u64 {
        self.word(Self::LEFTMOST)
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.leftmost() == 0
    }

    pub(crate) fn slot(&self, slot: usize) -> Slot {
        let at = id_at(slot);
        Slot { id: self.word(at), other: self.word(at + 8) }
    }

    /// The bitmap, if it is of this opening.
    pub(crate) fn live(&self, epoch: u32) -> Option<Live> {
        let word = self.word(Self::BITMAP);
        ((word >> 32) as u32 == epoch).then_some(Live(word as u16))
    }
}

/// The bitmap as a word.
pub(crate) fn stamped(live: Live, epoch: u32) -> u64 {
    u64::from(epoch) << 32 | u64::from(live.0)
}

/// Offset of a slot's identity in the node; its other word follows.
pub(crate) fn id_at(slot: usize) -> u64 {
    HEADER + slot as u64 * 16
}

/// Which line of the node holds a slot.
pub(crate) fn line_of(slot: usize) -> u64 {
    id_at(slot) / LINE
}

const _: () = assert!(HEADER + SLOTS as u64 * 16 == NODE, "header and slots fill the node");
