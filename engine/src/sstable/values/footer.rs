//! The footer of a value extent: its last 64 bytes.

use crate::base::error::Mismatch;
use crate::base::record::{FORMAT, checksum, put_u32, put_u64};
use crate::sstable::footer::{check, check_id, too_short};

pub(super) use crate::sstable::footer::FOOTER_LEN;

const MAGIC: &[u8; 4] = b"TVAL";

/// What there is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) values: u32,
    /// The [`ContentSum`] of the values.
    ///
    /// [`ContentSum`]: crate::sstable::footer::ContentSum
    pub(super) content: u32,
}

impl Footer {
    pub(super) fn encode(&self, extent: u64) -> [u8; FOOTER_LEN] {
        let mut out = Vec::with_capacity(FOOTER_LEN);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, 0);
        put_u64(&mut out, extent);
        put_u32(&mut out, self.values);
        put_u32(&mut out, FORMAT);
        put_u32(&mut out, self.content);
        let mut footer = [0; FOOTER_LEN];
        footer[..out.len()].copy_from_slice(&out);
        let sum = checksum(&[extent], &footer[8..]);
        footer[4..8].copy_from_slice(&sum.to_le_bytes());
        footer
    }

    /// The checksum field of an encoded footer.
    pub(super) fn checksum_of(footer: &[u8; FOOTER_LEN]) -> u32 {
        u32::from_le_bytes([4, 5, 6, 7].map(|i| footer[i]))
    }

    /// Checks the footer of a value extent whose description in the journal has `journal_checksum`.
    pub(super) fn decode(
        extent: u64,
        journal_checksum: u32,
        bytes: &[u8],
    ) -> Result<Footer, Mismatch> {
        let short = || too_short(bytes.len());
        if bytes.len() != FOOTER_LEN {
            return Err(short());
        }
        let mut reader = check(MAGIC, extent, journal_checksum, bytes)?;
        let id = reader.u64().ok_or_else(short)?;
        let values = reader.u32().ok_or_else(short)?;
        check_id("value extent", (extent, id), reader.u32().ok_or_else(short)?)?;
        let content = reader.u32().ok_or_else(short)?;
        if reader.rest().iter().any(|byte| *byte != 0) {
            return Err(Mismatch::new("zeros behind the fields", "others"));
        }
        Ok(Footer { values, content })
    }
}
