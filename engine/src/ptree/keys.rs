//! Keys as nodes hold them: two words of a leaf's slot stand for an entry, one word for a *bound*,
//! where a node starts.

use std::cmp::Ordering;

use super::node::Slot;
use super::node_writer::NodeWriter;
use crate::error::Result;

/// How the words of a tree stand for keys. A bound of zero is no key, and starts before all.
pub(crate) trait Keys: Send + Sync + std::fmt::Debug {
    /// Whether a word may lead to memory that is given to others once its key is gone. Such words
    /// are cleared when they cease to be live, or they would mean another key one day.
    const REFERS: bool;

    /// A key that is looked for.
    type Sought<'a>: Copy;

    /// The key of a bound; of zero, the first key.
    fn sought(&self, bound: u64) -> Self::Sought<'_>;

    /// The key of a leaf's slot.
    fn key(&self, slot: Slot) -> Self::Sought<'_>;

    /// Compares a bound with a key.
    fn seek(&self, bound: u64, sought: Self::Sought<'_>) -> Ordering;

    /// Compares the key of a leaf's slot with a key.
    fn seek_leaf(&self, slot: Slot, sought: Self::Sought<'_>) -> Ordering;

    /// Compares the keys of two slots of a leaf.
    fn slots(&self, a: Slot, b: Slot) -> Ordering {
        self.seek_leaf(a, self.key(b))
    }

    /// A bound above the key of `left` and not above that of `right`, its neighbour. What it needs
    /// of memory is durable with the writer.
    ///
    /// # Errors
    ///
    /// `Full`.
    fn bound(&self, writer: &mut NodeWriter<'_>, left: Slot, right: Slot) -> Result<u64>;

    /// Gives the memory of a bound back. No node on the media starts there any more.
    ///
    /// # Errors
    ///
    /// As [`crate::pm::Region::persist`].
    fn release(&self, bound: u64) -> Result<()>;

    /// Whether all that was compared so far was sound; nothing follows from it else.
    ///
    /// # Errors
    ///
    /// `Corrupt`.
    fn sound(&self) -> Result<()> {
        Ok(())
    }

    /// Compares two bounds, neither of them zero.
    fn bounds(&self, a: u64, b: u64) -> Ordering {
        self.seek(a, self.sought(b))
    }
}

/// Keys of eight bytes: the identity is the key plus one, and so is a bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed;

impl Keys for Fixed {
    const REFERS: bool = false;

    type Sought<'a> = u64;

    fn sought(&self, bound: u64) -> u64 {
        bound.max(1)
    }

    fn key(&self, slot: Slot) -> u64 {
        slot.id
    }

    fn seek(&self, bound: u64, sought: u64) -> Ordering {
        bound.cmp(&sought)
    }

    fn seek_leaf(&self, slot: Slot, sought: u64) -> Ordering {
        slot.id.cmp(&sought)
    }

    fn bound(&self, _pen: &mut NodeWriter<'_>, _left: Slot, right: Slot) -> Result<u64> {
        Ok(right.id)
    }

    fn release(&self, _bound: u64) -> Result<()> {
        Ok(())
    }
}
