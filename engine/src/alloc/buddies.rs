//! Free units of a region in pieces whose sizes are powers of two (Knowlton, "A fast storage
//! allocator", 1965). A piece is divided into two buddies as often as it takes, and two free
//! buddies are one piece again.
//!
//! Nothing of it is durable: an opening gives it all units that belong to no zone.
//!
//! Thread safety: none of its own; behind the zone pool's mutex.
//!
//! Invariants:
//!
//! 1. A piece of n units begins at a multiple of n, and pieces do not overlap.
//! 2. Of two buddies below the largest size at most one is free.

use std::collections::BTreeSet;

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

    /// Takes one unit out of whatever piece has it; whether it was free.
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
