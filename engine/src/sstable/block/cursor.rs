//! The position in a block of either layout.

use std::ops::Deref;

use super::restarts::RestartCursor;
use super::tree::TreeCursor;
use super::{Block, BlockStep, SharedBlock};
use crate::base::record::{EntryRef, Lsn};

/// Walks the entries of a block in both directions. Of a step that fails the cursor is invalid. It
/// holds the block as `B`.
#[derive(Debug)]
pub(in crate::sstable) enum BlockCursor<B = SharedBlock> {
    /// In a body with restarts.
    Restarts(RestartCursor<B>),
    /// In a tree.
    Tree(TreeCursor<B>),
}

/// Calls a method of the cursor that there is.
macro_rules! of_either {
    ($cursor:expr, $within:ident => $call:expr) => {
        match $cursor {
            BlockCursor::Tree($within) => $call,
            BlockCursor::Restarts($within) => $call,
        }
    };
}

impl<B: Deref<Target = Block>> BlockCursor<B> {
    /// An invalid cursor.
    pub(in crate::sstable) fn new(block: B) -> BlockCursor<B> {
        match block.is_tree() {
            true => BlockCursor::Tree(TreeCursor::new(block)),
            false => BlockCursor::Restarts(RestartCursor::new(block)),
        }
    }

    /// An invalid cursor in another block, with the same buffers if they fit.
    pub(in crate::sstable) fn in_other(self, block: B) -> BlockCursor<B> {
        match (self, block.is_tree()) {
            (BlockCursor::Tree(cursor), true) => BlockCursor::Tree(cursor.in_other(block)),
            (BlockCursor::Restarts(cursor), false) => BlockCursor::Restarts(cursor.in_other(block)),
            _ => BlockCursor::new(block),
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(in crate::sstable) fn block(&self) -> &Block {
        of_either!(self, within => &within.block)
    }

    #[inline]
    pub(in crate::sstable) fn entry(&self) -> Option<EntryRef<'_>> {
        of_either!(self, within => within.entry())
    }

    pub(in crate::sstable) fn first(&mut self) -> BlockStep {
        of_either!(self, within => within.first())
    }

    pub(in crate::sstable) fn last(&mut self) -> BlockStep {
        of_either!(self, within => within.last())
    }

    pub(in crate::sstable) fn next(&mut self) -> BlockStep {
        of_either!(self, within => within.next())
    }

    pub(in crate::sstable) fn prev(&mut self) -> BlockStep {
        of_either!(self, within => within.prev())
    }

    /// To the first entry at or after (`key`, `seq`).
    pub(in crate::sstable) fn seek(&mut self, key: &[u8], seq: Lsn) -> BlockStep {
        of_either!(self, within => within.seek(key, seq))
    }

    /// To the last entry with a smaller key.
    pub(in crate::sstable) fn seek_before(&mut self, key: &[u8]) -> BlockStep {
        of_either!(self, within => within.seek_before(key))
    }
}
