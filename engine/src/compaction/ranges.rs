//! The range tombstones of a merge, and what they make superfluous below.
//!
//! A range tombstone that every reader sees hides older extents from every reader. The merge's
//! edit removes extents that lie under one as a whole, in any level, unread. What is left below
//! decides how long the tombstone is kept.

use std::sync::Arc;

use crate::base::error::Result;
use crate::mvcc::{Horizon, KeyInterval, Tombstone, Tombstones};
use crate::sstable::Extent;
use crate::version::{Level, Op, Version};

/// Range tombstones on their way into a level.
#[derive(Debug)]
pub(crate) struct Ranges<'a> {
    pub(super) version: &'a Version,
    /// The level that they go to.
    pub(super) to: u8,
    /// All that come in.
    pub(crate) tombstones: Vec<Arc<Tombstone>>,
    /// Extents of the target level, or of a deeper one, that they hide from every reader.
    hidden: Vec<(u8, Arc<Extent>)>,
}

impl<'a> Ranges<'a> {
    /// Tombstones from above on their way into level `to`. They remove nothing of what other jobs
    /// work on: `is_claimed` tells keys of a level.
    pub(crate) fn new(
        version: &'a Version,
        to: u8,
        above: Vec<Arc<Tombstone>>,
        horizon: &Horizon,
        is_claimed: impl Fn(u8, &KeyInterval) -> bool,
    ) -> Ranges<'a> {
        let set: Tombstones = above.iter().cloned().collect();
        let mut ranges = Ranges { version, to, tombstones: above, hidden: Vec::new() };
        let Some(reach) = reach(&ranges.tombstones) else { return ranges };
        for (n, level) in levels(version, to) {
            let is_hidden = |extent: &&Arc<Extent>| {
                let (meta, keys) = (extent.meta(), extent.meta().interval());
                set.hide(&keys, meta.greatest_seq, horizon.oldest()) && !is_claimed(n, &keys)
            };
            let hidden = level.overlapping(&reach).iter().filter(is_hidden);
            ranges.hidden.extend(hidden.map(|extent| (n, Arc::clone(extent))));
        }
        ranges
    }

    fn is_hidden(&self, extent: &Arc<Extent>) -> bool {
        self.hidden.iter().any(|(_, hidden)| Arc::ptr_eq(hidden, extent))
    }

    /// Those of `extents` that have to be read.
    pub(crate) fn without_hidden(&self, extents: &[Arc<Extent>]) -> Vec<Arc<Extent>> {
        extents.iter().filter(|extent| !self.is_hidden(extent)).cloned().collect()
    }

    /// The operations that remove the hidden extents.
    pub(crate) fn remove_hidden(&self) -> impl Iterator<Item = Op> {
        let table = self.version.table;
        let ids = self.hidden.iter().map(|(level, extent)| (*level, extent.meta().id));
        ids.map(move |(level, id)| Op::RemoveExtent { table, level, id })
    }

    /// Whether nothing of `interval` is left in a level deeper than the one that is written.
    pub(crate) fn is_bottom(&self, interval: &KeyInterval) -> bool {
        let clear = |level: &Level| level.overlapping(interval).iter().all(|e| self.is_hidden(e));
        levels(self.version, self.to + 1).all(|(_, level)| clear(level))
    }

    /// The last key of what is left in deeper levels.
    pub(crate) fn last_below(&self) -> Option<&[u8]> {
        let left = |(_, level): (u8, &'a Level)| {
            let mut extents = level.extents().iter().rev();
            extents.find(|extent| !self.is_hidden(extent)).map(|e| e.meta().greatest_key.as_slice())
        };
        levels(self.version, self.to + 1).filter_map(left).max()
    }
}

/// The levels from `from` on, with their numbers.
fn levels(version: &Version, from: u8) -> impl Iterator<Item = (u8, &Level)> {
    (1..).zip(&version.levels).skip(usize::from(from) - 1)
}

/// The keys that the tombstones are within.
fn reach(tombstones: &[Arc<Tombstone>]) -> Option<KeyInterval> {
    let start = tombstones.iter().map(|t| &t.interval.start).min()?.clone();
    let ends = tombstones.iter().map(|t| t.interval.end.as_ref());
    // An interval without an end ends last.
    let end = ends.reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten().cloned();
    Some(KeyInterval { start, end })
}

/// The range tombstones of some extents. Reads only those that have any.
pub(super) fn tombstones_of(extents: &[Arc<Extent>]) -> Result<Vec<Arc<Tombstone>>> {
    let mut all = Vec::new();
    for extent in extents.iter().filter(|extent| extent.meta().tombstones > 0) {
        all.extend(extent.tombstones()?.iter().cloned());
    }
    Ok(all)
}
