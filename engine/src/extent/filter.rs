//! The filter of an extent: a blocked Bloom filter over user keys. A look-up touches one line of
//! 64 bytes.

use super::Malformed;
use crate::record::{Reader, checksum, put_u32};

/// Bits for each key: about one false answer in a hundred.
const BITS_PER_KEY: usize = 10;

/// Bits looked at for each key.
const PROBES: u32 = 6;

/// The most that a filter of any version may ask for.
const MAX_PROBES: u32 = 32;

const LINE_LEN: usize = 64;
const HEADER_LEN: usize = 16;

/// The hash of `docs/format.md`: it is on media and never changes.
pub(super) fn hash(key: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut h = (key.len() as u64).wrapping_mul(MULTIPLIER);
    let mut mix = |word: u64| {
        h = (h ^ word).wrapping_mul(MULTIPLIER);
        h ^= h >> 32;
    };
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        mix(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(u64::from_le_bytes(last));
    h = (h ^ (h >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    h ^ (h >> 31)
}

/// The line of a hash among `lines`, from its upper half.
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// The bits of a hash in its line, from its lower half.
fn bits_of(hash: u64, probes: u32) -> impl Iterator<Item = usize> {
    let mut h = hash as u32;
    (0..probes).map(move |_| {
        let bit = h >> 23;
        h = h.wrapping_mul(0x9E37_79B9);
        bit as usize
    })
}

/// The filter over keys with these hashes, as bytes.
pub(super) fn encode(extent: u64, hashes: &[u64]) -> Vec<u8> {
    let lines = (hashes.len() * BITS_PER_KEY).div_ceil(8 * LINE_LEN);
    let mut out = Vec::with_capacity(HEADER_LEN + lines * LINE_LEN);
    put_u32(&mut out, 0);
    put_u32(&mut out, (lines * LINE_LEN) as u32);
    put_u32(&mut out, PROBES);
    put_u32(&mut out, 0);
    out.resize(HEADER_LEN + lines * LINE_LEN, 0);
    for &hash in hashes {
        let line = &mut out[HEADER_LEN + line_of(hash, lines) * LINE_LEN..][..LINE_LEN];
        for bit in bits_of(hash, PROBES) {
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
    let sum = checksum(&[extent, 1], &out[4..]);
    out[..4].copy_from_slice(&sum.to_le_bytes());
    out
}

/// A sound filter.
#[derive(Debug)]
pub(super) struct Filter {
    bytes: Vec<u8>,
    lines: usize,
    probes: u32,
}

impl Filter {
    /// Checks the bytes of an extent's filter.
    pub(super) fn decode(extent: u64, bytes: Vec<u8>) -> Result<Filter, Malformed> {
        let too_short = || Malformed::new("16 bytes or more", format!("{}", bytes.len()));
        let mut header = Reader::new(&bytes);
        let sum = header.u32().ok_or_else(too_short)?;
        let computed = checksum(&[extent, 1], &bytes[4..]);
        if sum != computed {
            return Err(Malformed::checksum(sum, computed));
        }
        let len = header.u32().ok_or_else(too_short)? as usize;
        let probes = header.u32().ok_or_else(too_short)?;
        let zero = header.u32().ok_or_else(too_short)?;
        if len != bytes.len() - HEADER_LEN || !len.is_multiple_of(LINE_LEN) {
            let expected = format!("{} bytes of bits", bytes.len() - HEADER_LEN);
            return Err(Malformed::new(expected, format!("{len}")));
        }
        if probes > MAX_PROBES || zero != 0 {
            let expected = format!("at most {MAX_PROBES} probes, then zero");
            return Err(Malformed::new(expected, format!("{probes}, then {zero}")));
        }
        Ok(Filter { lines: len / LINE_LEN, probes, bytes })
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// `false` only if no record of the extent has the key with this hash.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        if self.lines == 0 {
            return true;
        }
        let line = &self.bytes[HEADER_LEN + line_of(hash, self.lines) * LINE_LEN..][..LINE_LEN];
        bits_of(hash, self.probes).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Vec<u8> {
        format!("user{n:08}").into_bytes()
    }

    #[test]
    fn knows_its_keys_and_few_others() {
        let hashes: Vec<u64> = (0..10_000).map(|n| hash(&key(n))).collect();
        let filter = Filter::decode(7, encode(7, &hashes)).unwrap();
        assert!(hashes.iter().all(|h| filter.may_contain(*h)));
        let wrong = (10_000..110_000).filter(|n| filter.may_contain(hash(&key(*n)))).count();
        assert!(wrong < 2000, "{wrong} false answers in 100,000 look-ups");
    }

    #[test]
    fn the_hash_never_changes() {
        let golden = [0, 0xA017_BD88_2527_5E35, 0xC082_6569_42C5_2EE3];
        assert_eq!([hash(b""), hash(b"terrace"), hash(b"0123456789abcdef!")], golden);
        assert_ne!(hash(b"\0"), hash(b"\0\0"));
    }

    #[test]
    fn no_bits_means_no_filter() {
        let filter = Filter::decode(7, encode(7, &[])).unwrap();
        assert!(filter.may_contain(hash(b"anything")));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = encode(7, &[hash(b"a"), hash(b"b")]);
        for i in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[i] ^= 1 << bit;
                assert!(Filter::decode(7, bad).is_err(), "byte {i}, bit {bit}");
            }
        }
        for len in 0..bytes.len() {
            assert!(Filter::decode(7, bytes[..len].to_vec()).is_err());
        }
    }
}
