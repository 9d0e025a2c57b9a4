//! The body of a block with restarts, as compressed blocks have it: each key is stored without the
//! bytes that it shares with the key before it.
//!
//! Every 16th entry is a *restart*: it holds its whole key. So a search is a binary search over the
//! restarts and a walk of at most 16 entries.

mod builder;
mod walk;

use std::ops::Range;

use super::Block;
use crate::base::error::Mismatch;
use crate::base::record::{Kind, Lsn, Reference};
use crate::sstable::frame::{self, HEADER_LEN};
use crate::sstable::varint::{varint, varint_len};

pub(super) use builder::RestartBuilder;
pub(super) use walk::RestartCursor;

/// Where the parts of a body lie in the bytes of the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restarts {
    /// Where the entries end and the restart array begins.
    entries_end: usize,
    restarts: usize,
}

impl Restarts {
    pub(super) fn decode(bytes: &[u8]) -> Result<Restarts, Mismatch> {
        let too_short = || frame::too_short(bytes.len());
        let restarts = tail_u32(bytes).ok_or_else(too_short)? as usize;
        let entries_end = restarts
            .checked_mul(4)
            .and_then(|n| bytes.len().checked_sub(n + 4))
            .filter(|end| restarts > 0 && *end > HEADER_LEN)
            .ok_or_else(|| Mismatch::new("a restart array", format!("{restarts} restarts")))?;
        Ok(Restarts { entries_end, restarts })
    }
}

/// One entry as it lies in a block.
#[derive(Clone, Debug)]
struct RestartEntry {
    shared: usize,
    kind: Kind,
    seq: Lsn,
    unshared: Range<usize>,
    value: Range<usize>,
}

/// A block with where its parts lie.
#[derive(Clone, Copy, Debug)]
struct RestartEntries<'a> {
    bytes: &'a [u8],
    entries_end: usize,
    restarts: usize,
}

impl<'a> RestartEntries<'a> {
    /// The entries of a block of this layout.
    fn of(block: &'a Block) -> Option<RestartEntries<'a>> {
        let Restarts { entries_end, restarts } = *block.restarts()?;
        Some(RestartEntries { bytes: &block.bytes, entries_end, restarts })
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
    fn raw_entry(&self, mut at: usize) -> Option<RestartEntry> {
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
        (is_whole && value.end <= self.entries_end).then_some(RestartEntry {
            shared,
            kind,
            seq,
            unshared,
            value,
        })
    }
}

fn tail_u32(bytes: &[u8]) -> Option<u32> {
    bytes.last_chunk().map(|tail| u32::from_le_bytes(*tail))
}
