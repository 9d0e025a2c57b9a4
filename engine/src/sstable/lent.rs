//! Blocks that a look-up borrows while an epoch is pinned.

use super::BlockCache;
use super::block::Block;
use crate::cache::{BufferFrame, Lent};
use crate::mvcc::EpochGuard;

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
pub(super) type LentBlock<'g> = Lent<'g, BufferFrame<Block>>;
