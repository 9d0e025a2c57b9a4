//! The filter of an extent: blocked Bloom filters over the user keys, one for each block. So a
//! block that is copied into another extent brings its filter along. A look-up touches one line of
//! 64 bytes.

use std::ops::Range;

use super::frame::{set_checksum, unseal};
use crate::base::error::Mismatch;
use crate::base::record::{Reader, put_u32};

/// The most that a filter may ask for.
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

/// Collects the filter while blocks are written.
#[derive(Debug)]
pub(super) struct FilterBuilder {
    bits_per_key: usize,
    lines: Vec<u8>,
    /// After each block: how many lines there are.
    ends: Vec<u32>,
}

/// Bits looked at for each key: about the best number for this many bits a key.
fn probes_for(bits_per_key: usize) -> u32 {
    (bits_per_key * 69 / 100).clamp(1, 30) as u32
}

impl FilterBuilder {
    /// An empty filter; no bits make no filter.
    pub(super) fn new(bits_per_key: u8) -> FilterBuilder {
        let bits_per_key = usize::from(bits_per_key);
        FilterBuilder { bits_per_key, lines: Vec::new(), ends: Vec::new() }
    }

    /// The next block has keys with these hashes.
    pub(super) fn add_block(&mut self, hashes: &[u64]) {
        let lines = (hashes.len() * self.bits_per_key).div_ceil(8 * LINE_LEN);
        let start = self.lines.len();
        self.lines.resize(start + lines * LINE_LEN, 0);
        for &hash in hashes.iter().filter(|_| lines > 0) {
            let line = &mut self.lines[start + line_of(hash, lines) * LINE_LEN..][..LINE_LEN];
            for bit in bits_of(hash, probes_for(self.bits_per_key)) {
                line[bit / 8] |= 1 << (bit % 8);
            }
        }
        self.end_block();
    }

    /// Adds the lines of the next block, as a filter has them ([`Filter::lines_for`]).
    pub(super) fn add_lines(&mut self, lines: &[u8]) {
        self.lines.extend_from_slice(lines);
        self.end_block();
    }

    fn end_block(&mut self) {
        self.ends.push((self.lines.len() / LINE_LEN) as u32);
    }

    /// Bytes that [`finish`](Self::finish) would give.
    pub(super) fn size(&self) -> usize {
        HEADER_LEN + self.lines.len() + 4 * self.ends.len()
    }

    /// The filter as bytes.
    pub(super) fn finish(&self, extent: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size());
        put_u32(&mut out, 0);
        put_u32(&mut out, self.lines.len() as u32);
        put_u32(&mut out, probes_for(self.bits_per_key));
        put_u32(&mut out, 0);
        out.extend_from_slice(&self.lines);
        if !self.lines.is_empty() {
            self.ends.iter().for_each(|end| put_u32(&mut out, *end));
        }
        set_checksum(&[extent, 1], &mut out);
        out
    }
}

/// A sound filter. By default, of nothing.
#[derive(Debug, Default)]
pub(super) struct Filter {
    bytes: Vec<u8>,
    probes: u32,
    /// Where the lines of each block end; nothing in a filter without lines.
    ends: Vec<u32>,
    lines: usize,
}

impl Filter {
    /// Checks the bytes of an extent's filter.
    pub(super) fn decode(extent: u64, mut bytes: Vec<u8>) -> Result<Filter, Mismatch> {
        let too_short = || Mismatch::new("16 bytes or more", format!("{}", bytes.len()));
        let mut header = unseal(&[extent, 1], &bytes)?;
        let len = header.u32().ok_or_else(too_short)? as usize;
        let probes = header.u32().ok_or_else(too_short)?;
        let zero = header.u32().ok_or_else(too_short)?;
        if probes > MAX_PROBES || zero != 0 {
            let expected = format!("at most {MAX_PROBES} probes, and a zero");
            return Err(Mismatch::new(expected, format!("{probes} and {zero}")));
        }
        let rest = bytes.len() - HEADER_LEN;
        let fits = len <= rest && (rest - len).is_multiple_of(4) && (len > 0) == (rest > len);
        if !fits || !len.is_multiple_of(LINE_LEN) {
            return Err(Mismatch::new(format!("at most {rest} bytes of bits"), format!("{len}")));
        }
        let lines = len / LINE_LEN;
        let mut ends = Vec::new();
        let mut reader = Reader::new(&bytes[HEADER_LEN + len..]);
        while let Some(end) = reader.u32() {
            ends.push(end);
        }
        if !ends.is_sorted() || ends.last().is_some_and(|end| *end as usize != lines) {
            let expected = format!("blocks that share {lines} lines in order");
            return Err(Mismatch::new(expected, "others"));
        }
        bytes.truncate(HEADER_LEN + len);
        Ok(Filter { bytes, probes, ends, lines })
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() + 4 * self.ends.len()
    }

    /// Whether it fits an extent of this many blocks.
    pub(super) fn covers_blocks(&self, blocks: usize) -> bool {
        self.lines == 0 || self.ends.len() == blocks
    }

    /// The lines of a block, if a builder of this many bits a key may reuse them.
    pub(super) fn lines_for(&self, block: usize, bits_per_key: u8) -> Option<&[u8]> {
        if self.lines == 0 {
            return (bits_per_key == 0).then_some(&[]);
        }
        let same = bits_per_key > 0 && self.probes == probes_for(usize::from(bits_per_key));
        let lines = self.lines_of(block).filter(|_| same)?;
        self.bytes.get(HEADER_LEN + lines.start * LINE_LEN..HEADER_LEN + lines.end * LINE_LEN)
    }

    /// `None` without lines.
    fn lines_of(&self, block: usize) -> Option<Range<usize>> {
        let end = *self.ends.get(block)? as usize;
        let start = block.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(start..end)
    }

    /// `false` only if no record of this block has the key with this hash.
    #[inline]
    pub(super) fn may_contain(&self, block: usize, hash: u64) -> bool {
        let lines = self.lines_of(block).unwrap_or_default();
        if lines.is_empty() {
            return true;
        }
        let line = lines.start + line_of(hash, lines.len());
        let line = &self.bytes[HEADER_LEN + line * LINE_LEN..][..LINE_LEN];
        bits_of(hash, self.probes).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Vec<u8> {
        format!("user{n:08}").into_bytes()
    }

    /// A filter over `keys` keys, `in_block` in a block.
    fn filter(keys: u32, in_block: usize, bits: u8) -> Vec<u8> {
        let hashes: Vec<u64> = (0..keys).map(|n| hash(&key(n))).collect();
        let mut builder = FilterBuilder::new(bits);
        hashes.chunks(in_block).for_each(|block| builder.add_block(block));
        assert!(builder.finish(7).len() <= builder.size());
        builder.finish(7)
    }

    #[test]
    fn knows_its_keys_and_few_others() {
        let filter = Filter::decode(7, filter(10_000, 100, 10)).unwrap();
        assert!((0..10_000).all(|n| filter.may_contain(n as usize / 100, hash(&key(n)))));
        let wrong = (10_000..110_000)
            .filter(|n| filter.may_contain(*n as usize % 100, hash(&key(*n))))
            .count();
        assert!(wrong < 2000, "{wrong} false answers in 100,000 look-ups");
    }

    #[test]
    fn more_bits_are_fewer_false_answers() {
        let wrong = |bits| {
            let filter = Filter::decode(7, filter(10_000, 100, bits)).unwrap();
            let other = |n: &u32| filter.may_contain(*n as usize % 100, hash(&key(*n)));
            (10_000..60_000).filter(other).count()
        };
        assert!(wrong(16) * 3 < wrong(8), "{} and {}", wrong(16), wrong(8));
        assert_eq!(wrong(0), 50_000, "no bits, no filter");
    }

    #[test]
    fn a_blocks_lines_go_along_with_it() {
        let from = Filter::decode(7, filter(1000, 100, 10)).unwrap();
        let mut builder = FilterBuilder::new(10);
        builder.add_block(&[hash(b"another")]);
        builder.add_lines(from.lines_for(4, 10).unwrap());
        let filter = Filter::decode(8, builder.finish(8)).unwrap();
        assert!((400..500).all(|n| filter.may_contain(1, hash(&key(n)))));
        assert!((0..100).filter(|n| filter.may_contain(1, hash(&key(*n)))).count() < 10);
        assert_eq!(from.lines_for(4, 14), None, "another number of probes");
        assert!(from.covers_blocks(10) && !from.covers_blocks(9));
    }

    #[test]
    fn the_hash_never_changes() {
        let golden = [0, 0xA017_BD88_2527_5E35, 0xC082_6569_42C5_2EE3];
        assert_eq!([hash(b""), hash(b"terrace"), hash(b"0123456789abcdef!")], golden);
        assert_ne!(hash(b"\0"), hash(b"\0\0"));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = filter(4, 2, 10);
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
