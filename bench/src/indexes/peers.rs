//! The indexes of other crates. Each has its own way of iterating, and gets the one that its
//! documentation recommends.

use std::ops::Bound;

use congee::{U64Congee, epoch};
use crossbeam_skiplist::SkipMap;
use ferntree::Tree;
use masstree::{MassTree, RangeBound};

use super::{Kind, OffsetIndex, array};

pub(super) fn create<const N: usize>(kind: Kind) -> Box<dyn OffsetIndex> {
    match kind {
        Kind::SkipList => Box::new(SkipMap::<[u8; N], u64>::new()),
        Kind::Ferntree if N == 8 => Box::new(Tree::<u64, u64>::new()),
        // Longer keys it keeps on the heap: there is no storage of its own for arrays.
        Kind::Ferntree => Box::new(Tree::<Vec<u8>, u64>::new()),
        Kind::Masstree => Box::new(MassTree::<u64>::new()),
        Kind::Congee => Box::new(U64Congee::<usize>::new()),
        Kind::Terrace | Kind::Persistent | Kind::BTreeMap => {
            unreachable!("no peer from a crate: {kind:?}")
        }
    }
}

impl<const N: usize> OffsetIndex for SkipMap<[u8; N], u64> {
    fn insert(&self, key: &[u8], at: u64) {
        SkipMap::insert(self, array(key), at);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        SkipMap::get(self, &array(key)).map(|entry| *entry.value())
    }

    fn scan(&self, from: &[u8], rows: usize, show: &mut dyn FnMut(u64)) {
        self.range(array::<N>(from)..).take(rows).for_each(|entry| show(*entry.value()));
    }
}

impl OffsetIndex for Tree<u64, u64> {
    fn insert(&self, key: &[u8], at: u64) {
        Tree::insert(self, u64::from_be_bytes(array(key)), at);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.lookup_optimistic(&u64::from_be_bytes(array(key)), |at| *at)
    }

    fn scan(&self, from: &[u8], rows: usize, show: &mut dyn FnMut(u64)) {
        let from = u64::from_be_bytes(array(from));
        let mut range = self.range(Bound::Included(&from), Bound::Unbounded);
        for _ in 0..rows {
            let Some((_, at)) = range.next() else { return };
            show(*at);
        }
    }
}

impl OffsetIndex for Tree<Vec<u8>, u64> {
    fn insert(&self, key: &[u8], at: u64) {
        Tree::insert(self, key.to_vec(), at);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.lookup_optimistic(key, |at| *at)
    }

    fn scan(&self, from: &[u8], rows: usize, show: &mut dyn FnMut(u64)) {
        let mut range = self.range(Bound::Included(from), Bound::Unbounded);
        for _ in 0..rows {
            let Some((_, at)) = range.next() else { return };
            show(*at);
        }
    }
}

impl OffsetIndex for MassTree<u64> {
    fn insert(&self, key: &[u8], at: u64) {
        MassTree::insert(self, key, at);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        MassTree::get(self, key)
    }

    fn scan(&self, from: &[u8], rows: usize, show: &mut dyn FnMut(u64)) {
        let (guard, mut left) = (self.guard(), rows);
        let visit = |at: u64| {
            show(at);
            left -= 1;
            left > 0
        };
        self.scan_values(RangeBound::Included(from), RangeBound::Unbounded, visit, &guard);
    }
}

impl OffsetIndex for U64Congee<usize> {
    fn insert(&self, key: &[u8], at: u64) {
        let inserted = self.insert(u64::from_be_bytes(array(key)), at as usize, &epoch::pin());
        inserted.expect("there is memory");
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        U64Congee::get(self, u64::from_be_bytes(array(key)), &epoch::pin()).map(|at| at as u64)
    }

    fn scan(&self, from: &[u8], rows: usize, show: &mut dyn FnMut(u64)) {
        let mut found = vec![([0; 8], 0); rows];
        let from = u64::from_be_bytes(array(from));
        let n = self.range(from, u64::MAX, &mut found, &epoch::pin());
        found[..n].iter().for_each(|(_, at)| show(*at as u64));
    }
}
