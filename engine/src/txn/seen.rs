//! What a transaction holds on to beside its writes, and what that may take: row locks, and what an
//! optimistic one relies on until it commits. All of it is in memory.

use std::collections::BTreeSet;

use crate::mvcc::{IntervalSet, KeyInterval};
use crate::read::KeyRange;

/// Keys and ranges that have to be as they were when the transaction commits, by table.
#[derive(Debug, Default)]
pub(super) struct Seen(Vec<OfTable>);

#[derive(Debug, Default)]
pub(super) struct OfTable {
    pub(super) keys: BTreeSet<Box<[u8]>>,
    /// What lies in one of them is not among the keys, if it came later.
    pub(super) ranges: IntervalSet,
}

impl Seen {
    /// Whether nothing has to be found unchanged.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has_key(&self, table: usize, key: &[u8]) -> bool {
        self.0.get(table).is_some_and(|own| own.ranges.contains(key) || own.keys.contains(key))
    }

    pub(super) fn has_range(&self, table: usize, keys: &KeyInterval) -> bool {
        self.0.get(table).is_some_and(|own| own.ranges.covers(keys))
    }

    pub(super) fn of_table(&mut self, table: usize) -> &mut OfTable {
        if self.0.len() <= table {
            self.0.resize_with(table + 1, OfTable::default);
        }
        &mut self.0[table]
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let keys = |(table, own)| {
            let own: &OfTable = own;
            own.keys.iter().map(move |key| (table, &**key))
        };
        self.0.iter().enumerate().flat_map(keys)
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = (usize, KeyRange)> {
        let ranges = |(table, own)| {
            let own: &OfTable = own;
            own.ranges.iter().map(move |keys| (table, keys.into()))
        };
        self.0.iter().enumerate().flat_map(ranges)
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let keys: usize = self.keys().map(|(_, key)| bytes_of(key.len())).sum();
        let ranges = self.0.iter().flat_map(|own| own.ranges.iter());
        keys + ranges.map(|keys| bytes_of_range(&keys)).sum::<usize>()
    }
}

/// Bytes of memory that keys of so many bytes take here; the tree's nodes are a third empty.
pub(super) fn bytes_of(len: usize) -> usize {
    size_of::<Box<[u8]>>() * 3 / 2 + len
}

pub(super) fn bytes_of_range(keys: &KeyInterval) -> usize {
    size_of::<KeyInterval>() * 3 / 2 + keys.start.len() + keys.end.as_ref().map_or(0, Vec::len)
}
