//! Volatile memory in a region: units that belong to no zone hold copies of what lies on slower
//! media, until a zone needs them.
//!
//! Nothing of it is durable: no entry and no header, no flush, no fence. So it is gone after a
//! restart. Its units are free then, since units of no zone are free. The bytes that copies leave
//! in a unit cannot be taken for records, for the same reason as those of earlier zones.
//!
//! Copies are appended to the newest of a few pieces. When units are needed, the oldest piece goes
//! with everything in it. No copy is moved, so an allocation is a few additions.
//!
//! Thread safety: any thread calls any method. One lock is held to write while a copy is appended
//! or a piece is given back, and to read while a copy is copied out. Lock order: this lock, then
//! the zone pool's.
//!
//! Invariants:
//!
//! 1. A piece's units are its own from `borrow` to `take_back`. In between no other code touches
//!    them.
//! 2. A copy that the map names lies in a piece that is there, below its tail.
//! 3. Once the pool is closed, nothing is written to the region, and no copy is read from it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::zones::{Borrower, ZonePool};
use crate::os::HashMap;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::RwLock;
use crate::pm::Region;

/// The key of a copy: extent and offset.
pub(crate) type CopyKey = (u64, u32);

/// Copies, by key.
#[derive(Debug)]
pub(crate) struct VolatilePool {
    region: Arc<Region>,
    zones: Arc<ZonePool>,
    held: RwLock<Held>,
    hits: AtomicU64,
}

#[derive(Debug, Default)]
struct Held {
    /// The oldest first.
    pieces: VecDeque<Piece>,
    /// The number of the oldest: pieces are numbered in order.
    oldest: u64,
    copies: HashMap<CopyKey, Copied>,
    /// The region is another opening's from here on.
    is_closed: bool,
}

#[derive(Debug)]
struct Piece {
    unit: u32,
    units: u32,
    /// Bytes in use.
    tail: u64,
    keys: Vec<CopyKey>,
}

/// Where a copy is.
#[derive(Clone, Copy, Debug)]
struct Copied {
    piece: u64,
    at: u64,
    len: u64,
}

impl Held {
    /// Forgets the copies in the oldest piece; the piece.
    fn drop_oldest(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_front()?;
        self.oldest += 1;
        for key in &piece.keys {
            self.copies.remove(key);
        }
        Some(piece)
    }
}

impl VolatilePool {
    /// Nothing yet. The pool of zones asks it for units back from now on, as long as it lives.
    pub(crate) fn new(region: &Arc<Region>, zones: &Arc<ZonePool>) -> Arc<VolatilePool> {
        let pool = Arc::new(VolatilePool {
            region: Arc::clone(region),
            zones: Arc::clone(zones),
            held: RwLock::default(),
            hits: AtomicU64::new(0),
        });
        let borrower: Weak<VolatilePool> = Arc::downgrade(&pool);
        zones.set_borrower(borrower);
        pool
    }

    /// Keeps a copy of `bytes`, which never change, under `key`; whether there was room.
    pub(crate) fn keep(&self, key: CopyKey, bytes: &[u8]) -> bool {
        let len = bytes.len() as u64;
        let geometry = self.zones.geometry();
        let mut held = self.held.write();
        if held.is_closed {
            return false;
        }
        if held.copies.contains_key(&key) {
            return true;
        }
        let has_room = |piece: &Piece| piece.tail + len <= geometry.zone_len(piece.units);
        if !held.pieces.back().is_some_and(has_room) {
            let units = geometry.usual_units();
            if len > geometry.zone_len(units) {
                return false;
            }
            let Some(piece) = self.fresh_piece(&mut held, units) else { return false };
            held.pieces.push_back(piece);
        }
        let number = held.oldest + held.pieces.len() as u64 - 1;
        let Some(piece) = held.pieces.back_mut() else { return false };
        let at = geometry.zone(piece.unit) + piece.tail;
        self.region.write_volatile(at, bytes);
        piece.tail += len;
        piece.keys.push(key);
        held.copies.insert(key, Copied { piece: number, at, len });
        true
    }

    fn fresh_piece(&self, held: &mut Held, units: u32) -> Option<Piece> {
        let unit = self.zones.borrow(units).or_else(|| {
            // Nothing is free: the oldest copies go.
            let oldest = held.drop_oldest()?;
            self.zones.take_back(oldest.unit, oldest.units);
            self.zones.borrow(units)
        })?;
        Some(Piece { unit, units, tail: 0, keys: Vec::new() })
    }

    /// The copy under `key`, if it is still there.
    pub(crate) fn get(&self, key: CopyKey) -> Option<Vec<u8>> {
        let held = self.held.read();
        let Copied { piece, at, len } = *held.copies.get(&key)?;
        debug_assert!(piece >= held.oldest, "a copy lies in a piece that is there (invariant 2)");
        let bytes = self.region.bytes(at, len).to_vec();
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(bytes)
    }

    /// Forgets all copies, and keeps none from now on: a reader may load a block after a closing,
    /// when the region's free units are the next opening's.
    pub(crate) fn close(&self) {
        let mut held = self.held.write();
        held.is_closed = true;
        held.copies = HashMap::default();
    }

    /// Copies that were found.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Bytes that copies take.
    pub(crate) fn used(&self) -> u64 {
        self.held.read().pieces.iter().map(|piece| piece.tail).sum()
    }
}

impl Borrower for VolatilePool {
    fn give_back(&self) -> bool {
        let mut held = self.held.write();
        let Some(piece) = held.drop_oldest() else { return false };
        self.zones.take_back(piece.unit, piece.units);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::zones::{Frees, Link};
    use super::*;
    use crate::pm::Geometry;
    use terrace_testkit::Machine;

    /// 64 units; what busy streams take, and copies, is one of them.
    const GEOMETRY: Geometry = Geometry { unit: 4096, zone_slots: 64, units: 64, target: 64 };

    fn pools(machine: &Machine) -> (Arc<Region>, Arc<ZonePool>, Arc<VolatilePool>) {
        let region = Region::of_machine(machine, GEOMETRY.region_len()).unwrap();
        region.persist(ZonePool::format(&region, GEOMETRY)).unwrap();
        let zones = Arc::new(ZonePool::open(&region, GEOMETRY).unwrap().0);
        let pool = VolatilePool::new(&region, &zones);
        (region, zones, pool)
    }

    fn link(zones: &ZonePool, ordinal: u64, units: u32) -> crate::base::error::Result<u32> {
        let wanted =
            Link { stream: 0, ordinal, incarnation: 1, units, least: units, frees: Frees::Nothing };
        zones.link(&wanted).map(|zone| zone.number)
    }

    fn copy(n: u32) -> Vec<u8> {
        vec![n as u8; 1000 + n as usize % 7]
    }

    #[test]
    fn a_copy_costs_no_flush_and_no_fence() {
        let (region, zones, pool) = pools(&Machine::with_memory());
        let counts = || {
            let counts = region.counts();
            (counts.total(|c| &c.flushes), counts.total(|c| &c.fences))
        };
        let before = counts();
        for n in 0..40 {
            assert!(pool.keep((1, n), &copy(n)));
            assert_eq!(pool.get((1, n)), Some(copy(n)));
        }
        assert_eq!(pool.get((2, 0)), None);
        assert_eq!(counts(), before);
        assert_eq!(zones.free(), 64, "its units count as free: they are, when they are needed");
        assert_eq!((pool.hits(), pool.used() > 40_000), (40, true));
    }

    #[test]
    fn zones_get_all_units_back_the_oldest_copies_first() {
        let (_region, zones, pool) = pools(&Machine::with_memory());
        let kept = 64 * 4;
        assert!((0..kept).all(|n| pool.keep((1, n), &copy(n))), "they fill the region");
        let there = |n: &u32| pool.get((1, *n)) == Some(copy(*n));
        let before = (0..kept).filter(there).count() as u32;
        assert!(before > 64 * 3 && there(&(kept - 1)), "{before} copies");
        let first = link(&zones, 1, 4).unwrap();
        assert!(!there(&0) && there(&(kept - 1)));
        let left = (0..kept).filter(there).count() as u32;
        assert!(left >= before - 20 && left < before, "{left}: one piece after another goes");
        // The zones' content and the copies do not meet.
        for ordinal in 2.. {
            if link(&zones, ordinal, 4).is_err() {
                break;
            }
            assert!((0..kept).all(|n| there(&n) || pool.get((1, n)).is_none()));
        }
        assert_eq!((zones.free(), pool.used()), (0, 0));
        assert!(!pool.keep((1, kept), &copy(kept)), "no room, and no harm");
        zones.release(&[first]).unwrap();
        assert!(pool.keep((1, kept), &copy(kept)) && there(&kept));
    }

    /// Bug: a reader that loaded a block after a closing wrote its copy over records of the next
    /// opening. Cause: the pool went on to keep copies in units that it took for free, as long as a
    /// reader had it. Fix: a closing closes the pool before it gives back the lock.
    #[test]
    fn a_closed_pool_leaves_the_region_alone() {
        let (region, zones, pool) = pools(&Machine::with_memory());
        assert!(pool.keep((1, 0), &copy(0)));
        pool.close();
        let len = GEOMETRY.region_len() - GEOMETRY.zones_start();
        let before = region.bytes(GEOMETRY.zones_start(), len).to_vec();
        assert!((0..64).all(|n| !pool.keep((2, n), &copy(n))), "the next opening has the units");
        assert!(region.bytes(GEOMETRY.zones_start(), len) == before, "nothing was written");
        assert_eq!(pool.get((1, 0)), None, "what lies there now is not known");
        // The pool of zones still asks for units that it lent.
        assert!(pool.give_back() && !pool.give_back());
        assert_eq!(zones.free(), 64);
    }

    #[test]
    fn new_copies_take_the_place_of_the_oldest() {
        let (_region, _zones, pool) = pools(&Machine::with_memory());
        for n in 0..2000 {
            assert!(pool.keep((1, n), &copy(n)) && pool.get((1, n)) == Some(copy(n)));
        }
        assert!(pool.get((1, 0)).is_none() && pool.get((1, 1900)) == Some(copy(1900)));
        assert!(pool.used() <= 64 * 4096);
    }

    #[test]
    fn after_a_restart_everything_is_free() {
        let machine = Machine::with_memory();
        let (_region, zones, pool) = pools(&machine);
        let zone = link(&zones, 1, 8).unwrap();
        assert!((0..300).all(|n| pool.keep((1, n), &copy(n))));
        let cut = machine.crash(terrace_testkit::Survive::Everything);
        let region = Region::of_machine(&cut, GEOMETRY.region_len()).unwrap();
        let (zones, scans, leaks) = ZonePool::open(&region, GEOMETRY).unwrap();
        assert_eq!((scans.len(), scans[0].zone, leaks.len()), (1, zone, 0));
        // The linked zone was not used: it goes by its first unit.
        assert_eq!(zones.free(), 63);
    }

    #[test]
    fn threads_that_keep_and_read_while_zones_come_and_go_see_whole_copies() {
        let (_region, zones, pool) = pools(&Machine::with_memory());
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let pool = &pool;
                scope.spawn(move || {
                    for n in 0..2000u32 {
                        pool.keep((thread, n), &copy(n));
                        for n in [n, n.saturating_sub(30)] {
                            let found = pool.get((thread, n));
                            assert!(found.is_none_or(|found| found == copy(n)));
                        }
                    }
                });
            }
            for round in 0..200u64 {
                let linked: Vec<u32> =
                    (0..6).map_while(|n| link(&zones, round * 6 + n + 1, 8).ok()).collect();
                assert_eq!(linked.len(), 6, "copies take no unit from a zone");
                zones.release(&linked).unwrap();
            }
        });
    }
}
