//! What of the extent files is taken, what is free, and what has no space behind it. Pure: it
//! counts units and touches no file.
//!
//! A unit that no extent holds is of one of three kinds. **Free** ones have space on the device and
//! may be taken. **Holes** have none: it was given back. **Found** ones are those of an opening,
//! which does not know: some may have space. Holes and found ones are free once the file system was
//! asked for their space, so that a full one is an error there and not at a later write.
//!
//! Nothing of this is on the media: what is taken follows from the journal.

use std::collections::BTreeMap;

use super::reservation::PIECE;
use crate::storage::location::UNIT;
use crate::storage::space::FreeMap;

/// One extent file. No unit is in two of its maps.
#[derive(Debug, Default)]
pub(super) struct FileSpace {
    pub(super) free: FreeMap,
    pub(super) found: FreeMap,
    pub(super) holes: FreeMap,
    /// The length of the file.
    pub(super) units: u64,
}

impl FileSpace {
    /// A file of an opening, of which nothing is known to be taken.
    pub(super) fn found(units: u64) -> FileSpace {
        let mut space = FileSpace { units, ..FileSpace::default() };
        space.found.release(0, units);
        space
    }

    /// Takes off the end what may not be taken as it is; how much of that may have had space.
    pub(super) fn cut_unbacked(&mut self) -> u64 {
        let (mut found, before) = (0, self.units);
        loop {
            let (f, h) = (self.found.tail(self.units), self.holes.tail(self.units));
            if f + h == 0 {
                debug_assert!(self.units <= before, "a file is only cut");
                return found;
            }
            let map = if f > 0 { &mut self.found } else { &mut self.holes };
            map.cut_tail(self.units, f + h);
            (self.units, found) = (self.units - f - h, found + f);
        }
    }

    /// Takes free units off the end.
    pub(super) fn cut_free(&mut self, units: u64) {
        self.free.cut_tail(self.units, units);
        self.units -= units;
    }

    /// Whether no extent lies in it.
    pub(super) fn is_empty(&self) -> bool {
        self.free.units() + self.found.units() + self.holes.units() == self.units
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Allocation {
    pub(super) files: BTreeMap<u32, FileSpace>,
    pub(super) taken_units: u64,
    /// Of those that are free.
    pub(super) reserved_units: u64,
    /// Readers from before the opening. What they show may lie in found ranges.
    pub(super) shown_to: Vec<u64>,
}

/// A range without space, where extents could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) file: u32,
    pub(super) start: u64,
    pub(super) units: u64,
}

impl Gap {
    /// Leaves out so many units in front.
    pub(super) fn cut_front(&mut self, units: u64) {
        (self.start, self.units) = (self.start + units, self.units - units);
    }
}

impl Allocation {
    /// The ranges of one kind of at least `units`.
    pub(super) fn ranges(
        &self,
        units: u64,
        map: fn(&FileSpace) -> &FreeMap,
    ) -> impl Iterator<Item = Gap> {
        self.files.iter().flat_map(move |(n, file)| {
            let gap = |(start, units)| Gap { file: *n, start, units };
            map(file).ranges(units).map(gap)
        })
    }

    /// The lengths of the files together.
    pub(super) fn file_bytes(&self) -> u64 {
        self.files.values().map(|file| file.units * UNIT).sum()
    }

    /// The space that they have on the device, at most.
    pub(super) fn backed_bytes(&self) -> u64 {
        self.files.values().map(|file| (file.units - file.holes.units()) * UNIT).sum()
    }

    pub(super) fn free_units(&self) -> u64 {
        self.files.values().map(|file| file.free.units()).sum()
    }

    /// Pieces of `len` units that there is room for.
    pub(super) fn pieces(&self, len: u64) -> u64 {
        self.files.values().map(|file| file.free.pieces(len)).sum()
    }

    pub(super) fn allocate(&mut self, units: u64) -> Option<(u32, u64)> {
        let found =
            self.files.iter_mut().find_map(|(n, file)| Some((*n, file.free.allocate(units)?)));
        if found.is_some() {
            self.taken_units += units;
        }
        found
    }

    /// Ranges of at least `units` that may become free, `most` of each or little more, the found
    /// ones first: they have space more often.
    pub(super) fn gaps(&self, units: u64, most: u64) -> impl Iterator<Item = Gap> {
        let found = self.ranges(units, |file| &file.found);
        found
            .filter(|_| self.shown_to.is_empty())
            .chain(self.ranges(units, |file| &file.holes))
            .map(move |gap| {
                // What would be left is too short for most extents.
                let len = if gap.units < most + PIECE { gap.units } else { most.max(units) };
                Gap { units: len, ..gap }
            })
    }

    /// The file system has found space for a gap.
    pub(super) fn fill(&mut self, gap: Gap) {
        let Some(file) = self.files.get_mut(&gap.file) else { return };
        let taken = file.found.take(gap.start, gap.units) || file.holes.take(gap.start, gap.units);
        debug_assert!(taken, "a gap is in one map");
        file.free.release(gap.start, gap.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(found: &[(u64, u64)], holes: &[(u64, u64)], units: u64) -> Allocation {
        let mut file = FileSpace { units, ..FileSpace::default() };
        found.iter().for_each(|(start, len)| file.found.release(*start, *len));
        holes.iter().for_each(|(start, len)| file.holes.release(*start, *len));
        Allocation { files: [(1, file)].into(), ..Allocation::default() }
    }

    #[test]
    fn found_units_are_filled_before_holes_and_short_rests_with_them() {
        let mut all = allocation(&[(500, 300)], &[(0, 1000 - 700), (900, 1000)], 2000);
        let gap = |all: &Allocation, units, most| {
            all.gaps(units, most).next().map(|gap| (gap.start, gap.units))
        };
        assert_eq!(gap(&all, 10, 100), Some((500, 100)));
        assert_eq!(gap(&all, 10, 200), Some((500, 300)), "100 would be left");
        assert_eq!(gap(&all, 301, 301), Some((900, 301)));
        assert_eq!(gap(&all, 1001, 1001), None);
        for units in [300, 300, 1000] {
            let gap = all.gaps(units, 1000).next().unwrap();
            all.fill(gap);
        }
        assert_eq!((all.free_units(), all.gaps(1, 1).next()), (1600, None));
        assert_eq!(all.backed_bytes(), all.file_bytes());
    }

    #[test]
    fn ends_without_space_are_cut_whatever_they_were() {
        let mut all = allocation(&[(40, 10), (70, 10)], &[(50, 20), (80, 20)], 100);
        let file = all.files.get_mut(&1).unwrap();
        assert_eq!((file.cut_unbacked(), file.units), (20, 40));
        assert_eq!((file.cut_unbacked(), file.units, file.is_empty()), (0, 40, false));
        file.free.release(0, 40);
        assert!(file.is_empty());
        file.cut_free(30);
        assert_eq!((file.free.units(), file.units), (10, 10));
    }
}
