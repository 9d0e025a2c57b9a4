//! A node of 256 bytes: a header of 32 and 14 slots of two words.

/// Bytes in a cache line.
pub(crate) const LINE: u64 = 64;

/// Bytes in a node.
pub(crate) const NODE: u64 = 256;

/// Slots in a node.
pub(crate) const SLOTS: usize = 14;

const HEADER: u64 = 32;

/// Offset of a slot's first word in the node; the other one follows.
pub(crate) fn id_at(slot: usize) -> u64 {
    HEADER + slot as u64 * 16
}

/// Which line of the node holds a slot.
pub(crate) fn line_of(slot: usize) -> u64 {
    id_at(slot) / LINE
}

/// The two words of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// What hides a slot: a leaf's key, an inner node's child; zero for none.
    pub(crate) id: u64,
    /// A leaf's value, the key that an inner node's child starts at.
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

    /// The others.
    pub(crate) fn holes(self) -> Live {
        Live(!self.0 & ((1 << SLOTS) - 1))
    }

    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The first `count` of them.
    pub(crate) fn first(self, count: usize) -> Live {
        self.slots().take(count).fold(Live::default(), Live::with)
    }

    /// The live slots, ascending.
    pub(crate) fn slots(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..SLOTS).filter(move |slot| self.has(*slot))
    }
}
