//! Which compaction to run next: leveled, one extent at a time. Pure functions of a version, of how
//! often its extents are read, and of what runs already.
//!
//! First go extents that are mostly tombstones: one that has something below it goes down, where
//! its tombstones take with them what they hide; one that has nothing below it is written again
//! without them, once no reader is older.
//!
//! Then value extents that are mostly dead, or many and small, are emptied (`collect.rs`): what
//! makes space does not wait for what moves it.
//!
//! Then levels. A level is over-full when it has more bytes than its target; the target of level 1
//! is given and grows by the ratio from level to level. So two levels are enough until level 2
//! outgrows its target; then level 3 opens by itself.
//!
//! Where values lie apart a level has few bytes, and many that it refers to. It is over-full also
//! when those are more than its target and than one part by the ratio of what deeper levels refer
//! to: or values that were replaced would stay as long as the keys above them find room. Moving
//! references costs little, so that is all it is held to.
//!
//! From the level that is fullest for its target goes an extent that is read least, by powers of
//! two, and of those the one that has been in the database longest, by its id. So what is read much
//! stays in level 1, and the rest turns round the key space by itself, since what is rewritten gets
//! a new id. Jobs are bounded: an extent with more than 16 below it is passed over while the level
//! has another.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::collect::pick_values;
use crate::extent::{Described, Extent, ExtentMeta, Format};
use crate::levels::{Level, MAX_LEVELS, Version};
use crate::mvcc::KeyInterval;
use crate::options::{Compression, TableOptions};
use crate::record::{Lsn, TableId};

/// The most extents of the next level in one merge.
const MAX_OVERLAP: usize = 16;

/// An extent is mostly tombstones when one in so many of its records is one.
const HEAVY: u64 = 2;

/// How large levels and extents shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The target of level 1.
    pub(crate) level1_bytes: u64,
    /// How much larger each level's target is than the one above.
    pub(crate) ratio: u64,
    /// Where extents are cut.
    pub(crate) extent_bytes: usize,
    /// Of blocks of level 1, and of those below.
    pub(crate) compression: (Compression, Compression),
    /// Whether merges reuse extents and blocks.
    pub(crate) reuse: bool,
    /// A planted bug: drains take every tombstone for one that hides nothing.
    pub(crate) drops_tombstones: bool,
}

impl Shape {
    /// How extents of a level are laid out, in a table with these options.
    pub(crate) fn format(&self, level: u8, options: TableOptions) -> Format {
        let compression = if level <= 1 { self.compression.0 } else { self.compression.1 };
        Format::of(options, compression)
    }

    fn target(&self, level: u8) -> u64 {
        let deeper = u32::from(level.saturating_sub(1));
        self.level1_bytes.saturating_mul(self.ratio.saturating_pow(deeper)).max(1)
    }
}

/// What else a choice depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    /// The oldest LSN at which somebody reads.
    pub(crate) oldest: Lsn,
    /// Keys that jobs of the same table are at work on, in any level.
    pub(crate) busy: &'a [KeyInterval],
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice<E = Arc<Extent>> {
    /// An extent that overlaps nothing in the next level goes there unread.
    Move { table: TableId, from: u8, extent: E },
    /// Extents are merged with what they overlap in the next level, or are written again in theirs.
    Merge {
        table: TableId,
        /// The inputs' level.
        from: u8,
        /// The level of the overlap and of the output.
        to: u8,
        inputs: Vec<E>,
        overlap: Vec<E>,
        /// Value extents of which the inputs' values are written anew.
        collects: BTreeSet<u64>,
    },
}

impl<E: Described> Choice<E> {
    /// The keys that it works on: of its inputs and of what they overlap.
    pub(crate) fn interval(&self) -> KeyInterval {
        let alone = |extent: &E| span(std::slice::from_ref(extent).iter());
        match self {
            Choice::Move { extent, .. } => alone(extent),
            Choice::Merge { inputs, overlap, .. } => span(inputs.iter().chain(overlap)),
        }
    }
}

/// From the smallest key to the first one after the greatest.
fn span<'a, E: Described + 'a>(extents: impl Iterator<Item = &'a E> + Clone) -> KeyInterval {
    let smallest = extents.clone().map(|e| &e.meta().smallest_key).min();
    let greatest = extents.map(|e| &e.meta().greatest_key).max();
    KeyInterval {
        start: smallest.cloned().unwrap_or_default(),
        end: greatest.map(|key| [key.as_slice(), &[0]].concat()),
    }
}

/// The compaction that `version` needs most, if it needs one that can run now.
pub(crate) fn pick<E: Described>(
    version: &Version<E>,
    shape: &Shape,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    pick_heavy(version, now)
        .or_else(|| pick_values(version, shape, now))
        .or_else(|| pick_level(version, shape, now))
}

/// What rids the table of most tombstones.
fn pick_heavy<E: Described>(version: &Version<E>, now: &Situation<'_>) -> Option<Choice<E>> {
    let extents = (1u8..)
        .zip(&version.levels)
        .flat_map(|(n, level)| level.extents().iter().map(move |extent| (n, extent)));
    let heavy = extents.filter(|(_, e)| e.meta().deletes * HEAVY >= e.meta().records.max(1));
    let choices = heavy.filter_map(|(n, extent)| {
        let choice = if hides_nothing(version, n, extent) {
            // All its tombstones go, or it would be chosen again and again.
            let done_with = extent.meta().greatest_seq <= now.oldest;
            done_with.then(|| Choice::Merge {
                table: version.table,
                from: n,
                to: n,
                inputs: vec![extent.clone()],
                overlap: Vec::new(),
                collects: BTreeSet::new(),
            })
        } else {
            (n < MAX_LEVELS).then(|| send_down(version, n, extent))
        };
        choice.filter(|choice| is_free(choice, now)).map(|choice| (extent.meta(), choice))
    });
    let most = |a: &ExtentMeta, b: &ExtentMeta| a.deletes.cmp(&b.deletes).then(b.id.cmp(&a.id));
    choices.max_by(|(a, _), (b, _)| most(a, b)).map(|(_, choice)| choice)
}

/// What takes bytes out of the level that is fullest for its target.
fn pick_level<E: Described>(
    version: &Version<E>,
    shape: &Shape,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let mut full: Vec<_> = (1..MAX_LEVELS)
        .zip(&version.levels)
        .map(|(n, level)| (fullness(version, shape, n, level), n, level))
        .filter(|(full, _, _)| *full > 1.0)
        .collect();
    // Of equals the upper one: what comes down later passes it anyway.
    full.sort_by(|(a, n, _), (b, m, _)| b.total_cmp(a).then(n.cmp(m)));
    full.into_iter().find_map(|(_, n, level)| pick_extent(version, n, level, now))
}

/// How much of its target a level has: of bytes, or of bytes that it refers to.
fn fullness<E: Described>(version: &Version<E>, shape: &Shape, n: u8, level: &Level<E>) -> f64 {
    let target = shape.target(n);
    let below: u64 = version.levels.iter().skip(usize::from(n)).map(Level::referred).sum();
    let values = level.referred() as f64 / target.max(below / shape.ratio) as f64;
    values.max(level.bytes() as f64 / target as f64)
}

/// The extent of a level that goes down, and how.
fn pick_extent<E: Described>(
    version: &Version<E>,
    n: u8,
    level: &Level<E>,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let mut extents: Vec<_> = level.extents().iter().collect();
    extents.sort_by_cached_key(|extent| {
        let reads = extent.heat();
        let often = u32::BITS - reads.leading_zeros();
        (overlap(version, n + 1, extent.meta()).len().max(MAX_OVERLAP), often, extent.meta().id)
    });
    let choices = extents.into_iter().map(|extent| send_down(version, n, extent));
    choices.into_iter().find(|choice| is_free(choice, now))
}

/// How an extent gets from level `from` to the next one.
fn send_down<E: Described>(version: &Version<E>, from: u8, extent: &E) -> Choice<E> {
    let (table, meta) = (version.table, extent.meta());
    let overlap = overlap(version, from + 1, meta);
    let drops_deletes = meta.deletes > 0 && hides_nothing(version, from + 1, extent);
    if overlap.is_empty() && !drops_deletes {
        return Choice::Move { table, from, extent: extent.clone() };
    }
    let (inputs, overlap) = (vec![extent.clone()], overlap.to_vec());
    let (to, collects) = (from + 1, BTreeSet::new());
    Choice::Merge { table, from, to, inputs, overlap, collects }
}

fn overlap<'a, E: Described>(version: &'a Version<E>, level: u8, meta: &ExtentMeta) -> &'a [E] {
    let level = version.level(level);
    level.map_or(&[], |level| level.overlapping_closed(&meta.smallest_key, &meta.greatest_key))
}

/// Whether no level deeper than `level` has anything between an extent's keys.
fn hides_nothing<E: Described>(version: &Version<E>, level: u8, extent: &E) -> bool {
    (level + 1..=MAX_LEVELS).all(|deeper| overlap(version, deeper, extent.meta()).is_empty())
}

/// Whether no other job works on any of its keys.
pub(super) fn is_free<E: Described>(choice: &Choice<E>, now: &Situation<'_>) -> bool {
    let interval = choice.interval();
    !now.busy.iter().any(|busy| busy.overlaps(&interval))
}

#[cfg(test)]
mod tests;
