//! What holds of the index of tables after each change, each under its name. What takes a look at
//! all tables is asserted while these are few: many would make each step of a test slow.

use std::ops::Bound;

use super::checks::Checks;
use super::{Summary, Sums, TableIndex};
use crate::record::TableId;

/// So many tables are few.
const FEW: usize = 32;

impl TableIndex {
    /// An entry stands in each index as its summary says, and nowhere else.
    pub(super) fn is_placed(&self, id: TableId, summary: &Summary) -> bool {
        let age = summary.age.is_none_or(|age| self.by_age.contains(&(age, id)));
        let memtables =
            summary.in_memtables.is_none_or(|lsn| self.in_memtables.contains(&(lsn, id)));
        let both = summary.in_both().is_none_or(|lsn| self.in_both.contains(&(lsn, id)));
        let fresh = summary.fresh().map(|lsn| self.fresh.get(&(lsn, id)).copied());
        let bytes = self.by_active_bytes.contains(&(summary.active_bytes, id));
        let memory = self.by_active_memory.contains(&(summary.active_memory, id));
        let sets = self.having.iter().zip(summary.has).all(|(set, has)| set.contains(&id) == has);
        let fresh = fresh.is_none_or(|bytes| bytes == Some(summary.undrained));
        age && memtables && both && fresh && bytes && memory && sets
    }

    /// A table that is gone stands in no index.
    pub(super) fn is_nowhere(&self, id: TableId, summary: &Summary) -> bool {
        let by_age = summary.age.is_some_and(|age| self.by_age.contains(&(age, id)));
        let fresh = summary.fresh().is_some_and(|lsn| self.fresh.contains_key(&(lsn, id)));
        !by_age && !fresh && !self.having.iter().any(|set| set.contains(&id))
    }

    /// The fullness of a level 1 stands in its index once, where there is one.
    pub(super) fn is_full_once(&self, id: TableId, level1: Option<u64>) -> bool {
        level1.is_none_or(|full| self.by_fullness.contains(&(full, id)))
    }

    /// The sums are those of all summaries.
    pub(super) fn sums_are_whole(&self) -> bool {
        if self.entries.len() > FEW {
            return true;
        }
        let add = |sums: Sums, entry: &super::Entry| Sums {
            undrained: sums.undrained + entry.summary.undrained,
            level0: sums.level0 + entry.summary.level0_bytes,
        };
        self.entries.values().fold(Sums::default(), add) == self.sums
    }

    /// The sum of the tables with records in memtables alone is that up to its LSN.
    pub(super) fn fresh_is_whole(&self) -> bool {
        let (upto, bytes) = self.fresh_upto;
        let below = (Bound::Unbounded, Bound::Included((upto, TableId::MAX)));
        self.fresh.len() > FEW
            || self.fresh.range(below).map(|(_, bytes)| bytes).sum::<u64>() == bytes
    }

    /// A job that finds something in a table finds it with more rest too.
    pub(super) fn checks_are_nested(&self) -> bool {
        let is_nested = |checks: &Checks| {
            let [busy, resting, quiet] = &checks.open;
            busy.len() > FEW || busy.is_subset(resting) && resting.is_subset(quiet)
        };
        [&self.compactions, &self.prunes].into_iter().chain(&self.ranges).all(is_nested)
    }

    /// Each table that a job is to look at is there.
    pub(super) fn checks_are_known(&self) -> bool {
        let is_known = |checks: &Checks| {
            let ids = || checks.open.iter().flatten().chain(&checks.by_readers);
            checks.by_readers.len() > FEW || ids().take(FEW).all(|id| self.entries.contains_key(id))
        };
        [&self.compactions, &self.prunes].into_iter().chain(&self.ranges).all(is_known)
    }
}
