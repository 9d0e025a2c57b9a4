//! How large levels and extents shall be: targets of levels, how full they are, and how the extents
//! of a level are laid out. Pure functions of a version.

use crate::extent::{Described, Format};
use crate::levels::{LEVEL_2, Level, SUBLEVELS, Version};
use crate::options::{Compression, TableOptions, Tier};
use crate::tier::EXTENT_BYTES;

/// Drains are about to run out of sublevels when they have come up to here.
pub(super) const LAST_SUBLEVELS: u8 = 2;

/// An object is as large as so many extents in a file: each request takes long, and costs money.
const OBJECT_EXTENTS: usize = 4;

/// How large levels and extents shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The target of level 1.
    pub(crate) level1_bytes: u64,
    /// It is one byte for so many below it, if that is more.
    pub(crate) level1_share: Option<u64>,
    /// The most bytes that a job reads to bring an input set down, if that of an extent has no
    /// more.
    pub(crate) job_bytes: u64,
    /// How much larger each level's target is than the one above.
    pub(crate) ratio: u64,
    /// A drain rewrites up to so many bytes of a sublevel together with what it puts over them. So
    /// a small table has few extents.
    pub(crate) little_bytes: u64,
    /// Where extents are cut.
    pub(crate) extent_bytes: usize,
    /// Of blocks of level 1, and of those below, where a table has no choice of its own.
    pub(crate) compression: (Compression, Compression),
    /// Whether merges reuse extents and blocks.
    pub(crate) reuse: bool,
    /// Whether what drains write enters the cache while that has room.
    pub(crate) fills: bool,
    /// Whether the database has an object store.
    pub(crate) has_objects: bool,
    /// Whether pieces of a shared store stay there, and nothing else is written to it.
    pub(crate) stays_far: bool,
    /// How many bytes more of what belongs into objects may lie on this machine; less than 0 if too
    /// many do. `None` if none may.
    pub(crate) local_room: Option<i64>,
    /// A planted bug: drains take every tombstone for one that hides nothing.
    pub(crate) drops_tombstones: bool,
    /// A planted bug: drains take operands for all that their key has.
    pub(crate) forgets_below: bool,
    /// A planted bug: objects are deleted before the edit that removes them.
    pub(crate) deletes_early: bool,
}

impl Shape {
    /// How extents of a level are laid out, in a table with these options.
    pub(crate) fn format(&self, level: u8, options: TableOptions) -> Format {
        Format::of(options, self.compression_of(level, options))
    }

    /// Whether extents that a job writes to a level become objects.
    pub(crate) fn puts_objects(&self, level: u8, options: TableOptions) -> bool {
        self.has_objects && options.cold == Tier::Object && level >= LEVEL_2
    }

    /// Whether compactions of a table to level 2 read or write objects: they take as long as the
    /// store does.
    pub(crate) fn may_touch_objects<E: Described>(&self, version: &Version<E>) -> bool {
        self.puts_objects(LEVEL_2, version.options) || version.has_objects()
    }

    /// Where extents are cut, in files or as objects.
    pub(crate) fn extent_bytes_of(&self, objects: bool) -> usize {
        // Under a memory limit extents are small, and objects are no larger.
        let several = objects && self.extent_bytes >= EXTENT_BYTES;
        self.extent_bytes * if several { OBJECT_EXTENTS } else { 1 }
    }

    /// How blocks of a level are compressed, in a table with these options.
    pub(super) fn compression_of(&self, level: u8, options: TableOptions) -> Compression {
        let (level1, deeper) = options.compression.unwrap_or(self.compression);
        if level <= SUBLEVELS { level1 } else { deeper }
    }

    /// The target of level 1, of all its sublevels together.
    pub(super) fn target_of_sublevels<E: Described>(&self, version: &Version<E>) -> u64 {
        self.target_by_share(self.level1_share, version)
    }

    /// The target of level `n` where level 1's is `target_of_sublevels`. One with nothing deeper
    /// has room for all that lies below level 1, however small level 1 is made at rest. A small
    /// level 1 is no reason to open a level, and to have versions lie in both.
    pub(super) fn target_of<E: Described>(&self, n: u8, version: &Version<E>) -> u64 {
        let is_last = version.levels.iter().skip(usize::from(n)).all(Level::is_empty);
        let least = self.level1_share.filter(|_| is_last).map(|share| share.min(self.ratio));
        let above = self.target_by_share(least.or(self.level1_share), version);
        let steps = u32::from(n + 1 - LEVEL_2);
        above.saturating_mul(self.ratio.saturating_pow(steps))
    }

    /// The target of level 1, if it is one byte for so many below it.
    pub(super) fn target_by_share<E: Described>(
        &self,
        share: Option<u64>,
        version: &Version<E>,
    ) -> u64 {
        let below =
            version.levels.iter().skip(usize::from(SUBLEVELS)).map(Level::bytes).sum::<u64>();
        self.level1_bytes.max(share.map_or(0, |share| below.div_ceil(share))).max(1)
    }

    /// How full level 1 is, with 1 for as full as it shall be and 2 for no sublevel being left.
    /// Where objects are below it, its bytes do not count: no writer waits for the store.
    pub(crate) fn fullness<E: Described>(&self, version: &Version<E>) -> f64 {
        let uppermost = (1..=SUBLEVELS).find(|n| version.level(*n).is_some_and(|l| !l.is_empty()));
        let taken = uppermost.map_or(0, |n| (LAST_SUBLEVELS + 1).saturating_sub(n));
        let by_sublevels = match taken {
            0 => 0.0,
            taken => 1.0 + f64::from(taken) / f64::from(LAST_SUBLEVELS),
        };
        if self.may_touch_objects(version) {
            return by_sublevels;
        }
        self.fullness_in_bytes(version).max(by_sublevels)
    }

    /// The same by its bytes alone.
    pub(super) fn fullness_in_bytes<E: Described>(&self, version: &Version<E>) -> f64 {
        let sublevels = version.levels.iter().take(usize::from(SUBLEVELS));
        let sum = |(a, b), level: &Level<E>| (a + level.bytes(), b + level.referred());
        let level1 = sublevels.fold((0, 0), sum);
        self.fullness_of(level1, SUBLEVELS, self.target_of_sublevels(version), version)
    }

    /// How much of its target a level has that ends with `n`: of bytes, or of bytes that it refers
    /// to.
    pub(super) fn fullness_of<E: Described>(
        &self,
        (bytes, referred): (u64, u64),
        n: u8,
        target: u64,
        version: &Version<E>,
    ) -> f64 {
        let below: u64 = version.levels.iter().skip(usize::from(n)).map(Level::referred).sum();
        let values = referred as f64 / target.max(below / self.ratio) as f64;
        values.max(bytes as f64 / target as f64)
    }
}
