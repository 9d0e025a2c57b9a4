//! The pool of pages: 4 KiB each, for row tables of level 0. Its space is units that it takes from
//! the zone pool and gives back whole.
//!
//! Nothing of it is durable. Which pages are in use follows from the edits of the journal that
//! publish row tables, and from D. So taking a page costs no persist, and a cut leaks none: what no
//! edit names is free at the next opening.
//!
//! Thread safety: every method takes `&self`. One mutex is held for the search of a piece. The zone
//! pool's mutex is taken within it, never the other way round.
//!
//! Invariants:
//!
//! 1. A page is in exactly one state: in use, free here, or in a unit that this pool does not have.
//! 2. No unit of this pool has free pages alone.
//! 3. Neighbouring free pages are one piece.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::ZonePool;
use crate::base::error::{Error, Mismatch, Result};
use crate::mvcc::DeferQueue;
use crate::os::sync::locks::Mutex;
use crate::os::{BesideReader, Readers};
use crate::pm::{Geometry, PAGE, Region};

/// Pages in a row: the number of the first, which is its offset in the region divided by the
/// length of a page, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageRange {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// The pool of pages of one region.
#[derive(Debug)]
pub(crate) struct PagePool {
    region: Arc<Region>,
    zones: Arc<ZonePool>,
    /// Of the database: what waits for readers.
    queue: Arc<DeferQueue>,
    /// Beside this process.
    readers: Arc<Readers>,
    kept: Mutex<KeptPages>,
    free: Mutex<FreePages>,
}

/// Pages that were given back while readers beside this process were opening: these read the row
/// tables of the journal that they have read.
#[derive(Debug, Default)]
struct KeptPages {
    pages: Vec<PageRange>,
    /// Readers that were opening when it was first looked for them, and still are.
    opening: Option<Vec<BesideReader>>,
    /// Given back since then.
    later: Vec<PageRange>,
}

#[derive(Debug, Default)]
struct FreePages {
    /// The first of a piece, and how many pages it has.
    pieces: BTreeMap<u32, u32>,
    /// Pages in the pieces.
    free: u64,
    /// Pages of all units that the pool has.
    held: u64,
}

impl FreePages {
    /// Takes `count` pages in a row out of the first piece that has them.
    fn take(&mut self, count: u32) -> Option<u32> {
        let (&first, &there) = self.pieces.iter().find(|(_, there)| **there >= count)?;
        self.pieces.remove(&first);
        if there > count {
            self.pieces.insert(first + count, there - count);
        }
        self.free -= u64::from(count);
        Some(first)
    }

    /// Takes in pages, and joins them with their neighbours; the whole piece.
    fn give(&mut self, PageRange { mut first, mut count }: PageRange) -> PageRange {
        self.free += u64::from(count);
        if let Some((&before, &len)) = self.pieces.range(..first).next_back() {
            debug_assert!(before + len <= first, "page {first} is free already (invariant 1)");
            if before + len == first {
                (first, count) = (before, len + count);
            }
        }
        if let Some(len) = self.pieces.remove(&(first + count)) {
            count += len;
        }
        self.pieces.insert(first, count);
        PageRange { first, count }
    }

    /// Takes pages out of a free piece, with the units that they are.
    fn give_up(&mut self, piece: PageRange, PageRange { first, count }: PageRange) {
        self.pieces.remove(&piece.first);
        let (end, piece_end) = (first + count, piece.first + piece.count);
        if piece.first < first {
            self.pieces.insert(piece.first, first - piece.first);
        }
        if end < piece_end {
            self.pieces.insert(end, piece_end - end);
        }
        self.free -= u64::from(count);
        self.held -= u64::from(count);
    }
}

impl PagePool {
    /// One without any page.
    pub(crate) fn new(
        region: Arc<Region>,
        zones: Arc<ZonePool>,
        (queue, readers): (&Arc<DeferQueue>, &Arc<Readers>),
    ) -> PagePool {
        PagePool {
            region,
            zones,
            queue: Arc::clone(queue),
            readers: Arc::clone(readers),
            kept: Mutex::default(),
            free: Mutex::default(),
        }
    }

    /// One of a process that has no others beside it.
    #[cfg(test)]
    pub(crate) fn alone(region: Arc<Region>, zones: Arc<ZonePool>) -> PagePool {
        let files = Arc::new(crate::os::MemoryFiles::new(0));
        let readers = Arc::new(Readers::new(files, std::path::Path::new("")));
        PagePool::new(region, zones, (&Arc::default(), &readers))
    }

    /// Gives pages back that no search looks into any more, once those from before have ended.
    pub(crate) fn give_later(
        self: &Arc<Self>,
        gone: impl FnOnce() -> Vec<PageRange> + Send + 'static,
    ) {
        let pool = Arc::clone(self);
        self.queue.defer(move || pool.give(gone()));
    }

    /// The region that it is of.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Takes pages: as many pieces as `counts` has numbers, each of so many pages in a row. `None`
    /// when there is no room for all of them, and nothing has changed.
    pub(crate) fn take(&self, counts: &[u32]) -> Option<Vec<PageRange>> {
        let mut free = self.free.lock();
        let mut left: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let mut taken: Vec<PageRange> = Vec::with_capacity(counts.len());
        for &count in counts {
            debug_assert!(count > 0, "a piece has pages");
            if let Some(first) = free.take(count).or_else(|| self.extend(&mut free, left, count)) {
                taken.push(PageRange { first, count });
            } else {
                taken.into_iter().for_each(|pages| self.put_back(&mut free, pages));
                return None;
            }
            left -= u64::from(count);
        }
        Some(taken)
    }

    /// Gets units for `left` pages, or fewer, and takes `count` pages in a row out of them.
    fn extend(&self, free: &mut FreePages, left: u64, count: u32) -> Option<u32> {
        let geometry = self.zones.geometry();
        let least = geometry.units_for(u64::from(count) * PAGE);
        if least > geometry.largest_units() {
            return None;
        }
        let wanted = geometry.units_for(left * PAGE).min(geometry.usual_units()).max(least);
        let (unit, units) = self.zones.take_units(wanted, least)?;
        let pages = (geometry.zone_len(units) / PAGE) as u32;
        free.held += u64::from(pages);
        free.give(PageRange { first: page_of(geometry, unit), count: pages });
        free.take(count)
    }

    /// Takes back pages that no edit names and no reader looks at, or of which D covers all that
    /// is in them, durably and for every reader.
    pub(crate) fn give(&self, pages: impl IntoIterator<Item = PageRange>) {
        self.kept.lock().later.extend(pages);
        // Where that cannot be said, they stay. The background looks again, and tells.
        self.give_kept().unwrap_or_default();
    }

    /// Gives pages back that readers beside this process do not read any more; whether all are.
    ///
    /// # Errors
    ///
    /// An I/O error of the look for readers: they stay.
    pub(crate) fn give_kept(&self) -> io::Result<bool> {
        let mut kept = self.kept.lock();
        let KeptPages { pages, opening, later } = &mut *kept;
        loop {
            if pages.is_empty() {
                // One that comes after this look reads a journal that does not name them.
                (*pages, *opening) = (std::mem::take(later), None);
            }
            if pages.is_empty() {
                return Ok(true);
            }
            if !self.readers.have_opened(opening)? {
                return Ok(false);
            }
            let mut free = self.free.lock();
            pages.drain(..).for_each(|pages| self.put_back(&mut free, pages));
        }
    }

    fn put_back(&self, free: &mut FreePages, pages: PageRange) {
        let piece = free.give(pages);
        let geometry = self.zones.geometry();
        let base = page_of(geometry, 0);
        let in_unit = (geometry.unit / PAGE) as u32;
        let (from, to) = (piece.first - base, piece.first - base + piece.count);
        let (unit, end) = (from.div_ceil(in_unit), to / in_unit);
        if unit >= end {
            return;
        }
        // Whole units go back (invariant 2); what is left of the piece on both sides stays.
        let units = PageRange { first: base + unit * in_unit, count: (end - unit) * in_unit };
        free.give_up(piece, units);
        self.zones.give_units(unit, end - unit);
    }

    /// Takes over the pages that an opening found in use, of all row tables. The rest of their
    /// units is free.
    pub(crate) fn adopt(&self, mut used: Vec<PageRange>) -> Result<()> {
        used.sort_unstable();
        let geometry = self.zones.geometry();
        let base = page_of(geometry, 0);
        let in_unit = (geometry.unit / PAGE) as u32;
        let (mut free, mut end, mut unit_end) = (self.free.lock(), base, base);
        for PageRange { first, count } in used {
            let last = first.saturating_add(count);
            if first < end || last > page_of(geometry, geometry.units) {
                return Err(self.misplaced(first, "a page of one row table inside of the units"));
            }
            // Between the page before and this one all is free, as far as units were claimed.
            let gap = first.min(unit_end);
            if end < gap {
                free.give(PageRange { first: end, count: gap - end });
            }
            while unit_end < last {
                let unit = (unit_end.max(first) - base) / in_unit;
                if !self.zones.claim_unit(unit) {
                    return Err(self.misplaced(first, "a page in a unit that no zone has"));
                }
                free.held += u64::from(in_unit);
                let start = base + unit * in_unit;
                if start < first {
                    free.give(PageRange { first: start, count: first - start });
                }
                unit_end = start + in_unit;
            }
            end = last;
        }
        if end < unit_end {
            free.give(PageRange { first: end, count: unit_end - end });
        }
        Ok(())
    }

    /// Pages in use.
    pub(crate) fn used(&self) -> u64 {
        let free = self.free.lock();
        debug_assert!(free.free <= free.held, "a free page is in a unit of the pool");
        free.held - free.free
    }

    fn misplaced(&self, page: u32, expected: &str) -> Error {
        let found = Mismatch::new(expected, "a page that is taken");
        Error::corrupt(self.region.damage(u64::from(page) * PAGE, "page of a row table", found))
    }

    /// Free pages of units that it has.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u64 {
        let free = self.free.lock();
        let counted: u64 = free.pieces.values().map(|count| u64::from(*count)).sum();
        assert_eq!(counted, free.free, "free pages are counted");
        counted
    }
}

/// The first page of a unit.
fn page_of(geometry: Geometry, unit: u32) -> u32 {
    (geometry.zone(unit) / PAGE) as u32
}

// Free units of a region in pieces whose sizes are powers of two (Knowlton, "A fast storage
// allocator", 1965). A piece is divided into two buddies as often as it takes, and two free
// buddies are one piece again.
//
// Nothing of it is durable: an opening gives it all units that belong to no zone.
//
// Thread safety: none of its own; behind the zone pool's mutex.
//
// Invariants:
//
// 1. A piece of n units begins at a multiple of n, and pieces do not overlap.
// 2. Of two buddies below the largest size at most one is free.

/// Sizes that pieces have: 1, 2, 4 … units, of which the last is the largest zone of the smallest
/// units.
const SIZES: usize = 8;

/// Free units.
#[derive(Debug, Default)]
pub(super) struct Buddies {
    /// Where pieces of each size begin.
    pieces: [BTreeSet<u32>; SIZES],
    units: u32,
}

impl Buddies {
    /// How many units are free.
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// Units in the largest piece; 0 when nothing is free.
    pub(super) fn largest(&self) -> u32 {
        self.pieces.iter().rposition(|pieces| !pieces.is_empty()).map_or(0, |size| 1 << size)
    }

    /// Takes a piece of `units`, a power of two. It comes out of the smallest piece that has it, so
    /// that large ones stay whole, and of these the first in the region.
    pub(super) fn take(&mut self, units: u32) -> Option<u32> {
        debug_assert!(units.is_power_of_two(), "pieces have powers of two, not {units}");
        let wanted = units.ilog2() as usize;
        let mut size = (wanted..SIZES).find(|size| !self.pieces[*size].is_empty())?;
        let at = self.pieces[size].pop_first()?;
        while size > wanted {
            size -= 1;
            self.pieces[size].insert(at + (1 << size));
        }
        self.units -= units;
        Some(at)
    }

    /// Takes one unit out of the free piece that has it. Returns whether the unit was free.
    pub(super) fn take_at(&mut self, unit: u32) -> bool {
        let holds = |size: &usize| self.pieces[*size].contains(&(unit & !((1 << *size) - 1)));
        let Some(mut size) = (0..SIZES).find(holds) else { return false };
        let mut at = unit & !((1 << size) - 1);
        self.pieces[size].remove(&at);
        while size > 0 {
            size -= 1;
            let upper = at + (1 << size);
            let (kept, freed) = if unit >= upper { (upper, at) } else { (at, upper) };
            self.pieces[size].insert(freed);
            at = kept;
        }
        self.units -= 1;
        true
    }

    /// Takes in a piece of `units`, a power of two, which begins at a multiple of that.
    pub(super) fn give(&mut self, mut at: u32, units: u32) {
        debug_assert!(units.is_power_of_two() && at.is_multiple_of(units), "{units} at {at}");
        self.units += units;
        let mut size = units.ilog2() as usize;
        while size + 1 < SIZES {
            let buddy = at ^ (1 << size);
            if !self.pieces[size].remove(&buddy) {
                break;
            }
            at = at.min(buddy);
            size += 1;
        }
        let is_new = self.pieces[size].insert(at);
        debug_assert!(is_new, "unit {at} is free already (invariant 1)");
    }

    /// Takes in each unit from `from` to before `to`.
    pub(super) fn give_each(&mut self, from: u32, to: u32) {
        (from..to).for_each(|unit| self.give(unit, 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_testkit::Machine;

    /// 64 units of four pages.
    const GEOMETRY: Geometry = Geometry { unit: 4 * PAGE, zone_slots: 64, units: 64, target: 64 };

    fn pool() -> (Arc<ZonePool>, PagePool) {
        let region = Region::of_machine(&Machine::with_memory(), GEOMETRY.region_len()).unwrap();
        region.persist(ZonePool::format(&region, GEOMETRY)).unwrap();
        let zones = Arc::new(ZonePool::open(&region, GEOMETRY).unwrap().0);
        let pool = PagePool::alone(region, Arc::clone(&zones));
        (zones, pool)
    }

    fn base() -> u32 {
        page_of(GEOMETRY, 0)
    }

    #[test]
    fn pieces_lie_in_a_row_and_whole_units_go_back() {
        let (zones, pool) = pool();
        let taken = pool.take(&[1, 6, 1]).unwrap();
        assert_eq!(taken.iter().map(|pages| pages.count).collect::<Vec<_>>(), [1, 6, 1]);
        let units = 64 - zones.free();
        assert!((2..=4).contains(&units), "{units} units for eight pages");
        pool.give([taken[1]]);
        assert!(64 - zones.free() < units, "a piece over a whole unit");
        assert_eq!(pool.used(), 2);
        pool.give([taken[0], taken[2]]);
        assert_eq!((zones.free(), pool.free(), pool.used()), (64, 0, 0));
    }

    /// Bug: pages waited where a look for readers failed, and no event told why. Cause: the failure
    /// was taken for readers that are there. Fix: the caller gets it. The pages still wait.
    #[test]
    fn pages_stay_where_a_look_for_readers_fails() {
        let (_, mut pool) = pool();
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("later");
        pool.readers = Arc::new(Readers::new(Arc::new(crate::os::RealFiles::default()), &place));
        let taken = pool.take(&[4]).unwrap();
        pool.give(taken);
        pool.give_kept().unwrap_err();
        assert_eq!(pool.used(), 4);
        std::fs::create_dir(&place).unwrap();
        assert!(pool.give_kept().unwrap());
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let (zones, pool) = pool();
        assert_eq!(pool.take(&[1, 4 * 8 + 1]), None, "more in a row than the largest piece");
        assert_eq!(pool.take(&vec![1; 64 * 4 + 1]), None, "more than there is");
        assert_eq!((zones.free(), pool.free()), (64, 0));
        let all = pool.take(&vec![1; 64 * 4]).unwrap();
        assert_eq!((zones.free(), pool.take(&[1])), (0, None));
        pool.give(all);
        assert_eq!(zones.free(), 64);
    }

    #[test]
    fn an_opening_takes_the_units_of_pages_in_use_and_frees_the_rest_of_them() {
        let (zones, pool) = pool();
        let used = [(2, 1), (3, 3), (9, 1)]
            .map(|(first, count)| PageRange { first: base() + first, count });
        pool.adopt(used.to_vec()).unwrap();
        assert_eq!((zones.free(), pool.free(), pool.used()), (61, 12 - 5, 5));
        let free = pool.take(&[1; 7]).unwrap();
        let is_used = |page: &PageRange| {
            used.iter().any(|u| (u.first..u.first + u.count).contains(&page.first))
        };
        assert!(zones.free() == 61 && !free.iter().any(is_used));
        pool.give(free);
        pool.give(used);
        assert_eq!((zones.free(), pool.free()), (64, 0));
    }

    #[test]
    fn an_opening_refuses_a_page_that_two_have_or_that_lies_outside() {
        for used in [[(3, 2), (4, 1)], [(0, 1), (64 * 4, 1)], [(0, 1), (u32::MAX - base(), 1)]] {
            let (_zones, pool) = pool();
            let used = used.map(|(first, count)| PageRange { first: base() + first, count });
            assert!(pool.adopt(used.to_vec()).is_err(), "{used:?}");
        }
    }

    mod buddies {
        use super::super::*;

        fn pieces(buddies: &Buddies) -> Vec<(u32, u32)> {
            let of_size = |(size, at): (usize, &BTreeSet<u32>)| {
                at.iter().map(|at| (*at, 1 << size)).collect::<Vec<_>>()
            };
            let mut all: Vec<_> = buddies.pieces.iter().enumerate().flat_map(of_size).collect();
            all.sort_unstable();
            all
        }

        #[test]
        fn units_that_are_no_power_of_two_make_the_largest_pieces_they_can() {
            let mut buddies = Buddies::default();
            buddies.give_each(0, 21);
            assert_eq!(pieces(&buddies), [(0, 16), (16, 4), (20, 1)]);
            assert_eq!((buddies.units(), buddies.largest()), (21, 16));
        }

        #[test]
        fn large_pieces_stay_whole_as_long_as_small_ones_do() {
            let mut buddies = Buddies::default();
            buddies.give_each(0, 21);
            assert_eq!([1, 1, 2].map(|units| buddies.take(units)), [Some(20), Some(16), Some(18)]);
            assert_eq!(buddies.largest(), 16);
            assert_eq!(buddies.take(16), Some(0));
            assert_eq!((buddies.take(2), buddies.take(1)), (None, Some(17)));
            assert_eq!((buddies.units(), buddies.largest()), (0, 0));
        }

        #[test]
        fn one_unit_comes_out_of_the_piece_that_has_it() {
            let mut buddies = Buddies::default();
            buddies.give_each(0, 21);
            assert!(buddies.take_at(5) && !buddies.take_at(5));
            assert_eq!(pieces(&buddies), [(0, 4), (4, 1), (6, 2), (8, 8), (16, 4), (20, 1)]);
            assert_eq!(buddies.units(), 20);
            assert!(buddies.take_at(20) && !buddies.take_at(21));
            buddies.give(5, 1);
            buddies.give(20, 1);
            assert_eq!(pieces(&buddies), [(0, 16), (16, 4), (20, 1)]);
        }

        /// Against a bitmap of units, in random order.
        #[test]
        fn what_is_given_back_is_one_piece_again() {
            const UNITS: u32 = 200;
            let mut seed = 7u64;
            let mut below = |n: usize| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) as usize % n
            };
            let mut buddies = Buddies::default();
            buddies.give_each(0, UNITS);
            let whole = pieces(&buddies);
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for _ in 0..20_000 {
                if below(2) == 0 || taken.is_empty() {
                    let units = 1 << below(SIZES);
                    let fits = buddies.largest() >= units;
                    match buddies.take(units) {
                        Some(at) => {
                            let apart = |(a, n): &(u32, u32)| at + units <= *a || a + n <= at;
                            assert!(fits && at + units <= UNITS && at.is_multiple_of(units));
                            assert!(taken.iter().all(apart), "{units} at {at} overlap");
                            taken.push((at, units));
                        }
                        None => assert!(!fits, "a piece of {units} was there"),
                    }
                } else {
                    let (at, units) = taken.swap_remove(below(taken.len()));
                    buddies.give(at, units);
                }
                let out: u32 = taken.iter().map(|(_, units)| units).sum();
                assert_eq!(buddies.units() + out, UNITS);
            }
            taken.into_iter().for_each(|(at, units)| buddies.give(at, units));
            assert_eq!(pieces(&buddies), whole, "however it was divided");
        }
    }
}
