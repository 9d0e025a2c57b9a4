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
//!
//! How a tree writes: word by word, a line flushed when the writer leaves it. The region is
//! persistent memory, so what is fenced is durable.
//!
//! The fixed part of the index's region (`docs/format.md`, section 4).

use std::path::Path;

use smallvec::SmallVec;

use crate::base::error::{Error, Mismatch, Result};
use crate::base::record::{Reader, checksum, put_u32, put_u64};
use crate::os::sync::optimistic::step;
use crate::pm::{Dirty, Flushed, LINE, PAGE, Region, Span};

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

/// Collects the stores of one operation on their way to durability.
#[derive(Debug)]
pub(crate) struct NodeWriter<'a> {
    region: &'a Region,
    /// The line that was stored to last.
    wet: Option<(u64, Dirty)>,
    flushed: SmallVec<[Flushed; 6]>,
}

impl<'a> NodeWriter<'a> {
    pub(crate) fn new(region: &'a Region) -> NodeWriter<'a> {
        NodeWriter { region, wet: None, flushed: SmallVec::new() }
    }

    /// Stores a word. The line of the word before is flushed if it is another one.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn set(&mut self, at: u64, value: u64) {
        if self.wet.as_ref().is_some_and(|(line, _)| *line != at / LINE) {
            self.flush();
        }
        step();
        let dirty = self.region.store_word(at, value);
        self.wet = Some(match self.wet.take() {
            Some((line, before)) => (line, before.join(dirty)),
            None => (at / LINE, dirty),
        });
    }

    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    fn flush(&mut self) {
        if let Some((_, dirty)) = self.wet.take() {
            self.flushed.push(self.region.flush(dirty));
        }
    }

    /// Flushes what was stored beside the words.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn also(&mut self, dirty: Dirty) {
        self.flushed.push(self.region.flush(dirty));
    }

    /// Makes durable what was stored, before what will be.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn fence(&mut self) {
        self.flush();
        if !self.flushed.is_empty() {
            // Nothing is left to sync: there is no file.
            drop(self.region.fence(self.flushed.drain(..)));
        }
    }

    /// Leaves the last line to the cache: a planted bug.
    pub(crate) fn leave(&mut self) {
        self.wet = None;
    }
}

impl Drop for NodeWriter<'_> {
    fn drop(&mut self) {
        debug_assert!(
            self.wet.is_none() && self.flushed.is_empty() || std::thread::panicking(),
            "what was stored was also fenced"
        );
    }
}

pub(super) const MAGIC: &[u8; 8] = b"TERRTREE";
const VERSION: u32 = 1;

/// The kind of such regions: trees of versions, one for each table.
const FOREST: u32 = 4;

/// Offset of the word that counts the openings.
pub(super) const EPOCH: u64 = 2 * LINE;

/// Bytes of the words above, and of those that owners have behind them.
const FIXED_PART: u64 = 6 * LINE;

/// The pool of nodes among a region's pools.
pub(super) const NODES: u32 = 1;

/// What a region was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes in a segment.
    pub(crate) segment: u64,
    pub(crate) segments: u64,
}

impl Shape {
    /// The shape of a region of at most `size` bytes.
    pub(crate) fn for_size(size: u64, segment: u64) -> Shape {
        Shape { segment, segments: size.saturating_sub(PAGE) / segment }
    }

    pub(crate) fn region_len(self) -> u64 {
        PAGE + self.segments * self.segment
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut body = Vec::with_capacity(LINE as usize);
        put_u32(&mut body, FOREST);
        put_u32(&mut body, NODE as u32);
        put_u64(&mut body, self.segment);
        put_u64(&mut body, self.segments);
        body.resize(LINE as usize - 16, 0);
        let mut line = Vec::with_capacity(LINE as usize);
        line.extend_from_slice(MAGIC);
        put_u32(&mut line, VERSION);
        put_u32(&mut line, checksum(&[u64::from(VERSION)], &body));
        line.extend_from_slice(&body);
        line
    }

    pub(crate) fn decode(line: &[u8], path: &Path) -> Result<Shape> {
        let wrong = |found: Mismatch| {
            Error::corrupt(found.at("superblock of the persistent index", "pm", path, 0))
        };
        let mut r = Reader::new(line);
        if r.take(8) != Some(&MAGIC[..]) {
            return Err(Error::invalid(format!(
                "{} is no persistent index of Terrace (its creation may have been cut short)",
                path.display()
            )));
        }
        let fields = (|| Some((r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u64()?, r.u64()?)))();
        let Some((version, sum, kind, node, segment, segments)) = fields else {
            return Err(wrong(Mismatch::new("64 bytes", format!("{} bytes", line.len()))));
        };
        let computed = checksum(&[u64::from(version)], &line[16..]);
        if sum != computed {
            return Err(wrong(Mismatch::checksum(sum, computed)));
        }
        if (version, kind, u64::from(node)) != (VERSION, FOREST, NODE) {
            return Err(Error::invalid(format!(
                "{} has format {version} of an index of kind {kind} with nodes of {node} bytes; \
                 this version of Terrace reads format {VERSION} of kind {FOREST} with {NODE}: use \
                 the one that made it",
                path.display()
            )));
        }
        Ok(Shape { segment, segments })
    }
}

/// The fixed part as it was found, to be made durable: a process that was killed may have left its
/// last store there in the caches alone.
pub(super) fn fixed_part(region: &Region) -> Dirty {
    region.rewrite(Span { at: 0, len: FIXED_PART })
}
