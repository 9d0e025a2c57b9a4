//! The position in a block. It keeps its buffers and allocates nothing for an entry.
//!
//! Entries decode forwards only. A backward walk keeps what it decodes from a restart on, so that
//! each entry is decoded once in either direction.
//!
//! Invariants, while the cursor is valid:
//!
//! 1. `at` is where the current entry starts, `key` is its whole key.
//! 2. `restart` is the last restart at or before `at`.
//! 3. `behind` is empty, or has all entries from `restart` up to the current one.

use std::cmp::Ordering;
use std::ops::{Deref, Range};

use super::{RestartEntries, RestartEntry};
use crate::base::record::{EntryRef, Lsn};
use crate::os::{LINE, prefetch_lines};
use crate::sstable::block::{BadEntry, Block, BlockStep};

/// Walks the entries of a block in both directions.
#[derive(Debug)]
pub(in crate::sstable) struct RestartCursor<B> {
    pub(in crate::sstable::block) block: B,
    at: usize,
    restart: usize,
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
    pub(in crate::sstable::block) fn new(block: B) -> RestartCursor<B> {
        let (key, behind_keys) = (Vec::new(), Vec::new());
        RestartCursor {
            block,
            at: 0,
            restart: 0,
            key,
            entry: None,
            behind: Vec::new(),
            behind_keys,
        }
    }

    /// An invalid cursor in another block, with the same buffers.
    pub(in crate::sstable::block) fn in_other(self, block: B) -> RestartCursor<B> {
        RestartCursor { block, entry: None, ..self }
    }

    fn entries(&self) -> Result<RestartEntries<'_>, BadEntry> {
        RestartEntries::of(&self.block).ok_or(BadEntry)
    }

    #[inline]
    pub(in crate::sstable::block) fn entry(&self) -> Option<EntryRef<'_>> {
        let entry = self.entry.as_ref()?;
        let value = &self.block.bytes[entry.value.clone()];
        Some(EntryRef { key: &self.key, seq: entry.seq, kind: entry.kind, value })
    }

    /// Where the current value lies in the block.
    pub(in crate::sstable::block) fn value_range(&self) -> Option<Range<usize>> {
        self.entry.as_ref().map(|entry| entry.value.clone())
    }

    pub(in crate::sstable::block) fn first(&mut self) -> BlockStep {
        self.enter_restart(0)
    }

    pub(in crate::sstable::block) fn last(&mut self) -> BlockStep {
        self.enter_restart(self.entries()?.restarts - 1)?;
        self.walk_to_last_before(self.entries()?.entries_end)
    }

    pub(in crate::sstable::block) fn next(&mut self) -> BlockStep {
        self.forget_behind();
        self.advance()
    }

    fn advance(&mut self) -> BlockStep {
        let Some(entry) = self.entry.take() else { return Ok(()) };
        let next = entry.value.end;
        let len = next - self.at;
        if next == self.entries()?.entries_end {
            return Ok(());
        }
        if self.restart + 1 < self.entries()?.restarts
            && self.entries()?.restart(self.restart + 1).ok_or(BadEntry)? <= next
        {
            self.restart += 1;
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

    pub(in crate::sstable::block) fn prev(&mut self) -> BlockStep {
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
    pub(in crate::sstable::block) fn seek(&mut self, key: &[u8], seq: Lsn) -> BlockStep {
        let target = (key, seq);
        let restart = self.last_restart(|entry| compare(entry, target) == Ordering::Less)?;
        self.enter_restart(restart)?;
        while self.entry().is_some_and(|e| compare((e.key, e.seq), target) == Ordering::Less) {
            self.next()?;
        }
        Ok(())
    }

    /// To the last entry with a smaller key.
    pub(in crate::sstable::block) fn seek_before(&mut self, key: &[u8]) -> BlockStep {
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
        let (mut low, mut high) = (0, self.entries()?.restarts);
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
        self.restart = restart;
        self.load(self.entries()?.restart(restart).ok_or(BadEntry)?)
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
