//! For figures alone: blocks found as they were before there were swips. A hash of extent and block
//! leads to the block, under the lock of a shard, and a reference is counted.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, LazyLock};

use super::Extent;
use crate::base::error::Result;
use crate::cache::BufferFrame;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::RwLock;
use crate::sstable::block::Block;

const SHARDS: usize = 64;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// The address of the extent, and the number of the block.
type Key = (usize, usize);
type Shard = RwLock<HashMap<Key, Arc<BufferFrame<Block>>, BuildHasherDefault<Multiply>>>;

static BLOCKS: LazyLock<[Shard; SHARDS]> =
    LazyLock::new(|| [(); SHARDS].map(|()| Shard::default()));

/// A hash that costs a multiplication for each number.
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0.rotate_left(5) ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// Has look-ups find blocks so, or no longer. What was found so is forgotten: extents may be gone.
pub(crate) fn set_hashed(is_on: bool) {
    BLOCKS.iter().for_each(|shard| shard.write().clear());
    IS_ON.store(is_on, Ordering::Relaxed);
}

pub(super) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

impl Extent {
    /// Block `n`, found by its hash; `load` finds it where it is not known yet.
    pub(super) fn hashed_block(
        &self,
        n: usize,
        load: impl FnOnce() -> Result<Arc<BufferFrame<Block>>>,
    ) -> Result<Arc<BufferFrame<Block>>> {
        let key: Key = (std::ptr::from_ref(self).addr(), n);
        let mut hash = Multiply::default();
        hash.write_usize(key.0);
        hash.write_usize(key.1);
        let shard = &BLOCKS[hash.finish() as usize >> 7 & (SHARDS - 1)];
        if let Some(found) = shard.read().get(&key) {
            return Ok(Arc::clone(found));
        }
        let block = load()?;
        shard.write().insert(key, Arc::clone(&block));
        Ok(block)
    }
}
