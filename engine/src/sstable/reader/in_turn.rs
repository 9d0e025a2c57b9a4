//! Blocks for a reader that goes from one to the next: from the cache, from what was read ahead, or
//! in pieces of many.

use std::sync::Arc;

use bytes::Bytes;

use super::{Extent, MissingPart, Parts};
use crate::base::error::Result;
use crate::base::memory::Holding;
use crate::sstable::ahead::{PieceParts, Prefetcher, Prefetchers, ReadAhead};
use crate::sstable::awaited::Lacking;
use crate::sstable::block::{Block, SharedBlock};
use crate::sstable::frame::check_seal;
use crate::sstable::index::{Index, IndexEntry};
use crate::sstable::{BlockCache, InLevel};

impl Extent {
    /// Block `n`, for a reader that goes from block to block.
    pub(in crate::sstable) fn block_in_turn(
        &self,
        parts: &Parts,
        n: usize,
        cache: &BlockCache,
        ahead: &ReadAhead,
    ) -> Result<SharedBlock> {
        let entry = &parts.index.entries()[n];
        let (id, swips) = (self.meta.id, self.swips(&parts.index));
        if ahead.is_job() {
            // This counts as no use, and what is read is not kept.
            if let Some(block) = swips.peek(n) {
                return Ok(block.into());
            }
            let block = self.load_in_turn(&parts.index, n, Some(cache), ahead)?;
            return Ok(SharedBlock::apart(block));
        }
        self.read_frequency.read(self.store.read_clock());
        let mut prefetchers = self.prefetchers_of_user(cache, ahead);
        if let Some(block) = prefetchers.remembered(id, n) {
            return Ok(block);
        }
        let prefetcher = prefetchers.come_to_in(&self.meta, n, entry.len);
        let is_kept = prefetcher.is_short();
        let cached = if is_kept { cache.get_pinned(swips, n) } else { swips.peek(n) };
        let block = match cached {
            Some(block) => block.into(),
            None if ahead.leaves() && self.would_wait(entry, cache, prefetcher) => {
                self.begin_first((&parts.index, n), cache, prefetcher)?;
                self.begin_more(&parts.index, is_kept, cache, prefetcher);
                let (store, extent) = (Arc::clone(&self.store), id);
                return Err(ahead.leave(Lacking::Piece { store, extent }));
            }
            None => {
                let weight = Block::weight_of(entry.len as usize);
                let room = is_kept.then(|| cache.reserve(weight)).flatten();
                let read = self.read_in_turn(&parts.index, n, Some(cache), (prefetcher, false));
                if read.is_some() {
                    self.begin_more(&parts.index, is_kept, cache, prefetcher);
                }
                let block = match read {
                    // In the cache it would hold all bytes that were read with it.
                    Some(bytes) if is_kept => {
                        self.block_of(entry, Bytes::copy_from_slice(&bytes))?
                    }
                    Some(bytes) => self.block_of(entry, bytes)?,
                    None => self.load_for_user(&parts.index, n, cache)?,
                };
                cache.admit(room, (swips, n), block).into()
            }
        };
        prefetcher.remember(n, &block);
        Ok(block)
    }

    /// Begins to read what comes next for a user, if the walk goes on for long.
    fn begin_more(
        &self,
        index: &Index,
        is_short: bool,
        cache: &BlockCache,
        prefetcher: &mut Prefetcher,
    ) {
        if !is_short || prefetcher.is_eager() {
            let hold = |bytes| self.hold_ahead(bytes, cache);
            self.begin_next_piece(index, Some(cache), prefetcher, hold);
        }
    }

    /// Whether a block, which is not cached, has to be waited for.
    fn would_wait(&self, entry: &IndexEntry, cache: &BlockCache, prefetcher: &Prefetcher) -> bool {
        let is_below =
            || cache.below().is_some_and(|b| b.get(self.meta.id, entry.offset).is_some());
        self.meta.location.is_object()
            && !prefetcher.is_here(entry.offset, entry.len)
            && !is_below()
    }

    /// Has the piece with block `n` be the first one that is on its way. If no more may be held, it
    /// is that block alone.
    fn begin_first(
        &self,
        (index, n): (&Index, usize),
        cache: &BlockCache,
        prefetcher: &mut Prefetcher,
    ) -> Result<()> {
        let entry = &index.entries()[n];
        if prefetcher.comes_first(entry.offset, entry.len) {
            return Ok(());
        }
        prefetcher.release_pending();
        let is_cached = |offset| self.has_block_at(index, offset);
        let piece = |prefetcher: &Prefetcher| prefetcher.next_piece(index, n, is_cached);
        let borrowed = self.borrow(prefetcher, piece, cache);
        let alone = || ((entry.offset, entry.len), Holding::default());
        let ((offset, len), held) = borrowed.unwrap_or_else(alone);
        prefetcher.begin(self.meta.id, self.store.ask(&self.meta.location, offset, len)?, held);
        Ok(())
    }

    /// The end, if it has to come from the object store.
    pub(crate) fn missing_end(self: &Arc<Self>) -> Option<MissingPart> {
        let is_missing = self.meta.location.is_object() && self.parts_at_hand().is_none();
        is_missing.then(|| MissingPart::end_of(self))
    }

    /// Block `n` from the store, for a job.
    pub(in crate::sstable) fn load_in_turn(
        &self,
        index: &Index,
        n: usize,
        cache: Option<&BlockCache>,
        ahead: &ReadAhead,
    ) -> Result<Block> {
        self.block_of(&index.entries()[n], self.bytes_in_turn(index, n, cache, ahead)?)
    }

    /// The bytes of block `n` from the store, for a job.
    pub(in crate::sstable) fn bytes_in_turn(
        &self,
        index: &Index,
        n: usize,
        cache: Option<&BlockCache>,
        ahead: &ReadAhead,
    ) -> Result<Bytes> {
        let (entry, store) = (&index.entries()[n], &self.store);
        let mut prefetchers = self.prefetchers_of_job(ahead);
        let prefetcher = prefetchers.come_to_in(&self.meta, n, entry.len);
        match self.read_in_turn(index, n, cache, (&mut *prefetcher, true)) {
            Some(bytes) => {
                let hold = |bytes| Some(store.memory().jobs.hold(bytes));
                self.begin_next_piece(index, cache, prefetcher, hold);
                Ok(bytes)
            }
            None => self.load_bytes(entry.offset, entry.len).map(Bytes::from),
        }
    }

    /// A job is about to need the first block: begins to read a piece, beside those of others.
    pub(crate) fn begin_walk(&self, cache: &BlockCache, ahead: &ReadAhead) {
        let (store, parts) = (&self.store, self.parts.peek());
        let Some(parts) = parts.filter(|_| store.reads_behind()) else { return };
        let Some(first) = parts.index.entries().first() else { return };
        let mut prefetchers = self.prefetchers_of_job(ahead);
        let prefetcher = prefetchers.come_to_in(&self.meta, 0, first.len);
        let hold = |bytes| Some(store.memory().jobs.hold(bytes));
        self.begin_piece((&parts.index, 0), Some(cache), prefetcher, hold);
    }

    /// A range is about to come to a key of an extent, or from behind to what lies before it. If
    /// that is an object, asks for the first pieces, beside those of other levels.
    pub(crate) fn begin_at(
        at: InLevel<'_>,
        (key, is_backward): (Option<&[u8]>, bool),
        cache: &BlockCache,
        ahead: &ReadAhead,
    ) {
        let Some(extent) = at.extent() else { return };
        let may_ask = extent.meta.location.is_object() && extent.store.reads_behind();
        let Some(parts) = extent.parts_at_hand().filter(|_| may_ask) else { return };
        let (index, last) = (&parts.index, parts.index.entries().len().saturating_sub(1));
        let n = match key {
            Some(key) => index.find_key(key).unwrap_or(last),
            None if is_backward => last,
            None => 0,
        };
        let Some(entry) = index.entries().get(n) else { return };
        if ahead.is_at(at) || extent.swips(index).has(n) {
            return;
        }
        let hold = |bytes| extent.hold_ahead(bytes, cache);
        let mut prefetchers = extent.prefetchers_of_user(cache, ahead);
        prefetchers.begin_walk((at, n), is_backward);
        let prefetcher = prefetchers.come_to_in(&extent.meta, n, entry.len);
        let has_begun = extent.begin_piece((index, n), Some(cache), prefetcher, hold);
        if has_begun && prefetcher.is_eager() {
            extent.begin_next_piece(index, Some(cache), prefetcher, hold);
        }
    }

    fn prefetchers_of_user<'a>(&self, cache: &BlockCache, ahead: &'a ReadAhead) -> Prefetchers<'a> {
        let (memory, is_object) = (self.store.memory(), self.meta.location.is_object());
        let most = if is_object { memory.most_ahead(cache.capacity(), true) } else { 0 };
        let may_come = self.store.reads_behind();
        ahead.prefetchers(most, if may_come { PieceParts::Two } else { PieceParts::One })
    }

    fn prefetchers_of_job<'a>(&self, ahead: &'a ReadAhead) -> Prefetchers<'a> {
        let memory = self.store.memory();
        match (self.store.reads_behind(), self.meta.location.is_object()) {
            (false, _) => ahead.prefetchers(memory.job_ahead(), PieceParts::One),
            (true, false) => ahead.prefetchers(memory.job_ahead(), PieceParts::Two),
            (true, true) => ahead.prefetchers(memory.job_ahead_of_objects(), PieceParts::Four),
        }
    }

    /// Begins to read the next pieces meanwhile, as many as may be held.
    fn begin_next_piece(
        &self,
        index: &Index,
        cache: Option<&BlockCache>,
        prefetcher: &mut Prefetcher,
        hold: impl Fn(u64) -> Option<Holding>,
    ) {
        while self.store.reads_behind()
            && prefetcher.may_begin()
            && self.begin_one_more(index, cache, prefetcher, &hold)
        {}
    }

    /// Begins to read the piece behind the last one, in this extent or in the next; whether there
    /// is one.
    fn begin_one_more(
        &self,
        index: &Index,
        cache: Option<&BlockCache>,
        prefetcher: &mut Prefetcher,
        hold: impl Fn(u64) -> Option<Holding>,
    ) -> bool {
        let Some((extent, edge)) = prefetcher.edge() else { return false };
        if extent == self.meta.id
            && let Some(n) = prefetcher.first_beyond(Some(edge), index)
        {
            return self.begin_piece((index, n), cache, prefetcher, hold);
        }
        // The one that the last piece is in, or the next one.
        let is_before = |next: &Arc<Extent>| extent != self.meta.id && next.meta.id != extent;
        let next: Vec<Arc<Extent>> = prefetcher.next().skip_while(is_before).take(2).collect();
        for next in next {
            let Some(parts) = next.parts_at_hand() else { return false };
            let from = (next.meta.id == extent).then_some(edge);
            if let Some(n) = prefetcher.first_beyond(from, &parts.index) {
                return next.begin_piece((&parts.index, n), cache, prefetcher, hold);
            }
        }
        false
    }

    /// The parts, if they are here without a request to an object store.
    fn parts_at_hand(&self) -> Option<Arc<Parts>> {
        let known = self.parts.peek();
        if known.is_some() || !self.store.keeps_end_of(&self.meta.location) {
            return known;
        }
        self.parts().ok()
    }

    /// Begins to read the piece with block `n` and those that the walk needs then; whether it did.
    fn begin_piece(
        &self,
        (index, n): (&Index, usize),
        cache: Option<&BlockCache>,
        prefetcher: &mut Prefetcher,
        hold: impl Fn(u64) -> Option<Holding>,
    ) -> bool {
        let (id, at) = (self.meta.id, &self.meta.location);
        let is_cached = |offset| cache.is_some() && self.has_block_at(index, offset);
        let (offset, len) = prefetcher.next_piece(index, n, is_cached);
        if let Some(held) = hold(u64::from(len))
            && let Some(reading) = self.store.begin_read(at, offset, len)
        {
            prefetcher.begin(id, reading, held);
            return true;
        }
        false
    }

    /// Counts what is read ahead for a user, if it may be.
    fn hold_ahead(&self, bytes: u64, cache: &BlockCache) -> Option<Holding> {
        let is_object = self.meta.location.is_object();
        self.store.memory().hold_ahead(bytes, (cache.capacity(), is_object))
    }

    /// The bytes of block `n`, from what was read ahead or from a piece that is read now. `None` if
    /// the block has to be read alone: no walk has begun, no more may be held, or the piece could
    /// not be read, which need not be this block's fault.
    fn read_in_turn(
        &self,
        index: &Index,
        n: usize,
        cache: Option<&BlockCache>,
        (prefetcher, is_job): (&mut Prefetcher, bool),
    ) -> Option<Bytes> {
        let entry = &index.entries()[n];
        let found = prefetcher.read_ahead(entry.offset, entry.len);
        if found.is_some() || !prefetcher.is_walk() {
            return found;
        }
        if let Some((reading, held)) = prefetcher.begun(entry.offset, entry.len) {
            let (offset, _) = reading.range();
            if let Ok(bytes) = self.store.end_read(reading) {
                prefetcher.take(offset, bytes, held);
                return prefetcher.read_ahead(entry.offset, entry.len);
            }
        }
        let (id, at) = (self.meta.id, &self.meta.location);
        let is_cached = |offset| cache.is_some() && self.has_block_at(index, offset);
        let piece = |prefetcher: &Prefetcher| prefetcher.next_piece(index, n, is_cached);
        let ((offset, len), held) = match cache.filter(|_| !is_job) {
            None => {
                let (offset, len) = piece(prefetcher);
                prefetcher.release();
                ((offset, len), self.store.memory().jobs.hold(u64::from(len)))
            }
            Some(cache) => {
                let below = cache.below().and_then(|below| below.get(id, entry.offset));
                if let Some(bytes) = below.filter(|b| check_seal(id, entry.offset, b).is_ok()) {
                    return Some(Bytes::from(bytes));
                }
                prefetcher.release_pending();
                self.borrow(prefetcher, piece, cache)?
            }
        };
        prefetcher.take(offset, self.store.read(at, offset, len).ok()?, held);
        prefetcher.read_ahead(entry.offset, entry.len)
    }

    /// The largest piece that may be held, counted.
    fn borrow(
        &self,
        prefetcher: &mut Prefetcher,
        piece: impl Fn(&Prefetcher) -> (u32, u32),
        cache: &BlockCache,
    ) -> Option<((u32, u32), Holding)> {
        loop {
            let (offset, len) = piece(prefetcher);
            if let Some(held) = self.hold_ahead(u64::from(len), cache) {
                return Some(((offset, len), held));
            }
            if !prefetcher.narrow() {
                return None;
            }
        }
    }
}
