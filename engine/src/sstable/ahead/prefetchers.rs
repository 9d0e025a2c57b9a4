//! The prefetchers of a reader while it asks for a block: which one it comes to, how much that
//! reads at once, and which one makes room.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::{Beside, InLevel, PieceParts, ReadAhead, WHOLE, Walks};
use crate::base::memory::Holding;
use crate::os::sync::atomic::Ordering;
use crate::os::sync::locks::MutexGuard;
use crate::sstable::block::SharedBlock;
use crate::sstable::index::{Index, IndexEntry};
use crate::sstable::{Extent, ExtentMeta};
use crate::storage::Reading;

/// The first piece of a walk, in bytes.
pub(super) const FIRST: u32 = 64 * 1024;

/// The longest one.
pub(super) const MOST: u32 = 1024 * 1024;

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
pub(super) const LANES: usize = 16;

/// Blocks that a prefetcher remembers: a chunk may end in the block behind the one of its last row,
/// and the next chunk begins at that row.
const REMEMBERED: usize = 2;

/// Blocks of one extent that were read at once.
#[derive(Debug)]
pub(super) struct Piece {
    offset: u32,
    bytes: Bytes,
}

/// One that is being read.
#[derive(Debug)]
pub(super) struct Coming {
    extent: u64,
    pub(super) reading: Reading,
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
pub(in crate::sstable) struct Prefetcher {
    pub(super) extent: u64,
    /// The block that was asked for last; `None` if the walk has just entered this extent.
    pub(super) at: Option<usize>,
    pub(super) is_backward: bool,
    /// Bytes of the next piece; 0 before two blocks in a row were asked for.
    pub(super) window: u32,
    /// And the most that it becomes.
    most: u32,
    /// Bytes of the blocks that were asked for in a row.
    come: u64,
    pub(super) piece: Option<Piece>,
    /// In the order of the walk.
    pub(super) coming: VecDeque<Coming>,
    /// How many may be on their way.
    depth: usize,
    /// Bytes that the reader still wants, as far as it says so.
    wanted: u64,
    /// Where the extents are that the walk may enter from this one.
    pub(super) beside: Option<Beside>,
    /// How much of what the reader wants comes from this level, of [`WHOLE`].
    share: u32,
    remembered: VecDeque<(u64, usize, SharedBlock)>,
    /// When the reader came to it last.
    used: u64,
}

impl ReadAhead {
    /// Where the reader is. A job holds at most about `ahead` bytes of read-ahead: in each
    /// prefetcher so many parts as pieces. A piece has at least one block, and may be half as long
    /// again where that is the rest of its extent. All but one part are read meanwhile. Of a user
    /// `ahead` is what may be held of objects.
    pub(in crate::sstable) fn prefetchers(&self, ahead: u64, parts: PieceParts) -> Prefetchers<'_> {
        let (parts, longest) = (parts as u32, MOST / (parts as u32).min(PieceParts::Two as u32));
        let each = |levels: usize| {
            let piece = ahead / levels as u64 / u64::from(parts);
            piece.min(u64::from(longest)) as u32
        };
        let lanes = || self.places.load(Ordering::Relaxed).max(LANES);
        let (window, most) = (self.of_job.map(each), self.of_job.unwrap_or_else(lanes));
        // Beside the piece that the job has.
        let coming = |window: u32| ahead / most as u64 / u64::from(window.max(1));
        let deep = window.map_or(DEPTH_OF_OBJECT as u64, |window| coming(window).saturating_sub(1));
        let depth_of_object = deep.clamp(1, DEPTH_OF_OBJECT as u64) as usize;
        let mut walks = self.walks.lock();
        walks.wake();
        let piece = ahead / DEPTH_OF_OBJECT as u64;
        let piece = piece.clamp(u64::from(FIRST_OF_OBJECT), u64::from(MOST_OF_OBJECT)) as u32;
        Prefetchers {
            window,
            longest,
            longest_of_object: piece,
            most,
            depth_of_object,
            wanted: self.wanted.load(Ordering::Relaxed),
            walks,
        }
    }
}

/// The prefetchers of a reader, while it asks for a block.
pub(in crate::sstable) struct Prefetchers<'a> {
    /// The length of a job's pieces.
    window: Option<u32>,
    /// The greatest length of a user's.
    longest: u32,
    longest_of_object: u32,
    most: usize,
    /// How many pieces of an object may be on their way.
    depth_of_object: usize,
    /// Rows that the user still wants.
    wanted: usize,
    pub(super) walks: MutexGuard<'a, Walks>,
}

impl Prefetchers<'_> {
    /// A block that the reader asked for just now.
    pub(in crate::sstable) fn remembered(&self, extent: u64, n: usize) -> Option<SharedBlock> {
        let mut all = self.walks.prefetchers.iter().flat_map(|prefetcher| &prefetcher.remembered);
        all.find(|(e, m, _)| (*e, *m) == (extent, n)).map(|(_, _, block)| block.clone())
    }

    /// The reader asks for block `n`, of `len` bytes, of an extent.
    pub(in crate::sstable) fn come_to(
        &mut self,
        extent: u64,
        n: usize,
        len: u32,
    ) -> &mut Prefetcher {
        let (window, longest) = (self.window, self.longest);
        let prefetcher = self.of_extent(extent, Some(n));
        prefetcher.step_to(n, len);
        (prefetcher.most, prefetcher.depth, prefetcher.wanted) = (longest, 1, u64::MAX);
        if let Some(window) = window {
            prefetcher.window = window.max(1);
            prefetcher.most = prefetcher.window;
        }
        prefetcher
    }

    /// The same of an extent, which may be an object.
    pub(in crate::sstable) fn come_to_in(
        &mut self,
        extent: &ExtentMeta,
        n: usize,
        len: u32,
    ) -> &mut Prefetcher {
        let (is_job, depth) = (self.window.is_some(), self.depth_of_object);
        let (longest, rows) = (self.longest_of_object, self.wanted);
        let prefetcher = self.come_to(extent.id, n, len);
        if !extent.location.is_object() {
            return prefetcher;
        }
        if is_job {
            prefetcher.depth = if prefetcher.is_walk() { depth } else { 1 };
            return prefetcher;
        }
        prefetcher.most = longest;
        let is_first = prefetcher.window == 0;
        prefetcher.wanted = RAMP * prefetcher.come;
        if rows < usize::MAX {
            let row = u64::from(extent.location.len) / extent.records.max(1);
            let of_level = (rows as u64).saturating_mul(row.max(1)) / u64::from(WHOLE);
            let wanted = of_level.saturating_mul(u64::from(prefetcher.share));
            // Levels need not have the same share everywhere. Rows begin somewhere in the first
            // block, and end somewhere in the last.
            prefetcher.wanted = wanted.saturating_add(wanted / 8 + 2 * u64::from(len));
            let one = prefetcher.wanted.min(u64::from(LEAST_OF_MANY));
            let piece = (prefetcher.wanted / depth as u64).max(one).min(u64::from(longest)) as u32;
            prefetcher.window = if is_first { piece } else { prefetcher.window };
        }
        prefetcher.window = prefetcher.window.clamp(FIRST_OF_OBJECT, longest);
        let is_long = rows < usize::MAX || prefetcher.come >= HALF_OF_FIRST;
        prefetcher.depth = if is_long { depth } else { 1 };
        prefetcher
    }

    /// A range begins at block `n` of an extent.
    pub(in crate::sstable) fn begin_walk(
        &mut self,
        (at, n): (InLevel<'_>, usize),
        is_backward: bool,
    ) {
        let Some(extent) = at.extent() else { return };
        let prefetcher = self.of_extent(extent.meta().id, Some(n));
        prefetcher.is_backward = is_backward;
        prefetcher.lies(at);
    }

    /// The prefetcher of an extent. If there is none, a new one at block `at`, perhaps in place of
    /// the one that was used longest ago.
    pub(super) fn of_extent(&mut self, extent: u64, at: Option<usize>) -> &mut Prefetcher {
        let Walks { prefetchers, uses, .. } = &mut *self.walks;
        let found = prefetchers.iter().position(|prefetcher| prefetcher.extent == extent);
        let number = found.unwrap_or_else(|| {
            // What has arrived is what the reader has waited for.
            let oldest = || (0..prefetchers.len()).min_by_key(|n| prefetchers[*n].last_to_go());
            if let Some(oldest) = oldest().filter(|_| prefetchers.len() >= self.most) {
                prefetchers.swap_remove(oldest);
            }
            prefetchers.push(Prefetcher::new(extent, at));
            prefetchers.len() - 1
        });
        debug_assert_eq!(
            prefetchers.iter().filter(|prefetcher| prefetcher.extent == extent).count(),
            1,
            "invariant 1"
        );
        *uses += 1;
        prefetchers[number].used = *uses;
        &mut prefetchers[number]
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
    pub(super) fn held(&self) -> u64 {
        let coming = self.coming.iter().map(|coming| u64::from(coming.reading.range().1));
        self.piece.as_ref().map_or(0, |piece| piece.bytes.len() as u64) + coming.sum::<u64>()
    }

    /// Releases all that it has read. The walk goes on with a short piece.
    pub(super) fn give_up(&mut self) {
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
    pub(super) fn lies(&mut self, at: InLevel<'_>) {
        (self.beside, self.share) = (Some(Beside::new(at)), at.share);
    }

    /// Whether the next pieces are begun before the walk is a long one.
    pub(in crate::sstable) fn is_eager(&self) -> bool {
        self.depth > 1
    }

    /// Whether another piece may be on its way.
    pub(in crate::sstable) fn may_begin(&self) -> bool {
        (self.piece.is_some() || !self.coming.is_empty())
            && self.coming.len() < self.depth
            && self.held() < self.wanted
    }

    /// Whether the current block is likely to be read again soon.
    pub(in crate::sstable) fn is_short(&self) -> bool {
        self.come <= LONG
    }

    /// Whether blocks are asked for in a row, so that more than one is worth reading.
    pub(in crate::sstable) fn is_walk(&self) -> bool {
        self.window > 0
    }

    /// The bytes of a block, if they were read ahead.
    pub(in crate::sstable) fn read_ahead(&self, offset: u32, len: u32) -> Option<Bytes> {
        let piece = self.piece.as_ref()?;
        let from = offset.checked_sub(piece.offset)? as usize;
        let to = from + len as usize;
        (to <= piece.bytes.len()).then(|| piece.bytes.slice(from..to))
    }

    /// What to read to get block `n` and those after it: the offset of the first byte, and how many
    /// bytes.
    pub(in crate::sstable) fn next_piece(
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
    pub(in crate::sstable) fn narrow(&mut self) -> bool {
        let is_wide = self.window > FIRST || self.piece.is_some();
        self.piece = None;
        self.window = (self.window / 2).max(FIRST);
        is_wide
    }

    /// Releases the piece, and one that is being read.
    pub(in crate::sstable) fn release(&mut self) {
        self.piece = None;
        self.coming.clear();
    }

    /// Where the last piece ends (or begins, for a backward walk) that was read or begun, and in
    /// which extent.
    pub(in crate::sstable) fn edge(&self) -> Option<(u64, u32)> {
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
    pub(in crate::sstable) fn first_beyond(
        &self,
        edge: Option<u32>,
        index: &Index,
    ) -> Option<usize> {
        let blocks = index.entries();
        let before = |at: u32| blocks.partition_point(|block| block.offset < at);
        match self.is_backward {
            false => Some(edge.map_or(0, before)).filter(|n| *n < blocks.len()),
            true => edge.map_or(blocks.len(), before).checked_sub(1),
        }
    }

    /// The extents that come next, the nearest first, as many as pieces may be in.
    pub(in crate::sstable) fn next(&self) -> impl Iterator<Item = Arc<Extent>> {
        let next = self.beside.iter().flat_map(|beside| beside.next(self.is_backward));
        next.take(DEPTH_OF_OBJECT + 1)
    }

    /// Releases a piece that is being read and does not hold what is asked for.
    pub(in crate::sstable) fn release_pending(&mut self) {
        self.coming.clear();
    }

    /// A piece of an extent is being read.
    pub(in crate::sstable) fn begin(&mut self, extent: u64, reading: Reading, held: Holding) {
        self.coming.push_back(Coming { extent, reading, held });
    }

    /// Which of the pieces that are being read has a block of this extent.
    fn coming_with(&self, offset: u32, len: u32) -> Option<usize> {
        let has = |(from, all): (u32, u32)| from <= offset && offset + len <= from + all;
        let is_it = |it: &Coming| it.extent == self.extent && has(it.reading.range());
        self.coming.iter().position(is_it)
    }

    /// Whether a block of this extent is here, or comes with a piece that is.
    pub(in crate::sstable) fn is_here(&self, offset: u32, len: u32) -> bool {
        let comes =
            || self.coming_with(offset, len).is_some_and(|n| self.coming[n].reading.is_here());
        self.read_ahead(offset, len).is_some() || comes()
    }

    /// Whether a block of this extent is on its way. Pieces before that one are released then, as
    /// the walk has passed them.
    pub(in crate::sstable) fn comes_first(&mut self, offset: u32, len: u32) -> bool {
        let found = self.coming_with(offset, len);
        self.coming.drain(..found.unwrap_or(0));
        found.is_some()
    }

    /// The piece that is being read, if it has a block of this extent. The walk has passed those
    /// before it.
    pub(in crate::sstable) fn begun(
        &mut self,
        offset: u32,
        len: u32,
    ) -> Option<(Reading, Holding)> {
        let at = self.coming_with(offset, len)?;
        let coming = self.coming.drain(..=at).next_back()?;
        self.piece = None;
        Some((coming.reading, coming.held))
    }

    /// Takes a piece that was read.
    pub(in crate::sstable) fn take(&mut self, offset: u32, bytes: Vec<u8>, held: Holding) {
        self.window = self.window.saturating_mul(2).min(self.most);
        let bytes = Bytes::from_owner(CountedBytes { bytes, _held: held });
        self.piece = Some(Piece { offset, bytes });
    }

    /// Remembers a block that the reader is at.
    pub(in crate::sstable) fn remember(&mut self, n: usize, block: &SharedBlock) {
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
