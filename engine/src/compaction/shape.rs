//! How large levels and extents shall be: targets of levels, how full they are, and how the extents
//! of a level are laid out. Pure functions of a version.

use std::cmp::Ordering;

use crate::base::options::{Compression, TableOptions, Tier};
use crate::mvcc::{KeyInterval, after};
use crate::sstable::{Described, Format};
use crate::storage::EXTENT_BYTES;
use crate::version::{LEVEL_2, Level, MAX_LEVELS, SUBLEVELS, Version};

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
    /// Extents of a sublevel that one drain may rewrite.
    pub(crate) overlap: usize,
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
    /// About so many bytes of the level below lie between two cuts of a level.
    fn cell(&self) -> u64 {
        (self.job_bytes / 4).max(1)
    }

    /// The most bytes of a lower level that may lie between two cuts, or under an extent of a load.
    pub(crate) fn most_under(&self) -> u64 {
        self.cell() + self.cell() / 2
    }

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
    fn target_of_sublevels<E: Described>(&self, version: &Version<E>) -> u64 {
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
    fn target_by_share<E: Described>(&self, share: Option<u64>, version: &Version<E>) -> u64 {
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

// Where extents of sublevels begin and end. Pure functions of a version.
//
// An input set takes along all that lies under it, and what one sublevel has beside the edges of
// the next makes it wider. So sublevels keep the edges that others have: a column ends, and an
// extent is cut, where the fewest extents of sublevels have keys on both sides. An edge that some
// extents have is one for those that come later. Edges stay where they are although what lies
// below is written again. Fragmented LSM-trees keep such edges as guards ("PebblesDB: Building
// Key-Value Stores using Fragmented Log-Structured Merge Trees", SOSP 2017).
//
// Between two edges there is about a **cell**: so many bytes of what lies below as a quarter of a
// job reads. A few records far apart would else take all of it along when they go down.

/// Keys before which extents of level `n` are cut, a cell apart, give or take half of one.
pub(super) fn cuts<E: Described>(
    version: &Version<E>,
    n: u8,
    keys: &KeyInterval,
    shape: &Shape,
) -> Vec<Vec<u8>> {
    let cell = shape.cell();
    let (least, most) = (cell.div_ceil(2), shape.most_under());
    let mut edges = ends(version, n, (n + 1).max(LEVEL_2), keys);
    // Where they are in the level below.
    let mut whole = 0;
    for (_, at) in &mut edges {
        whole += *at;
        *at = whole;
    }
    let (mut cuts, mut last) = (Vec::new(), 0);
    loop {
        let behind = |at: u64| at.saturating_sub(last);
        edges.drain(..edges.partition_point(|(_, at)| behind(*at) < least));
        let near = edges.partition_point(|(_, at)| behind(*at) <= most).max(1);
        let is_good =
            |(key, at): &&(Vec<u8>, u64)| (across(version, n, key), behind(*at).abs_diff(cell));
        match edges.iter().take(near).min_by_key(is_good) {
            Some((key, at)) if whole - at >= least => {
                last = *at;
                cuts.push(key.clone());
            }
            _ => {
                debug_assert!(cuts.is_sorted(), "cuts ascend");
                return cuts;
            }
        }
    }
}

/// Where a column may end.
pub(super) struct ColumnEnds<'a> {
    /// It ends after this one,
    pub(super) least: &'a KeyInterval,
    /// near this one,
    pub(super) usual: &'a KeyInterval,
    /// and no later than this one.
    pub(super) wide: &'a KeyInterval,
}

/// Where a column of sublevel `n` ends best.
pub(super) fn best_end<E: Described>(
    version: &Version<E>,
    n: u8,
    ColumnEnds { least, usual, wide }: ColumnEnds<'_>,
    is_fine: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let is_past = |end: &[u8], other: &KeyInterval| {
        other.end.as_ref().is_some_and(|other| end > other.as_slice())
    };
    let ends = ends(version, n, LEVEL_2, wide).into_iter().map(|(key, _)| key);
    let near = ends.filter(|key| is_past(key, least) && !is_past(key, wide) && is_fine(key));
    let by_across = near.map(|key| (across(version, n, &key), is_past(&key, usual), key));
    // Of those that are as good the last one before the usual end, or else the first one behind.
    let best = by_across.reduce(|a, b| match (b.0, b.1).cmp(&(a.0, a.1)) {
        Ordering::Less => b,
        Ordering::Equal if !b.1 => b,
        _ => a,
    });
    best.map(|(_, _, key)| key)
}

/// Behind which keys of `keys` an extent ends, in a sublevel or `below`, ascending, with the bytes
/// that this one has there since the one before.
fn ends<E: Described>(
    version: &Version<E>,
    n: u8,
    below: u8,
    keys: &KeyInterval,
) -> Vec<(Vec<u8>, u64)> {
    let of = |level: u8| {
        let extents = version.overlapping(level, keys).iter().map(Described::meta);
        extents.map(move |meta| {
            let bytes = if level == below { u64::from(meta.location.len) } else { 0 };
            (after(&meta.greatest_key), bytes)
        })
    };
    let sublevels = (1..=SUBLEVELS).filter(|_| n <= SUBLEVELS);
    let mut ends: Vec<_> = sublevels.chain([below]).flat_map(of).collect();
    ends.sort_unstable();
    ends.dedup_by(|b, a| {
        let is_same = a.0 == b.0;
        a.1 += if is_same { b.1 } else { 0 };
        is_same
    });
    ends
}

/// How many extents of sublevels have keys on both sides of an edge in level `n`.
fn across<E: Described>(version: &Version<E>, n: u8, edge: &[u8]) -> usize {
    let sublevels = if n <= SUBLEVELS { usize::from(SUBLEVELS) } else { 0 };
    let has_both = |extent: &E| extent.meta().smallest_key.as_slice() < edge;
    let sublevels = version.levels.iter().take(sublevels);
    sublevels.filter(|sublevel| sublevel.find(edge).is_some_and(has_both)).count()
}

// What a job claims: keys, in some levels of a table.
//
// Two jobs of a table go on beside each other where they have no key in common, or no level. A
// compaction with objects takes as long as the store does. It claims the lower sublevels and what
// lies under them, and leaves the upper ones to drains and to compactions in files.

/// Sublevels, from the uppermost on, that compactions with objects leave to others: intra-L1
/// compactions make room among them, and drains have two while one is under way.
pub(crate) const SPARED_SUBLEVELS: u8 = 6;

/// Keys in levels from `top` down to `bottom`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedKeys {
    pub(crate) keys: KeyInterval,
    pub(crate) top: u8,
    pub(crate) bottom: u8,
}

impl ClaimedKeys {
    /// Keys in levels from `top` down to `bottom`.
    pub(crate) fn new(keys: KeyInterval, (top, bottom): (u8, u8)) -> ClaimedKeys {
        debug_assert!((1..=bottom).contains(&top), "levels count from 1, the uppermost first");
        debug_assert!(bottom <= MAX_LEVELS, "there is no deeper level");
        ClaimedKeys { keys, top, bottom }
    }

    /// Whether it has some of `keys` in a level.
    pub(crate) fn has(&self, level: u8, keys: &KeyInterval) -> bool {
        (self.top..=self.bottom).contains(&level) && self.keys.overlaps(keys)
    }

    /// Whether both have some key of some level.
    pub(crate) fn meets(&self, other: &ClaimedKeys) -> bool {
        let levels_meet = self.top <= other.bottom && other.top <= self.bottom;
        levels_meet && self.keys.overlaps(&other.keys)
    }

    /// The same with the levels below it that nothing of `busy` has keys of.
    pub(crate) fn deepened(self, busy: &[ClaimedKeys]) -> ClaimedKeys {
        let is_free = |n: &u8| !is_claimed(busy, *n, &self.keys);
        let bottom = (self.bottom + 1..=MAX_LEVELS).take_while(is_free).last();
        ClaimedKeys { bottom: bottom.unwrap_or(self.bottom), ..self }
    }

    /// Whether it leaves the upper sublevels to others as far as it goes below level 1.
    pub(crate) fn spares(&self, sublevels: u8) -> bool {
        self.bottom < LEVEL_2 || self.top > sublevels
    }
}

#[cfg(test)]
impl ClaimedKeys {
    /// Keys in all levels.
    pub(crate) fn in_all_levels(keys: KeyInterval) -> ClaimedKeys {
        ClaimedKeys::new(keys, (1, MAX_LEVELS))
    }
}

/// Whether some claim has some of `keys` in a level.
pub(crate) fn is_claimed(busy: &[ClaimedKeys], level: u8, keys: &KeyInterval) -> bool {
    busy.iter().any(|claim| claim.has(level, keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(start: &str, end: &str, levels: (u8, u8)) -> ClaimedKeys {
        let keys = KeyInterval { start: start.into(), end: Some(end.into()) };
        ClaimedKeys::new(keys, levels)
    }

    #[test]
    fn jobs_meet_where_they_have_a_key_of_a_level_in_common() {
        let one = claimed("b", "d", (3, 6));
        for (other, meets) in [
            (claimed("c", "e", (6, 9)), true),
            (claimed("c", "e", (1, 3)), true),
            (claimed("c", "e", (4, 5)), true),
            (claimed("c", "e", (7, 13)), false),
            (claimed("c", "e", (1, 2)), false),
            (claimed("d", "e", (3, 6)), false),
        ] {
            assert_eq!(one.meets(&other), meets, "{other:?}");
            assert_eq!(other.meets(&one), meets, "{other:?}");
        }
        let keys = claimed("c", "e", (1, 1)).keys;
        assert_eq!((1..9).filter(|n| one.has(*n, &keys)).collect::<Vec<_>>(), [3, 4, 5, 6]);
    }

    #[test]
    fn a_claim_is_deepened_down_to_what_others_have() {
        let one = || claimed("b", "d", (3, 6));
        assert_eq!(one().deepened(&[]).bottom, MAX_LEVELS);
        assert_eq!(one().deepened(&[claimed("c", "x", (9, 13))]).bottom, 8);
        assert_eq!(one().deepened(&[claimed("c", "x", (7, 13))]).bottom, 6);
        assert_eq!(one().deepened(&[claimed("d", "x", (7, 13))]).bottom, MAX_LEVELS);
    }
}
