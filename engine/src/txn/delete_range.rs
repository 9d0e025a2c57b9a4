//! Deleting all keys of a range in a transaction: an interval, and key by key what the transaction
//! itself has put into it, be it spilled.

use std::ops::Bound;

use super::state::{Inner, Running};
use crate::error::Result;
use crate::limits;
use crate::read::KeyRange;

impl Running {
    /// Deletes all keys of a range.
    pub(super) fn delete_range(
        &mut self,
        inner: &Inner,
        table: usize,
        range: &KeyRange,
    ) -> Result<()> {
        inner.shared.check_writable()?;
        let Some(interval) = range.interval() else { return Ok(()) };
        limits::check_key(&interval.start)?;
        limits::check_key(interval.end.as_deref().unwrap_or_default())?;
        self.own_range(inner, table, range)?;
        // All of it, or nothing.
        let savepoints = self.writes.savepoints();
        self.writes.set_savepoint("");
        let limit = inner.options.write_limit;
        let deleted = self.delete_own(inner, table, &KeyRange::from(interval.clone()));
        let deleted = deleted.and_then(|()| self.writes.delete_range(table, &interval, limit));
        if deleted.is_err() {
            self.writes.roll_back_to("")?;
        }
        self.writes.release("")?;
        debug_assert_eq!(
            self.writes.savepoints(),
            savepoints,
            "a range delete leaves the savepoints of its caller as they were"
        );
        if deleted.is_ok() {
            self.writes.forget_deleted(table, &interval);
        }
        deleted
    }

    /// Deletes the rows of a range that it has written itself.
    fn delete_own(&mut self, inner: &Inner, table: usize, range: &KeyRange) -> Result<()> {
        let KeyRange { mut lower, upper } = range.clone();
        loop {
            let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
            let own = self.writes.first(table, bounds, &inner.shared.cache)?;
            let Some((key, write)) = own else { return Ok(()) };
            if write.is_some() {
                self.keep(inner, table, &key, None)?;
            }
            lower = Bound::Excluded(key.to_vec());
        }
    }

    /// Whether it has deleted a part of a range.
    pub(super) fn deletes_in(&self, table: usize, range: &KeyRange) -> bool {
        range.interval().is_some_and(|keys| self.writes.deletes_in(table, &keys))
    }
}
