//! The map of what is free in one extent file, or in the memory of the block cache. Pure: it counts
//! units and knows no files.
//!
//! Invariants:
//!
//! 1. Free ranges do not overlap, do not touch and are not empty.
//! 2. `by_len` holds the same ranges as `by_start`.
//! 3. `units` is the sum of their lengths.

use std::collections::{BTreeMap, BTreeSet};

/// Free ranges of units in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeMap {
    /// First unit → number of units.
    by_start: BTreeMap<u64, u64>,
    /// (number of units, first unit).
    by_len: BTreeSet<(u64, u64)>,
    units: u64,
}

impl FreeMap {
    /// All units that are free.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// The first range of at least `len` units.
    pub(super) fn first(&self, len: u64) -> Option<(u64, u64)> {
        self.by_len.range((len, 0)..).next()?;
        let (start, free) = self.by_start.iter().find(|(_, free)| **free >= len)?;
        Some((*start, *free))
    }

    /// The ranges of at least `len` units, in order.
    pub(super) fn ranges(&self, len: u64) -> impl Iterator<Item = (u64, u64)> {
        let has = self.by_len.range((len, 0)..).next().is_some();
        let all = has.then(|| self.by_start.iter()).into_iter().flatten();
        all.filter(move |(_, free)| **free >= len).map(|(start, free)| (*start, *free))
    }

    /// The longest range.
    pub(crate) fn longest(&self) -> Option<(u64, u64)> {
        self.by_len.last().map(|(len, start)| (*start, *len))
    }

    /// Takes `len` units from the first range that has them, so that what is free comes to lie at
    /// the end.
    pub(super) fn allocate(&mut self, len: u64) -> Option<u64> {
        debug_assert!(len > 0, "an extent has at least one unit");
        let (start, free) = self.first(len)?;
        self.remove(start, free);
        self.insert(start + len, free - len);
        Some(start)
    }

    /// Takes `len` units from the shortest range that has them, so that long ones stay long.
    pub(crate) fn allocate_shortest(&mut self, len: u64) -> Option<u64> {
        debug_assert!(len > 0, "nothing takes no place");
        let (free, start) = *self.by_len.range((len, 0)..).next()?;
        self.remove(start, free);
        self.insert(start + len, free - len);
        Some(start)
    }

    /// Takes exactly these units; `false`, with nothing changed, if one of them is not free.
    pub(crate) fn take(&mut self, start: u64, len: u64) -> bool {
        let Some((&from, &free)) = self.by_start.range(..=start).next_back() else {
            return false;
        };
        let (Some(end), free_end) = (start.checked_add(len), from + free) else {
            return false;
        };
        if end > free_end || len == 0 {
            return false;
        }
        self.remove(from, free);
        self.insert(from, start - from);
        self.insert(end, free_end - end);
        true
    }

    /// Gives units back (or adds new ones), joining them with their free neighbours.
    pub(crate) fn release(&mut self, start: u64, len: u64) {
        let (mut start, mut end) = (start, start + len);
        if let Some((&from, &free)) = self.by_start.range(..end).next_back() {
            debug_assert!(from + free <= start, "units are given back once (invariant 1)");
            if from + free == start {
                self.remove(from, free);
                start = from;
            }
        }
        if let Some(&free) = self.by_start.get(&end) {
            self.remove(end, free);
            end += free;
        }
        self.insert(start, end - start);
    }

    /// The length of the last range, if it reaches to `end`.
    pub(super) fn tail(&self, end: u64) -> u64 {
        let last = self.by_start.last_key_value().filter(|(start, len)| *start + *len == end);
        last.map_or(0, |(_, len)| *len)
    }

    /// Takes away the last `len` units before `end`, which are free.
    pub(super) fn cut_tail(&mut self, end: u64, len: u64) {
        let taken = self.take(end - len, len);
        debug_assert!(taken, "what is cut off is free");
    }

    /// How many pieces of `len` units its ranges have room for.
    pub(super) fn pieces(&self, len: u64) -> u64 {
        self.by_len.range((len, 0)..).map(|(free, _)| free / len).sum()
    }

    fn insert(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_len.insert((len, start));
            self.units += len;
        }
        debug_assert_eq!(self.by_start.len(), self.by_len.len(), "invariant 2");
    }

    fn remove(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
        self.units -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_fit_leaves_the_end_free() {
        let mut map = FreeMap::default();
        map.release(0, 100);
        assert!(map.take(10, 1) && map.take(14, 1));
        assert_eq!(map.allocate(4), Some(0));
        assert_eq!(map.allocate(7), Some(15));
        assert_eq!(map.allocate(79), None);
        assert_eq!(map.allocate(6), Some(4));
        assert_eq!(map.allocate(3), Some(11));
        assert_eq!(map.allocate(78), Some(22));
        assert_eq!(map.by_start.len(), 0);
    }

    #[test]
    fn tails_are_cut_and_pieces_counted() {
        let mut map = FreeMap::default();
        map.release(0, 7);
        map.release(10, 10);
        assert_eq!([map.tail(20), map.tail(21)], [10, 0]);
        assert_eq!([map.pieces(3), map.pieces(8), map.pieces(11)], [5, 1, 0]);
        map.cut_tail(20, 6);
        assert_eq!([map.tail(14), map.pieces(4)], [4, 2]);
        map.cut_tail(14, 4);
        assert_eq!(map.tail(10), 0, "a range that ends before is no tail");
    }

    #[test]
    fn taking_what_is_taken_changes_nothing() {
        let mut map = FreeMap::default();
        map.release(5, 5);
        let before = map.clone();
        assert!(!map.take(4, 2) && !map.take(9, 2) && !map.take(5, 0) && !map.take(6, u64::MAX));
        assert_eq!(map, before);
    }

    proptest! {
        #[test]
        fn agrees_with_an_array(
            steps in prop::collection::vec(
                (any::<bool>(), 1u64..9, any::<prop::sample::Index>()),
                1..80,
            ),
        ) {
            const UNITS: u64 = 64;
            let mut map = FreeMap::default();
            map.release(0, UNITS);
            let mut taken = [false; UNITS as usize];
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (allocate, len, which) in steps {
                if allocate || held.is_empty() {
                    let longest = taken.split(|t| *t).map(<[bool]>::len).max().unwrap_or(0);
                    let start = map.allocate(len);
                    prop_assert_eq!(start.is_some(), longest as u64 >= len);
                    if let Some(start) = start {
                        for unit in start..start + len {
                            prop_assert!(!std::mem::replace(&mut taken[unit as usize], true));
                        }
                        held.push((start, len));
                    }
                } else {
                    let (start, len) = held.swap_remove(which.index(held.len()));
                    taken[start as usize..(start + len) as usize].fill(false);
                    map.release(start, len);
                }
                let ranges: u64 = map.by_start.values().sum();
                prop_assert_eq!(ranges, taken.iter().filter(|t| !**t).count() as u64);
                prop_assert_eq!(map.units(), ranges);
                let longest = taken.split(|t| *t).map(<[bool]>::len).max().unwrap_or(0) as u64;
                prop_assert_eq!(map.longest().map_or(0, |(_, len)| len), longest);
                let joined = taken.split(|t| *t).filter(|run| !run.is_empty()).count();
                prop_assert_eq!(map.by_start.len(), joined);
            }
        }
    }
}
