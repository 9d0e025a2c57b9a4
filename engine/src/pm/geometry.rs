//! Where things lie in the region (`docs/format.md`, section 1).

use super::span::Span;
use crate::error::{Error, Result};

/// The unit of file-mode writes, and of the region's fixed parts.
pub(crate) const PAGE: u64 = 4096;

/// A cache line: the unit of flushing, and the alignment of sub-entries.
pub(crate) const LINE: u64 = 64;

/// How many streams a region can hold.
pub(crate) const STREAM_SLOTS: u32 = 384;

const MIN_ZONE: u64 = 128 * 1024;
const MAX_ZONE: u64 = 4 * 1024 * 1024;

/// Zones that a region aims for: enough that freeing one frees little, few enough that headers
/// and chains stay cheap.
const ZONES_AIMED_AT: u64 = 64;

/// How many times larger a region can grow: its index has slots for that from the first.
const GROWTH: u32 = 16;

const MAX_ZONES: u32 = 16 * 1024;

/// The sizes that a region was made with, and the offsets that follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes in a zone: a power of two.
    pub(crate) zone_size: u64,
    /// Entries in the zone pool's index.
    pub(crate) zone_slots: u32,
    /// Zones that exist.
    pub(crate) zone_count: u32,
}

impl Geometry {
    /// The geometry of a new region of about `size` bytes.
    pub(crate) fn for_size(size: u64) -> Geometry {
        let zone_size = (size / ZONES_AIMED_AT).next_power_of_two().clamp(MIN_ZONE, MAX_ZONE);
        let zones = (size / zone_size).max(1);
        debug_assert!(zones <= u64::from(MAX_ZONES), "MAX_PM_SIZE is 16,384 zones of 4 MiB");
        let zone_count = zones as u32;
        // At least what fits in the one page that the index takes anyway.
        let zone_slots = (zone_count * GROWTH).max(PAGE as u32 / 8).min(MAX_ZONES);
        Geometry { zone_size, zone_slots, zone_count }
    }

    /// The geometry after growing to about `size` bytes, in whole zones.
    ///
    /// # Errors
    ///
    /// `Invalid` when the region is that large already, or cannot become it.
    pub(crate) fn grown_to(self, size: u64) -> Result<Geometry> {
        let zones = size / self.zone_size;
        if zones <= u64::from(self.zone_count) || zones > u64::from(self.zone_slots) {
            return Err(Error::invalid(format!(
                "a region of {} MiB made with zones of {} KiB grows to more than that and at most \
                 {} MiB, not to {} MiB; for a larger one make a new database",
                (u64::from(self.zone_count) * self.zone_size) >> 20,
                self.zone_size >> 10,
                (u64::from(self.zone_slots) * self.zone_size) >> 20,
                size >> 20
            )));
        }
        Ok(Geometry { zone_count: zones as u32, ..self })
    }

    /// Checks sizes read from media.
    ///
    /// # Errors
    ///
    /// `Invalid` when no region can have been made with them.
    pub(crate) fn check(self) -> Result<Geometry> {
        let sound = self.zone_size.is_power_of_two()
            && (MIN_ZONE..=MAX_ZONE).contains(&self.zone_size)
            && (1..=MAX_ZONES).contains(&self.zone_count)
            && self.zone_count <= self.zone_slots
            && self.zone_slots <= MAX_ZONES;
        if sound {
            return Ok(self);
        }
        Err(Error::invalid(format!(
            "a region of {} zones ({} slots) of {} bytes cannot be",
            self.zone_count, self.zone_slots, self.zone_size
        )))
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

    /// Offset of a word that nobody reads, between the floor slots.
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

    /// Offset of a zone.
    pub(crate) fn zone(self, zone: u32) -> u64 {
        self.zones_start() + u64::from(zone) * self.zone_size
    }

    /// The zone that holds an offset.
    pub(crate) fn zone_of(self, at: u64) -> u32 {
        debug_assert!(at >= self.zones_start(), "offset {at} lies before the zones");
        ((at - self.zones_start()) / self.zone_size) as u32
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
        self.zone(self.zone_count)
    }
}

const _: () = {
    assert!(1024 + STREAM_SLOTS as u64 * 8 <= PAGE, "the GIDX words share the words' page");
    assert!(STREAM_SLOTS as u64 * 8 <= PAGE, "the streams' index fits its page");
    assert!(STREAM_SLOTS as u64 * 64 == 6 * PAGE, "the stream objects fill pages 4 to 9");
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laptop_region_has_64_zones_of_4_mib() {
        let g = Geometry::for_size(256 << 20);
        assert_eq!((g.zone_size, g.zone_count), (4 << 20, 64));
        assert_eq!(g.zone_of(g.zone(63) + g.zone_size - 1), 63);
        assert!(g.check().is_ok());
    }

    #[test]
    fn smallest_region_has_16_zones() {
        let g = Geometry::for_size(crate::limits::MIN_PM_SIZE);
        assert_eq!((g.zone_size, g.zone_count), (128 << 10, 16));
    }
}
