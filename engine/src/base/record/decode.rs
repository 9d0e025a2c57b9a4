//! Little-endian encoding, the checksum of every format, and sealed bytes: magic, format version,
//! checksum of the rest seeded with the version, and the rest. Decoding never panics and never
//! reads past its input. This is the only place that names the library of checksums (CRC-32C).

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use crc_fast::{CrcAlgorithm, Digest};

use crate::base::error::{Error, Mismatch};

/// Appends a `u32`.
pub(crate) fn put_u32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

/// Appends a `u64`.
pub(crate) fn put_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

/// Appends a `u32` length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(u32::try_from(bytes.len()).is_ok(), "limits keep every length in 32 bits");
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

/// Appends a number as LEB128: seven bits a byte, the least significant first, the top bit set on
/// all but the last.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// The number at `*at`, which moves behind it; `None` when the bytes end first or the number has
/// more than 64 bits.
#[inline]
pub(crate) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7F);
        if shift == 63 && bits > 1 {
            return None;
        }
        n |= bits << shift;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}

/// A number that is a length: it fits in 32 bits.
#[inline]
pub(crate) fn varint_len(bytes: &[u8], at: &mut usize) -> Option<usize> {
    u32::try_from(varint(bytes, at)?).ok().map(|n| n as usize)
}

/// The value of a range delete that ends before `end`: whether there is an end, and the end.
pub(crate) fn encode_end(end: Option<&[u8]>) -> Vec<u8> {
    [&[u8::from(end.is_some())], end.unwrap_or_default()].concat()
}

/// The end in the value of a range delete that starts at `start`; `None` if it is no such value.
pub(crate) fn decode_end<'a>(start: &[u8], value: &'a [u8]) -> Option<Option<&'a [u8]>> {
    match value.split_first()? {
        (0, []) => Some(None),
        (1, end) if start < end => Some(Some(end)),
        _ => None,
    }
}

/// Reads fields in order; `None` once the input is too short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over all of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// The next byte.
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    /// The next byte as what it says: 0 or 1.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// The next `u16`.
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next `u32`.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next `u64`.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A `u32` length and as many bytes.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()?;
        self.take(usize::try_from(n).ok()?)
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

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

/// The version of the on-media format. Each file says in which one it was written.
pub(crate) const FORMAT: u32 = 1;

/// The error for what another version of Terrace has written.
pub(crate) fn other_format(what: impl Display, version: u32) -> Error {
    Error::invalid(format!(
        "{what} has on-media format {version}, and this version of Terrace reads format {FORMAT} \
         alone; use the version that wrote it"
    ))
}

/// Magic, version and checksum.
const HEADER_LEN: usize = 16;

/// Why sealed bytes cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SealRefused {
    /// They have this version of the format, which is not known.
    Format(u32),
    Damaged(Mismatch),
}

impl Display for SealRefused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SealRefused::Format(version) => write!(f, "expected format {FORMAT}, got {version}"),
            SealRefused::Damaged(found) => {
                write!(f, "expected {}, got {}", found.expected, found.got)
            }
        }
    }
}

impl SealRefused {
    /// The error, of `what` at the start of a file.
    pub(crate) fn error(self, what: &str, tier: &'static str, file: impl Into<PathBuf>) -> Error {
        let file = file.into();
        match self {
            SealRefused::Format(version) => {
                other_format(format_args!("the {what} {}", file.display()), version)
            }
            SealRefused::Damaged(found) => Error::corrupt(found.at(what, tier, file, 0)),
        }
    }
}

/// What is written as sealed bytes.
pub(crate) trait Sealable: Sized {
    const MAGIC: &'static [u8; 8];
    /// What it is, for messages.
    const WHAT: &'static str;
    /// The least length of all of it: fewer bytes were cut off.
    const LEAST: usize = HEADER_LEN;

    /// Appends the rest.
    fn encode_rest(&self, out: &mut Vec<u8>);

    /// Reads the rest, all of it; `None` for what cannot be one.
    fn decode_rest(reader: &mut Reader<'_>) -> Option<Self>;

    fn encode(&self) -> Vec<u8> {
        let mut out = Self::MAGIC.to_vec();
        put_u32(&mut out, FORMAT);
        put_u32(&mut out, 0);
        self.encode_rest(&mut out);
        let sum = checksum(&[u64::from(FORMAT)], &out[HEADER_LEN..]);
        out[12..HEADER_LEN].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, SealRefused> {
        let damaged = |found| Err(SealRefused::Damaged(found));
        let mut reader = Reader::new(bytes);
        let header = (|| Some((reader.take(8)?, reader.u32()?, reader.u32()?)))();
        let Some((magic, version, sum)) = header.filter(|_| bytes.len() >= Self::LEAST) else {
            let got = format!("{}", bytes.len());
            return damaged(Mismatch::new(format!("{} bytes or more", Self::LEAST), got));
        };
        if magic != Self::MAGIC {
            let expected = format!("magic {}", Self::MAGIC.escape_ascii());
            return damaged(Mismatch::new(expected, magic.escape_ascii().to_string()));
        }
        let computed = checksum(&[u64::from(version)], &bytes[HEADER_LEN..]);
        if sum != computed {
            return damaged(Mismatch::checksum(sum, computed));
        }
        if version != FORMAT {
            return Err(SealRefused::Format(version));
        }
        match Self::decode_rest(&mut reader).filter(|_| reader.is_empty()) {
            Some(sound) => Ok(sound),
            None => damaged(Mismatch::new("fields that can be", "others, checksum and all")),
        }
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

    #[test]
    fn varints_round_trip() {
        for n in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            let mut at = 0;
            assert_eq!(varint(&out, &mut at), Some(n));
            assert_eq!(at, out.len());
            assert_eq!(varint(&out[..out.len() - 1], &mut 0), None);
        }
    }

    #[test]
    fn varints_of_more_than_64_bits_are_refused() {
        assert_eq!(varint(&[0x80; 11], &mut 0), None);
        let mut too_great = [0xFF; 10];
        too_great[9] = 0x02;
        assert_eq!(varint(&too_great, &mut 0), None);
        assert_eq!(varint_len(&[0x80, 0x80, 0x80, 0x80, 0x10], &mut 0), None);
    }
}
