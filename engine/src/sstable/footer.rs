//! The footer of an extent: its last 64 bytes say where the rest is.

use super::frame::{set_checksum, unseal};
use crate::base::error::Mismatch;
use crate::base::record::{Checksum, FORMAT, Reader, put_u32, put_u64};
use crate::storage::ExtentStore;

pub(super) const FOOTER_LEN: usize = 64;
const MAGIC: &[u8; 4] = b"TEXT";

/// Checks magic and checksum of the footer of an extent of any kind, whose description in the
/// journal has `journal_checksum`; what follows them.
pub(super) fn check<'a>(
    magic: &[u8; 4],
    extent: u64,
    journal_checksum: u32,
    bytes: &'a [u8],
) -> Result<Reader<'a>, Mismatch> {
    let short = || too_short(bytes.len());
    let mut reader = Reader::new(bytes);
    if reader.take(4).ok_or_else(short)? != magic {
        let expected = format!("magic {}", magic.escape_ascii());
        return Err(Mismatch::new(expected, format!("{:02x?}", &bytes[..4])));
    }
    let sum = reader.u32().ok_or_else(short)?;
    let reader = unseal(&[extent], &bytes[4..])?;
    if sum != journal_checksum {
        let expected = format!("checksum {journal_checksum:#010x}, as the journal has it");
        return Err(Mismatch::new(expected, format!("{sum:#010x}")));
    }
    Ok(reader)
}

/// The footer of an extent of any kind; `put` appends what follows the id, and the rest is zeros.
pub(super) fn encode(
    magic: &[u8; 4],
    extent: u64,
    put: impl FnOnce(&mut Vec<u8>),
) -> [u8; FOOTER_LEN] {
    let mut out = Vec::with_capacity(FOOTER_LEN);
    out.extend_from_slice(magic);
    put_u32(&mut out, 0);
    put_u64(&mut out, extent);
    put(&mut out);
    let mut footer = [0; FOOTER_LEN];
    footer[..out.len()].copy_from_slice(&out);
    set_checksum(&[extent], &mut footer[4..]);
    footer
}

/// The checksum in an encoded footer.
pub(super) fn checksum_of(encoded: &[u8; FOOTER_LEN]) -> u32 {
    u32::from_le_bytes([4, 5, 6, 7].map(|n| encoded[n]))
}

/// Checks the id and the format that a footer says.
pub(super) fn check_id(kind: &str, (extent, id): (u64, u64), format: u32) -> Result<(), Mismatch> {
    if (id, format) == (extent, FORMAT) {
        return Ok(());
    }
    let expected = format!("{kind} {extent}, format {FORMAT}");
    Err(Mismatch::new(expected, format!("{kind} {id}, format {format}")))
}

pub(super) fn too_short(len: usize) -> Mismatch {
    Mismatch::new(format!("{FOOTER_LEN} bytes"), format!("{len}"))
}

/// Where the parts of an extent lie, and how much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) filter_offset: u32,
    pub(super) filter_len: u32,
    pub(super) index_offset: u32,
    pub(super) index_len: u32,
    pub(super) records: u64,
    pub(super) blocks: u32,
    /// Of the range tombstones, behind the index; 0 without any.
    pub(super) ranges_len: u32,
    /// Of the block summaries.
    pub(super) summary_offset: u32,
    pub(super) summary_len: u32,
    /// The [`ContentSum`] of blocks and range tombstones.
    pub(super) content: u32,
}

/// Collects the checksum of an extent's content: of what its parts are sealed with, in the order of
/// their places. Every byte of a block or a value is in its seal. So two extents of one id that
/// have other records, or other values, have other sums and other footers.
#[derive(Debug)]
pub(super) struct ContentSum(Checksum);

impl ContentSum {
    pub(super) fn new(extent: u64) -> ContentSum {
        ContentSum(Checksum::new(&[extent, 5]))
    }

    /// Adds a part, which begins with its seal.
    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.update(part.get(..4).unwrap_or_default());
    }

    pub(super) fn finish(self) -> u32 {
        self.0.finish()
    }
}

impl Footer {
    pub(super) fn encode(&self, extent: u64) -> [u8; FOOTER_LEN] {
        encode(MAGIC, extent, |out| {
            put_u32(out, self.filter_offset);
            put_u32(out, self.filter_len);
            put_u32(out, self.index_offset);
            put_u32(out, self.index_len);
            put_u64(out, self.records);
            put_u32(out, self.blocks);
            put_u32(out, FORMAT);
            put_u32(out, self.ranges_len);
            put_u32(out, self.content);
            put_u32(out, self.summary_offset);
            put_u32(out, self.summary_len);
        })
    }

    /// Checks the footer of an extent of `extent_len` bytes whose description in the journal has
    /// `journal_checksum`.
    pub(super) fn decode(
        extent: u64,
        extent_len: u32,
        journal_checksum: u32,
        bytes: &[u8],
    ) -> Result<Footer, Mismatch> {
        let mut reader = check(MAGIC, extent, journal_checksum, bytes)?;
        let footer =
            Footer::fields(extent, &mut reader).ok_or_else(|| too_short(bytes.len()))??;
        let filter_end = u64::from(footer.filter_offset) + u64::from(footer.filter_len);
        let summary_end = u64::from(footer.summary_offset) + u64::from(footer.summary_len);
        let sound = filter_end == u64::from(footer.index_offset)
            && summary_end == u64::from(footer.filter_offset)
            && footer.ranges_end() + FOOTER_LEN as u64 == u64::from(extent_len);
        if !sound {
            let expected = format!("all parts end to end in {extent_len} bytes");
            return Err(Mismatch::new(expected, format!("{footer:?}")));
        }
        Ok(footer)
    }

    /// Where extent `id` begins that the footer at `at` of a file ends, and its length; `None` if
    /// it cannot be one. Its checksum is not checked.
    pub(super) fn extent_before(id: u64, at: u64, bytes: &[u8]) -> Option<(u64, u32)> {
        let footer = Footer::fields(id, &mut Reader::new(bytes.get(8..)?))?.ok()?;
        let begin = at.checked_sub(footer.ranges_end())?;
        let len = u32::try_from(footer.ranges_end()).ok()?.checked_add(FOOTER_LEN as u32)?;
        begin.is_multiple_of(ExtentStore::unit()).then_some((begin, len))
    }

    /// Where the range tombstones begin.
    pub(super) fn ranges_offset(&self) -> u32 {
        self.index_offset.saturating_add(self.index_len)
    }

    fn ranges_end(&self) -> u64 {
        u64::from(self.index_offset) + u64::from(self.index_len) + u64::from(self.ranges_len)
    }

    /// What follows the checksum of the footer of `extent`; `None` if the bytes end first.
    fn fields(extent: u64, reader: &mut Reader<'_>) -> Option<Result<Footer, Mismatch>> {
        let id = reader.u64()?;
        let (filter_offset, filter_len) = (reader.u32()?, reader.u32()?);
        let (index_offset, index_len) = (reader.u32()?, reader.u32()?);
        let (records, blocks) = (reader.u64()?, reader.u32()?);
        let sound = check_id("extent", (extent, id), reader.u32()?);
        let footer = Footer {
            filter_offset,
            filter_len,
            index_offset,
            index_len,
            records,
            blocks,
            ranges_len: reader.u32()?,
            content: reader.u32()?,
            summary_offset: reader.u32()?,
            summary_len: reader.u32()?,
        };
        Some(sound.map(|()| footer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOOTER: Footer = Footer {
        filter_offset: 1000,
        filter_len: 80,
        index_offset: 1080,
        index_len: 20,
        records: 3,
        blocks: 1,
        ranges_len: 0,
        summary_offset: 960,
        summary_len: 40,
        content: 0x1234_5678,
    };

    #[test]
    fn round_trips_and_finds_every_flipped_bit() {
        let bytes = FOOTER.encode(4);
        let sum = checksum_of(&bytes);
        assert_eq!(Footer::decode(4, 1164, sum, &bytes), Ok(FOOTER));
        let ranged = Footer { ranges_len: 40, ..FOOTER };
        let sum_of_ranged = checksum_of(&ranged.encode(4));
        assert_eq!(Footer::decode(4, 1204, sum_of_ranged, &ranged.encode(4)), Ok(ranged));
        assert!(Footer::decode(4, 1164, sum_of_ranged, &ranged.encode(4)).is_err());
        for i in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes;
                bad[i] ^= 1 << bit;
                assert!(Footer::decode(4, 1164, sum, &bad).is_err(), "byte {i}, bit {bit}");
            }
            assert!(Footer::decode(4, 1164, sum, &bytes[..i]).is_err());
        }
    }

    #[test]
    fn must_fit_its_extent() {
        let bytes = FOOTER.encode(4);
        let sum = checksum_of(&bytes);
        assert!(Footer::decode(4, 1165, sum, &bytes).is_err(), "another length");
        assert!(Footer::decode(4, 1164, sum ^ 1, &bytes).is_err(), "another checksum");
        assert!(Footer::decode(5, 1164, sum, &bytes).is_err(), "another extent");
        let gap = Footer { summary_len: 39, ..FOOTER }.encode(4);
        assert!(Footer::decode(4, 1164, checksum_of(&gap), &gap).is_err(), "a gap");
    }
}
