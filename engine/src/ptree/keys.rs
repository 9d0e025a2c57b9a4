//! Keys as nodes hold them. A leaf's slot has the offset of a record, which is its identity, and
//! the first eight bytes of the key. When those are equal, a search reads the rest from the
//! record.
//!
//! A *bound* is where a node starts: the shortest that tells the neighbours of a split apart, and
//! the tree's own: records come and go, bounds stay as long as a node starts there. Up to seven
//! bytes of it lie in the word itself, a longer one in the tree's heap. A node and the inner nodes
//! of which it is the first child share one. A bound of zero is no key, and starts before all.
//!
//! Every call that compares keys is made with an epoch pinned: what an offset led to when the
//! version of its node was checked is still there.

use std::cmp::Ordering;
use std::sync::Arc;

use super::heap::Heap;
use super::node::Slot;
use super::node_writer::NodeWriter;
use super::unread::Unread;
use crate::error::Result;
use crate::memtable::{Records, Separator};
use crate::record::{LSN_MAX, Lsn, slice};

/// The longest bound in a word.
const SHORT: usize = 7;

/// Keys of records.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Where records are.
    pub(crate) records: Arc<Unread>,
    /// Where bounds are.
    pub(crate) heap: Heap,
}

/// The bytes of a key, or those that lay in a word.
#[derive(Clone, Copy, Debug)]
enum Bytes<'a> {
    Lent(&'a [u8]),
    Own([u8; 8], usize),
}

impl Bytes<'_> {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Lent(bytes) => bytes,
            Bytes::Own(bytes, len) => &bytes[..*len],
        }
    }
}

/// Where a place lies to the key that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    At,
    /// Just before it.
    Before,
    /// Behind all keys.
    End,
}

/// A place in the order of versions: by key, the newest version of a key first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    prefix: u64,
    bytes: Bytes<'a>,
    seq: Lsn,
    side: Side,
}

impl<'a> Place<'a> {
    /// That of a version.
    pub(crate) fn at(key: &'a [u8], seq: Lsn) -> Place<'a> {
        Place { prefix: slice(key, 0), bytes: Bytes::Lent(key), seq, side: Side::At }
    }

    /// Just before this one.
    pub(crate) fn before(self) -> Place<'a> {
        Place { side: Side::Before, ..self }
    }

    /// Behind all keys.
    pub(crate) fn end() -> Place<'static> {
        Place { side: Side::End, ..Place::at(&[], 0) }
    }

    /// How the version (`key`, `seq`) stands to this place.
    fn order_of(&self, key: &[u8], seq: Lsn) -> Ordering {
        match self.side {
            Side::End => Ordering::Less,
            side => {
                let order = key.cmp(self.bytes.get()).then_with(|| self.seq.cmp(&seq));
                if side == Side::Before { order.then(Ordering::Greater) } else { order }
            }
        }
    }
}

/// The bytes of a bound that lies in its word.
fn short(bound: u64) -> Option<([u8; 8], usize)> {
    let len = (bound & 0xff) as usize >> 1;
    (bound & 1 == 1).then(|| ((bound & !0xff).to_be_bytes(), len))
}

impl Keys {
    /// Key and sequence number of a bound other than zero.
    fn bound_at(&self, bound: u64) -> (Bytes<'_>, Lsn) {
        if let Some((bytes, len)) = short(bound) {
            return (Bytes::Own(bytes, len), LSN_MAX);
        }
        let (key, seq) = self.heap.read(bound);
        (Bytes::Lent(key), seq)
    }

    /// The slot of a record.
    pub(crate) fn slot(key: &[u8], at: u64) -> Slot {
        Slot { id: at, other: slice(key, 0) }
    }

    /// The place of a bound; of zero, the first of all.
    pub(crate) fn sought(&self, bound: u64) -> Place<'_> {
        if bound == 0 {
            return Place::at(&[], LSN_MAX);
        }
        let (bytes, seq) = self.bound_at(bound);
        Place { prefix: slice(bytes.get(), 0), bytes, seq, side: Side::At }
    }

    /// The place of a leaf's slot.
    fn key(&self, slot: Slot) -> Place<'_> {
        let (key, seq) = self.records.locate(slot.id);
        Place { prefix: slot.other, bytes: Bytes::Lent(key), seq, side: Side::At }
    }

    /// Compares a bound with a place.
    pub(crate) fn seek(&self, bound: u64, sought: Place<'_>) -> Ordering {
        if bound == 0 || sought.side == Side::End {
            return Ordering::Less;
        }
        if bound & 1 == 1 {
            // Zeros fill up what is missing on either side: they decide nothing.
            let first = (bound >> 8).cmp(&(sought.prefix >> 8));
            if first.is_ne() {
                return first;
            }
        }
        let (bytes, seq) = self.bound_at(bound);
        sought.order_of(bytes.get(), seq)
    }

    /// Compares the key of a leaf's slot with a place.
    pub(crate) fn seek_leaf(&self, slot: Slot, sought: Place<'_>) -> Ordering {
        if sought.side == Side::End {
            return Ordering::Less;
        }
        slot.other.cmp(&sought.prefix).then_with(|| {
            let (key, seq) = self.records.locate(slot.id);
            sought.order_of(key, seq)
        })
    }

    /// Compares the keys of two slots of a leaf.
    pub(crate) fn slots(&self, a: Slot, b: Slot) -> Ordering {
        // Records are read only where their keys begin alike.
        a.other.cmp(&b.other).then_with(|| self.seek_leaf(a, self.key(b)))
    }

    /// Compares two bounds, neither of them zero.
    pub(crate) fn bounds(&self, a: u64, b: u64) -> Ordering {
        self.seek(a, self.sought(b))
    }

    /// A bound above the key of `left` and not above that of `right`, its neighbour. What it needs
    /// of memory is durable with the writer.
    ///
    /// # Errors
    ///
    /// `Full`.
    pub(crate) fn bound(
        &self,
        writer: &mut NodeWriter<'_>,
        left: Slot,
        right: Slot,
    ) -> Result<u64> {
        let (left, right) = (self.records.locate(left.id), self.records.locate(right.id));
        let Separator { bytes, seq } = Separator::between(left, right);
        if bytes.len() <= SHORT && seq == LSN_MAX {
            let word = slice(&bytes, 0) | (bytes.len() as u64) << 1 | 1;
            debug_assert!(short(word).is_some_and(|(b, len)| b[..len] == bytes), "{bytes:?}");
            return Ok(word);
        }
        self.heap.write(writer, &bytes, seq)
    }

    /// Gives the memory of a bound back. No node on the media starts there any more.
    ///
    /// # Errors
    ///
    /// As [`crate::pm::Region::persist`].
    pub(crate) fn release(&self, bound: u64) -> Result<()> {
        if bound == 0 || bound & 1 == 1 { Ok(()) } else { self.heap.release(bound) }
    }
}
