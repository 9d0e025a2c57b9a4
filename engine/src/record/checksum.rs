//! CRC-32C, the one checksum of every format. The only place that names the library.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`, seeded with numbers that say where the bytes belong. So a stale or misplaced
/// structure with a sound checksum of its own never passes.
pub(crate) fn checksum(seeds: &[u64], bytes: &[u8]) -> u32 {
    if seeds.is_empty() {
        return crc_fast::crc32_iscsi(bytes);
    }
    let mut sum = Checksum::new(seeds);
    sum.update(bytes);
    sum.finish()
}

/// `bytes` with the checksum at `at` made right, that of what lies in a range: bad bytes get past
/// it so, to what is behind it (`decoders`).
#[cfg(any(test, feature = "testing"))]
pub(crate) fn mended(
    bytes: &[u8],
    at: usize,
    (from, to): (usize, usize),
    seeds: &[u64],
) -> Vec<u8> {
    let mut mended = bytes.to_vec();
    if let Some(sum) = bytes.get(from..to).map(|body| checksum(seeds, body))
        && let Some(place) = mended.get_mut(at..at + 4)
    {
        place.copy_from_slice(&sum.to_le_bytes());
    }
    mended
}

/// CRC-32C over several pieces.
#[derive(Debug)]
pub(crate) struct Checksum(Digest);

impl Checksum {
    /// Starts from the seeds, each as eight little-endian bytes.
    pub(crate) fn new(seeds: &[u64]) -> Checksum {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        for seed in seeds {
            digest.update(&seed.to_le_bytes());
        }
        Checksum(digest)
    }

    /// Adds a piece.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all pieces.
    #[expect(clippy::cast_possible_truncation, reason = "a CRC-32 fits in 32 bits")]
    pub(crate) fn finish(self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_crc32c() {
        assert_eq!(checksum(&[], b"123456789"), 0xE306_9283);
    }

    #[test]
    fn seeds_change_it() {
        assert_ne!(checksum(&[1], b"block"), checksum(&[2], b"block"));
    }

    /// So a caller that has the seed in front of the bytes takes both in one call.
    #[test]
    fn a_seed_is_as_good_as_its_bytes() {
        let block: Vec<u8> = (0..300).map(|n| n as u8).collect();
        for len in [0, 1, 56, 64, 300] {
            let joined = [&7u64.to_le_bytes()[..], &block[..len]].concat();
            assert_eq!(checksum(&[7], &block[..len]), checksum(&[], &joined), "{len} bytes");
        }
    }
}
