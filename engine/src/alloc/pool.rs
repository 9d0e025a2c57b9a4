//! The index entry that every pool has for each of its objects: one self-checking word.

use crate::record::checksum;

const PERSISTENT: u64 = 1 << 63;
const IN_USE: u64 = 1 << 62;
const GENERATION_BITS: u32 = 30;

/// Which pool an entry belongs to; seeds its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Streams = 1,
    Zones = 2,
    Objects = 3,
}

/// The state of one object of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolEntry {
    /// The object is taken.
    pub(crate) persistent: bool,
    /// Records were, or were about to be, appended (zones).
    pub(crate) in_use: bool,
    /// How often the object was released before.
    pub(crate) generation: u32,
}

impl PoolEntry {
    /// The entry after a release: free, a generation further. The generation wraps after 2³⁰
    /// releases of one object, which the incarnation in each sub-entry survives.
    pub(crate) fn released(self) -> PoolEntry {
        let generation = (self.generation + 1) % (1 << GENERATION_BITS);
        PoolEntry { persistent: false, in_use: false, generation }
    }

    /// The word on media.
    pub(crate) fn encode(self, pool: Pool, index: u32) -> u64 {
        debug_assert!(self.generation < 1 << GENERATION_BITS, "generations wrap in 30 bits");
        let mut word = u64::from(self.generation) << 32;
        if self.persistent {
            word |= PERSISTENT;
        }
        if self.in_use {
            word |= IN_USE;
        }
        word | u64::from(check(pool, index, word))
    }

    /// The entry in a word; the expected and the found checksum if it does not check out.
    pub(crate) fn decode(
        word: u64,
        pool: Pool,
        index: u32,
    ) -> std::result::Result<PoolEntry, (u32, u32)> {
        let (sum, computed) = (word as u32, check(pool, index, word));
        if sum != computed {
            return Err((sum, computed));
        }
        Ok(PoolEntry {
            persistent: word & PERSISTENT != 0,
            in_use: word & IN_USE != 0,
            generation: (word >> 32) as u32 & ((1 << GENERATION_BITS) - 1),
        })
    }
}

fn check(pool: Pool, index: u32, word: u64) -> u32 {
    checksum(&[pool as u64, u64::from(index), word >> 32], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let entry = PoolEntry { persistent: true, in_use: false, generation: 77 };
        let word = entry.encode(Pool::Zones, 4);
        assert_eq!(PoolEntry::decode(word, Pool::Zones, 4), Ok(entry));
        for bit in 0..64 {
            assert!(PoolEntry::decode(word ^ 1 << bit, Pool::Zones, 4).is_err(), "bit {bit}");
        }
        assert!(PoolEntry::decode(word, Pool::Zones, 5).is_err(), "another zone's entry");
        assert!(PoolEntry::decode(word, Pool::Streams, 4).is_err(), "another pool's entry");
    }
}
