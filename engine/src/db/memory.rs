//! The one memory limit: what is left of it by the region's image, the indexes over it, and the
//! block indexes and filters of extents is the cache's, less a sixteenth for what transactions,
//! iterators and jobs hold for a moment. The cache gives way as the others grow, and grows again.
//! Transactions that have written more than a sixteenth of the limit together spill what they
//! write; their row locks may take an eighth, and no more are given then.

use super::inner::Engine;
use crate::error::{Error, Result};

/// One part of so many is for what is held for a moment.
const SLACK: u64 = 16;

/// And so many at most for row locks, for which the cache gives way.
const LOCKS: u64 = 8;

/// What the database holds in memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// The limit; 0 without one.
    pub limit: u64,
    /// The image of the region, in `file` mode.
    pub region: u64,
    /// Indexes over the records of the region.
    pub indexes: u64,
    /// Block indexes and filters of extents.
    pub filters: u64,
    /// What transactions have written and not committed, and what finds the part of it on disk.
    pub writes: u64,
    /// Row locks, and what optimistic transactions have to find unchanged: transactions with some
    /// dozens of locks or more.
    pub locks: u64,
    /// What ranges have read ahead, at most a sixteenth of the cache.
    pub read_ahead: u64,
    /// Blocks in the cache.
    pub cache: u64,
    /// The most that the cache may hold now.
    pub cache_capacity: u64,
}

impl MemoryStats {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.fixed() + self.cache
    }

    /// What is not the cache's.
    fn fixed(&self) -> u64 {
        self.region + self.indexes + self.filters + self.writes + self.locks + self.read_ahead
    }
}

/// The most that transactions may have written, in memory, under a limit.
pub(super) fn of_writes(limit: Option<u64>) -> usize {
    part(limit, SLACK)
}

/// The most that their row locks may take.
pub(super) fn of_locks(limit: Option<u64>) -> usize {
    part(limit, LOCKS)
}

fn part(limit: Option<u64>, of: u64) -> usize {
    let most = limit.map_or(u64::MAX, |limit| limit / of);
    usize::try_from(most).unwrap_or(usize::MAX)
}

impl Engine {
    /// What is held at this moment.
    pub(super) fn memory(&self) -> MemoryStats {
        let region = &self.shared.region;
        let mut memory = MemoryStats {
            limit: self.options.memory.unwrap_or(0),
            region: if region.mode() == "file" { region.len() } else { 0 },
            writes: self.shared.write_memory.taken() as u64,
            locks: self.shared.locks.memory() as u64,
            read_ahead: self.set.store().lent(),
            cache: self.shared.cache.used(),
            cache_capacity: self.shared.cache.capacity(),
            ..MemoryStats::default()
        };
        for table in self.tables() {
            let view = table.view();
            memory.indexes += view.index_memory();
            let levels = view.version.levels.iter().chain(view.runs().map(|run| run.extents));
            let extents = levels.flat_map(|level| level.extents().iter());
            memory.filters += extents.map(|extent| extent.memory() as u64).sum::<u64>();
        }
        memory
    }

    /// Gives the cache what the limit leaves it.
    pub(super) fn balance_memory(&self) {
        let Some(limit) = self.options.memory else { return };
        let left = (limit - limit / SLACK).saturating_sub(self.memory().fixed());
        // Not for every page more or less: it goes through all that is cached.
        let now = self.shared.cache.capacity();
        if left < now || left - now > limit / SLACK {
            self.shared.cache.set_capacity(left);
        }
    }

    /// Refuses a limit that leaves the cache nothing worth having.
    pub(super) fn check_memory(&self) -> Result<()> {
        let Some(limit) = self.options.memory else { return Ok(()) };
        let fixed = self.memory().fixed();
        if fixed + limit / 4 > limit {
            return Err(Error::invalid(format!(
                "a memory limit of {limit} bytes is too low: region and indexes take {fixed} \
                 bytes, and a quarter of it is for blocks; set at least {}, or create the database \
                 with a smaller region",
                fixed / 3 * 4 + 4
            )));
        }
        self.balance_memory();
        Ok(())
    }
}
