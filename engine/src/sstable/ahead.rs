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

use std::sync::{Arc, Weak};

use super::Extent;
use super::awaited::RangeWaits;
use crate::base::error::Result;
use crate::base::memory::{Clock, LetGo};
use crate::os::sync::atomic::{AtomicUsize, Ordering};
use crate::os::sync::locks::Mutex;
use crate::storage::ExtentStore;

pub(super) use prefetchers::{Prefetcher, Prefetchers};

/// The share of a level that has all records.
pub(crate) const WHOLE: u32 = 1024;

/// An extent of a level, and how much of the records of all levels that level has, of [`WHOLE`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLevel<'a> {
    pub(crate) level: &'a Arc<[Arc<Extent>]>,
    pub(crate) number: usize,
    pub(crate) share: u32,
}

impl<'a> InLevel<'a> {
    /// The extent.
    pub(crate) fn extent(self) -> Option<&'a Arc<Extent>> {
        self.level.get(self.number)
    }
}

/// Where a walk is. It holds no extent: between two chunks a range holds none.
#[derive(Debug)]
struct Beside {
    level: Weak<[Arc<Extent>]>,
    number: usize,
}

impl Beside {
    pub(super) fn new(at: InLevel<'_>) -> Beside {
        Beside { level: Arc::downgrade(at.level), number: at.number }
    }

    /// Whether it is at an extent or at a neighbour of it.
    pub(super) fn is_near(&self, at: InLevel<'_>) -> bool {
        std::ptr::addr_eq(self.level.as_ptr(), Arc::as_ptr(at.level))
            && self.number.abs_diff(at.number) <= 1
    }

    /// The extents before or behind it, the nearest first.
    pub(super) fn next(&self, is_backward: bool) -> impl Iterator<Item = Arc<Extent>> + use<> {
        let (level, number) = (self.level.upgrade(), self.number);
        level.into_iter().flat_map(move |level| {
            (1..).map_while(move |steps| {
                let n = if is_backward { number.checked_sub(steps)? } else { number + steps };
                level.get(n).map(Arc::clone)
            })
        })
    }
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
        let Some(mut first) = first else { return Ok(()) };
        first.reading = store.fetch(first.reading)?;
        if let Some(prefetcher) = self.walks.lock().find(extent) {
            prefetcher.coming.push_front(first);
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

#[cfg(test)]
mod tests;
