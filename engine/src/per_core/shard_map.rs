//! Which shard owns a key.
//!
//! A small table belongs to one shard, so that all of it lies in the caches of one processor. A
//! large table is cut: at ends of its extents where it has enough of them, so that a shard has
//! whole extents, or else by a hash of the key. The executor draws this when it is made, by the
//! sizes of that moment, and keeps it. A table that is created later is cut by a hash.
//!
//! Invariant: a map never changes, so a key has one shard for as long as the map lives.

use std::sync::Arc;

use crate::mvcc::EpochGuard;
use crate::os::HashMap;
use crate::read::view::View;
use crate::sstable::{Described, OwnedHeads};
use crate::table::TableSlot;
use crate::version::Version;

/// A cut table has so many ranges of keys for each shard. They go round the shards, so that keys in
/// order that are read often are not all of one shard.
const RANGES: usize = 4;

/// Which shard owns a key of one table.
#[derive(Debug)]
pub(super) enum ShardMap {
    /// This one owns them all.
    Whole(usize),
    /// By ranges of keys: the last keys of all ranges but the last one.
    Ranges { heads: OwnedHeads, last_keys: Vec<Vec<u8>>, shards: usize },
    /// By a hash.
    Hashed { shards: usize },
}

impl ShardMap {
    /// The shard that owns `key`.
    #[inline]
    pub(super) fn shard_of(&self, key: &[u8]) -> usize {
        match self {
            ShardMap::Whole(shard) => *shard,
            ShardMap::Ranges { heads, last_keys, shards } => {
                heads.partition_point(key, |n| last_keys[n].as_slice() < key) % shards
            }
            ShardMap::Hashed { shards } => {
                let upper = hash(key) >> 32;
                ((upper * *shards as u64) >> 32) as usize
            }
        }
    }

    /// Cut at ends of extents, if the largest level has one for each range at least.
    fn of_extents(version: &Version, shards: usize) -> Option<ShardMap> {
        let ranges = RANGES * shards;
        let levels = version.levels.iter().map(|level| level.extents());
        let largest = levels.max_by_key(|extents| extents.len())?;
        if largest.len() < ranges {
            return None;
        }
        let last = |n: usize| &largest[n * largest.len() / ranges - 1].meta().greatest_key;
        let last_keys: Vec<Vec<u8>> = (1..ranges).map(|n| last(n).clone()).collect();
        debug_assert!(last_keys.is_sorted(), "extents of a level follow each other");
        let heads = OwnedHeads::of(last_keys.iter().map(Vec::as_slice));
        Some(ShardMap::Ranges { heads, last_keys, shards })
    }
}

/// The maps of all tables that were there when the executor was made.
#[derive(Debug)]
pub(super) struct ShardMaps {
    drawn: HashMap<u64, Arc<ShardMap>>,
    /// Of a table that was not there.
    later: Arc<ShardMap>,
}

impl ShardMaps {
    /// Maps for so many shards, by what the tables have now.
    pub(super) fn draw(slots: &[Arc<TableSlot>], shards: usize, pinned: &EpochGuard) -> ShardMaps {
        debug_assert!(shards > 0, "an executor has a shard");
        let later = Arc::new(match shards {
            1 => ShardMap::Whole(0),
            _ => ShardMap::Hashed { shards },
        });
        let mut sizes: Vec<(u64, &Arc<TableSlot>)> =
            slots.iter().map(|slot| (bytes_of(&slot.lent_core(pinned).view()), slot)).collect();
        sizes.sort_by_key(|(bytes, slot)| (std::cmp::Reverse(*bytes), slot.lock_space()));
        let all: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
        let mut taken = vec![0; shards];
        let mut draw = |bytes: u64, slot: &TableSlot| {
            // Two such tables are no more than the part of one shard.
            let is_small = bytes > 0 && bytes.saturating_mul(2 * shards as u64) <= all;
            if !is_small && shards > 1 {
                let cut = ShardMap::of_extents(&slot.lent_core(pinned).view().version, shards);
                return cut.map_or_else(|| Arc::clone(&later), Arc::new);
            }
            let emptiest = (0..shards).min_by_key(|shard| taken[*shard]).unwrap_or_default();
            taken[emptiest] += bytes;
            Arc::new(ShardMap::Whole(emptiest))
        };
        let drawn = sizes.iter().map(|(bytes, slot)| (slot.lock_space(), draw(*bytes, slot)));
        ShardMaps { drawn: drawn.collect(), later: Arc::clone(&later) }
    }

    /// The map of a table.
    pub(super) fn of(&self, slot: &TableSlot) -> Arc<ShardMap> {
        Arc::clone(self.drawn.get(&slot.lock_space()).unwrap_or(&self.later))
    }
}

/// About the bytes of a table, wherever they lie.
fn bytes_of(view: &View) -> u64 {
    let levels = view.version.levels.iter().map(|level| level.bytes() + level.referred());
    view.undrained_bytes() + levels.sum::<u64>()
}

/// A hash of a key. It is of this process alone, and on no medium.
#[inline]
fn hash(key: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |h: u64, word: u64| {
        let h = (h ^ word).wrapping_mul(MULTIPLIER);
        h ^ h >> 32
    };
    let (words, rest) = key.as_chunks::<8>();
    let h = words.iter().fold(key.len() as u64, |h, word| mix(h, u64::from_le_bytes(*word)));
    let last = rest.iter().fold(0, |last, byte| last << 8 | u64::from(*byte));
    mix(mix(h, last), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys 0, 2, … 2(n - 1) end the ranges.
    fn ranges(ranges: u8, shards: usize) -> ShardMap {
        let last_keys: Vec<Vec<u8>> = (0..ranges - 1).map(|n| vec![2 * n]).collect();
        let heads = OwnedHeads::of(last_keys.iter().map(Vec::as_slice));
        ShardMap::Ranges { heads, last_keys, shards }
    }

    #[test]
    fn ranges_end_with_their_last_key_and_go_round() {
        let map = ranges(6, 3);
        let shards: Vec<usize> = (0..12).map(|key| map.shard_of(&[key])).collect();
        assert_eq!(shards, [0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 2]);
        assert_eq!(map.shard_of(b""), 0, "the least key");
        assert_eq!(map.shard_of(&[2, 0]), 2, "behind the last key of a range");
    }

    #[test]
    fn hashes_spread_keys_that_differ_little() {
        let map = ShardMap::Hashed { shards: 4 };
        let mut counts = [0; 4];
        for n in 0..4000_u32 {
            counts[map.shard_of(&n.to_be_bytes())] += 1;
            counts[map.shard_of(format!("user{n:08}").as_bytes())] += 1;
        }
        assert!(counts.iter().all(|count| (1700..2300).contains(count)), "{counts:?}");
    }
}
