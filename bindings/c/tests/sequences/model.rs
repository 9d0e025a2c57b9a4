//! What the calls should do, in maps, and the chance that chooses them.

use std::collections::BTreeMap;

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// One write to a table.
pub(crate) type Write = (usize, Vec<u8>, Change);

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Vec<u8>),
    Delete,
    /// Appends: both tables have this merge operator.
    Merge(Vec<u8>),
}

pub(crate) fn write(map: &mut Map, key: &[u8], change: &Change) {
    match change {
        Change::Put(value) => drop(map.insert(key.to_vec(), value.clone())),
        Change::Delete => drop(map.remove(key)),
        Change::Merge(operand) => map.entry(key.to_vec()).or_default().extend(operand),
    }
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
