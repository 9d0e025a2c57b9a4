//! The position in a tree. It keeps its buffers and allocates nothing for an entry.
//!
//! Invariants, while the cursor is valid:
//!
//! 1. `entry` is number `nth` of interval `interval`, whose first entry is `first`; `key` is its
//!    whole key.
//! 2. The first `known` of `starts` say where the entries of the interval begin.
//! 3. What entries of an interval share with its first key never grows: so the bytes that the next
//!    entry shares are those at the beginning of `key`.

use std::ops::Deref;

use super::{EntryTree, First, MOST_ENTRIES, RawEntry};
use crate::base::record::{EntryRef, LSN_MAX, Lsn};
use crate::os::{LINE, prefetch_lines};
use crate::sstable::block::{BadEntry, Block, BlockStep};

/// Walks the entries of a tree in both directions.
#[derive(Debug)]
pub(in crate::sstable) struct TreeCursor<B> {
    pub(in crate::sstable::block) block: B,
    key: Vec<u8>,
    interval: usize,
    nth: usize,
    first: Option<First>,
    entry: Option<RawEntry>,
    starts: [usize; MOST_ENTRIES],
    known: usize,
    /// Whether `key` begins with the prefix of the block.
    has_prefix: bool,
}

/// The tree of the block that a cursor is in. As a macro, it borrows that field alone.
macro_rules! tree {
    ($cursor:ident) => {
        $cursor.block.tree().ok_or(BadEntry)?
    };
}

impl<B: Deref<Target = Block>> TreeCursor<B> {
    /// An invalid cursor.
    pub(in crate::sstable::block) fn new(block: B) -> TreeCursor<B> {
        TreeCursor {
            block,
            key: Vec::new(),
            interval: 0,
            nth: 0,
            first: None,
            entry: None,
            starts: [0; MOST_ENTRIES],
            known: 0,
            has_prefix: false,
        }
    }

    /// An invalid cursor in another block, with the same buffers.
    pub(in crate::sstable::block) fn in_other(self, block: B) -> TreeCursor<B> {
        TreeCursor { block, entry: None, first: None, known: 0, has_prefix: false, ..self }
    }

    #[inline]
    pub(in crate::sstable::block) fn entry(&self) -> Option<EntryRef<'_>> {
        let entry = self.entry.as_ref()?;
        let value = &self.block.bytes[entry.value()];
        Some(EntryRef { key: &self.key, seq: entry.seq, kind: entry.kind, value })
    }

    pub(in crate::sstable::block) fn first(&mut self) -> BlockStep {
        self.enter(0)
    }

    pub(in crate::sstable::block) fn last(&mut self) -> BlockStep {
        let last = tree!(self).shape.intervals - 1;
        self.enter_at_last(last)
    }

    pub(in crate::sstable::block) fn next(&mut self) -> BlockStep {
        let Some(entry) = self.entry.take() else { return Ok(()) };
        let tree = tree!(self);
        let Some(first) = &self.first else { return Err(BadEntry) };
        if self.nth + 1 == usize::from(first.entries) {
            let next = self.interval + 1;
            return if next < tree.shape.intervals { self.enter(next) } else { Ok(()) };
        }
        let (at, shared) = (entry.end(), self.shared_by(&entry));
        let next = tree.following(shared, at)?;
        self.key.truncate(tree.shape.prefix + next.shared());
        self.key.extend_from_slice(&tree.bytes[next.unshared()]);
        self.nth += 1;
        if self.known == self.nth {
            self.starts[self.nth] = at;
            self.known += 1;
        }
        prefetch_next(tree, next.end(), next.end() - at);
        self.entry = Some(next);
        Ok(())
    }

    /// How much the current entry shares with the first key of its interval.
    fn shared_by(&self, entry: &RawEntry) -> usize {
        match &self.first {
            Some(first) if self.nth == 0 => first.rest_len(),
            _ => entry.shared(),
        }
    }

    pub(in crate::sstable::block) fn prev(&mut self) -> BlockStep {
        if self.entry.take().is_none() {
            return Ok(());
        }
        match (self.nth.checked_sub(1), self.interval.checked_sub(1)) {
            (Some(before), _) => self.load_nth(before),
            (None, Some(before)) => self.enter_at_last(before),
            (None, None) => Ok(()),
        }
    }

    /// To the first entry at or after (`key`, `seq`).
    pub(in crate::sstable::block) fn seek(&mut self, key: &[u8], seq: Lsn) -> BlockStep {
        self.entry = None;
        let tree = tree!(self);
        let Some(place) = tree.find(key, seq)? else { return Ok(()) };
        if place.nth == 0 {
            return self.enter(place.interval);
        }
        let first = tree.first(place.interval)?;
        (self.interval, self.nth) = (place.interval, place.nth);
        (self.starts[0], self.known) = (0, 0);
        self.set_key(&first, Some(&place.entry))?;
        (self.first, self.entry) = (Some(first), Some(place.entry));
        Ok(())
    }

    /// To the last entry with a smaller key.
    pub(in crate::sstable::block) fn seek_before(&mut self, key: &[u8]) -> BlockStep {
        self.seek(key, LSN_MAX)?;
        if self.entry.is_some() { self.prev() } else { self.last() }
    }

    /// To the first entry of an interval.
    fn enter(&mut self, interval: usize) -> BlockStep {
        self.entry = None;
        let tree = tree!(self);
        let first = tree.first(interval)?;
        self.set_key(&first, None)?;
        (self.interval, self.nth, self.known) = (interval, 0, 1);
        self.entry = Some(first.entry);
        self.first = Some(first);
        Ok(())
    }

    fn enter_at_last(&mut self, interval: usize) -> BlockStep {
        self.enter(interval)?;
        let last = self.first.map_or(0, |first| usize::from(first.entries) - 1);
        if last > 0 { self.load_nth(last) } else { Ok(()) }
    }

    /// To an entry of the current interval.
    fn load_nth(&mut self, nth: usize) -> BlockStep {
        self.entry = None;
        if nth == 0 {
            return self.enter(self.interval);
        }
        let tree = tree!(self);
        let first = self.first.ok_or(BadEntry)?;
        let rest_len = first.rest_len();
        if self.known <= 1 {
            (self.starts[1], self.known) = (first.entry.end(), 2);
        }
        while self.known <= nth {
            let before = tree.following(rest_len, self.starts[self.known - 1])?;
            self.starts[self.known] = before.end();
            self.known += 1;
        }
        let entry = tree.following(rest_len, self.starts[nth])?;
        self.set_key(&first, Some(&entry))?;
        self.nth = nth;
        self.entry = Some(entry);
        Ok(())
    }

    /// Makes `key` that of an entry of the interval that begins with `first`, or of that one.
    fn set_key(&mut self, first: &First, entry: Option<&RawEntry>) -> BlockStep {
        let tree = tree!(self);
        if self.has_prefix {
            self.key.truncate(tree.shape.prefix);
        } else {
            self.key.clear();
            self.key.extend_from_slice(tree.prefix());
            self.has_prefix = true;
        }
        let shared = entry.map_or(first.rest_len(), RawEntry::shared);
        first.put_rest(tree.bytes, shared, &mut self.key);
        if let Some(entry) = entry {
            self.key.extend_from_slice(&tree.bytes[entry.unshared()]);
        }
        Ok(())
    }
}

/// A walk usually goes on. So the next entry is prefetched while the current one is looked at. It
/// is taken to be as long as the last one.
fn prefetch_next(tree: EntryTree<'_>, at: usize, len: usize) {
    const MOST: usize = 8 * LINE;
    let rest = &tree.bytes[at..];
    prefetch_lines(rest.as_ptr(), len.min(rest.len()).min(MOST));
}
