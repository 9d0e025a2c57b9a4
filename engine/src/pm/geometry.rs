//! Where things lie in the region (`docs/format.md`, section 1).

use super::span::Span;
use crate::base::error::{Error, Result};

/// The unit of file-mode writes, and of the region's fixed parts.
pub(crate) const PAGE: u64 = 4096;

/// A cache line: the unit of flushing, and the alignment of sub-entries.
pub(crate) const LINE: u64 = 64;

/// How many streams a region can hold.
pub(crate) const STREAM_SLOTS: u32 = 384;

const MIN_UNIT: u64 = 128 * 1024;
const MAX_UNIT: u64 = 4 * 1024 * 1024;

/// Units that a region aims for: small enough for a stream with little to write, few enough that
/// the index stays short.
const UNITS_AIMED_AT: u64 = 1024;

/// Busy streams divide a region into about this many zones: enough that freeing one frees little,
/// few enough that headers and chains stay cheap.
const ZONES_AIMED_AT: u32 = 64;

/// The largest zone that a stream takes to have fewer switches.
const USUAL_ZONE: u64 = 4 * 1024 * 1024;

/// The largest zone that there is, for batches that fit no smaller one.
const LARGEST_ZONE: u64 = 16 * 1024 * 1024;

/// The largest zone takes at most this part of its region.
const LARGEST_SHARE: u32 = 8;

/// How many times larger than its target a region can grow: its index has slots for that from the
/// first.
const GROWTH: u32 = 16;

/// The fewest units that a region begins with: two streams that fill, one each, the next of both,
/// and the reserve.
const LEAST_UNITS: u32 = 8;

/// The most bytes that a region grows by at a time.
const LARGEST_STEP: u64 = 64 * 1024 * 1024;

const MAX_UNITS: u32 = 16 * 1024;

/// The sizes that a region was made with, and the offsets that follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes in a unit, the smallest zone: a power of two.
    pub(crate) unit: u64,
    /// Entries in the zone pool's index: one for each unit that there may ever be.
    pub(crate) zone_slots: u32,
    /// Units that exist.
    pub(crate) units: u32,
    /// Units that the region grows to by itself, as they are needed.
    pub(crate) target: u32,
}

impl Geometry {
    /// The geometry of a new region of about `size` bytes.
    pub(crate) fn for_size(size: u64) -> Geometry {
        let unit = (size / UNITS_AIMED_AT).next_power_of_two().clamp(MIN_UNIT, MAX_UNIT);
        let count = (size / unit).max(1);
        debug_assert!(count <= u64::from(MAX_UNITS), "MAX_PM_SIZE is 16,384 units of 4 MiB");
        let units = count as u32;
        // At least what fits in the one page that the index takes anyway.
        let zone_slots = (units * GROWTH).max(PAGE as u32 / 8).min(MAX_UNITS);
        Geometry { unit, zone_slots, units, target: units }
    }

    /// The same region when it is new, of about `size` bytes.
    pub(crate) fn beginning_with(self, size: u64) -> Geometry {
        let units = (size / self.unit).clamp(u64::from(LEAST_UNITS), u64::from(MAX_UNITS)) as u32;
        Geometry { units: units.min(self.target), ..self }
    }

    /// The geometry after the next step of the growth to its target: twice as many units, or so
    /// many more. `None` when it is there.
    pub(crate) fn next_step(self) -> Option<Geometry> {
        let step = self.units.min((LARGEST_STEP / self.unit) as u32).max(1);
        let units = self.target.min(self.units.saturating_add(step));
        (units > self.units).then_some(Geometry { units, ..self })
    }

    /// The geometry after growing to about `size` bytes, in whole units.
    pub(crate) fn grown_to(self, size: u64) -> Result<Geometry> {
        let units = size / self.unit;
        if units <= u64::from(self.units) || units > u64::from(self.zone_slots) {
            return Err(Error::invalid(format!(
                "a region of {} bytes made of units of {} bytes grows to more than that and at \
                 most {} bytes, not to {size} bytes; for a larger one make a new database",
                u64::from(self.units) * self.unit,
                self.unit,
                u64::from(self.zone_slots) * self.unit,
            )));
        }
        let units = units as u32;
        Ok(Geometry { units, target: self.target.max(units), ..self })
    }

    /// Checks sizes read from media.
    pub(crate) fn check(self) -> Result<Geometry> {
        let sound = self.unit.is_power_of_two()
            && (MIN_UNIT..=MAX_UNIT).contains(&self.unit)
            && (1..=MAX_UNITS).contains(&self.units)
            && (self.units..=self.zone_slots).contains(&self.target)
            && self.zone_slots <= MAX_UNITS;
        if sound {
            return Ok(self);
        }
        Err(Error::invalid(format!(
            "a region of {} to {} units ({} slots) of {} bytes cannot be",
            self.units, self.target, self.zone_slots, self.unit
        )))
    }

    /// Units in the largest zone, once the region has grown to its target: a power of two.
    pub(crate) fn largest_units(self) -> u32 {
        let most = (LARGEST_ZONE / self.unit) as u32;
        power_of_two_up_to((self.target / LARGEST_SHARE).min(most))
    }

    /// Units in the largest zone that a stream takes to have fewer switches: a power of two.
    pub(crate) fn usual_units(self) -> u32 {
        let most = (USUAL_ZONE / self.unit) as u32;
        power_of_two_up_to((self.units / ZONES_AIMED_AT).min(most))
    }

    /// Bytes in the largest zone.
    pub(crate) fn largest_zone(self) -> u64 {
        self.zone_len(self.largest_units())
    }

    /// Bytes in the largest zone that a stream takes to have fewer switches.
    pub(crate) fn usual_zone(self) -> u64 {
        self.zone_len(self.usual_units())
    }

    /// Bytes in a zone of so many units.
    pub(crate) fn zone_len(self, units: u32) -> u64 {
        u64::from(units) * self.unit
    }

    /// Units in the smallest zone of at least `len` bytes: a power of two.
    pub(crate) fn units_for(self, len: u64) -> u32 {
        (len.div_ceil(self.unit).max(1) as u32).next_power_of_two()
    }

    /// Offset of copy A (0) or B (1) of the superblock.
    pub(crate) fn superblock(copy: u64) -> u64 {
        copy * PAGE
    }

    /// The page of the words that change while commits go on: floor slots and GIDX.
    pub(crate) fn words() -> Span {
        Span { at: 2 * PAGE, len: PAGE }
    }

    /// Offset of floor slot A (0) or B (1).
    pub(crate) fn floor_slot(slot: u64) -> u64 {
        2 * PAGE + slot * 512
    }

    /// Offset of a word that is never read, between the floor slots.
    pub(crate) fn scratch_word() -> u64 {
        2 * PAGE + 256
    }

    /// Offset of a stream's GIDX word.
    pub(crate) fn gidx(stream: u32) -> u64 {
        debug_assert!(stream < STREAM_SLOTS, "streams are numbered below STREAM_SLOTS");
        2 * PAGE + 1024 + u64::from(stream) * 8
    }

    /// Offset of a stream's index entry.
    pub(crate) fn stream_entry(stream: u32) -> u64 {
        3 * PAGE + u64::from(stream) * 8
    }

    /// Offset of a stream object.
    pub(crate) fn stream_object(stream: u32) -> u64 {
        4 * PAGE + u64::from(stream) * 64
    }

    /// Offset of a zone's index entry.
    pub(crate) fn zone_entry(zone: u32) -> u64 {
        10 * PAGE + u64::from(zone) * 8
    }

    /// Offset of a zone. The number of a zone is that of its first unit.
    pub(crate) fn zone(self, zone: u32) -> u64 {
        self.zones_start() + u64::from(zone) * self.unit
    }

    /// The unit that holds an offset.
    pub(crate) fn unit_of(self, at: u64) -> u32 {
        debug_assert!(at >= self.zones_start(), "offset {at} lies before the zones");
        ((at - self.zones_start()) / self.unit) as u32
    }

    /// Offset of the first zone: the length of the fixed parts.
    pub(crate) fn zones_start(self) -> u64 {
        10 * PAGE + (u64::from(self.zone_slots) * 8).next_multiple_of(PAGE)
    }

    /// Length in bytes of the longest that the region can grow to.
    pub(crate) fn greatest_len(self) -> u64 {
        self.zone(self.zone_slots)
    }

    /// Length of the whole region in bytes.
    pub(crate) fn region_len(self) -> u64 {
        self.zone(self.units)
    }
}

/// The largest power of two that is at most `n`, and 1 for 0.
fn power_of_two_up_to(n: u32) -> u32 {
    n.checked_ilog2().map_or(1, |log| 1 << log)
}

const _: () = {
    assert!(LARGEST_ZONE / LINE < 1 << 20, "a GIDX word has 20 bits for a zone's tail in lines");
    assert!(1024 + STREAM_SLOTS as u64 * 8 <= PAGE, "the GIDX words share the words' page");
    assert!(STREAM_SLOTS as u64 * 8 <= PAGE, "the streams' index fits its page");
    assert!(STREAM_SLOTS as u64 * 64 == 6 * PAGE, "the stream objects fill pages 4 to 9");
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laptop_region_has_1024_units_of_256_kib() {
        let g = Geometry::for_size(256 << 20);
        assert_eq!((g.unit, g.units), (256 << 10, 1024));
        assert_eq!((g.usual_zone(), g.largest_zone()), (4 << 20, 16 << 20));
        assert_eq!(g.unit_of(g.zone(1023) + g.unit - 1), 1023);
        assert_eq!(
            [1, 256 << 10, (256 << 10) + 1, 3 << 20].map(|len| g.units_for(len)),
            [1, 1, 2, 16]
        );
        assert!(g.check().is_ok());
    }

    #[test]
    fn a_region_doubles_and_then_grows_by_64_mib() {
        let whole = Geometry::for_size(256 << 20);
        let mut g = whole.beginning_with(8 << 20);
        assert_eq!((g.units, g.largest_zone()), (32, whole.largest_zone()));
        let mut sizes = vec![];
        while let Some(next) = g.next_step() {
            sizes.push((u64::from(next.units) * next.unit) >> 20);
            g = next.check().unwrap();
        }
        assert_eq!(sizes, [16, 32, 64, 128, 192, 256]);
        assert_eq!(g, whole);
        // Of a small one there is nothing to leave out, and of large units not less than eight.
        assert_eq!(Geometry::for_size(4 << 20).beginning_with(8 << 20).next_step(), None);
        assert_eq!(Geometry::for_size(4 << 30).beginning_with(8 << 20).units, 8);
        // A growth by hand beyond the target is the new target.
        assert_eq!(whole.grown_to(512 << 20).unwrap().target, 2048);
    }

    #[test]
    fn smallest_region_has_16_units() {
        let g = Geometry::for_size(crate::base::limits::MIN_PM_SIZE);
        assert_eq!((g.unit, g.units), (128 << 10, 16));
        assert_eq!((g.usual_zone(), g.largest_zone()), (128 << 10, 256 << 10));
    }

    #[test]
    fn few_large_units_make_small_zones() {
        let g =
            Geometry { unit: 4 << 20, zone_slots: 1024, units: 64, target: 64 }.check().unwrap();
        assert_eq!((g.usual_units(), g.largest_units()), (1, 4));
    }

    #[test]
    fn largest_region_has_as_many_units_as_there_can_be() {
        let g = Geometry::for_size(crate::base::limits::MAX_PM_SIZE);
        assert_eq!((g.unit, g.units), (4 << 20, MAX_UNITS));
        assert!(g.check().is_ok());
    }
}
