//! The index of an extent: where each block lies and the last record in it.

use std::cmp::Ordering;
use std::ops::Range;

use super::frame::{set_checksum, unseal};
use super::heads::OwnedHeads;
use crate::base::error::Mismatch;
use crate::base::record::{Lsn, Reader, put_bytes, put_u32, put_u64};

/// One block, as the index knows it.
#[derive(Clone, Debug)]
pub(super) struct IndexEntry {
    pub(super) offset: u32,
    pub(super) len: u32,
    last_key: Range<usize>,
    pub(super) last_seq: Lsn,
}

/// Collects the index while blocks are written.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    body: Vec<u8>,
    blocks: u32,
}

impl IndexBuilder {
    pub(super) fn add(&mut self, offset: u32, len: u32, last_key: &[u8], last_seq: Lsn) {
        put_u32(&mut self.body, offset);
        put_u32(&mut self.body, len);
        put_bytes(&mut self.body, last_key);
        put_u64(&mut self.body, last_seq);
        self.blocks += 1;
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Bytes that [`finish`](Self::finish) would give.
    pub(super) fn size(&self) -> usize {
        8 + self.body.len()
    }

    pub(super) fn finish(&self, extent: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size());
        put_u32(&mut out, 0);
        put_u32(&mut out, self.blocks);
        out.extend_from_slice(&self.body);
        set_checksum(&[extent, 2], &mut out);
        out
    }
}

/// A sound index.
///
/// Invariants: the blocks follow each other from offset 0 without a gap, and their last records
/// ascend.
#[derive(Debug, Default)]
pub(super) struct Index {
    bytes: Vec<u8>,
    entries: Vec<IndexEntry>,
    heads: OwnedHeads,
}

impl Index {
    /// Checks the bytes of an extent's index.
    pub(super) fn decode(extent: u64, bytes: Vec<u8>) -> Result<Index, Mismatch> {
        let too_short = || Mismatch::new("8 bytes or more", format!("{}", bytes.len()));
        let mut reader = unseal(&[extent, 2], &bytes)?;
        let blocks = reader.u32().ok_or_else(too_short)?;
        let mut entries = Vec::new();
        let mut at = 8;
        for n in 0..blocks {
            let entry = decode_entry(&mut reader, &mut at)
                .ok_or_else(|| Mismatch::new(format!("{blocks} blocks"), format!("{n}")))?;
            entries.push(entry);
        }
        if !reader.is_empty() {
            let got = "bytes left over";
            return Err(Mismatch::new(format!("{blocks} blocks"), got));
        }
        let mut index = Index { bytes, entries, heads: OwnedHeads::default() };
        index.check_order()?;
        index.heads = OwnedHeads::of((0..index.entries.len()).map(|n| index.last_key(n)));
        Ok(index)
    }

    fn check_order(&self) -> Result<(), Mismatch> {
        let mut end = 0;
        for (n, entry) in self.entries.iter().enumerate() {
            if entry.offset != end {
                let got = format!("{}", entry.offset);
                return Err(Mismatch::new(format!("block {n} at byte {end}"), got));
            }
            end = end
                .checked_add(entry.len)
                .ok_or_else(|| Mismatch::new("blocks within 4 GiB", "more"))?;
            if n > 0 && self.compare(n - 1, self.last_key(n), entry.last_seq) != Ordering::Less {
                let got = format!("the last record of block {n} is not greater");
                return Err(Mismatch::new("ascending records", got));
            }
        }
        Ok(())
    }

    pub(super) fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Where the blocks end.
    pub(super) fn blocks_end(&self) -> u32 {
        self.entries.last().map_or(0, |entry| entry.offset + entry.len)
    }

    /// The key of the last record in block `n`.
    pub(super) fn last_key(&self, n: usize) -> &[u8] {
        &self.bytes[self.entries[n].last_key.clone()]
    }

    fn compare(&self, n: usize, key: &[u8], seq: Lsn) -> Ordering {
        self.last_key(n).cmp(key).then(seq.cmp(&self.entries[n].last_seq))
    }

    /// The block that holds the first record at or after (`key`, `seq`), if any does.
    pub(super) fn find(&self, key: &[u8], seq: Lsn) -> Option<usize> {
        let n = self.heads.partition_point(key, |n| self.compare(n, key, seq) == Ordering::Less);
        (n < self.entries.len()).then_some(n)
    }

    /// The first block that may hold a key at or after `key`; the last block if none does. `None`
    /// without blocks.
    pub(super) fn find_key(&self, key: &[u8]) -> Option<usize> {
        let last = self.entries.len().checked_sub(1)?;
        let n = self.heads.partition_point(key, |n| self.last_key(n) < key);
        Some(n.min(last))
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let entries = self.entries.len() * size_of::<IndexEntry>();
        self.bytes.len() + entries + self.heads.memory()
    }
}

fn decode_entry(reader: &mut Reader<'_>, at: &mut usize) -> Option<IndexEntry> {
    let (offset, len) = (reader.u32()?, reader.u32()?);
    let key = reader.bytes()?;
    let last_seq = reader.u64()?;
    let start = *at + 12;
    *at = start + key.len() + 8;
    Some(IndexEntry { offset, len, last_key: start..start + key.len(), last_seq })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut builder = IndexBuilder::default();
        builder.add(0, 100, b"b", 9);
        builder.add(100, 50, b"b", 4);
        builder.add(150, 50, b"d", 7);
        assert_eq!((builder.blocks(), builder.size()), (3, builder.finish(5).len()));
        builder.finish(5)
    }

    #[test]
    fn finds_blocks_by_record_and_by_key() {
        let index = Index::decode(5, sample()).unwrap();
        assert_eq!(index.find(b"a", 0), Some(0));
        assert_eq!(index.find(b"b", 9), Some(0));
        assert_eq!(index.find(b"b", 8), Some(1), "versions of b go on in the next block");
        assert_eq!(index.find(b"b", 3), Some(2));
        assert_eq!(index.find(b"d", 6), None);
        assert_eq!(["b", "c", "e"].map(|key| index.find_key(key.as_bytes())), [0, 2, 2].map(Some));
        assert_eq!(index.blocks_end(), 200);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = sample();
        for i in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[i] ^= 1 << bit;
                assert!(Index::decode(5, bad).is_err(), "byte {i}, bit {bit}");
            }
        }
    }

    #[test]
    fn gaps_and_disorder_are_refused() {
        type Block<'a> = (u32, u32, &'a [u8], Lsn);
        let blocks: [&[Block<'_>]; 4] = [
            &[(1, 5, b"a", 1)],
            &[(0, 5, b"a", 1), (6, 5, b"b", 1)],
            &[(0, 5, b"b", 1), (5, 5, b"a", 1)],
            &[(0, 5, b"a", 1), (5, 5, b"a", 1)],
        ];
        for list in blocks {
            let mut builder = IndexBuilder::default();
            list.iter().for_each(|(offset, len, key, seq)| builder.add(*offset, *len, key, *seq));
            assert!(Index::decode(5, builder.finish(5)).is_err(), "{list:?}");
        }
        let none = Index::decode(5, IndexBuilder::default().finish(5)).unwrap();
        assert_eq!((none.find(b"a", 1), none.find_key(b"a"), none.blocks_end()), (None, None, 0));
    }
}
