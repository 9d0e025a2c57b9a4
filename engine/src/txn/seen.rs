//! What a transaction holds on to beside its writes, and what that may take: row locks, and what an
//! optimistic one relies on until it commits. All of it is in memory.

use std::collections::BTreeSet;

use super::state::{Inner, Running};
use crate::error::Result;
use crate::locks::Mode;
use crate::mvcc::{IntervalSet, KeyInterval};
use crate::read::KeyRange;

/// Keys and ranges that have to be as they were when the transaction commits, by table.
#[derive(Debug, Default)]
pub(super) struct Seen(Vec<OfTable>);

#[derive(Debug, Default)]
struct OfTable {
    keys: BTreeSet<Box<[u8]>>,
    /// What lies in one of them is not among the keys, if it came later.
    ranges: IntervalSet,
}

impl Seen {
    /// Whether nothing has to be found unchanged.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has_key(&self, table: usize, key: &[u8]) -> bool {
        self.0.get(table).is_some_and(|own| own.ranges.contains(key) || own.keys.contains(key))
    }

    fn has_range(&self, table: usize, keys: &KeyInterval) -> bool {
        self.0.get(table).is_some_and(|own| own.ranges.covers(keys))
    }

    fn of_table(&mut self, table: usize) -> &mut OfTable {
        if self.0.len() <= table {
            self.0.resize_with(table + 1, OfTable::default);
        }
        &mut self.0[table]
    }

    fn keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let keys = |(table, own)| {
            let own: &OfTable = own;
            own.keys.iter().map(move |key| (table, &**key))
        };
        self.0.iter().enumerate().flat_map(keys)
    }

    fn ranges(&self) -> impl Iterator<Item = (usize, KeyRange)> {
        let ranges = |(table, own)| {
            let own: &OfTable = own;
            own.ranges.iter().map(move |keys| (table, keys.into()))
        };
        self.0.iter().enumerate().flat_map(ranges)
    }

    /// Bytes of memory that it takes.
    fn bytes(&self) -> usize {
        let keys: usize = self.keys().map(|(_, key)| bytes_of(key.len())).sum();
        let ranges = self.0.iter().flat_map(|own| own.ranges.iter());
        keys + ranges.map(|keys| bytes_of_range(&keys)).sum::<usize>()
    }
}

/// Bytes of memory that keys of so many bytes take here; the tree's nodes are a third empty.
fn bytes_of(len: usize) -> usize {
    size_of::<Box<[u8]>>() * 3 / 2 + len
}

fn bytes_of_range(keys: &KeyInterval) -> usize {
    size_of::<KeyInterval>() * 3 / 2 + keys.start.len() + keys.end.as_ref().map_or(0, Vec::len)
}

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
