//! Key prefixes for a merge: what it compares first of the records that its inputs stand on.
//!
//! Keys of a table often begin with the same bytes. A *prefix* holds the eight bytes of a key that
//! follow the prefix which the keys of all inputs share. It also holds how many bytes follow, and
//! the sequence number. Prefixes order most records without decoding an input's record again. They
//! also order versions of a key that has no more bytes.
//!
//! Invariants, once all prefixes were set:
//!
//! 1. Every input's key begins with `shared`, and its prefix holds what follows.
//! 2. An input without a record has no prefix.

use std::cmp::Ordering;

use crate::record::{EntryRef, Lsn, common, slice};

/// How many bytes of a key a prefix holds, as a number.
const FIRST: usize = size_of::<u64>();

/// The length of whatever is longer than that.
const LONG: u8 = FIRST as u8 + 1;

/// What is looked at first of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyPrefix {
    /// The first bytes of the key after the shared prefix.
    first: u64,
    /// How many there are, up to [`LONG`].
    len: u8,
    seq: Lsn,
}

impl KeyPrefix {
    fn of(entry: &EntryRef<'_>, shared: usize) -> KeyPrefix {
        let len = (entry.key.len() - shared).min(LONG.into()) as u8;
        KeyPrefix { first: slice(entry.key, shared), len, seq: entry.seq }
    }

    /// The order of two records; `None` if their prefixes do not decide it.
    #[inline]
    pub(super) fn order(&self, other: &KeyPrefix) -> Option<Ordering> {
        // If keys are equal up to the zeros that fill the shorter one, the shorter one is first.
        let by_key = self.first.cmp(&other.first).then(self.len.cmp(&other.len));
        let is_open = by_key == Ordering::Equal && self.len == LONG;
        (!is_open).then(|| by_key.then(other.seq.cmp(&self.seq)))
    }
}

/// The prefixes of a merge's inputs.
#[derive(Debug)]
pub(super) struct KeyPrefixes {
    prefixes: Vec<Option<KeyPrefix>>,
    shared: Vec<u8>,
}

impl KeyPrefixes {
    /// The prefixes of `inputs` inputs, none of which has a record yet.
    pub(super) fn new(inputs: usize) -> KeyPrefixes {
        KeyPrefixes { prefixes: vec![None; inputs], shared: Vec::new() }
    }

    /// The prefix of each input.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Option<KeyPrefix>> {
        self.prefixes.iter()
    }

    /// The prefix of input `n`.
    pub(super) fn get(&self, n: usize) -> Option<&KeyPrefix> {
        self.prefixes[n].as_ref()
    }

    /// Sets the prefix of input `n`, which has moved. `false` if its key does not begin with the
    /// shared prefix: then all prefixes have to be set.
    pub(super) fn set(&mut self, n: usize, entry: Option<&EntryRef<'_>>) -> bool {
        let fits = |entry: &EntryRef<'_>| {
            self.shared.is_empty() || entry.key.starts_with(self.shared.as_slice())
        };
        if !entry.is_none_or(fits) {
            return false;
        }
        self.prefixes[n] = entry.map(|entry| KeyPrefix::of(entry, self.shared.len()));
        true
    }

    /// Sets all prefixes.
    pub(super) fn set_all<'a>(&mut self, entry: impl Fn(usize) -> Option<EntryRef<'a>>) {
        let keys = || (0..self.prefixes.len()).filter_map(|n| entry(n).map(|entry| entry.key));
        // No longer than it takes for all keys to fit: later keys share less.
        let enough = keys().map(|key| key.len().saturating_sub(FIRST)).max().unwrap_or(0);
        let first = keys().next().filter(|_| enough > 0).unwrap_or_default();
        let first = &first[..first.len().min(enough)];
        let shared = match first {
            [] => first,
            _ => keys().fold(first, |shared, key| &shared[..common(shared, key)]),
        };
        self.shared.clear();
        self.shared.extend_from_slice(shared);
        let len = self.shared.len();
        for (n, prefix) in self.prefixes.iter_mut().enumerate() {
            *prefix = entry(n).map(|entry| KeyPrefix::of(&entry, len));
        }
    }

    /// Whether the prefix of input `n` is that of its record (invariants 1 and 2).
    pub(super) fn is_right(&self, n: usize, entry: Option<&EntryRef<'_>>) -> bool {
        let of = |entry: &EntryRef<'_>| {
            let begins = entry.key.starts_with(&self.shared);
            begins.then(|| KeyPrefix::of(entry, self.shared.len()))
        };
        self.prefixes[n] == entry.and_then(of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::Kind;

    fn entry((key, seq): &(Vec<u8>, Lsn)) -> EntryRef<'_> {
        EntryRef { key, seq: *seq, kind: Kind::Put, value: &[] }
    }

    fn record() -> impl Strategy<Value = (Vec<u8>, Lsn)> {
        let key = (0usize..4, prop::collection::vec(0u8..2, 0..12));
        (key, 0u64..3).prop_map(|((same, rest), seq)| ([vec![7; 4 * same], rest].concat(), seq))
    }

    proptest! {
        #[test]
        fn heads_order_as_records_do(
            mut records in prop::collection::vec(record(), 2..5),
            moved in record(),
        ) {
            let mut prefixes = KeyPrefixes::new(records.len());
            prefixes.set_all(|n| Some(entry(&records[n])));
            records[0] = moved;
            if !prefixes.set(0, Some(&entry(&records[0]))) {
                prefixes.set_all(|n| Some(entry(&records[n])));
            }
            let order = |(a, b): &(Vec<u8>, Lsn), (c, d): &(Vec<u8>, Lsn)| a.cmp(c).then(d.cmp(b));
            for (n, record) in records.iter().enumerate() {
                prop_assert!(prefixes.is_right(n, Some(&entry(record))));
                let told = prefixes.get(0).zip(prefixes.get(n)).and_then(|(a, b)| a.order(b));
                prop_assert!(told.is_none_or(|told| told == order(&records[0], record)));
            }
        }
    }

    #[test]
    fn keys_of_one_length_are_told_apart_behind_what_they_share() {
        let records = [(b"user000012345".to_vec(), 1), (b"user000012346".to_vec(), 2)];
        let mut prefixes = KeyPrefixes::new(2);
        prefixes.set_all(|n| Some(entry(&records[n])));
        assert_eq!(prefixes.shared, b"user0");
        let told = prefixes.get(0).zip(prefixes.get(1)).and_then(|(a, b)| a.order(b));
        assert_eq!(told, Some(Ordering::Less));
        let beyond = (b"user100000000".to_vec(), 3);
        assert!(!prefixes.set(0, Some(&entry(&beyond))), "it does not begin as the others do");
    }
}
