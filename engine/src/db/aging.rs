//! Time to live: the marks that say when records were written, and what goes once it has expired.
//!
//! While a table has a time to live, and there are commits, a mark a second goes into the journal.
//! It names an LSN that is durable: what a power cut can take is given to other records after it,
//! which are younger. Nobody goes by a mark before its edit is durable, so what has expired has
//! expired after any cut as well.

use std::sync::Arc;
use std::time::Duration;

use super::inner::Engine;
use crate::compaction;
use crate::error::{ErrorKind, Result};
use crate::levels::{Edit, Op, Version};
use crate::mvcc::{TimeMark, micros};
use crate::table::TableCore;

/// Marks come no closer to each other.
const MARKED: Duration = Duration::from_secs(1);

impl Engine {
    /// Marks how far commits have come, once a second. Where the disk is full it is left for later:
    /// jobs that make space are more urgent.
    pub(super) fn mark_time(&self) -> Result<bool> {
        unless_full(self.mark_time_after(MARKED))
    }

    /// Marks it, if they have come further since the last mark, and that is so old.
    fn mark_time_after(&self, least: Duration) -> Result<bool> {
        let timeline = self.set.timeline();
        let last = timeline.last();
        let now = self.shared.clock.now();
        if last.is_some_and(|last| now - last.time < micros(least)) {
            return Ok(false);
        }
        let is_new = |lsn| lsn > last.map_or(0, |last| last.lsn);
        let ages = |table: &Arc<TableCore>| table.view().version.options.ttl.is_some();
        if !is_new(self.shared.committer.visible()) || !self.tables().iter().any(ages) {
            return Ok(false);
        }
        let lsn = self.settle()?.min(self.shared.committer.visible());
        if !is_new(lsn) {
            return Ok(false);
        }
        // Later than all of that was committed.
        let mark = TimeMark { lsn, time: self.shared.clock.now() };
        self.apply(Edit { ops: vec![Op::TimeMark(mark)] })?;
        self.set.thin_timeline(&self.shared.snapshots.horizon());
        Ok(true)
    }

    /// The last mark before the database is closed, or what was written last would count as written
    /// when it is opened again.
    pub(super) fn mark_close(&self) -> Result<()> {
        unless_full(self.mark_time_after(Duration::ZERO)).map(drop)
    }

    /// Takes extents out that hold nothing any more; whether there were any.
    pub(super) fn drop_expired(&self) -> Result<bool> {
        for table in self.tables() {
            if unless_full(self.drop_expired_of(&table))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn drop_expired_of(&self, table: &TableCore) -> Result<bool> {
        let may_have = |version: &Version| version.options.ttl.is_some() || version.expired > 0;
        if !may_have(&table.view().version) {
            return Ok(false);
        }
        let mut change = table.change();
        let horizon = self.shared.snapshots.horizon();
        let version = Arc::clone(&table.view().version);
        let expired = version.expired_at(&self.set.timeline(), horizon.oldest_time());
        if expired == 0 || table.check().is_err() {
            return Ok(false);
        }
        // Who takes one to work on holds the right to change the table meanwhile.
        let busy = self.background.claims.of(table.id());
        let gone = compaction::expired(&version, expired, &busy);
        if gone.is_empty() {
            return Ok(false);
        }
        let remove = |level, id| Op::RemoveExtent { table: table.id(), level, id };
        let ops = gone.iter().map(|(level, extent)| remove(*level, extent.meta().id)).collect();
        let versions = self.apply(Edit { ops })?;
        self.install(table, &mut change, versions, 0);
        drop(change);
        gone.iter().for_each(|(_, extent)| extent.evict(&self.shared.cache));
        self.background.metrics.expired_extents.add(gone.len() as u64);
        Ok(true)
    }
}

/// Nothing was done on a full disk, and nothing has to be.
fn unless_full(done: Result<bool>) -> Result<bool> {
    match done {
        Err(e) if e.kind() == ErrorKind::Full => Ok(false),
        done => done,
    }
}
