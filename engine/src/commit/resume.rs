//! The line in which an opening goes on in a zone that an earlier one has left open.
//!
//! What lies behind the accepted sub-entries of an open zone may be anything that a crashed opening
//! stored there, values included. It knew the salt in effect. So an opening that appends to the
//! zone writes this line first, with a new salt: nothing that lies behind it checks out
//! (`docs/commit.md`).

use crate::alloc::ZoneHeader;
use crate::record::{Reader, checksum, put_u32, put_u64};

/// Bytes that it takes: one line.
pub(crate) const RESUME: usize = 64;

const MAGIC: &[u8; 4] = b"TRES";

/// What the line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    /// The opening that wrote it.
    pub(crate) incarnation: u64,
    pub(crate) zone_generation: u32,
    pub(crate) stream: u32,
    /// The salt of the sub-entries behind it.
    pub(crate) salt: u64,
}

impl Resume {
    /// The bytes, for a place in `zone` where `before` is the salt in effect.
    pub(crate) fn encode(&self, zone: u32, before: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(RESUME);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, 0);
        put_u64(&mut out, self.incarnation);
        put_u32(&mut out, self.zone_generation);
        put_u32(&mut out, self.stream);
        put_u64(&mut out, self.salt);
        put_u64(&mut out, before);
        out.resize(RESUME, 0);
        let sum = checksum(&[u64::from(zone)], &out[8..]);
        out[4..8].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the line; `None` if it is none, or not one of `zone` where `before` is the salt in
    /// effect.
    pub(crate) fn decode(bytes: &[u8], zone: u32, before: u64) -> Option<Resume> {
        let mut r = Reader::new(bytes);
        if r.take(4)? != MAGIC || r.u32()? != checksum(&[u64::from(zone)], bytes.get(8..RESUME)?) {
            return None;
        }
        let resume = Resume {
            incarnation: r.u64()?,
            zone_generation: r.u32()?,
            stream: r.u32()?,
            salt: r.u64()?,
        };
        (r.u64()? == before && resume.salt != 0).then_some(resume)
    }

    /// The salt behind the line at the head of `bytes`, if it is one of the zone's own.
    pub(super) fn salt_behind(
        bytes: &[u8],
        zone: u32,
        header: &ZoneHeader,
        before: u64,
    ) -> Option<u64> {
        let resume = Resume::decode(bytes, zone, before)?;
        let is_own = resume.zone_generation == header.generation && resume.stream == header.stream;
        is_own.then_some(resume.salt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Resume = Resume { incarnation: 3, zone_generation: 4, stream: 0, salt: 5 };

    #[test]
    fn every_flipped_byte_is_found() {
        let sound = SAMPLE.encode(7, 9);
        assert_eq!(Resume::decode(&sound, 7, 9), Some(SAMPLE));
        assert_eq!(Resume::decode(&sound, 8, 9), None, "a copy in another zone");
        assert_eq!(Resume::decode(&sound, 7, 10), None, "another salt is in effect");
        for at in 0..RESUME {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert_eq!(Resume::decode(&bytes, 7, 9), None, "byte {at}");
        }
    }
}
