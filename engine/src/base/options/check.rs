//! Which options can be true together. All are checked before anything is created.
//!
//! What bounds the memory of a database, and what follows from the machine where options say
//! nothing.

use std::path::Path;
use std::time::Duration;

use super::{Index, Mode, Options, Storage};
use crate::base::error::{Error, Result};
use crate::base::limits;
use crate::base::operator::Operators;
use crate::os::sync::shared::OnceLock;
use crate::os::{is_reader_name, usable_memory};

/// More often, the history would be short and the samples a burden.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

impl Options {
    /// The merge operators that an opening knows.
    pub(crate) fn operators(&self) -> Result<Operators> {
        Operators::default().with(&self.merge_operators)
    }

    /// The same with a `pm_path` that a change of the working directory leaves where it is.
    pub(crate) fn with_absolute_path(&self) -> Result<Options> {
        let mut options = self.clone();
        // The files of a simulated machine have the names that they were given.
        if let (Some(path), Storage::Real) = (&mut options.pm_path, &self.storage) {
            let absolute = std::path::absolute(&*path);
            *path = absolute.map_err(|e| Error::io("find the place of", &*path, e))?;
        }
        Ok(options)
    }

    /// Fails if the region is to lie in the database's `directory` under a name that another of its
    /// files has.
    pub(crate) fn check_place(&self, directory: &Path) -> Result<()> {
        let Some(path) = &self.pm_path else { return Ok(()) };
        let absolute = |path: &Path| std::path::absolute(path).ok();
        let is_inside = path.parent().and_then(absolute) == absolute(directory);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_taken = ["LOCK", "CREATING", "index", "object-fence", "object-tails", "shared", ""]
            .contains(&name.as_ref())
            || ["journal-", "extents-", "history-"].iter().any(|prefix| name.starts_with(prefix))
            || is_reader_name(&name);
        if is_inside && is_taken {
            return Err(Error::invalid(format!(
                "pm_path {} is the name of another file of the database; name a file elsewhere, \
                 or set no pm_path",
                path.display()
            )));
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.operators()?;
        let range = limits::MIN_PM_SIZE..=limits::MAX_PM_SIZE;
        if !range.contains(&self.pm_size) {
            return Err(Error::invalid(format!(
                "a region of {} bytes is out of bounds: pm_size takes {} to {}",
                self.pm_size,
                range.start(),
                range.end()
            )));
        }
        if self.history.is_some_and(|interval| interval < SHORTEST_INTERVAL) {
            return Err(Error::invalid(format!(
                "a sample of the history each {:?} is out of bounds: history takes {:?} and more, \
                 or none",
                self.history.unwrap_or_default(),
                SHORTEST_INTERVAL
            )));
        }
        if let Some(url) = &self.object_store {
            check_object_url(url)?;
        }
        if self.share && self.object_store.is_none() {
            return Err(Error::invalid(
                "share needs an object store that other machines reach: set object_store too",
            ));
        }
        if self.file_permissions & 0o600 != 0o600 || self.file_permissions & !0o666 != 0 {
            return Err(Error::invalid(format!(
                "file permissions of {:#o} are out of bounds: the owner has to read and write, and \
                 files of a database are not executed; set 0o600, 0o640, 0o660 or so",
                self.file_permissions
            )));
        }
        if self.in_memory.is_some() && (self.mode != Mode::File || self.pm_path.is_some()) {
            return Err(Error::invalid(
                "in_memory has the region in memory already: leave out pm_path, and the mode",
            ));
        }
        if !cfg!(target_os = "linux") && self.mode != Mode::File {
            return Err(Error::invalid(
                "the modes `dax` and `emulated` are of Linux alone; open with the mode `file`",
            ));
        }
        if self.index == Index::Persistent && !self.has_persistent_memory() {
            return Err(Error::invalid(
                "the persistent index needs persistent memory, and the mode is `file`: open with \
                 mode `dax` (or `emulated`, to try it), or with the volatile index",
            ));
        }
        Ok(())
    }
}

/// Fails for a URL of which no object store can be made, as far as that can be said without a
/// request.
fn check_object_url(url: &str) -> Result<()> {
    let scheme = url.split_once("://").filter(|(_, rest)| !rest.is_empty()).map(|(name, _)| name);
    match scheme {
        Some("file" | "s3" | "s3a" | "gs" | "az" | "azure" | "abfs" | "abfss") => Ok(()),
        #[cfg(any(test, feature = "testing"))]
        Some("memory") => Ok(()),
        _ => Err(Error::invalid(format!(
            "{url:?} is no URL of an object store: object_store takes s3://bucket/prefix, \
             gs://bucket/prefix, az://container/prefix, or file:///directory"
        ))),
    }
}

const MIB: u64 = 1024 * 1024;

/// The region of a database on a machine with memory enough.
const REGION: u64 = 256 * MIB;

/// A limit that follows the machine is one part of so many of what the process may use,
const SHARE: u64 = 4;

/// and the region one of so many of that.
const REGION_OF_SHARE: u64 = 2;

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
    fn urls_of_object_stores_are_checked_before_anything_is_asked_for() {
        for url in ["s3://bucket/prefix", "gs://b", "az://c/p", "file:///var/objects"] {
            check_object_url(url).unwrap();
        }
        for url in ["", "s3://", "bucket", "http://host/bucket", "ftp://x"] {
            let error = check_object_url(url).unwrap_err().to_string();
            assert!(error.contains("s3://bucket/prefix"), "{error}");
        }
    }

    mod memory {
        use super::super::*;

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
            let quarter = usable_memory() / 4;
            assert_eq!(Options::new().memory_plan(), MemoryPlan::Automatic(quarter));
            assert_eq!(Options::new().memory_plan().limit(), Some(quarter));
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
}
