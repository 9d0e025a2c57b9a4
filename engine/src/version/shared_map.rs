//! A map in parts that its copies share. A copy costs a reference to each part, and the first
//! change of one after that a copy of the part. So the metadata of many tables is copied for each
//! edit at the cost of few.
//!
//! Thread safety: none of its own. Copies are independent of each other.
//!
//! Invariant: a key is in the part that it says, and no part is empty.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::record::{TableId, checksum};

/// Tables with numbers in a row in a part, and parts of names.
const PART: u32 = 256;

/// Says which part of a map a key is in. Parts are in the order of the keys where that counts.
pub(super) trait InPart {
    /// The number of the part.
    fn part(&self) -> u32;
}

impl InPart for TableId {
    fn part(&self) -> u32 {
        self / PART
    }
}

impl InPart for str {
    fn part(&self) -> u32 {
        checksum(&[], self.as_bytes()) % PART
    }
}

impl InPart for Arc<str> {
    fn part(&self) -> u32 {
        str::part(self)
    }
}

/// The map.
#[derive(Clone, Debug)]
pub(super) struct SharedMap<K, V>(BTreeMap<u32, Arc<BTreeMap<K, V>>>);

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> SharedMap<K, V> {
        SharedMap(BTreeMap::new())
    }
}

impl<K: InPart + Ord + Clone, V: Clone> SharedMap<K, V> {
    pub(super) fn get<Q: InPart + Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(&key.part())?.get(key)
    }

    pub(super) fn contains_key<Q: InPart + Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        Arc::make_mut(self.0.get_mut(&key.part())?).get_mut(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        Arc::make_mut(self.0.entry(key.part()).or_default()).insert(key, value)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let part = self.0.get_mut(&key.part())?;
        let removed = Arc::make_mut(part).remove(key);
        if part.is_empty() {
            self.0.remove(&key.part());
        }
        removed
    }

    /// All of them: within a part, and by parts, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.values().flat_map(|part| part.iter())
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Entries that this map does not share with a copy of it, and parts.
    #[cfg(test)]
    pub(super) fn copied_from(&self, other: &SharedMap<K, V>) -> (usize, usize) {
        let is_same = |n: &u32, part| other.0.get(n).is_some_and(|other| Arc::ptr_eq(other, part));
        let own = self.0.iter().filter(|(n, part)| !is_same(n, part));
        (own.map(|(_, part)| part.len()).sum(), self.0.len())
    }
}

#[cfg(test)]
impl<K: InPart + Ord + Clone, V: Clone> std::ops::Index<&K> for SharedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("invariant: a test names a key that is there")
    }
}

impl<K: InPart + Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(items: I) -> SharedMap<K, V> {
        let mut map = SharedMap::default();
        items.into_iter().for_each(|(key, value)| drop(map.insert(key, value)));
        map
    }
}
