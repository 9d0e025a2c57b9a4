//! The look-ups of a batch that one shard does, and what it found. It goes to the shard and comes
//! back, so that a batch that is used again allocates nothing.

use std::ops::Range;

use crate::error::Result;
use crate::read::{self, AsOf};
use crate::view::PinnedView;

/// The end of a chain.
const NONE: usize = usize::MAX;

/// A key that is sought. It ends where the next one starts.
#[derive(Clone, Copy, Debug)]
struct SoughtKey {
    start: usize,
    /// The next one of the same table.
    next: usize,
}

/// The keys of one table: the numbers of its first and its last one.
#[derive(Clone, Copy, Debug)]
struct KeyChain {
    first: usize,
    last: usize,
}

/// Look-ups in one shard.
///
/// Invariant: each key is in the chain of its table, once, in the order in which the keys came.
#[derive(Debug, Default)]
pub(super) struct ShardGets {
    keys: Vec<u8>,
    sought: Vec<SoughtKey>,
    /// By the number of the table.
    chains: Vec<KeyChain>,
    /// The tables that have a key.
    tables: Vec<usize>,
    values: Vec<u8>,
    /// By the number of the key: where its value lies in `values`. Empty before it was looked up.
    found: Vec<Option<Range<usize>>>,
}

impl ShardGets {
    /// Adds a key of a table; its number.
    #[inline]
    pub(super) fn push(&mut self, table: usize, key: &[u8]) -> usize {
        let number = self.sought.len();
        if self.chains.len() <= table {
            self.chains.resize(table + 1, KeyChain { first: NONE, last: NONE });
        }
        let chain = &mut self.chains[table];
        match chain.last {
            NONE => {
                chain.first = number;
                self.tables.push(table);
            }
            last => self.sought[last].next = number,
        }
        chain.last = number;
        self.sought.push(SoughtKey { start: self.keys.len(), next: NONE });
        self.keys.extend_from_slice(key);
        number
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.sought.len()
    }

    /// The number of the `n`th table that has a key.
    pub(super) fn table(&self, n: usize) -> Option<usize> {
        self.tables.get(n).copied()
    }

    /// Forgets what was found: the look-ups begin.
    pub(super) fn begin(&mut self) {
        self.values.clear();
        self.found.clear();
        self.found.resize(self.sought.len(), None);
    }

    /// Forgets all keys, and keeps the memory.
    pub(super) fn clear(&mut self) {
        for table in self.tables.drain(..) {
            self.chains[table] = KeyChain { first: NONE, last: NONE };
        }
        self.keys.clear();
        self.sought.clear();
        self.values.clear();
        self.found.clear();
    }

    /// The value that was found for key `number`.
    pub(super) fn value(&self, number: usize) -> Option<&[u8]> {
        let place = self.found.get(number)?.as_ref()?;
        self.values.get(place.clone())
    }

    /// Looks up the keys of one table, as of one moment.
    pub(super) fn look_up(&mut self, table: usize, view: PinnedView<'_>, at: AsOf) -> Result<()> {
        let first = self.chains.get(table).map_or(NONE, |chain| chain.first);
        let ShardGets { keys, sought, values, found, .. } = self;
        let mut number = first;
        while let Some(key) = sought.get(number) {
            let end = sought.get(number + 1).map_or(keys.len(), |next| next.start);
            let from = values.len();
            let lent = read::lend(view, (&keys[key.start..end], at), |value| {
                values.extend_from_slice(value);
            })?;
            found[number] = lent.map(|()| from..values.len());
            number = key.next;
        }
        Ok(())
    }

    /// The keys of one table, with their numbers.
    pub(super) fn keys_of(&self, table: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let first = self.chains.get(table).map_or(NONE, |chain| chain.first);
        let mut next = self.sought.get(first).map(|key| (first, key));
        std::iter::from_fn(move || {
            let (number, key) = next?;
            next = self.sought.get(key.next).map(|then| (key.next, then));
            let end = self.sought.get(number + 1).map_or(self.keys.len(), |next| next.start);
            Some((number, &self.keys[key.start..end]))
        })
    }

    /// Key `number` has a value.
    pub(super) fn found(&mut self, number: usize, value: &[u8]) {
        let from = self.values.len();
        self.values.extend_from_slice(value);
        self.found[number] = Some(from..self.values.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of(gets: &ShardGets, table: usize) -> Vec<usize> {
        gets.keys_of(table).map(|(number, _)| number).collect()
    }

    #[test]
    fn keys_are_in_the_chain_of_their_table_in_order() {
        let mut gets = ShardGets::default();
        for round in 0..2 {
            let numbers = [3, 1, 3, 3, 1].map(|table| gets.push(table, b"key"));
            assert_eq!(numbers, [0, 1, 2, 3, 4], "in round {round}");
            assert_eq!((keys_of(&gets, 3), keys_of(&gets, 1)), (vec![0, 2, 3], vec![1, 4]));
            assert_eq!(keys_of(&gets, 2), [0; 0], "a table without a key");
            assert_eq!((gets.table(0), gets.table(1), gets.table(2)), (Some(3), Some(1), None));
            gets.clear();
            assert_eq!((gets.len(), gets.table(0)), (0, None));
        }
    }

    #[test]
    fn nothing_is_found_before_it_was_looked_up() {
        let mut gets = ShardGets::default();
        gets.push(0, b"key");
        assert_eq!(gets.value(0), None);
        gets.begin();
        assert_eq!((gets.value(0), gets.value(1)), (None, None));
    }
}
