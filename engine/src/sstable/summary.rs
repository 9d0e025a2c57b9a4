//! What is in each block of an extent, beside its bytes. It is enough to copy a block into another
//! extent without decoding it. Readers never look at it.

use super::frame::{set_checksum, unseal};
use crate::base::error::Mismatch;
use crate::base::options::Compression;
use crate::base::record::{EntryRef, Kind, Lsn, Reader, put_bytes, put_u32, put_u64};

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockSummary {
    pub(crate) records: u32,
    /// Different keys among them.
    pub(crate) keys: u32,
    pub(crate) deletes: u32,
    /// The compression that was asked for, by its number on the media.
    compression: u8,
    pub(crate) smallest_seq: Lsn,
    pub(crate) greatest_seq: Lsn,
    /// Bytes of keys and values.
    pub(crate) raw_bytes: u64,
    pub(crate) first_key: Vec<u8>,
}

impl BlockSummary {
    /// A block that begins with `entry`, counted.
    pub(super) fn begin(entry: &EntryRef<'_>, compression: Compression) -> BlockSummary {
        let mut summary = BlockSummary {
            records: 0,
            keys: 0,
            deletes: 0,
            compression: compression as u8,
            smallest_seq: Lsn::MAX,
            greatest_seq: 0,
            raw_bytes: 0,
            first_key: entry.key.to_vec(),
        };
        summary.count(entry, true);
        summary
    }

    /// Counts an entry; `new_key` says whether the one before has another key.
    pub(super) fn count(&mut self, entry: &EntryRef<'_>, new_key: bool) {
        self.records += 1;
        self.keys += u32::from(new_key);
        self.deletes += u32::from(entry.kind == Kind::Delete);
        self.smallest_seq = self.smallest_seq.min(entry.seq);
        self.greatest_seq = self.greatest_seq.max(entry.seq);
        self.raw_bytes += entry.raw_len();
    }

    /// Whether it was to be compressed like this.
    pub(crate) fn has_compression(&self, compression: Compression) -> bool {
        self.compression == compression as u8
    }

    /// Whether the numbers, and the first key, are those of `other`.
    pub(super) fn counts_as(&self, other: &BlockSummary) -> bool {
        BlockSummary { compression: other.compression, ..self.clone() } == *other
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.records);
        put_u32(out, self.keys);
        put_u32(out, self.deletes);
        put_u32(out, u32::from(self.compression));
        put_u64(out, self.smallest_seq);
        put_u64(out, self.greatest_seq);
        put_u64(out, self.raw_bytes);
        put_bytes(out, &self.first_key);
    }

    fn decode(reader: &mut Reader<'_>) -> Option<BlockSummary> {
        Some(BlockSummary {
            records: reader.u32()?,
            keys: reader.u32()?,
            deletes: reader.u32()?,
            compression: u8::try_from(reader.u32()?).ok()?,
            smallest_seq: reader.u64()?,
            greatest_seq: reader.u64()?,
            raw_bytes: reader.u64()?,
            first_key: reader.bytes()?.to_vec(),
        })
    }
}

/// The summaries of an extent's blocks, as bytes.
pub(super) fn encode(extent: u64, summaries: &[BlockSummary]) -> Vec<u8> {
    let mut out = Vec::new();
    put_u32(&mut out, 0);
    put_u32(&mut out, summaries.len() as u32);
    summaries.iter().for_each(|summary| summary.encode(&mut out));
    set_checksum(&[extent, 3], &mut out);
    out
}

/// Checks the summaries of an extent of this many blocks.
pub(super) fn decode(
    extent: u64,
    blocks: usize,
    bytes: &[u8],
) -> Result<Vec<BlockSummary>, Mismatch> {
    let too_short = || Mismatch::new("8 bytes or more", format!("{}", bytes.len()));
    let mut reader = unseal(&[extent, 3], bytes)?;
    let count = reader.u32().ok_or_else(too_short)? as usize;
    let mut summaries = Vec::new();
    while let Some(summary) = (summaries.len() < count).then(|| BlockSummary::decode(&mut reader)) {
        summaries.push(summary.ok_or_else(too_short)?);
    }
    if count != blocks || !reader.is_empty() {
        let got = format!("{count} blocks, {} bytes", bytes.len());
        return Err(Mismatch::new(format!("{blocks} blocks"), got));
    }
    Ok(summaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<BlockSummary> {
        let put = |key, seq| EntryRef { key, seq, kind: Kind::Put, value: b"123" };
        let mut first = BlockSummary::begin(&put(b"a", 9), Compression::Zstd);
        first.count(&put(b"a", 4), false);
        first.count(&EntryRef { kind: Kind::Delete, value: b"", ..put(b"bb", 7) }, true);
        vec![first, BlockSummary::begin(&put(b"c", 5), Compression::None)]
    }

    #[test]
    fn counts() {
        let first = &sample()[0];
        assert_eq!((first.records, first.keys, first.deletes), (3, 2, 1));
        assert_eq!((first.smallest_seq, first.greatest_seq, first.raw_bytes), (4, 9, 10));
        assert!(first.has_compression(Compression::Zstd) && first.first_key == b"a");
    }

    #[test]
    fn round_trips_and_finds_every_flipped_bit() {
        let bytes = encode(5, &sample());
        assert_eq!(decode(5, 2, &bytes), Ok(sample()));
        assert!(decode(5, 3, &bytes).is_err() && decode(6, 2, &bytes).is_err());
        for i in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[i] ^= 1 << bit;
                assert!(decode(5, 2, &bad).is_err(), "byte {i}, bit {bit}");
            }
            assert!(decode(5, 2, &bytes[..i]).is_err());
        }
    }
}
