//! Read-ahead: a reader that goes from block to block reads many of them at once.
//!
//! A user's range begins with single blocks. Once it has asked for two in a row it is a walk, and
//! reads pieces: 64 KiB first, then each twice as long as the one before, up to 1 MiB. Jobs read
//! pieces of 1 MiB from the start. Under a memory limit they read shorter ones: what one side of a
//! merge has read ahead is bounded then. A piece ends with its extent, and before a cached block.
//! Where the store has read-ahead threads, pieces are at most half as long. With each piece of a
//! job, or of a user's long walk, the next one is begun, also that of the next extent.
//!
//! Of objects a range reads 128 KiB with its first block, since a request takes longer than the
//! bytes. So a short range takes one request of a level. Behind half of that up to sixteen pieces
//! are on their way, also of the next extents: sixteen times the bytes that the walk has passed.
//! Each piece is twice as long as those before, up to 1 MiB, or as long as leaves room for all of
//! them. So the requests fill the bandwidth of many connections, and none takes much longer than
//! its latency. If the range says how many rows it still wants, pieces for so many are begun with
//! the first block, and none for more. Each level brings as much of the rows as it has of all
//! records.
//!
//! What is read ahead stays with the reader, between its calls too, unless many readers hold much:
//! see [`ReadAhead::rest`]. It does not enter the cache and takes no other block's place. Of a
//! user's walk the cache gets the first 512 KiB, since short ranges may be read again. It gets
//! nothing of longer walks and of jobs.
//!
//! Ranges are read a chunk at a time, with new cursors each time, and a cursor goes through one
//! extent only. So the position of a reader is kept here: a *prefetcher* for each of the levels and
//! runs that it walks in, found by the extent that the walk is in.
//!
//! Thread safety: one reader at a time; a mutex makes it safe for any. It is held while a block is
//! read, and no other thread waits for it: one that has resting readers give up only tries it.
//!
//! Invariants:
//!
//! 1. No two prefetchers are in one extent.
//! 2. Pieces are counted in the store until the last block that shares their memory is gone.
//! 3. A job has no more prefetchers than levels that it walks in, and releases a piece before it
//!    reads the next one of that prefetcher. A piece that is read meanwhile begins where the
//!    current one ends, or in the next extent. If the reader does not get to it, it is released
//!    with the current one. The same holds for a user's. Of objects there are up to sixteen, and
//!    three or more where a job has little memory.

mod prefetchers;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::awaited::RangeWaits;
use super::block::SharedBlock;
use super::in_level::Beside;
use super::index::{Index, IndexEntry};
use super::{Extent, InLevel, WHOLE};
use crate::base::error::Result;
use crate::base::memory::{Clock, Holding, LetGo};
use crate::os::sync::atomic::{AtomicUsize, Ordering};
use crate::os::sync::locks::Mutex;
use crate::storage::{ExtentStore, Reading};

pub(super) use prefetchers::Prefetchers;

/// The first piece of a walk, in bytes.
const FIRST: u32 = 64 * 1024;

/// The longest one.
const MOST: u32 = 1024 * 1024;

/// The same of objects.
const FIRST_OF_OBJECT: u32 = 128 * 1024;
const MOST_OF_OBJECT: u32 = 1024 * 1024;

/// Of a range that says how many rows it wants, pieces are no shorter than that if there is more
/// than one: each is a request.
const LEAST_OF_MANY: u32 = 256 * 1024;

/// Behind so much of the first one a walk goes on.
const HALF_OF_FIRST: u64 = FIRST_OF_OBJECT as u64 / 2;

/// So many pieces of objects are on their way. Of a job they are fewer where its share of memory is
/// small.
const DEPTH_OF_OBJECT: usize = 16;

/// A range that does not say how many rows it wants has so many times the bytes on their way that
/// it has passed.
const RAMP: u64 = 16;

/// How far a walk goes before it is a long one.
const LONG: u64 = 512 * 1024;

/// A user has so many prefetchers, or one for each place that it reads if these are more.
const LANES: usize = 16;

/// Blocks that a prefetcher remembers: a chunk may end in the block behind the one of its last row,
/// and the next chunk begins at that row.
const REMEMBERED: usize = 2;

/// Blocks of one extent that were read at once.
#[derive(Debug)]
struct Piece {
    offset: u32,
    bytes: Bytes,
}

/// One that is being read.
#[derive(Debug)]
struct Coming {
    extent: u64,
    reading: Reading,
    held: Holding,
}

/// Bytes that are counted.
struct CountedBytes {
    bytes: Vec<u8>,
    _held: Holding,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A walk from block to block.
#[derive(Debug)]
pub(super) struct Prefetcher {
    extent: u64,
    /// The block that was asked for last; `None` if the walk has just entered this extent.
    at: Option<usize>,
    is_backward: bool,
    /// Bytes of the next piece; 0 before two blocks in a row were asked for.
    window: u32,
    /// And the most that it becomes.
    most: u32,
    /// Bytes of the blocks that were asked for in a row.
    come: u64,
    piece: Option<Piece>,
    /// In the order of the walk.
    coming: VecDeque<Coming>,
    /// How many may be on their way.
    depth: usize,
    /// Bytes that the reader still wants, as far as it says so.
    wanted: u64,
    /// Where the extents are that the walk may enter from this one.
    beside: Option<Beside>,
    /// How much of what the reader wants comes from this level, of [`WHOLE`].
    share: u32,
    remembered: VecDeque<(u64, usize, SharedBlock)>,
    /// When the reader came to it last.
    used: u64,
}

/// The walks of a reader.
#[derive(Debug, Default)]
struct Walks {
    prefetchers: Vec<Prefetcher>,
    uses: u64,
    /// While the user's reader rests, its place in the clock that may have it give up.
    resting: Option<(Arc<Clock>, u64)>,
}

/// Of how many parts the read-ahead of a walk is.
#[derive(Clone, Copy, Debug)]
pub(super) enum PieceParts {
    /// Nothing is read meanwhile.
    One = 1,
    /// The next piece is.
    Two = 2,
    /// Of objects several are, since a request takes so long.
    Four = 4,
}

/// Where one reader is, and what it has read ahead.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// How many levels a job walks in; `None` for a user.
    of_job: Option<usize>,
    /// Rows that a user still wants, as far as the user says so.
    wanted: AtomicUsize,
    /// How many places a user reads, as far as that is known.
    places: AtomicUsize,
    /// What is not here and has to be waited for.
    pub(super) awaited: RangeWaits,
    walks: Arc<Mutex<Walks>>,
}

impl ReadAhead {
    /// For a range that a user reads.
    pub(crate) fn for_user() -> Arc<ReadAhead> {
        ReadAhead::new(None)
    }

    /// The read-ahead of a job that goes through whole extents of several levels at the same time.
    pub(crate) fn for_job(levels: usize) -> Arc<ReadAhead> {
        ReadAhead::new(Some(levels.max(1)))
    }

    fn new(of_job: Option<usize>) -> Arc<ReadAhead> {
        let (wanted, places) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        let (awaited, walks) = (RangeWaits::default(), Arc::default());
        Arc::new(ReadAhead { of_job, wanted, places, awaited, walks })
    }

    /// The reader goes through so many places at the same time.
    pub(crate) fn goes_through(&self, places: usize) {
        self.places.store(places, Ordering::Relaxed);
    }

    /// The user's reader rests until it is asked for more. Readers that rest hold at most half of
    /// what users may beside a cache of `cache`, or what the last of them has: those that rest
    /// longest drop what they have read ahead. Else readers that rest for long would leave nothing
    /// to others. One that does not rest drops nothing.
    pub(crate) fn rest(&self, store: &ExtentStore, cache: u64) {
        if self.has_left() {
            // The chunk has ended at a piece that is on its way.
            return;
        }
        let mut walks = self.walks.lock();
        walks.wake();
        let own = walks.prefetchers.iter().map(Prefetcher::held).sum::<u64>();
        if own > 0 {
            let (held, has_objects) = (store.memory(), store.objects().is_some());
            held.resting.set_most((held.most_ahead(cache, has_objects) / 2).max(own));
            let place = held.resting.keep(Arc::clone(&self.walks) as _, own);
            walks.resting = Some((Arc::clone(&held.resting), place));
            drop(walks);
            // Evicted meanwhile, it could not be told.
            if !held.resting.keeps(place) {
                self.walks.release();
            }
        }
    }

    /// The reader wants so many rows from here on.
    pub(crate) fn wants(&self, rows: usize) {
        self.wanted.store(rows, Ordering::Relaxed);
    }

    /// Whether a job reads.
    pub(super) fn is_job(&self) -> bool {
        self.of_job.is_some()
    }

    /// The reader moves from one extent to the next one of its level, or to the one before.
    pub(crate) fn cross(&self, from: u64, to: u64, is_backward: bool) {
        let mut walks = self.walks.lock();
        // A chunk that begins before the border finds the walk beyond it already.
        if !walks.prefetchers.iter().any(|prefetcher| prefetcher.extent == from) {
            return;
        }
        walks.prefetchers.retain(|other| other.extent != to);
        let Some(prefetcher) = walks.find(from) else { return };
        (prefetcher.extent, prefetcher.at, prefetcher.piece, prefetcher.beside) =
            (to, None, None, None);
        if prefetcher.is_backward != is_backward {
            (prefetcher.is_backward, prefetcher.window) = (is_backward, 0);
        }
    }

    /// Whether the reader is in an extent, or has gone on to its neighbour: a chunk may end with
    /// the last row of an extent.
    pub(super) fn is_at(&self, at: InLevel<'_>) -> bool {
        let walks = self.walks.lock();
        let is_near = |beside: &Beside| beside.is_near(at);
        walks.prefetchers.iter().any(|prefetcher| {
            let is_in = at.extent().is_some_and(|extent| extent.meta().id == prefetcher.extent);
            is_in || prefetcher.beside.as_ref().is_some_and(is_near)
        })
    }

    /// Waits for the first piece that is on its way for an extent. One that is gone is asked for
    /// again by the reader.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub(super) fn wait_for_piece(&self, extent: u64, store: &ExtentStore) -> Result<()> {
        let first = self.walks.lock().find(extent).and_then(|walk| walk.coming.pop_front());
        let Some(first) = first else { return Ok(()) };
        let came = Coming { reading: store.bring(first.reading)?, ..first };
        if let Some(prefetcher) = self.walks.lock().find(extent) {
            prefetcher.coming.push_front(came);
        }
        Ok(())
    }

    /// The reader is in an extent of some level, and moves to a neighbour.
    pub(crate) fn goes_on(&self, at: InLevel<'_>) {
        let Some(extent) = at.extent() else { return };
        let mut prefetchers = self.prefetchers(0, PieceParts::Two);
        // A user that has just begun may want no more than a block.
        if self.is_job() || prefetchers.walks.find(extent.meta().id).is_some() {
            prefetchers.of_extent(extent.meta().id, None).lies(at);
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.walks.lock().wake();
    }
}

impl LetGo for Mutex<Walks> {
    fn was_used(&self) -> bool {
        false
    }

    fn release(&self) {
        // A reader that holds it is awake, or about to rest.
        if let Some(mut walks) = self.try_lock()
            && walks.resting.take().is_some()
        {
            walks.prefetchers.iter_mut().for_each(Prefetcher::give_up);
        }
    }
}

impl Walks {
    /// The reader goes on: no other one has it give up what it has read ahead.
    fn wake(&mut self) {
        if let Some((clock, place)) = self.resting.take() {
            clock.remove(place);
        }
    }

    fn find(&mut self, extent: u64) -> Option<&mut Prefetcher> {
        self.prefetchers.iter_mut().find(|prefetcher| prefetcher.extent == extent)
    }
}

impl Prefetcher {
    fn new(extent: u64, at: Option<usize>) -> Prefetcher {
        Prefetcher {
            extent,
            at,
            is_backward: false,
            window: 0,
            most: MOST,
            come: 0,
            piece: None,
            coming: VecDeque::new(),
            depth: 1,
            wanted: u64::MAX,
            beside: None,
            share: WHOLE,
            remembered: VecDeque::with_capacity(REMEMBERED),
            used: 0,
        }
    }

    /// Of several, the greatest stays longest: one with a piece that has arrived, and the one that
    /// was used last.
    fn last_to_go(&self) -> (bool, u64) {
        (self.coming.front().is_some_and(|first| first.reading.is_here()), self.used)
    }

    /// Bytes that it has read ahead, or that are on their way.
    fn held(&self) -> u64 {
        let coming = self.coming.iter().map(|coming| u64::from(coming.reading.range().1));
        self.piece.as_ref().map_or(0, |piece| piece.bytes.len() as u64) + coming.sum::<u64>()
    }

    /// Releases all that it has read. The walk goes on with a short piece.
    fn give_up(&mut self) {
        self.release();
        self.remembered.clear();
        self.window = self.window.min(FIRST);
    }

    fn step_to(&mut self, n: usize, len: u32) {
        let is_backward = match self.at.replace(n) {
            Some(at) if at == n => return,
            Some(at) if at + 1 == n => false,
            Some(at) if n + 1 == at => true,
            None => self.is_backward,
            Some(_) => {
                (self.window, self.come) = (0, 0);
                return;
            }
        };
        if self.is_backward != is_backward {
            (self.is_backward, self.window) = (is_backward, 0);
        }
        self.window = self.window.max(FIRST);
        self.come += u64::from(len);
    }

    /// It is in that extent of its level.
    fn lies(&mut self, at: InLevel<'_>) {
        (self.beside, self.share) = (Some(Beside::new(at)), at.share);
    }

    /// Whether the next pieces are begun before the walk is a long one.
    pub(super) fn is_eager(&self) -> bool {
        self.depth > 1
    }

    /// Whether another piece may be on its way.
    pub(super) fn may_begin(&self) -> bool {
        (self.piece.is_some() || !self.coming.is_empty())
            && self.coming.len() < self.depth
            && self.held() < self.wanted
    }

    /// Whether the current block is likely to be read again soon.
    pub(super) fn is_short(&self) -> bool {
        self.come <= LONG
    }

    /// Whether blocks are asked for in a row, so that more than one is worth reading.
    pub(super) fn is_walk(&self) -> bool {
        self.window > 0
    }

    /// The bytes of a block, if they were read ahead.
    pub(super) fn read_ahead(&self, offset: u32, len: u32) -> Option<Bytes> {
        let piece = self.piece.as_ref()?;
        let from = offset.checked_sub(piece.offset)? as usize;
        let to = from + len as usize;
        (to <= piece.bytes.len()).then(|| piece.bytes.slice(from..to))
    }

    /// What to read to get block `n` and those after it: the offset of the first byte, and how many
    /// bytes.
    pub(super) fn next_piece(
        &self,
        index: &Index,
        n: usize,
        is_cached: impl Fn(u32) -> bool,
    ) -> (u32, u32) {
        let (entries, window) = (index.entries(), self.window);
        let rest = if self.is_backward { &entries[..=n] } else { &entries[n..] };
        let (start, end) = span(rest);
        let is_leftover = end - start <= window + window / 2;
        let mut blocks = match self.is_backward {
            _ if is_leftover => rest,
            false => &rest[..rest.partition_point(|b| b.offset + b.len - start <= window).max(1)],
            true => &rest[rest.partition_point(|b| end - b.offset > window).min(n)..],
        };
        // The block that was asked for is at one end. At the other end blocks that are cached are
        // left out.
        while let [first, .., last] = blocks {
            let (farthest, nearer) = match self.is_backward {
                false => (last, &blocks[..blocks.len() - 1]),
                true => (first, &blocks[1..]),
            };
            if !is_cached(farthest.offset) {
                break;
            }
            blocks = nearer;
        }
        let (start, end) = span(blocks);
        (start, end - start)
    }

    /// Releases the piece and goes down to a smaller size; whether there is a smaller one.
    pub(super) fn narrow(&mut self) -> bool {
        let is_wide = self.window > FIRST || self.piece.is_some();
        self.piece = None;
        self.window = (self.window / 2).max(FIRST);
        is_wide
    }

    /// Releases the piece, and one that is being read.
    pub(super) fn release(&mut self) {
        self.piece = None;
        self.coming.clear();
    }

    /// Where the last piece ends (or begins, for a backward walk) that was read or begun, and in
    /// which extent.
    pub(super) fn edge(&self) -> Option<(u64, u32)> {
        let (extent, (offset, len)) = match self.coming.back() {
            Some(coming) => (coming.extent, coming.reading.range()),
            None => {
                let piece = self.piece.as_ref()?;
                (self.extent, (piece.offset, piece.bytes.len() as u32))
            }
        };
        Some((extent, if self.is_backward { offset } else { offset + len }))
    }

    /// The first block that the walk needs beyond an edge, or in the whole of an extent.
    pub(super) fn first_beyond(&self, edge: Option<u32>, index: &Index) -> Option<usize> {
        let blocks = index.entries();
        let before = |at: u32| blocks.partition_point(|block| block.offset < at);
        match self.is_backward {
            false => Some(edge.map_or(0, before)).filter(|n| *n < blocks.len()),
            true => edge.map_or(blocks.len(), before).checked_sub(1),
        }
    }

    /// The extents that come next, the nearest first, as many as pieces may be in.
    pub(super) fn next(&self) -> impl Iterator<Item = Arc<Extent>> {
        let next = self.beside.iter().flat_map(|beside| beside.next(self.is_backward));
        next.take(DEPTH_OF_OBJECT + 1)
    }

    /// Releases a piece that is being read and does not hold what is asked for.
    pub(super) fn release_pending(&mut self) {
        self.coming.clear();
    }

    /// A piece of an extent is being read.
    pub(super) fn begin(&mut self, extent: u64, reading: Reading, held: Holding) {
        self.coming.push_back(Coming { extent, reading, held });
    }

    /// Which of the pieces that are being read has a block of this extent.
    fn coming_with(&self, offset: u32, len: u32) -> Option<usize> {
        let has = |(from, all): (u32, u32)| from <= offset && offset + len <= from + all;
        let is_it = |it: &Coming| it.extent == self.extent && has(it.reading.range());
        self.coming.iter().position(is_it)
    }

    /// Whether a block of this extent is here, or comes with a piece that is.
    pub(super) fn is_here(&self, offset: u32, len: u32) -> bool {
        let comes =
            || self.coming_with(offset, len).is_some_and(|n| self.coming[n].reading.is_here());
        self.read_ahead(offset, len).is_some() || comes()
    }

    /// Whether a block of this extent is on its way. Pieces before that one are released then, as
    /// the walk has passed them.
    pub(super) fn comes_first(&mut self, offset: u32, len: u32) -> bool {
        let found = self.coming_with(offset, len);
        self.coming.drain(..found.unwrap_or(0));
        found.is_some()
    }

    /// The piece that is being read, if it has a block of this extent. The walk has passed those
    /// before it.
    pub(super) fn begun(&mut self, offset: u32, len: u32) -> Option<(Reading, Holding)> {
        let at = self.coming_with(offset, len)?;
        let coming = self.coming.drain(..=at).next_back()?;
        self.piece = None;
        Some((coming.reading, coming.held))
    }

    /// Takes a piece that was read.
    pub(super) fn take(&mut self, offset: u32, bytes: Vec<u8>, held: Holding) {
        self.window = self.window.saturating_mul(2).min(self.most);
        let bytes = Bytes::from_owner(CountedBytes { bytes, _held: held });
        self.piece = Some(Piece { offset, bytes });
    }

    /// Remembers a block that the reader is at.
    pub(super) fn remember(&mut self, n: usize, block: &SharedBlock) {
        if self.remembered.len() == REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back((self.extent, n, block.clone()));
    }
}

/// Where blocks that follow each other begin and end.
fn span(blocks: &[IndexEntry]) -> (u32, u32) {
    let start = blocks.first().map_or(0, |first| first.offset);
    (start, blocks.last().map_or(start, |last| last.offset + last.len))
}

#[cfg(test)]
mod tests;
