//! Keys of any length: a leaf's slot has the offset of the record, which is its identity, and the
//! first eight bytes of the key. When those are equal, a search reads the rest from the record.
//!
//! A bound is the shortest that tells the neighbours of a split apart, and the tree's own: records
//! come and go, bounds stay as long as a node starts there. Up to seven bytes of it lie in the
//! word itself, a longer one in an entry of the tree's heap. A node and the inner nodes of which
//! it is the first child share one.
//!
//! Every call that compares keys is made with an epoch pinned: what an offset led to when the
//! version of its node was checked is still there.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::heap::{Heap, Stored};
use super::keys::Keys;
use super::node::{SLOTS, Slot};
use super::node_writer::NodeWriter;
use super::tree::Tree;
use crate::error::Result;
use crate::memtable::{Records, Separator};
use crate::record::{LSN_MAX, Lsn, slice};

/// The longest bound in a word.
const SHORT: usize = 7;

/// Keys of records.
#[derive(Debug)]
pub(crate) struct Refs<R> {
    /// Where records are.
    pub(crate) records: R,
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

impl<R: Records> Refs<R> {
    /// Key and sequence number of a bound other than zero.
    fn bound_at(&self, bound: u64) -> (Bytes<'_>, Lsn) {
        if let Some((bytes, len)) = short(bound) {
            return (Bytes::Own(bytes, len), LSN_MAX);
        }
        let Stored { key, seq, .. } = self.heap.read(bound);
        (Bytes::Lent(key), seq)
    }

    /// The key of a bound.
    pub(crate) fn bound_key(&self, bound: u64) -> Vec<u8> {
        match bound {
            0 => Vec::new(),
            bound => self.bound_at(bound).0.get().to_vec(),
        }
    }

    /// The slot of a record.
    pub(crate) fn slot(key: &[u8], at: u64) -> Slot {
        Slot { id: at, other: slice(key, 0) }
    }
}

impl<R: Records + Send + Sync + std::fmt::Debug> Keys for Refs<R> {
    const REFERS: bool = true;

    type Sought<'a> = Place<'a>;

    fn sought(&self, bound: u64) -> Place<'_> {
        if bound == 0 {
            return Place::at(&[], LSN_MAX);
        }
        let (bytes, seq) = self.bound_at(bound);
        Place { prefix: slice(bytes.get(), 0), bytes, seq, side: Side::At }
    }

    fn key(&self, slot: Slot) -> Place<'_> {
        let (key, seq) = self.records.locate(slot.id);
        Place { prefix: slot.other, bytes: Bytes::Lent(key), seq, side: Side::At }
    }

    fn seek(&self, bound: u64, sought: Place<'_>) -> Ordering {
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

    fn seek_leaf(&self, slot: Slot, sought: Place<'_>) -> Ordering {
        if sought.side == Side::End {
            return Ordering::Less;
        }
        slot.other.cmp(&sought.prefix).then_with(|| {
            let (key, seq) = self.records.locate(slot.id);
            sought.order_of(key, seq)
        })
    }

    fn slots(&self, a: Slot, b: Slot) -> Ordering {
        // Records are read only where their keys begin alike.
        a.other.cmp(&b.other).then_with(|| self.seek_leaf(a, self.key(b)))
    }

    fn bound(&self, writer: &mut NodeWriter<'_>, left: Slot, right: Slot) -> Result<u64> {
        let (left, right) = (self.records.locate(left.id), self.records.locate(right.id));
        let Separator { bytes, seq } = Separator::between(left, right);
        if bytes.len() <= SHORT && seq == LSN_MAX {
            let word = slice(&bytes, 0) | (bytes.len() as u64) << 1 | 1;
            debug_assert!(short(word).is_some_and(|(b, len)| b[..len] == bytes), "{bytes:?}");
            return Ok(word);
        }
        self.heap.write(writer, Stored { key: &bytes, seq, value: &[] })
    }

    fn sound(&self) -> Result<()> {
        self.records.sound()
    }

    fn release(&self, bound: u64) -> Result<()> {
        if bound == 0 || bound & 1 == 1 { Ok(()) } else { self.heap.release(bound) }
    }
}

impl<R: Records + Send + Sync + std::fmt::Debug> Tree<Refs<R>> {
    /// Releases entries of the heap that nothing in the tree leads to, bounds and records if they
    /// lie there too; how many there were. Reads the whole tree.
    ///
    /// # Errors
    ///
    /// As [`Heap::scan`].
    pub(crate) fn scan_heap(&mut self) -> Result<u64> {
        let mut reached = HashSet::new();
        self.visit(|node, level| {
            self.nodes.persist_found(node);
            reached.insert(node.low());
            if level == 0 {
                reached.extend((0..SLOTS).map(|slot| node.slot(slot).id));
            }
        });
        self.nodes.keys.heap.scan(|at| reached.contains(&at))
    }
}
