//! Where the keys of a table lie on disk, and which jobs work on them.

use std::sync::Arc;

use super::stats_reader::StatsReader;
use crate::sstable::Described;
use crate::version::known_as;

/// An extent of a level: [`StatsReader::extents`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExtentInfo<'a> {
    /// Its level, from 1.
    pub level: u8,
    /// The first key that it may have.
    pub smallest_key: &'a [u8],
    /// The last one.
    pub greatest_key: &'a [u8],
    /// Bytes it takes.
    pub bytes: u64,
    /// How often it was read of late: a count that halves as the database is read.
    pub reads: u32,
}

/// Keys that a job of the background works on, in levels that it takes them from or brings them to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobKeys {
    /// The upper one of the levels.
    pub top: u8,
    /// The lower one.
    pub bottom: u8,
    /// The first of the keys.
    pub start: Vec<u8>,
    /// Where they end, if not with the last key of the table.
    pub end: Option<Vec<u8>>,
}

impl StatsReader {
    /// Lends each extent of a table's levels to `each`, level by level in the order of the keys. It
    /// returns the keys that jobs are working on. `None` once the database is closed, and for a
    /// table that is not there. A closing waits until it has returned.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("t")?;
    /// table.put("key", "value")?;
    /// db.compact_range(&table, ..)?;
    /// let mut bytes = 0;
    /// let jobs = db.stats_reader().extents("t", |extent| bytes += extent.bytes);
    /// assert!(jobs.is_some() && bytes > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn extents(
        &self,
        table: &str,
        mut each: impl FnMut(&ExtentInfo<'_>),
    ) -> Option<Vec<JobKeys>> {
        self.read(|engine| {
            let core = engine.tables().into_iter().find(|core| core.name() == table)?;
            // What is lent keeps no epoch.
            let version = Arc::clone(&core.view().version);
            for (n, extent) in version.extents() {
                let meta = extent.meta();
                each(&ExtentInfo {
                    level: known_as(n),
                    smallest_key: &meta.smallest_key,
                    greatest_key: &meta.greatest_key,
                    bytes: meta.location.len.into(),
                    reads: extent.read_frequency(),
                });
            }
            let jobs = engine.ctx.claims.of(core.id()).into_iter().map(|claimed| JobKeys {
                top: known_as(claimed.top),
                bottom: known_as(claimed.bottom),
                start: claimed.keys.start,
                end: claimed.keys.end,
            });
            Some(jobs.collect())
        })?
    }
}
