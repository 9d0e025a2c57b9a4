//! The footer of an extent: its last 64 bytes say where the rest is.

use super::Malformed;
use super::block::BlockLayout;
use crate::record::{Checksum, FORMAT, Reader, checksum, put_u32, put_u64, reads_format};
use crate::tier::ExtentStore;

pub(super) const FOOTER_LEN: usize = 64;
const MAGIC: &[u8; 4] = b"TEXT";

/// Checks magic and checksum of the footer of an extent of any kind, whose description in the
/// journal has `journal_checksum`; what follows them.
pub(super) fn check<'a>(
    magic: &[u8; 4],
    extent: u64,
    journal_checksum: u32,
    bytes: &'a [u8],
) -> Result<Reader<'a>, Malformed> {
    let short = || too_short(bytes.len());
    let mut reader = Reader::new(bytes);
    if reader.take(4).ok_or_else(short)? != magic {
        let expected = format!("magic {}", magic.escape_ascii());
        return Err(Malformed::new(expected, format!("{:02x?}", &bytes[..4])));
    }
    let sum = reader.u32().ok_or_else(short)?;
    let computed = checksum(&[extent], &bytes[8..]);
    if sum != computed {
        return Err(Malformed::checksum(sum, computed));
    }
    if sum != journal_checksum {
        let expected = format!("checksum {journal_checksum:#010x}, as the journal has it");
        return Err(Malformed::new(expected, format!("{sum:#010x}")));
    }
    Ok(reader)
}

pub(super) fn too_short(len: usize) -> Malformed {
    Malformed::new(format!("{FOOTER_LEN} bytes"), format!("{len}"))
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
    /// Of the block summaries; 0 in extents of version 1, which have none.
    pub(super) summary_offset: u32,
    pub(super) summary_len: u32,
    /// The format version that it was written in.
    pub(super) version: u32,
    /// The [`ContentSum`] of blocks and range tombstones; 0 before there was one.
    pub(super) content: u32,
}

/// The first version whose blocks are trees.
const TREES: u32 = 4;

/// The first version whose footers have a checksum of the content.
const CONTENT: u32 = 5;

/// Whether footers of a version have a checksum of the content.
pub(super) fn has_content_sum(version: u32) -> bool {
    version >= CONTENT
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
        let mut out = Vec::with_capacity(FOOTER_LEN);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, 0);
        put_u64(&mut out, extent);
        put_u32(&mut out, self.filter_offset);
        put_u32(&mut out, self.filter_len);
        put_u32(&mut out, self.index_offset);
        put_u32(&mut out, self.index_len);
        put_u64(&mut out, self.records);
        put_u32(&mut out, self.blocks);
        put_u32(&mut out, self.version);
        put_u32(&mut out, self.ranges_len);
        put_u32(&mut out, self.content);
        let mut footer = [0; FOOTER_LEN];
        footer[..out.len()].copy_from_slice(&out);
        footer[56..60].copy_from_slice(&self.summary_offset.to_le_bytes());
        footer[60..].copy_from_slice(&self.summary_len.to_le_bytes());
        let sum = checksum(&[extent], &footer[8..]);
        footer[4..8].copy_from_slice(&sum.to_le_bytes());
        footer
    }

    /// Checks the footer of an extent of `extent_len` bytes whose description in the journal has
    /// `journal_checksum`.
    pub(super) fn decode(
        extent: u64,
        extent_len: u32,
        journal_checksum: u32,
        bytes: &[u8],
    ) -> Result<Footer, Malformed> {
        let mut reader = check(MAGIC, extent, journal_checksum, bytes)?;
        let (footer, id) = Footer::fields(&mut reader).ok_or_else(|| too_short(bytes.len()))?;
        if id != extent || !reads_format(footer.version) {
            let expected = format!("extent {extent}, version {FORMAT}");
            let got = format!("extent {id}, version {}", footer.version);
            return Err(Malformed::new(expected, got));
        }
        let filter_end = u64::from(footer.filter_offset) + u64::from(footer.filter_len);
        let summary_end = u64::from(footer.summary_offset) + u64::from(footer.summary_len);
        let sound = filter_end == u64::from(footer.index_offset)
            && (footer.summary_len == 0 || summary_end == u64::from(footer.filter_offset))
            && footer.ranges_end() + FOOTER_LEN as u64 == u64::from(extent_len);
        if !sound {
            let expected = format!("all parts end to end in {extent_len} bytes");
            return Err(Malformed::new(expected, format!("{footer:?}")));
        }
        Ok(footer)
    }

    /// Where the extent begins that the footer at `at` of a file ends, and its length; `None` if it
    /// cannot be one. The footer is not checked.
    pub(super) fn extent_before(at: u64, bytes: &[u8]) -> Option<(u64, u32)> {
        let (footer, _) = Footer::fields(&mut Reader::new(bytes.get(8..)?))?;
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

    fn fields(reader: &mut Reader<'_>) -> Option<(Footer, u64)> {
        let id = reader.u64()?;
        let mut footer = Footer {
            filter_offset: reader.u32()?,
            filter_len: reader.u32()?,
            index_offset: reader.u32()?,
            index_len: reader.u32()?,
            records: reader.u64()?,
            blocks: reader.u32()?,
            ranges_len: 0,
            summary_offset: 0,
            summary_len: 0,
            version: 0,
            content: 0,
        };
        footer.version = reader.u32()?;
        footer.ranges_len = reader.u32()?;
        footer.content = reader.u32()?;
        footer.summary_offset = reader.u32()?;
        footer.summary_len = reader.u32()?;
        Some((footer, id))
    }

    /// The version that an extent with blocks of this layout says.
    pub(super) fn version_of(layout: BlockLayout) -> u32 {
        match layout {
            BlockLayout::Tree => FORMAT,
            BlockLayout::Restarts => TREES - 1,
        }
    }

    /// How its blocks are laid out.
    pub(super) fn layout(&self) -> BlockLayout {
        if self.version >= TREES { BlockLayout::Tree } else { BlockLayout::Restarts }
    }

    /// Where the blocks end.
    pub(super) fn blocks_end(&self) -> u32 {
        if self.summary_len > 0 { self.summary_offset } else { self.filter_offset }
    }

    /// Whether it has a checksum of the content.
    pub(super) fn has_content_sum(&self) -> bool {
        has_content_sum(self.version)
    }

    /// The checksum in an encoded footer.
    pub(super) fn checksum_of(encoded: &[u8; FOOTER_LEN]) -> u32 {
        u32::from_le_bytes([encoded[4], encoded[5], encoded[6], encoded[7]])
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
        version: FORMAT,
        content: 0x1234_5678,
    };

    #[test]
    fn round_trips_and_finds_every_flipped_bit() {
        let bytes = FOOTER.encode(4);
        let sum = Footer::checksum_of(&bytes);
        assert_eq!(Footer::decode(4, 1164, sum, &bytes), Ok(FOOTER));
        let ranged = Footer { ranges_len: 40, ..FOOTER };
        let sum_of_ranged = Footer::checksum_of(&ranged.encode(4));
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
        let sum = Footer::checksum_of(&bytes);
        assert!(Footer::decode(4, 1165, sum, &bytes).is_err(), "another length");
        assert!(Footer::decode(4, 1164, sum ^ 1, &bytes).is_err(), "another checksum");
        assert!(Footer::decode(5, 1164, sum, &bytes).is_err(), "another extent");
        let gap = Footer { summary_len: 39, ..FOOTER }.encode(4);
        assert!(Footer::decode(4, 1164, Footer::checksum_of(&gap), &gap).is_err(), "a gap");
        let none = Footer { summary_offset: 0, summary_len: 0, ..FOOTER };
        let bytes = none.encode(4);
        assert_eq!(Footer::decode(4, 1164, Footer::checksum_of(&bytes), &bytes), Ok(none));
        assert_eq!((FOOTER.blocks_end(), none.blocks_end()), (960, 1000));
    }
}
