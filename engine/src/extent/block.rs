//! Blocks: about 16 KiB of records. A key is stored without the bytes that it shares with the key
//! before it.
//!
//! Every 16th entry is a *restart*: it holds its whole key. So a search is a binary search over the
//! restarts and a walk of at most 16 entries.

mod walk;

use std::ops::Range;

use bytes::Bytes;

use super::Malformed;
use super::compress::Trial;
use super::frame::{self, HEADER_LEN};
use super::varint::{put_varint, varint, varint_len};
use crate::cache::Weigh;
use crate::options::Compression;
use crate::record::{EntryRef, Kind, Lsn, Reference, put_u32};

pub(super) use walk::{BadEntry, BlockCursor};

/// Entries from one restart to the next.
const RESTART_INTERVAL: usize = 16;

/// Collects the entries of one block.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    body: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    last_key: Vec<u8>,
    trial: Trial,
}

impl BlockBuilder {
    /// Appends an entry, which sorts after all earlier ones.
    pub(super) fn add(&mut self, entry: &EntryRef<'_>) {
        let shared = if self.entries.is_multiple_of(RESTART_INTERVAL) {
            self.restarts.push(self.body.len() as u32);
            0
        } else {
            self.last_key.iter().zip(entry.key).take_while(|(a, b)| a == b).count()
        };
        let unshared = &entry.key[shared..];
        put_varint(&mut self.body, shared as u64);
        put_varint(&mut self.body, unshared.len() as u64);
        put_varint(&mut self.body, entry.value.len() as u64);
        self.body.push(entry.kind as u8);
        put_varint(&mut self.body, entry.seq);
        self.body.extend_from_slice(unshared);
        self.body.extend_from_slice(entry.value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(unshared);
        self.entries += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes that [`finish`](Self::finish) would append.
    pub(super) fn size(&self) -> usize {
        HEADER_LEN + self.body.len() + 4 * self.restarts.len() + 4
    }

    /// Appends the block to `out`, as the bytes from `out.len()` on, and starts over.
    pub(super) fn finish(&mut self, extent: u64, compression: Compression, out: &mut Vec<u8>) {
        debug_assert!(!self.is_empty(), "an empty block is not written");
        for restart in &self.restarts {
            put_u32(&mut self.body, *restart);
        }
        put_u32(&mut self.body, self.restarts.len() as u32);
        frame::seal(extent, &self.body, (compression, &mut self.trial), out);
        self.body.clear();
        self.restarts.clear();
        self.last_key.clear();
        self.entries = 0;
    }
}

/// A sound block, ready to be searched.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Bytes,
    /// Where the entries end and the restart array begins.
    entries_end: usize,
    restarts: usize,
}

impl Weigh for Block {
    fn weight(&self) -> u64 {
        (self.bytes.len() + size_of::<Block>() + 64) as u64
    }
}

/// One entry as it lies in a block.
#[derive(Clone, Debug)]
struct RawEntry {
    shared: usize,
    kind: Kind,
    seq: Lsn,
    unshared: Range<usize>,
    value: Range<usize>,
}

impl Block {
    /// Checks the bytes of the block at `offset` of an extent.
    pub(super) fn decode(extent: u64, offset: u32, bytes: Bytes) -> Result<Block, Malformed> {
        let bytes = frame::open(extent, offset, bytes)?;
        let too_short = || frame::too_short(bytes.len());
        let restarts = tail_u32(&bytes).ok_or_else(too_short)? as usize;
        let entries_end = restarts
            .checked_mul(4)
            .and_then(|n| bytes.len().checked_sub(n + 4))
            .filter(|end| restarts > 0 && *end > HEADER_LEN)
            .ok_or_else(|| Malformed::new("a restart array", format!("{restarts} restarts")))?;
        Ok(Block { bytes, entries_end, restarts })
    }

    /// Bytes, uncompressed.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Where entry number `16 × restart` lies.
    fn restart(&self, restart: usize) -> Option<usize> {
        let at = self.entries_end + 4 * restart;
        let bytes = self.bytes.get(at..at + 4)?.try_into().ok()?;
        let offset = HEADER_LEN + u32::from_le_bytes(bytes) as usize;
        (offset < self.entries_end).then_some(offset)
    }

    /// Decodes the entry at `at` without looking at its predecessors.
    #[inline]
    fn raw_entry(&self, mut at: usize) -> Option<RawEntry> {
        let entries = &self.bytes[..self.entries_end];
        let shared = varint_len(entries, &mut at)?;
        let unshared_len = varint_len(entries, &mut at)?;
        let value_len = varint_len(entries, &mut at)?;
        let kind = Kind::from_u8(*entries.get(at)?)?;
        at += 1;
        let seq = varint(entries, &mut at)?;
        let unshared = at..at + unshared_len;
        let value = unshared.end..unshared.end + value_len;
        let is_whole = kind != Kind::Reference || value_len == Reference::LEN;
        (is_whole && value.end <= self.entries_end).then_some(RawEntry {
            shared,
            kind,
            seq,
            unshared,
            value,
        })
    }

    /// The value, sharing the block's memory.
    pub(super) fn value(&self, range: Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }
}

fn tail_u32(bytes: &[u8]) -> Option<u32> {
    bytes.last_chunk().map(|tail| u32::from_le_bytes(*tail))
}

#[cfg(test)]
mod tests;
