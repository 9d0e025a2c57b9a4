//! A zone's header and its seal (`docs/format.md`, section 1).

use crate::error::Mismatch;
use crate::record::{Reader, checksum, put_u32, put_u64};

/// Bytes of a zone before its first sub-entry.
pub(crate) const ZONE_HEADER: u64 = 64;

const MAGIC: &[u8; 4] = b"TZON";
/// The header without its seal.
const FIXED: usize = 48;

/// What a zone says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneHeader {
    pub(crate) generation: u32,
    pub(crate) stream: u32,
    /// The place in the stream's chain, from 1.
    pub(crate) ordinal: u64,
    /// The opening that linked the zone.
    pub(crate) incarnation: u64,
    /// How many units it takes, its own first one included.
    pub(crate) units: u32,
    /// Drawn when the zone was linked; seeds the checksums of its sub-entries.
    pub(crate) salt: u64,
}

impl ZoneHeader {
    /// The header's 64 bytes, unsealed.
    pub(crate) fn encode(&self, zone: u32) -> Vec<u8> {
        let mut body = Vec::with_capacity(ZONE_HEADER as usize);
        put_u32(&mut body, self.generation);
        put_u32(&mut body, self.stream);
        put_u64(&mut body, self.ordinal);
        put_u64(&mut body, self.incarnation);
        put_u32(&mut body, self.units);
        put_u64(&mut body, self.salt);
        body.resize(FIXED - 8, 0);
        let mut out = Vec::with_capacity(ZONE_HEADER as usize);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, checksum(&[u64::from(zone)], &body));
        out.extend_from_slice(&body);
        out.resize(ZONE_HEADER as usize, 0);
        out
    }

    /// Reads a header; what was expected and what was found if it does not check out.
    pub(crate) fn decode(bytes: &[u8], zone: u32) -> std::result::Result<ZoneHeader, Mismatch> {
        let short = || Mismatch::new("64 bytes", format!("{} bytes", bytes.len()));
        let mut r = Reader::new(bytes);
        let magic = r.take(4).ok_or_else(short)?;
        let sum = r.u32().ok_or_else(short)?;
        let body = bytes.get(8..FIXED).ok_or_else(short)?;
        if magic != MAGIC {
            return Err(Mismatch::new("the magic TZON", format!("{magic:02x?}")));
        }
        let computed = checksum(&[u64::from(zone)], body);
        if sum != computed {
            return Err(Mismatch::checksum(sum, computed));
        }
        let mut fields = || {
            Some(ZoneHeader {
                generation: r.u32()?,
                stream: r.u32()?,
                ordinal: r.u64()?,
                incarnation: r.u64()?,
                units: r.u32()?,
                salt: r.u64()?,
            })
        };
        fields().ok_or_else(short)
    }
}

/// The word that closes a zone: how many of its bytes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(pub(crate) u32);

impl Seal {
    /// Where the seal lies in a zone.
    pub(crate) const AT: u64 = FIXED as u64;

    /// The word on media.
    pub(crate) fn encode(self, zone: u32, generation: u32) -> u64 {
        debug_assert!(self.0 != 0, "a sealed zone has at least its header");
        u64::from(self.0) << 32 | u64::from(self.check(zone, generation))
    }

    /// The seal in a word: `None` while open; the expected and found checksum when damaged.
    pub(crate) fn decode(
        word: u64,
        zone: u32,
        generation: u32,
    ) -> std::result::Result<Option<Seal>, (u32, u32)> {
        if word == 0 {
            return Ok(None);
        }
        let seal = Seal((word >> 32) as u32);
        let (sum, computed) = (word as u32, seal.check(zone, generation));
        if sum == computed { Ok(Some(seal)) } else { Err((sum, computed)) }
    }

    fn check(self, zone: u32, generation: u32) -> u32 {
        checksum(&[u64::from(zone), u64::from(generation), u64::from(self.0)], &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: ZoneHeader =
        ZoneHeader { generation: 3, stream: 1, ordinal: 9, incarnation: 2, units: 4, salt: 5 };

    #[test]
    fn every_flipped_byte_of_the_header_is_found() {
        let sound = HEADER.encode(7);
        assert_eq!(ZoneHeader::decode(&sound, 7), Ok(HEADER));
        assert!(ZoneHeader::decode(&sound, 8).is_err(), "another zone's header");
        for at in 0..FIXED {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert!(ZoneHeader::decode(&bytes, 7).is_err(), "byte {at}");
        }
    }

    #[test]
    fn every_flipped_bit_of_the_seal_is_found() {
        let word = Seal(4096).encode(7, 3);
        assert_eq!(Seal::decode(word, 7, 3), Ok(Some(Seal(4096))));
        for bit in 0..64 {
            assert!(Seal::decode(word ^ 1 << bit, 7, 3).is_err(), "bit {bit}");
        }
        assert!(Seal::decode(word, 7, 4).is_err(), "the seal of an earlier generation");
    }
}
