//! The range tombstones of a view. They hide by sequence number, wherever they lie. So nothing
//! depends on the order of places, nor on D: a tombstone that has moved to level 1 hides the same.

use std::sync::Arc;

use super::View;
use crate::base::error::Result;
use crate::base::record::{LSN_MAX, Lsn};
use crate::mvcc::{KeyInterval, Tombstone, Tombstones};
use crate::sstable::{Extent, MissingPart, ReadAhead};
use crate::version::Level;

/// All range tombstones that a read has to look at. Levels and extents without any are left out.
pub(crate) struct RangeTombstones<'a> {
    memory: Vec<Arc<Tombstones>>,
    levels: Vec<&'a Level>,
}

impl View {
    /// The range tombstones of this moment, which include all that were visible before. `None` if
    /// the view has none: that costs a load for each memtable and for level 0.
    #[inline]
    pub(crate) fn range_tombstones(&self) -> Option<RangeTombstones<'_>> {
        let in_memory = || self.memtables().filter_map(|memtable| memtable.tombstones());
        let mut levels = self.version.levels.iter().map(Level::tombstones);
        let has_some = in_memory().next().is_some()
            || self.level0.tombstones.load().is_some()
            || levels.any(|tombstones| tombstones > 0);
        has_some.then(|| RangeTombstones {
            memory: in_memory().chain(self.level0.tombstones.load()).collect(),
            levels: self.version.levels.iter().filter(|level| level.tombstones() > 0).collect(),
        })
    }

    /// The tombstones of memtables and level 0 that a reader at `at` sees, drained or not.
    pub(crate) fn tombstones_in_memory(&self, at: Lsn) -> Vec<Arc<Tombstone>> {
        let memtables = self.memtables().filter_map(|memtable| memtable.tombstones());
        let mut all: Vec<Arc<Tombstone>> = Vec::new();
        for set in memtables.chain(self.level0.tombstones.load()) {
            all.extend(set.iter().filter(|tombstone| tombstone.seq <= at).cloned());
        }
        all
    }

    /// The tombstones of memtables and level 0 that a reader at `at` sees, cut to keys that are not
    /// drained.
    pub(crate) fn undrained_tombstones(&self, at: Lsn) -> Vec<Arc<Tombstone>> {
        let memtables = self.memtables().filter_map(|memtable| memtable.tombstones());
        let mut all: Vec<Arc<Tombstone>> = Vec::new();
        for set in memtables {
            all.extend(set.iter().filter(|tombstone| tombstone.seq <= at).cloned());
        }
        all.extend(self.level0.tombstones.undrained_in(
            &KeyInterval::all(),
            (at, at),
            &self.version.drained,
        ));
        all
    }
}

impl RangeTombstones<'_> {
    /// The sequence number of the newest one over `key` that is above `since` and not newer than
    /// `at`; `since` if there is none.
    pub(crate) fn newest_over(&self, key: &[u8], (since, at): (Lsn, Lsn)) -> Result<Lsn> {
        let mut newest = self.newest_in_memory_over(key, at).max(since);
        for extent in self.extents_over(key) {
            if extent.meta().greatest_seq > newest {
                newest = newest.max(extent.tombstones()?.newest_over(key, at));
            }
        }
        Ok(newest)
    }

    /// Whether one that is not newer than `at` hides the version `seq` of `key`.
    pub(crate) fn hide_version(&self, key: &[u8], seq: Lsn, at: Lsn) -> Result<bool> {
        if self.newest_in_memory_over(key, at) > seq {
            return Ok(true);
        }
        for extent in self.extents_over(key).filter(|extent| extent.meta().greatest_seq > seq) {
            if extent.tombstones()?.newest_over(key, at) > seq {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What has to come from an object store to know whether one hides the version `seq` of `key`.
    pub(crate) fn missing_over(&self, key: &[u8], seq: Lsn) -> impl Iterator<Item = MissingPart> {
        let newer = self.extents_over(key).filter(move |extent| extent.meta().greatest_seq > seq);
        newer.filter_map(Extent::missing_end)
    }

    fn newest_in_memory_over(&self, key: &[u8], at: Lsn) -> Lsn {
        self.memory.iter().map(|set| set.newest_over(key, at)).max().unwrap_or(0)
    }

    /// The sequence number of the newest one in memory; 0 if there is none.
    pub(crate) fn newest_in_memory(&self) -> Lsn {
        self.memory.iter().map(|set| set.newest()).max().unwrap_or(0)
    }

    /// Those newer than `older` and not newer than `at` that have keys of `interval`. Those that
    /// would have to come from an object store are left out.
    pub(crate) fn at_hand_over(
        &self,
        interval: &KeyInterval,
        older: Lsn,
        at: Lsn,
    ) -> Result<Vec<Arc<Tombstone>>> {
        let mut over: Vec<Arc<Tombstone>> = Vec::new();
        let mut add = |set: &Tombstones| {
            let seen = set.overlapping(interval).into_iter();
            over.extend(seen.filter(|one| older < one.seq && one.seq <= at).cloned());
        };
        self.memory.iter().for_each(|set| add(set));
        for extent in self.levels.iter().flat_map(|level| level.overlapping(interval)) {
            let meta = extent.meta();
            let is_newer = meta.tombstones > 0 && meta.greatest_seq > older;
            if is_newer && extent.missing_end().is_none() {
                add(&*extent.tombstones()?);
            }
        }
        Ok(over)
    }

    /// The extents around `key` that have tombstones.
    fn extents_over(&self, key: &[u8]) -> impl Iterator<Item = &Arc<Extent>> {
        let around = self.levels.iter().filter_map(move |level| level.find(key));
        around.filter(|extent| extent.meta().tombstones > 0)
    }

    /// A key of `interval` under a tombstone that is newer than `since`, with the tombstone's
    /// sequence number.
    pub(crate) fn newer_in(
        &self,
        interval: &KeyInterval,
        since: Lsn,
        ahead: &ReadAhead,
    ) -> Result<Option<(Vec<u8>, Lsn)>> {
        let first = |set: &Tombstones| {
            set.find_overlapping(interval, |tombstone| {
                let start = tombstone.interval.intersection(interval)?.start;
                (tombstone.seq > since).then_some((start, tombstone.seq))
            })
        };
        let mut found = self.memory.iter().find_map(|set| first(set));
        for level in &self.levels {
            for extent in level.overlapping(interval) {
                let has_newer = extent.meta().tombstones > 0 && extent.meta().greatest_seq > since;
                if found.is_none() && has_newer {
                    ahead.need(|| extent.missing_end())?;
                    found = first(&*extent.tombstones()?);
                }
            }
        }
        Ok(found)
    }

    /// Whether a tombstone in memory hides everything that is older than `seq` in `interval`.
    pub(crate) fn hide(&self, interval: &KeyInterval, seq: Lsn) -> bool {
        self.memory.iter().any(|set| set.hide(interval, seq, LSN_MAX))
    }
}
