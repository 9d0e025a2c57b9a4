//! What bounds the memory of a database, and what follows from the machine where options say
//! nothing.

use super::{Options, Storage};
use crate::limits;
use crate::os::sync::shared::OnceLock;
use crate::os::usable_memory;

const MIB: u64 = 1024 * 1024;

/// The region of a database on a machine with memory enough.
const REGION: u64 = 256 * MIB;

/// A limit that follows the machine is one part of so many of what the process may use,
const SHARE: u64 = 2;

/// and the region one of so many of that.
const REGION_OF_SHARE: u64 = 4;

/// The cache of a database whose steps must not depend on the machine.
const FIXED_CACHE: u64 = 128 * MIB;

/// What bounds the memory of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryPlan {
    /// A limit that the caller named.
    Limit(u64),
    /// A limit that follows the machine; its share of what the process may use.
    Automatic(u64),
    /// A bound for the cache, and none for all else.
    Cache(u64),
}

impl MemoryPlan {
    /// The limit at an opening, if there is one.
    pub(crate) fn limit(self) -> Option<u64> {
        match self {
            MemoryPlan::Limit(bytes) | MemoryPlan::Automatic(bytes) => Some(bytes),
            MemoryPlan::Cache(_) => None,
        }
    }

    /// The most that the cache is ever given.
    pub(crate) fn most_cache(self) -> u64 {
        match self {
            MemoryPlan::Limit(bytes) | MemoryPlan::Automatic(bytes) | MemoryPlan::Cache(bytes) => {
                bytes
            }
        }
    }
}

/// What the process may use, as it was when it asked first.
pub(super) fn usable() -> u64 {
    static USABLE: OnceLock<u64> = OnceLock::new();
    *USABLE.get_or_init(usable_memory)
}

/// The region of a database that is created in a process that may use so much.
pub(super) fn default_region(usable: u64) -> u64 {
    let share = usable / SHARE / REGION_OF_SHARE;
    let power = if share == 0 { 0 } else { 1 << share.ilog2() };
    power.clamp(limits::MIN_PM_SIZE, REGION)
}

impl Options {
    /// What bounds the memory.
    pub(crate) fn memory_plan(&self) -> MemoryPlan {
        match (self.memory, self.cache_size) {
            (Some(limit), _) => MemoryPlan::Limit(limit),
            (None, Some(cache)) => MemoryPlan::Cache(cache),
            (None, None) if self.stepped || !matches!(self.storage, Storage::Real) => {
                MemoryPlan::Cache(FIXED_CACHE)
            }
            (None, None) => MemoryPlan::Automatic(usable() / SHARE),
        }
    }

    /// The bytes of extent files beyond which jobs pass by the operating system's cache; `None`
    /// if they never do. What fits into the memory of the process is left to that cache, where it
    /// caches blocks as well.
    pub(crate) fn direct_io_beyond(&self) -> Option<u64> {
        match self.direct_io {
            Some(true) => Some(0),
            Some(false) => None,
            None if self.caches_blocks_twice() => Some(usable()),
            None => Some(0),
        }
    }

    /// Whether the store reads single blocks through the operating system's cache. Jobs have a rule
    /// of their own.
    pub(crate) fn caches_blocks_twice(&self) -> bool {
        self.direct_io.is_none() && matches!(self.memory_plan(), MemoryPlan::Automatic(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_follows_the_memory() {
        assert_eq!(default_region(24 << 30), 256 * MIB);
        assert_eq!(default_region(2 << 30), 256 * MIB);
        assert_eq!(default_region(512 * MIB), 64 * MIB);
        assert_eq!(default_region(256 * MIB), 32 * MIB);
        assert_eq!(default_region(100 * MIB), 8 * MIB, "a power of two");
        assert_eq!(default_region(0), limits::MIN_PM_SIZE);
    }

    #[test]
    fn what_is_named_goes_before_the_machine() {
        assert!(matches!(Options::new().memory_plan(), MemoryPlan::Automatic(_)));
        assert_eq!(Options::new().cache_size(7).memory_plan(), MemoryPlan::Cache(7));
        assert_eq!(Options::new().cache_size(7).memory(9).memory_plan(), MemoryPlan::Limit(9));
        assert_eq!(Options::new().stepped().memory_plan(), MemoryPlan::Cache(FIXED_CACHE));
        assert!(Options::new().caches_blocks_twice());
        assert!(!Options::new().memory(1 << 30).caches_blocks_twice());
        assert!(!Options::new().direct_io(true).caches_blocks_twice());
        assert_eq!(Options::new().direct_io_beyond(), Some(usable()));
        assert_eq!(Options::new().memory(1 << 30).direct_io_beyond(), Some(0));
        assert_eq!(Options::new().direct_io(true).direct_io_beyond(), Some(0));
        assert_eq!(Options::new().direct_io(false).direct_io_beyond(), None);
    }
}
