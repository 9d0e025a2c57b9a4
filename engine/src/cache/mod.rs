//! The pool of blocks (docs/internals/block-pool.md). It does not know what it holds.
//!
//! An extent has [`Swips`]: a word for each block, which leads straight to the block's
//! [`BufferFrame`] once that is loaded ([`swip`]). So a look-up that finds its block loads and
//! compares. The [`FramePool`] decides which frames there are: it keeps them in [`queues`], bounds
//! their bytes, and takes the way to a frame out before it gives the frame's memory up. Memory is
//! given up by epochs. The bytes of values lie in an [`arena`].
//!
//! Thread safety and invariants: see [`swip`] and [`pool`].

mod arena;
mod counts;
mod frame;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod model;
mod pool;
mod queues;
mod swip;
#[cfg(test)]
mod tests;

pub(crate) use arena::{FrameArena, placed_len};
pub(crate) use counts::{LOT, completes_a_lot};
pub(crate) use frame::{Borrowed, BufferFrame, Warmth};
pub(crate) use pool::{FramePool, Swips};
pub(crate) use swip::Swip;

use std::sync::Arc;

/// What a value in the pool costs.
pub(crate) trait Weigh {
    /// Bytes of memory, those of its frame included. Never 0.
    fn weight(&self) -> u64;

    /// Where a search begins to read it: a hint, which is never followed.
    fn begins_at(&self) -> *const u8 {
        std::ptr::null()
    }

    /// Moves its bytes into an arena, if that has room. It weighs the same after that.
    fn move_into(&mut self, _arena: &Arc<FrameArena>) {}
}

/// A second cache: faster than the medium and slower than the pool.
pub(crate) trait Below: Send + Sync + std::fmt::Debug {
    /// The bytes, if they are here.
    fn get(&self, extent: u64, offset: u32) -> Option<Vec<u8>>;

    /// Keeps the bytes if there is room.
    fn keep(&self, extent: u64, offset: u32, bytes: &[u8]);
}
