//! Blocks: about 16 KiB of records, sealed by a header ([`frame`]). The header says which of two
//! layouts the body has: a [`tree`], or [`restarts`], which what is compressed has.

mod restarts;
mod tree;

use std::ops::{ControlFlow, Deref, Range};
use std::sync::Arc;

use bytes::Bytes;

use super::BlockCache;
use super::compress::Trial;
use super::frame::{self, HEADER_LEN};
use crate::base::error::Mismatch;
use crate::base::options::Compression;
use crate::base::record::{EntryRef, Kind, Lsn};
use crate::cache::{Borrowed, BufferFrame, FrameArena, Weigh, placed_len};
use crate::mvcc::EpochGuard;

use restarts::{RestartBuilder, RestartCursor, Restarts};
use tree::{EntryTree, TreeBuilder, TreeCursor, TreeShape};

/// An entry that does not decode, though the block's checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadEntry;

type BlockStep = std::result::Result<(), BadEntry>;

/// How the body of a block is laid out, with its number on the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockLayout {
    /// What is compressed.
    Restarts = 0,
    /// What is not compressed.
    Tree = 1,
}

/// Collects the entries of one block.
///
/// A body that is compressed has restarts, and only one that is not is a tree. The heads and short
/// entries of a tree compress badly (docs/decisions/reading.md), and a body that is compressed is
/// decoded anyway before it is searched.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    entries: Builder,
    compression: Compression,
    body: Vec<u8>,
    trial: Trial,
}

#[derive(Debug)]
enum Builder {
    Tree(TreeBuilder),
    Restarts(RestartBuilder),
}

/// Calls a method of the builder, or of the cursor, that there is.
macro_rules! of_either {
    ($of:ident, $either:expr, $entries:ident => $call:expr) => {
        match $either {
            $of::Tree($entries) => $call,
            $of::Restarts($entries) => $call,
        }
    };
}

impl BlockBuilder {
    /// An empty block, to be compressed like this.
    pub(super) fn new(compression: Compression) -> BlockBuilder {
        let entries = match compression {
            Compression::None => Builder::Tree(TreeBuilder::default()),
            _ => Builder::Restarts(RestartBuilder::default()),
        };
        BlockBuilder { entries, compression, body: Vec::new(), trial: Trial::default() }
    }

    /// Appends an entry, which sorts after all earlier ones.
    pub(super) fn add(&mut self, entry: &EntryRef<'_>) {
        of_either!(Builder, &mut self.entries, entries => entries.add(entry));
    }

    pub(super) fn is_empty(&self) -> bool {
        of_either!(Builder, &self.entries, entries => entries.is_empty())
    }

    /// Bytes that [`finish`](Self::finish) appends, as far as that is known: it may compress them,
    /// or a tree may take a little more or less.
    pub(super) fn size(&self) -> usize {
        HEADER_LEN + of_either!(Builder, &self.entries, entries => entries.size())
    }

    /// Appends the block to `out`, as the bytes from `out.len()` on, and starts over.
    pub(super) fn finish(&mut self, extent: u64, out: &mut Vec<u8>) {
        debug_assert!(!self.is_empty(), "an empty block is not written");
        self.body.clear();
        let mut layout = BlockLayout::Tree;
        match &mut self.entries {
            Builder::Tree(entries) => entries.finish(&mut self.body),
            Builder::Restarts(entries) => {
                entries.finish(&mut self.body);
                if let (number, Some(smaller)) = self.trial.compress(&self.body, self.compression) {
                    let numbers = (number, BlockLayout::Restarts as u8);
                    return frame::seal_as(extent, numbers, (&smaller, self.body.len()), out);
                }
                if make_tree_of(&mut self.body).is_none() {
                    debug_assert!(false, "what was laid out decodes");
                    layout = BlockLayout::Restarts;
                }
            }
        }
        let numbers = (0, layout as u8);
        frame::seal_as(extent, numbers, (&self.body, self.body.len()), out);
    }
}

/// Makes a tree of a body with restarts; `None` if that does not decode, and then it stays.
fn make_tree_of(body: &mut Vec<u8>) -> Option<()> {
    let bytes = Bytes::from([&[0; HEADER_LEN], &body[..]].concat());
    let restarts = Restarts::decode(&bytes).ok()?;
    let mut tree = Block { bytes, body: Body::Restarts(restarts) }.tree_builder().ok()?;
    body.clear();
    tree.finish(body);
    Some(())
}

/// A sound block, ready to be searched.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Bytes,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Restarts(Restarts),
    Tree(TreeShape),
}

/// A block that outlives the epoch of a reader: in the cache, or of a walk.
#[derive(Clone, Debug)]
pub(crate) struct SharedBlock(Arc<BufferFrame<Block>>);

impl SharedBlock {
    /// A block that the cache does not have.
    pub(super) fn apart(block: Block) -> SharedBlock {
        SharedBlock(Arc::new(BufferFrame::apart(block)))
    }
}

impl From<Arc<BufferFrame<Block>>> for SharedBlock {
    fn from(frame: Arc<BufferFrame<Block>>) -> SharedBlock {
        SharedBlock(frame)
    }
}

impl Deref for SharedBlock {
    type Target = Block;

    #[inline]
    fn deref(&self) -> &Block {
        &self.0
    }
}

/// A value of at least one part of so many of its block is not copied: its holder keeps no more
/// than four times as much memory.
const LARGE_PART: usize = 4;

/// What a block takes in memory beside its bytes: its frame, its place in the pool, and what owns
/// its bytes.
const BESIDE: usize = size_of::<BufferFrame<Block>>() + 128 + 48;

impl Weigh for Block {
    fn weight(&self) -> u64 {
        Block::weight_of(self.bytes.len())
    }

    fn begins_at(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    fn move_into(&mut self, arena: &Arc<FrameArena>) {
        if let Some(bytes) = arena.place(&self.bytes) {
            self.bytes = bytes;
        }
    }
}

/// The version of a key that a block has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) seq: Lsn,
    pub(super) kind: Kind,
    /// Where the value lies in the block.
    pub(super) value: Range<usize>,
}

impl Block {
    /// Checks the bytes of the block at `offset` of an extent.
    pub(super) fn decode(extent: u64, offset: u32, bytes: Bytes) -> Result<Block, Mismatch> {
        let (bytes, layout) = frame::open_body(extent, offset, bytes)?;
        let body = match layout {
            0 => Body::Restarts(Restarts::decode(&bytes)?),
            1 => Body::Tree(TreeShape::decode(&bytes)?),
            _ => return Err(Mismatch::new("a layout of 0 or 1", format!("{layout}"))),
        };
        Ok(Block { bytes, body })
    }

    /// What a block of so many bytes weighs.
    pub(super) fn weight_of(len: usize) -> u64 {
        (placed_len(len) + BESIDE) as u64
    }

    pub(super) fn is_tree(&self) -> bool {
        matches!(self.body, Body::Tree(_))
    }

    /// Bytes, uncompressed.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn restarts(&self) -> Option<&Restarts> {
        match &self.body {
            Body::Restarts(restarts) => Some(restarts),
            Body::Tree(_) => None,
        }
    }

    fn tree(&self) -> Option<EntryTree<'_>> {
        match &self.body {
            Body::Tree(shape) => Some(EntryTree { bytes: &self.bytes, shape }),
            Body::Restarts(_) => None,
        }
    }

    /// The entries of a body with restarts as a tree; `None` if one does not decode.
    pub(super) fn as_tree(&self) -> Option<Block> {
        let mut tree = self.tree_builder().ok()?;
        let mut bytes = Vec::with_capacity(HEADER_LEN + tree.size());
        bytes.resize(HEADER_LEN, 0);
        tree.finish(&mut bytes);
        let shape = TreeShape::decode(&bytes).ok()?;
        Some(Block { bytes: Bytes::from(bytes), body: Body::Tree(shape) })
    }

    /// The entries of a body with restarts, for a tree.
    fn tree_builder(&self) -> Result<TreeBuilder, BadEntry> {
        let mut tree = TreeBuilder::default();
        let mut cursor = RestartCursor::new(self);
        cursor.first()?;
        while let Some(entry) = cursor.entry() {
            tree.add(&entry);
            cursor.next()?;
        }
        Ok(tree)
    }

    /// The newest version of `key` with a sequence number of at most `at`.
    pub(super) fn find(&self, key: &[u8], at: Lsn) -> Result<Option<Hit>, BadEntry> {
        if let Some(tree) = self.tree() {
            let found = tree.find(key, at)?.filter(|place| place.is_sought);
            return Ok(found.map(|place| {
                let tree::RawEntry { seq, kind, .. } = place.entry;
                Hit { seq, kind, value: place.entry.value() }
            }));
        }
        let mut cursor = RestartCursor::new(self);
        cursor.seek(key, at)?;
        let found = cursor.entry().filter(|entry| entry.key == key);
        let found = found.map(|entry| (entry.seq, entry.kind)).zip(cursor.value_range());
        Ok(found.map(|((seq, kind), value)| Hit { seq, kind, value }))
    }

    /// The bytes of a value.
    pub(super) fn value(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// The value, in memory of its own. A large part of the block shares the block's memory.
    pub(super) fn owned_value(&self, range: Range<usize>) -> Bytes {
        match range.len() >= self.bytes.len() / LARGE_PART {
            true => self.bytes.slice(range),
            false => Bytes::copy_from_slice(&self.bytes[range]),
        }
    }

    /// Whether what is beside the entries agrees with them. A walk over the entries checks these.
    pub(super) fn check(&self) -> Result<(), BadEntry> {
        self.tree().map_or(Ok(()), EntryTree::check)
    }
}

/// Walks the entries of a block in both directions. Of a step that fails the cursor is invalid. It
/// holds the block as `B`.
#[derive(Debug)]
pub(super) enum BlockCursor<B = SharedBlock> {
    /// In a body with restarts.
    Restarts(RestartCursor<B>),
    /// In a tree.
    Tree(TreeCursor<B>),
}

impl<B: Deref<Target = Block>> BlockCursor<B> {
    /// An invalid cursor.
    pub(super) fn new(block: B) -> BlockCursor<B> {
        match block.is_tree() {
            true => BlockCursor::Tree(TreeCursor::new(block)),
            false => BlockCursor::Restarts(RestartCursor::new(block)),
        }
    }

    /// An invalid cursor in another block, with the same buffers if they fit.
    pub(super) fn in_other(self, block: B) -> BlockCursor<B> {
        match (self, block.is_tree()) {
            (BlockCursor::Tree(cursor), true) => BlockCursor::Tree(cursor.in_other(block)),
            (BlockCursor::Restarts(cursor), false) => BlockCursor::Restarts(cursor.in_other(block)),
            _ => BlockCursor::new(block),
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn block(&self) -> &Block {
        of_either!(BlockCursor, self, within => &within.block)
    }

    #[inline]
    pub(super) fn entry(&self) -> Option<EntryRef<'_>> {
        of_either!(BlockCursor, self, within => within.entry())
    }

    pub(super) fn first(&mut self) -> BlockStep {
        of_either!(BlockCursor, self, within => within.first())
    }

    pub(super) fn last(&mut self) -> BlockStep {
        of_either!(BlockCursor, self, within => within.last())
    }

    pub(super) fn next(&mut self) -> BlockStep {
        of_either!(BlockCursor, self, within => within.next())
    }

    /// As [`Cursor::pass`](crate::base::record::Cursor::pass).
    #[inline]
    pub(super) fn pass(
        &mut self,
        bound: Option<&[u8]>,
        mut take: impl FnMut(&EntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, BadEntry> {
        of_either!(BlockCursor, self, within => {
            while let Some(entry) = within.entry().filter(|e| bound.is_none_or(|b| e.key < b)) {
                if take(&entry).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                within.next()?;
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    pub(super) fn prev(&mut self) -> BlockStep {
        of_either!(BlockCursor, self, within => within.prev())
    }

    /// To the first entry at or after (`key`, `seq`).
    pub(super) fn seek(&mut self, key: &[u8], seq: Lsn) -> BlockStep {
        of_either!(BlockCursor, self, within => within.seek(key, seq))
    }

    /// To the last entry with a smaller key.
    pub(super) fn seek_before(&mut self, key: &[u8]) -> BlockStep {
        of_either!(BlockCursor, self, within => within.seek_before(key))
    }
}

/// The cache of blocks, with the epoch that a look-up has pinned: what it finds is lent to it until
/// then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks<'g> {
    pub(super) cache: &'g BlockCache,
    pub(super) pinned: &'g EpochGuard,
}

impl<'g> Blocks<'g> {
    /// Blocks for as long as `pinned` lives.
    pub(crate) fn new(cache: &'g BlockCache, pinned: &'g EpochGuard) -> Blocks<'g> {
        Blocks { cache, pinned }
    }
}

/// A block that a look-up uses.
pub(super) type BorrowedBlock<'g> = Borrowed<'g, BufferFrame<Block>>;

#[cfg(test)]
mod tests;
