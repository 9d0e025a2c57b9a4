//! Which compaction to run next: leveled, one extent at a time.
//!
//! A level is over-full when it has more bytes than its target; the target of level 1 is given
//! and grows by the ratio from level to level. So two levels are enough until level 2 outgrows
//! its target; then level 3 opens by itself.
//!
//! From the level that is fullest for its target goes the extent that has been in the database
//! longest, by its id. That turns round the key space by itself, since what is rewritten gets a
//! new id; and it sends cold extents down, since hot ones are rewritten by each drain. Jobs are
//! bounded: an extent with more than 16 below it is passed over while the level has another.

use std::sync::Arc;

use crate::extent::{Described, Extent};
use crate::levels::{Level, MAX_LEVELS, Version};
use crate::mvcc::KeyInterval;
use crate::options::Compression;
use crate::record::TableId;

/// The most extents of the next level in one merge.
const MAX_OVERLAP: usize = 16;

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
    /// A planted bug: drains take every tombstone for one that hides nothing.
    pub(crate) drops_tombstones: bool,
}

impl Shape {
    /// How blocks of a level are compressed.
    pub(crate) fn compression(&self, level: u8) -> Compression {
        if level <= 1 { self.compression.0 } else { self.compression.1 }
    }

    fn target(&self, level: u8) -> u64 {
        let deeper = u32::from(level.saturating_sub(1));
        self.level1_bytes.saturating_mul(self.ratio.saturating_pow(deeper)).max(1)
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice<E = Arc<Extent>> {
    /// An extent that overlaps nothing in the next level goes there unread.
    Move { table: TableId, from: u8, extent: E },
    /// Extents are merged with what they overlap in the next level.
    Merge {
        table: TableId,
        /// The inputs' level; the overlap is in the next one, and so is the output.
        from: u8,
        inputs: Vec<E>,
        overlap: Vec<E>,
        /// The keys of the inputs.
        interval: KeyInterval,
    },
}

/// The compaction that `version` needs most, if it needs one.
pub(crate) fn pick<E: Described>(version: &Version<E>, shape: &Shape) -> Option<Choice<E>> {
    let from = fullest_level(version, shape)?;
    let level = version.level(from)?;
    let none = Level::default();
    let next = version.level(from + 1).unwrap_or(&none);
    let extent = pick_extent(level, next)?;
    let meta = extent.meta();
    let overlap = next.overlapping_closed(&meta.smallest_key, &meta.greatest_key);
    let table = version.table;
    if overlap.is_empty() && !has_deletes_to_drop(version, from + 1, extent) {
        return Some(Choice::Move { table, from, extent: extent.clone() });
    }
    let interval = KeyInterval {
        start: meta.smallest_key.clone(),
        // The first key after the greatest one.
        end: Some([meta.greatest_key.as_slice(), &[0]].concat()),
    };
    let inputs = vec![extent.clone()];
    Some(Choice::Merge { table, from, inputs, overlap: overlap.to_vec(), interval })
}

/// The level that has the most bytes for its target, more than the target. The last level has
/// nowhere to go.
fn fullest_level<E: Described>(version: &Version<E>, shape: &Shape) -> Option<u8> {
    let levels = (1..MAX_LEVELS).zip(&version.levels);
    let full = levels.filter(|(n, level)| level.bytes() > shape.target(*n));
    let fullness = |n: u8, level: &Level<E>| level.bytes() as f64 / shape.target(n) as f64;
    // Of equals the upper one: what comes down later passes it anyway.
    full.rev().max_by(|(a, x), (b, y)| fullness(*a, x).total_cmp(&fullness(*b, y))).map(|(n, _)| n)
}

/// The oldest extent that has a bounded overlap; if none has, the one with the smallest.
fn pick_extent<'a, E: Described>(level: &'a Level<E>, next: &Level<E>) -> Option<&'a E> {
    let overlap = |extent: &E| {
        let meta = extent.meta();
        next.overlapping_closed(&meta.smallest_key, &meta.greatest_key).len()
    };
    level.extents().iter().min_by_key(|e| (overlap(e).max(MAX_OVERLAP), e.meta().id))
}

/// Whether a merge into `level` could drop deletes that a move would keep.
fn has_deletes_to_drop<E: Described>(version: &Version<E>, level: u8, extent: &E) -> bool {
    let meta = extent.meta();
    let deeper = version.levels.iter().skip(usize::from(level));
    let hidden =
        |l: &Level<E>| !l.overlapping_closed(&meta.smallest_key, &meta.greatest_key).is_empty();
    meta.deletes > 0 && !deeper.into_iter().any(hidden)
}

#[cfg(test)]
mod tests;
