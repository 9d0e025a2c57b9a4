//! Gives free space back to the file system while the database is open. Extents are put into the
//! first place that is free, so the ends of files come free as the extents there are replaced.
//!
//! While jobs run, files lose the free part at their end, and files without an extent go. Something
//! stays free, so that jobs do not ask for what was just given back. Once no job works, all that is
//! free goes but for the least reserve, holes in the middle of files too.
//!
//! Whether an old file, length or range survives a power cut does not matter: what is free follows
//! from the journal alone, and a range is free only when nothing durable names it any more.

use std::cmp::Reverse;

use super::allocation::{Allocation, FileSpace, Gap};
use super::growth::growth_step;
use super::{ExtentStore, UNIT};
use crate::base::error::{Error, Result};
use crate::os::sync::atomic::Ordering;

/// One part of so many of what is taken stays free while jobs run.
const SLACK: u64 = 8;

/// The most ranges that are made holes at a time, and while others wait for the allocation.
const MOST_HOLES: usize = 512;

impl ExtentStore {
    /// Gives back what is free at the ends beyond what jobs will need soon; the bytes.
    ///
    /// # Errors
    ///
    /// An I/O error. Nothing is lost by it.
    pub(crate) fn give_back(&self) -> Result<u64> {
        let _inside = self.gate.enter_step().map_err(Error::not_open)?;
        let mut allocation = self.allocation.lock();
        let step = growth_step(allocation.file_bytes()) / UNIT;
        let keep = allocation.reserved_units.max(allocation.taken_units / SLACK).max(step);
        let keep = keep.max(self.least_reserve());
        let spare = allocation.free_units().saturating_sub(keep);
        self.shrink(&mut allocation, spare, step)
    }

    /// Gives back all that is free beyond the least reserve, or the longest ranges where those are
    /// many; the bytes. Nothing as long as some of it is reserved.
    ///
    /// # Errors
    ///
    /// As [`give_back`](Self::give_back).
    pub(crate) fn give_back_all(&self) -> Result<u64> {
        let _inside = self.gate.enter_step().map_err(Error::not_open)?;
        let mut allocation = self.allocation.lock();
        if allocation.reserved_units > 0 || self.read_only {
            return Ok(0);
        }
        let punched = self.punch(&mut allocation)?;
        // Where the file system knows no holes, ends are all there is to give.
        let spare = allocation.free_units().saturating_sub(self.least_reserve());
        Ok(punched + self.shrink(&mut allocation, spare, 1)?)
    }

    /// Gives `bytes` of free space back to the file system for another file of the database;
    /// whether it could. It leaves the least reserve and what is reserved.
    pub(crate) fn yield_space(&self, bytes: u64) -> bool {
        let units = bytes.div_ceil(UNIT);
        let Ok(_inside) = self.gate.enter_step() else { return false };
        let mut allocation = self.allocation.lock();
        let kept = allocation.reserved_units + self.least_reserve();
        !self.read_only
            && allocation.free_units() >= kept + units
            && self.hollow(&mut allocation, units, u64::MAX).is_ok_and(|holes| !holes.is_empty())
    }

    /// Makes holes of `units` that are free, of the shortest ranges below `len`: the holes, or none
    /// where there are too few of these, or the file system knows no holes.
    pub(super) fn hollow(
        &self,
        allocation: &mut Allocation,
        units: u64,
        len: u64,
    ) -> Result<Vec<Gap>> {
        let mut short: Vec<Gap> = allocation.ranges(1, |file| &file.free).collect();
        short.retain(|gap| gap.units < len);
        short.sort_unstable_by_key(|gap| gap.units);
        let (mut holes, mut left) = (Vec::new(), units);
        if short.iter().map(|gap| gap.units).sum::<u64>() < units {
            return Ok(holes);
        }
        for mut gap in short {
            gap.cut_front(gap.units.saturating_sub(left));
            if left == 0 || !self.punch_range(allocation, gap)? {
                break;
            }
            left -= gap.units;
            holes.push(gap);
        }
        Ok(holes)
    }

    /// Makes holes of free and found ranges; the bytes.
    fn punch(&self, allocation: &mut Allocation) -> Result<u64> {
        // The least reserve stays in the longest ranges: extents have to fit in it.
        let mut ranges: Vec<Gap> = allocation.ranges(1, |file| &file.free).collect();
        ranges.sort_by_key(|gap| Reverse(gap.units));
        let mut kept = self.least_reserve();
        for gap in &mut ranges {
            let stays = gap.units.min(kept);
            gap.cut_front(stays);
            kept -= stays;
        }
        // What is lacking may be in ranges that have not been asked for.
        if (kept == 0 || allocation.taken_units == 0) && self.may_use_found(allocation) {
            ranges.extend(allocation.ranges(1, |file| &file.found));
        }
        ranges.retain(|gap| gap.units > 0);
        ranges.sort_by_key(|gap| Reverse(gap.units));
        let mut bytes = 0;
        for gap in ranges.into_iter().take(MOST_HOLES) {
            if !self.punch_range(allocation, gap)? {
                break;
            }
            bytes += gap.units * UNIT;
        }
        Ok(bytes)
    }

    /// Makes a hole of a range that is free or found; whether the file system can.
    fn punch_range(&self, allocation: &mut Allocation, range: Gap) -> Result<bool> {
        let path = self.path(range.file);
        let file = self.file(range.file, &path)?;
        let punched = file.handle.punch(range.start * UNIT, range.units * UNIT);
        let is_hole = punched.map_err(|e| Error::io("give back space of", &path, e))?;
        if is_hole && let Some(file) = allocation.files.get_mut(&range.file) {
            let taken = file.free.take(range.start, range.units)
                || file.found.take(range.start, range.units);
            debug_assert!(taken, "the range is in one map");
            file.holes.release(range.start, range.units);
            self.returned.fetch_add(range.units * UNIT, Ordering::Relaxed);
        }
        Ok(is_hole)
    }

    /// Takes what is not taken off the ends of files, of what is free at most `spare` units in
    /// steps, and removes empty files; the bytes of those that had space.
    fn shrink(&self, allocation: &mut Allocation, mut spare: u64, step: u64) -> Result<u64> {
        let mut returned = 0;
        if !self.may_use_found(allocation) {
            return Ok(0);
        }
        let numbers: Vec<u32> = allocation.files.keys().rev().copied().collect();
        let greatest = numbers.first().copied();
        for number in numbers {
            let Some(file) = allocation.files.get_mut(&number) else { continue };
            let goes = Some(number) != greatest && file.is_empty() && file.free.units() <= spare;
            let (free, found) = match goes {
                true => (file.free.units(), file.found.units()),
                false => self.shorten(file, number, spare, step)?,
            };
            if goes {
                self.remove(allocation, number)?;
            }
            spare -= free;
            returned += (free + found) * UNIT;
        }
        self.returned.fetch_add(returned, Ordering::Relaxed);
        Ok(returned)
    }

    /// Takes units off the end of a file, of what is free at most `most` in steps; how many of the
    /// free ones, and of the found ones.
    fn shorten(
        &self,
        file: &mut FileSpace,
        number: u32,
        most: u64,
        step: u64,
    ) -> Result<(u64, u64)> {
        let (before, mut free, mut found) = (file.units, 0, 0);
        loop {
            found += file.cut_unbacked();
            let units = file.free.tail(file.units).min(most - free) / step * step;
            if units == 0 {
                break;
            }
            file.cut_free(units);
            free += units;
        }
        if file.units < before {
            self.cut(number, file.units)?;
        }
        Ok((free, found))
    }

    /// Sets the length of a file.
    pub(super) fn cut(&self, number: u32, units: u64) -> Result<()> {
        let path = self.path(number);
        let cut = self.file(number, &path)?.handle.set_len(units * UNIT);
        cut.map_err(|e| Error::io("shorten", &path, e))
    }

    /// Removes a file without an extent.
    fn remove(&self, allocation: &mut Allocation, number: u32) -> Result<()> {
        let path = self.path(number);
        allocation.files.remove(&number);
        self.handles.write().remove(&number);
        self.files.remove(&path).map_err(|e| Error::io("remove", &path, e))
    }
}
