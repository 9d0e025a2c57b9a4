//! How an optimistic transaction finds, when it commits, that what it relies on is unchanged.

use super::seen::{Seen, bytes_of, bytes_of_range};
use super::state::{Inner, Running};
use crate::error::Result;
use crate::locks::Mode;
use crate::read::KeyRange;

impl Running {
    /// Has the commit of an optimistic transaction find a key unchanged.
    pub(super) fn rely_on_key(&mut self, table: usize, key: &[u8]) -> Result<()> {
        if self.seen.has_key(table, key) {
            return Ok(());
        }
        self.take_room(bytes_of(key.len()))?;
        let is_new = self.seen.of_table(table).keys.insert(key.into());
        debug_assert!(is_new, "the memory of a key is counted once");
        Ok(())
    }

    /// As [`Running::rely_on_key`], for a range with its gaps.
    pub(super) fn rely_on_range(&mut self, table: usize, range: &KeyRange) -> Result<()> {
        let Some(keys) = range.interval().filter(|keys| !self.seen.has_range(table, keys)) else {
            return Ok(());
        };
        self.take_room(bytes_of_range(&keys))?;
        self.seen.of_table(table).ranges.insert(&keys);
        Ok(())
    }

    fn take_room(&mut self, bytes: usize) -> Result<()> {
        self.locker.check_room(bytes)?;
        self.locker.count(bytes);
        Ok(())
    }

    /// An optimistic transaction locks, at last, what it wrote and saw, and finds it unchanged.
    pub(super) fn validate(&mut self, inner: &Inner) -> Result<()> {
        let seen = std::mem::take(&mut self.seen);
        let done = self.validate_all(inner, &seen);
        self.seen = seen;
        done
    }

    /// An optimistic transaction holds no lock again: what it relies on stays to be validated.
    pub(super) fn give_validation_back(&mut self, inner: &Inner) {
        if inner.options.optimistic {
            self.locker.release();
            self.locker.count(self.seen.bytes());
        }
    }

    fn validate_all(&mut self, inner: &Inner, seen: &Seen) -> Result<()> {
        debug_assert!(
            seen.is_empty() || self.locker.held() == 0,
            "an optimistic transaction begins its validation without locks (invariant 5 of `state`)"
        );
        inner.shared.committer.lock_rows()?;
        // What it only saw is locked too, until it is committed: else two transactions that each
        // saw what the other one wrote would both find it unchanged.
        for (table, range) in seen.ranges() {
            let mode = match self.writes_in(inner, table, &range)? {
                true => Mode::Exclusive,
                false => Mode::Shared,
            };
            let (patience, target) = (self.patience(), &self.tables[table].pinned);
            let (space, name) = (target.lock_space(), || target.label());
            drop(self.locker.lock_range_beyond_limit(space, &range, mode, patience, &name)?);
        }
        let space = |table: usize| self.tables[table].pinned.lock_space();
        let mut keys: Vec<(u64, usize, &[u8])> =
            seen.keys().map(|(table, key)| (space(table), table, key)).collect();
        keys.sort_unstable();
        debug_assert!(
            keys.is_sorted_by(|a, b| (a.0, a.2) < (b.0, b.2)),
            "validations lock each row once, in one order, so they do not wait in a circle"
        );
        for &(_, table, key) in &keys {
            let written = self.writes.get(table, key, &inner.shared.cache)?.is_some();
            let mode = if written { Mode::Exclusive } else { Mode::Shared };
            let (patience, target) = (self.patience(), &self.tables[table].pinned);
            let (space, name) = (target.lock_space(), || target.label());
            self.locker.lock_key_beyond_limit(space, key, mode, patience, &name)?;
        }
        for &(_, table, key) in &keys {
            self.check_key(inner, table, key)?;
        }
        for (table, range) in seen.ranges() {
            self.check_range(inner, table, &range)?;
        }
        Ok(())
    }

    /// Whether it has written, or deleted, anything in a range.
    fn writes_in(&self, inner: &Inner, table: usize, range: &KeyRange) -> Result<bool> {
        if range.is_empty() {
            return Ok(false);
        }
        let bounds = (range.lower.as_ref(), range.upper.as_ref());
        let bounds = (bounds.0.map(Vec::as_slice), bounds.1.map(Vec::as_slice));
        let own = self.writes.first(table, bounds, &inner.shared.cache)?;
        Ok(own.is_some() || self.deletes_in(table, range))
    }
}
