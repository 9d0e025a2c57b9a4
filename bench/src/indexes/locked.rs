//! The standard library's B-tree behind a reader-writer lock.

use std::collections::BTreeMap;

use parking_lot::RwLock;

use super::{OffsetIndex, array};

struct Locked<const N: usize>(RwLock<BTreeMap<[u8; N], u64>>);

pub(super) fn create<const N: usize>() -> Box<dyn OffsetIndex> {
    Box::new(Locked::<N>(RwLock::default()))
}

impl<const N: usize> OffsetIndex for Locked<N> {
    fn insert(&self, key: &[u8], at: u64) {
        self.0.write().insert(array(key), at);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.read().get(&array(key)).copied()
    }

    fn scan(&self, from: &[u8], rows: usize, show: &mut dyn FnMut(u64)) {
        self.0.read().range(array(from)..).take(rows).for_each(|(_, at)| show(*at));
    }
}
