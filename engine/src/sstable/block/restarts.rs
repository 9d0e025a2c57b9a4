//! The body of a block with restarts, as compressed blocks have it: each key is stored without the
//! bytes that it shares with the key before it.
//!
//! Every 16th entry is a *restart*: it holds its whole key. So a search is a binary search over the
//! restarts and a walk of at most 16 entries.

use std::cmp::Ordering;
use std::ops::{Deref, Range};

use super::{BadEntry, Block, BlockStep};
use crate::base::error::Mismatch;
use crate::base::record::{
    EntryRef, Kind, Lsn, Reference, common, put_u32, put_varint, varint, varint_len,
};
use crate::os::{LINE, prefetch_lines};
use crate::sstable::frame::{self, HEADER_LEN};

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
    shape: &'a Restarts,
}

impl<'a> RestartEntries<'a> {
    /// The entries of a block of this layout.
    fn of(block: &'a Block) -> Option<RestartEntries<'a>> {
        Some(RestartEntries { bytes: &block.bytes, shape: block.restarts()? })
    }

    /// Where entry number `16 × restart` lies.
    fn restart(&self, restart: usize) -> Option<usize> {
        let at = self.shape.entries_end + 4 * restart;
        let bytes = self.bytes.get(at..at + 4)?.try_into().ok()?;
        let offset = HEADER_LEN + u32::from_le_bytes(bytes) as usize;
        (offset < self.shape.entries_end).then_some(offset)
    }

    /// Decodes the entry at `at` without looking at its predecessors.
    #[inline]
    fn raw_entry(&self, mut at: usize) -> Option<RestartEntry> {
        let entries = &self.bytes[..self.shape.entries_end];
        let lens = entries.get(at..).and_then(<[u8]>::first_chunk::<3>);
        let (shared, unshared_len, value_len) = match lens {
            // Of most entries each length is a byte.
            Some(&[a, b, c]) if (a | b | c) < 0x80 => {
                at += 3;
                (a.into(), b.into(), c.into())
            }
            _ => (
                varint_len(entries, &mut at)?,
                varint_len(entries, &mut at)?,
                varint_len(entries, &mut at)?,
            ),
        };
        let kind = Kind::from_u8(*entries.get(at)?)?;
        at += 1;
        let seq = varint(entries, &mut at)?;
        let unshared = at..at + unshared_len;
        let value = unshared.end..unshared.end + value_len;
        let is_whole = kind != Kind::Reference || value_len == Reference::LEN;
        (is_whole && value.end <= self.shape.entries_end).then_some(RestartEntry {
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

/// Entries from one restart to the next.
const RESTART_INTERVAL: usize = 16;

/// Collects the entries of one block.
#[derive(Debug, Default)]
pub(super) struct RestartBuilder {
    body: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    last_key: Vec<u8>,
}

impl RestartBuilder {
    /// Appends an entry, which sorts after all earlier ones.
    pub(super) fn add(&mut self, entry: &EntryRef<'_>) {
        let shared = if self.entries.is_multiple_of(RESTART_INTERVAL) {
            self.restarts.push(self.body.len() as u32);
            0
        } else {
            common(&self.last_key, entry.key)
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

    /// Bytes that [`finish`](Self::finish) appends.
    pub(super) fn size(&self) -> usize {
        self.body.len() + 4 * self.restarts.len() + 4
    }

    /// Appends the body to `out`, and starts over.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.body);
        for restart in &self.restarts {
            put_u32(out, *restart);
        }
        put_u32(out, self.restarts.len() as u32);
        self.restarts.clear();
        self.last_key.clear();
        self.entries = 0;
    }
}

/// Walks the entries of a block in both directions. It keeps its buffers and allocates nothing for
/// an entry.
///
/// Entries decode forwards only. A backward walk keeps what it decodes from a restart on, so that
/// each entry is decoded once in either direction.
///
/// Invariants, while the cursor is valid:
///
/// 1. `at` is where the current entry starts, `key` is its whole key.
/// 2. `restart` is the last restart at or before `at`, and the next one begins at `next_restart`;
///    `usize::MAX` where there is none.
/// 3. `behind` is empty, or has all entries from `restart` up to the current one.
#[derive(Debug)]
pub(in crate::sstable) struct RestartCursor<B> {
    pub(super) block: B,
    at: usize,
    restart: usize,
    next_restart: usize,
    key: Vec<u8>,
    entry: Option<RestartEntry>,
    behind: Vec<Behind>,
    /// Their keys, one after the other.
    behind_keys: Vec<u8>,
}

/// An entry before the current one.
#[derive(Debug)]
struct Behind {
    at: usize,
    entry: RestartEntry,
    /// Where its key begins in `behind_keys`.
    key: usize,
}

/// The order of records: by key, then the newest first.
fn compare(a: (&[u8], Lsn), b: (&[u8], Lsn)) -> Ordering {
    a.0.cmp(b.0).then(b.1.cmp(&a.1))
}

impl<B: Deref<Target = Block>> RestartCursor<B> {
    /// An invalid cursor.
    pub(super) fn new(block: B) -> RestartCursor<B> {
        let (key, behind_keys) = (Vec::new(), Vec::new());
        RestartCursor {
            block,
            at: 0,
            restart: 0,
            next_restart: 0,
            key,
            entry: None,
            behind: Vec::new(),
            behind_keys,
        }
    }

    /// An invalid cursor in another block, with the same buffers.
    pub(super) fn in_other(self, block: B) -> RestartCursor<B> {
        RestartCursor { block, entry: None, ..self }
    }

    fn entries(&self) -> Result<RestartEntries<'_>, BadEntry> {
        RestartEntries::of(&self.block).ok_or(BadEntry)
    }

    #[inline]
    pub(super) fn entry(&self) -> Option<EntryRef<'_>> {
        let entry = self.entry.as_ref()?;
        let value = &self.block.bytes[entry.value.clone()];
        Some(EntryRef { key: &self.key, seq: entry.seq, kind: entry.kind, value })
    }

    /// Where the current value lies in the block.
    pub(super) fn value_range(&self) -> Option<Range<usize>> {
        self.entry.as_ref().map(|entry| entry.value.clone())
    }

    pub(super) fn first(&mut self) -> BlockStep {
        self.enter_restart(0)
    }

    pub(super) fn last(&mut self) -> BlockStep {
        self.enter_restart(self.entries()?.shape.restarts - 1)?;
        self.walk_to_last_before(self.entries()?.shape.entries_end)
    }

    pub(super) fn next(&mut self) -> BlockStep {
        self.forget_behind();
        self.advance()
    }

    fn advance(&mut self) -> BlockStep {
        let Some(entry) = self.entry.take() else { return Ok(()) };
        let next = entry.value.end;
        let len = next - self.at;
        if next == self.entries()?.shape.entries_end {
            return Ok(());
        }
        if self.next_restart <= next {
            self.at_restart(self.restart + 1)?;
        }
        self.load(next)?;
        self.prefetch_next(len);
        Ok(())
    }

    /// A walk usually goes on. So the next entry is prefetched while the current one is looked at.
    /// It is taken to be as long as the last one.
    fn prefetch_next(&self, len: usize) {
        const MOST: usize = 8 * LINE;
        if let Some(entry) = &self.entry {
            let rest = &self.block.bytes[entry.value.end..];
            prefetch_lines(rest.as_ptr(), len.min(rest.len()).min(MOST));
        }
    }

    pub(super) fn prev(&mut self) -> BlockStep {
        if self.entry.take().is_none() {
            return Ok(());
        }
        if let Some(Behind { at, entry, key }) = self.behind.pop() {
            self.key.clear();
            self.key.extend_from_slice(&self.behind_keys[key..]);
            self.behind_keys.truncate(key);
            (self.at, self.entry) = (at, Some(entry));
            return Ok(());
        }
        let at = self.at;
        let restart = if self.entries()?.restart(self.restart).ok_or(BadEntry)? < at {
            self.restart
        } else if self.restart > 0 {
            self.restart - 1
        } else {
            return Ok(());
        };
        self.enter_restart(restart)?;
        self.walk_to_last_before(at)?;
        if self.at >= at {
            // Restarts that do not ascend are damage: a backward walk might never end.
            self.entry = None;
            return Err(BadEntry);
        }
        Ok(())
    }

    /// To the first entry at or after (`key`, `seq`).
    pub(super) fn seek(&mut self, key: &[u8], seq: Lsn) -> BlockStep {
        let target = (key, seq);
        let restart = self.last_restart(|entry| compare(entry, target) == Ordering::Less)?;
        self.enter_restart(restart)?;
        while self.entry().is_some_and(|e| compare((e.key, e.seq), target) == Ordering::Less) {
            self.next()?;
        }
        Ok(())
    }

    /// To the last entry with a smaller key.
    pub(super) fn seek_before(&mut self, key: &[u8]) -> BlockStep {
        let restart = self.last_restart(|(entry_key, _)| entry_key < key)?;
        self.enter_restart(restart)?;
        if self.entry().is_none_or(|e| e.key >= key) {
            self.entry = None;
            return Ok(());
        }
        while self.entry().is_some_and(|e| e.key < key) {
            self.next()?;
        }
        match self.entry {
            Some(_) => self.prev(),
            None => self.last(),
        }
    }

    /// The last restart whose entry satisfies `before`, a predicate that never turns true again
    /// after it was false; the first restart if none does.
    fn last_restart(&self, before: impl Fn((&[u8], Lsn)) -> bool) -> Result<usize, BadEntry> {
        let (mut low, mut high) = (0, self.entries()?.shape.restarts);
        while high - low > 1 {
            let middle = low.midpoint(high);
            let at = self.entries()?.restart(middle).ok_or(BadEntry)?;
            let entry = self.entries()?.raw_entry(at).filter(|e| e.shared == 0).ok_or(BadEntry)?;
            if before((&self.block.bytes[entry.unshared], entry.seq)) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn enter_restart(&mut self, restart: usize) -> BlockStep {
        self.forget_behind();
        self.key.clear();
        self.entry = None;
        self.at_restart(restart)?;
        self.load(self.entries()?.restart(restart).ok_or(BadEntry)?)
    }

    fn at_restart(&mut self, restart: usize) -> BlockStep {
        let entries = self.entries()?;
        self.next_restart = match restart + 1 < entries.shape.restarts {
            true => entries.restart(restart + 1).ok_or(BadEntry)?,
            false => usize::MAX,
        };
        self.restart = restart;
        Ok(())
    }

    /// Moves from a restart before `end` to the last entry before it. The entries in between are
    /// kept in `behind`.
    fn walk_to_last_before(&mut self, end: usize) -> BlockStep {
        debug_assert!(self.behind.is_empty(), "invariant 3: it begins at a restart");
        while let Some(entry) = self.entry.as_ref().filter(|entry| entry.value.end < end) {
            let (at, entry, key) = (self.at, entry.clone(), self.behind_keys.len());
            self.behind_keys.extend_from_slice(&self.key);
            self.behind.push(Behind { at, entry, key });
            self.advance()?;
        }
        Ok(())
    }

    fn forget_behind(&mut self) {
        self.behind.clear();
        self.behind_keys.clear();
    }

    /// Makes the entry at `at` the current one; `key` holds its predecessor's.
    #[inline]
    fn load(&mut self, at: usize) -> BlockStep {
        self.entry = None;
        let entry = self.entries()?.raw_entry(at).ok_or(BadEntry)?;
        if entry.shared > self.key.len() {
            return Err(BadEntry);
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(&self.block.bytes[entry.unshared.clone()]);
        self.at = at;
        self.entry = Some(entry);
        Ok(())
    }
}
