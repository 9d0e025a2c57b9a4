//! What a transaction has written and not committed: the last value of each key, the intervals that
//! it has deleted, and how to get back to a savepoint.
//!
//! Invariants:
//!
//! 1. `bytes` is what all entries take.
//! 2. Undone from the last to the first, the changes since a savepoint lead to what was there when
//!    it was set. Without savepoints no changes are kept.
//! 3. What was written to a key of a deleted interval was written after the deletion: it counts.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::mvcc::{KeyInterval, union};

/// What an entry costs beside its key and its value.
const ENTRY: usize = 64;

/// A key's new value; `None` deletes it.
pub(super) type Write = Option<Bytes>;

#[derive(Debug)]
enum Change {
    Key { table: usize, key: Bytes, before: Option<Write> },
    Ranges { table: usize, before: Vec<KeyInterval> },
}

#[derive(Debug)]
struct Savepoint {
    name: String,
    changes: usize,
}

/// The writes to one table.
#[derive(Debug, Default)]
struct OfTable {
    keys: BTreeMap<Bytes, Write>,
    /// Deleted intervals: disjoint, in order.
    ranges: Vec<KeyInterval>,
}

impl OfTable {
    fn deletes(&self, key: &[u8]) -> bool {
        let before = self.ranges.partition_point(|range| range.start.as_slice() <= key);
        before.checked_sub(1).is_some_and(|last| self.ranges[last].ends_after(key))
    }
}

/// The writes of one transaction.
#[derive(Debug, Default)]
pub(super) struct WriteSet {
    /// For each table.
    tables: Vec<OfTable>,
    changes: Vec<Change>,
    savepoints: Vec<Savepoint>,
    bytes: usize,
}

impl WriteSet {
    /// Sets a key; `limit` is what all may take.
    ///
    /// # Errors
    ///
    /// `Invalid` when it would be more than that; nothing was changed.
    pub(super) fn set(
        &mut self,
        table: usize,
        key: &[u8],
        write: Write,
        limit: usize,
    ) -> Result<()> {
        let before = self.tables.get(table).and_then(|own| own.keys.get(key)).cloned();
        let freed = before.as_ref().map_or(0, |before| taken(key, before));
        let bytes = self.bytes - freed + taken(key, &write);
        check_limit(bytes, limit)?;
        self.bytes = bytes;
        let key = Bytes::copy_from_slice(key);
        if !self.savepoints.is_empty() {
            self.changes.push(Change::Key { table, key: key.clone(), before });
        }
        self.of_table(table).keys.insert(key, write);
        Ok(())
    }

    /// Deletes all keys of an interval; `limit` is what all may take.
    ///
    /// # Errors
    ///
    /// As [`WriteSet::set`].
    pub(super) fn delete_range(
        &mut self,
        table: usize,
        interval: &KeyInterval,
        limit: usize,
    ) -> Result<()> {
        let keeps_changes = !self.savepoints.is_empty();
        let own = self.of_table(table);
        let after = union(own.ranges.iter().cloned().chain([interval.clone()]));
        let gone = own.keys.iter().filter(|(key, _)| interval.contains(key));
        let gone: Vec<_> = gone.map(|(key, write)| (key.clone(), write.clone())).collect();
        let ranges_freed = taken_by(&own.ranges);
        let freed: usize = gone.iter().map(|(key, write)| taken(key, write)).sum();
        let bytes = self.bytes - freed - ranges_freed + taken_by(&after);
        check_limit(bytes, limit)?;
        self.bytes = bytes;
        let own = self.of_table(table);
        gone.iter().for_each(|(key, _)| drop(own.keys.remove(key)));
        let before = std::mem::replace(&mut own.ranges, after);
        if keeps_changes {
            let keys = gone.into_iter();
            let key = |(key, write)| Change::Key { table, key, before: Some(write) };
            self.changes.extend(keys.map(key).chain([Change::Ranges { table, before }]));
        }
        Ok(())
    }

    fn of_table(&mut self, table: usize) -> &mut OfTable {
        while self.tables.len() <= table {
            self.tables.push(OfTable::default());
        }
        &mut self.tables[table]
    }

    /// What was written to a key, if it was, by itself or with an interval.
    pub(super) fn get(&self, table: usize, key: &[u8]) -> Option<Write> {
        let own = self.tables.get(table)?;
        own.keys.get(key).cloned().or_else(|| own.deletes(key).then_some(None))
    }

    /// Whether a key lies in an interval that was deleted.
    pub(super) fn deletes(&self, table: usize, key: &[u8]) -> bool {
        self.tables.get(table).is_some_and(|own| own.deletes(key))
    }

    /// The intervals that were deleted, table by table, disjoint.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (usize, &KeyInterval)> {
        let tables = self.tables.iter().enumerate();
        tables.flat_map(|(table, own)| own.ranges.iter().map(move |range| (table, range)))
    }

    /// The first key between the bounds that was written.
    pub(super) fn first(
        &self,
        table: usize,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<(Bytes, Write)> {
        let found = self.tables.get(table)?.keys.range::<[u8], _>(bounds).next()?;
        Some((found.0.clone(), found.1.clone()))
    }

    /// The last one.
    pub(super) fn last(
        &self,
        table: usize,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<(Bytes, Write)> {
        let found = self.tables.get(table)?.keys.range::<[u8], _>(bounds).next_back()?;
        Some((found.0.clone(), found.1.clone()))
    }

    /// All keys, table by table.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Bytes, &Write)> {
        let tables = self.tables.iter().enumerate();
        tables.flat_map(|(table, own)| own.keys.iter().map(move |(key, write)| (table, key, write)))
    }

    /// How many keys and intervals were written.
    pub(super) fn len(&self) -> usize {
        self.tables.iter().map(|own| own.keys.len() + own.ranges.len()).sum()
    }

    /// Sets a savepoint. One of the same name stays, hidden until this one is released.
    pub(super) fn set_savepoint(&mut self, name: &str) {
        let changes = self.changes.len();
        self.savepoints.push(Savepoint { name: name.to_string(), changes });
    }

    /// Undoes what was written since the newest savepoint `name`, which stays; those set after it
    /// go.
    pub(super) fn roll_back_to(&mut self, name: &str) -> Result<()> {
        let at = self.savepoint(name)?;
        self.savepoints.truncate(at + 1);
        let keep = self.savepoints[at].changes;
        for change in self.changes.drain(keep..).rev() {
            match change {
                Change::Key { table, key, before } => {
                    let map = &mut self.tables[table].keys;
                    let gone = match before {
                        Some(before) => {
                            self.bytes += taken(&key, &before);
                            map.insert(key.clone(), before)
                        }
                        None => map.remove(&key),
                    };
                    self.bytes -= gone.map_or(0, |gone| taken(&key, &gone));
                }
                Change::Ranges { table, before } => {
                    self.bytes += taken_by(&before);
                    let gone = std::mem::replace(&mut self.tables[table].ranges, before);
                    self.bytes -= taken_by(&gone);
                }
            }
        }
        Ok(())
    }

    /// Forgets the newest savepoint `name` and those set after it; what was written stays.
    pub(super) fn release(&mut self, name: &str) -> Result<()> {
        let at = self.savepoint(name)?;
        self.savepoints.truncate(at);
        if self.savepoints.is_empty() {
            self.changes.clear();
        }
        Ok(())
    }

    fn savepoint(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|s| s.name == name).ok_or_else(|| {
            let names: Vec<_> = self.savepoints.iter().map(|s| s.name.as_str()).collect();
            Error::invalid(format!("there is no savepoint {name:?}; there are {names:?}"))
        })
    }
}

fn taken(key: &[u8], write: &Write) -> usize {
    ENTRY + key.len() + write.as_ref().map_or(0, Bytes::len)
}

fn taken_by(ranges: &[KeyInterval]) -> usize {
    let ends = |range: &KeyInterval| range.start.len() + range.end.as_ref().map_or(0, Vec::len);
    ranges.iter().map(|range| ENTRY + ends(range)).sum()
}

fn check_limit(bytes: usize, limit: usize) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the transaction's writes would take {bytes} bytes, and its limit is {limit}; commit it in \
         parts, or begin it with a larger write_limit"
    )))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u8, Option<u8>),
        DeleteRange(u8, Option<u8>),
        Set(u8),
        RollBack(u8),
        Release(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..6, any::<Option<u8>>()).prop_map(|(k, v)| Step::Write(k, v)),
            1 => (0u8..6, prop::option::of(0u8..7)).prop_map(|(a, b)| Step::DeleteRange(a, b)),
            1 => (0u8..3).prop_map(Step::Set),
            1 => (0u8..3).prop_map(Step::RollBack),
            1 => (0u8..3).prop_map(Step::Release),
        ]
    }

    type Model = BTreeMap<Vec<u8>, Option<u8>>;

    proptest! {
        /// Against a model that copies everything at each savepoint.
        #[test]
        fn savepoints_bring_back_what_was_there(steps in prop::collection::vec(step(), 0..60)) {
            let mut set = WriteSet::default();
            let mut now: Model = BTreeMap::new();
            let mut saved: Vec<(String, Model)> = Vec::new();
            for step in steps {
                match step {
                    Step::Write(key, value) => {
                        let write = value.map(|v| Bytes::copy_from_slice(&[v]));
                        set.set(1, &[key], write, usize::MAX).unwrap();
                        now.insert(vec![key], value);
                    }
                    Step::DeleteRange(start, end) => {
                        let interval =
                            KeyInterval { start: vec![start], end: end.map(|end| vec![end]) };
                        if interval.is_empty() {
                            continue;
                        }
                        for key in (0..7u8).filter(|key| interval.contains(&[*key])) {
                            now.insert(vec![key], None);
                        }
                        set.delete_range(1, &interval, usize::MAX).unwrap();
                    }
                    Step::Set(name) => {
                        set.set_savepoint(&name.to_string());
                        saved.push((name.to_string(), now.clone()));
                    }
                    Step::RollBack(name) => {
                        let at = saved.iter().rposition(|(n, _)| *n == name.to_string());
                        prop_assert_eq!(set.roll_back_to(&name.to_string()).is_ok(), at.is_some());
                        if let Some(at) = at {
                            now = saved[at].1.clone();
                            saved.truncate(at + 1);
                        }
                    }
                    Step::Release(name) => {
                        let at = saved.iter().rposition(|(n, _)| *n == name.to_string());
                        prop_assert_eq!(set.release(&name.to_string()).is_ok(), at.is_some());
                        saved.truncate(at.unwrap_or(saved.len()));
                    }
                }
                for key in (0..7u8).map(|key| [key]) {
                    let have = set.get(1, &key).map(|write| write.map(|value| value[0]));
                    prop_assert_eq!(have, now.get(&key[..]).copied());
                }
                let ranges: Vec<_> = set.ranges().map(|(_, range)| range.clone()).collect();
                let bytes: usize = set.iter().map(|(_, k, w)| taken(k, w)).sum();
                prop_assert_eq!(set.bytes, bytes + taken_by(&ranges), "invariant 1");
            }
        }
    }
}
