//! What a transaction has written and not committed: the last value of each key, and how to get
//! back to a savepoint.
//!
//! Invariants:
//!
//! 1. `bytes` is what all entries take.
//! 2. Undone from the last to the first, the changes since a savepoint lead to what was there when
//!    it was set. Without savepoints no changes are kept.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::error::{Error, Result};

/// What an entry costs beside its key and its value.
const ENTRY: usize = 64;

/// A key's new value; `None` deletes it.
pub(super) type Write = Option<Bytes>;

#[derive(Debug)]
struct Change {
    table: usize,
    key: Bytes,
    before: Option<Write>,
}

#[derive(Debug)]
struct Savepoint {
    name: String,
    changes: usize,
}

/// The writes of one transaction.
#[derive(Debug, Default)]
pub(super) struct WriteSet {
    /// A map for each table.
    tables: Vec<BTreeMap<Bytes, Write>>,
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
        let before = self.get(table, key).cloned();
        let freed = before.as_ref().map_or(0, |before| taken(key, before));
        let bytes = self.bytes - freed + taken(key, &write);
        if bytes > limit {
            return Err(Error::invalid(format!(
                "the transaction's writes would take {bytes} bytes, and its limit is {limit}; \
                 commit it in parts, or begin it with a larger write_limit"
            )));
        }
        self.bytes = bytes;
        let key = Bytes::copy_from_slice(key);
        if !self.savepoints.is_empty() {
            self.changes.push(Change { table, key: key.clone(), before });
        }
        while self.tables.len() <= table {
            self.tables.push(BTreeMap::new());
        }
        self.tables[table].insert(key, write);
        Ok(())
    }

    /// What was written to a key, if it was.
    pub(super) fn get(&self, table: usize, key: &[u8]) -> Option<&Write> {
        self.tables.get(table)?.get(key)
    }

    /// The first key between the bounds that was written.
    pub(super) fn first(
        &self,
        table: usize,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<(Bytes, Write)> {
        let found = self.tables.get(table)?.range::<[u8], _>(bounds).next()?;
        Some((found.0.clone(), found.1.clone()))
    }

    /// The last one.
    pub(super) fn last(
        &self,
        table: usize,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<(Bytes, Write)> {
        let found = self.tables.get(table)?.range::<[u8], _>(bounds).next_back()?;
        Some((found.0.clone(), found.1.clone()))
    }

    /// All of it, table by table, by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Bytes, &Write)> {
        let tables = self.tables.iter().enumerate();
        tables.flat_map(|(table, map)| map.iter().map(move |(key, write)| (table, key, write)))
    }

    /// How many keys were written.
    pub(super) fn len(&self) -> usize {
        self.tables.iter().map(BTreeMap::len).sum()
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
            let map = &mut self.tables[change.table];
            let gone = match change.before {
                Some(before) => {
                    self.bytes += taken(&change.key, &before);
                    map.insert(change.key.clone(), before)
                }
                None => map.remove(&change.key),
            };
            self.bytes -= gone.map_or(0, |gone| taken(&change.key, &gone));
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u8, Option<u8>),
        Set(u8),
        RollBack(u8),
        Release(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..6, any::<Option<u8>>()).prop_map(|(k, v)| Step::Write(k, v)),
            1 => (0u8..3).prop_map(Step::Set),
            1 => (0u8..3).prop_map(Step::RollBack),
            1 => (0u8..3).prop_map(Step::Release),
        ]
    }

    proptest! {
        /// Against a model that copies everything at each savepoint.
        #[test]
        fn savepoints_bring_back_what_was_there(steps in prop::collection::vec(step(), 0..60)) {
            let mut set = WriteSet::default();
            let mut now: BTreeMap<Vec<u8>, Option<u8>> = BTreeMap::new();
            type Rows = BTreeMap<Vec<u8>, Option<u8>>;
            let mut saved: Vec<(String, Rows)> = Vec::new();
            for step in steps {
                match step {
                    Step::Write(key, value) => {
                        let write = value.map(|v| Bytes::copy_from_slice(&[v]));
                        set.set(1, &[key], write, usize::MAX).unwrap();
                        now.insert(vec![key], value);
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
                let have: BTreeMap<Vec<u8>, Option<u8>> =
                    set.iter().map(|(_, k, w)| (k.to_vec(), w.as_ref().map(|v| v[0]))).collect();
                prop_assert_eq!(&have, &now);
                let bytes: usize = set.iter().map(|(_, k, w)| taken(k, w)).sum();
                prop_assert_eq!(set.bytes, bytes, "invariant 1");
            }
        }
    }
}
