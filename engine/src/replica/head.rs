//! The head: where a search in the log begins, and which entries are still kept. One small object
//! that is replaced by compare-and-swap and only moves up.

use crate::record::{FORMAT, Reader, checksum, put_u32, put_u64, reads_format};

const MAGIC: &[u8; 8] = b"TERRHEAD";

/// What it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogHead {
    /// Entries from here on are kept; below it only claims are. 1 as long as there is no head.
    pub(crate) oldest: u64,
    /// A checkpoint that is kept.
    pub(crate) checkpoint: u64,
}

impl LogHead {
    /// The bytes of the object.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, FORMAT);
        put_u32(&mut out, 0);
        put_u64(&mut out, self.oldest);
        put_u64(&mut out, self.checkpoint);
        let sum = checksum(&[u64::from(FORMAT)], &out[16..]);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// What the object says; `None` if it is no head that this version reads.
    pub(crate) fn decode(bytes: &[u8]) -> Option<LogHead> {
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
        let (version, sum) = (reader.u32()?, reader.u32()?);
        let is_sound = sum == checksum(&[u64::from(version)], &bytes[16..]);
        let head = LogHead { oldest: reader.u64()?, checkpoint: reader.u64()? };
        let is_possible = (1..=head.checkpoint).contains(&head.oldest) && reader.is_empty();
        (is_sound && reads_format(version) && is_possible).then_some(head)
    }
}
