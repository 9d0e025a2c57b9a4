//! The memtable's index. It keeps no keys: it reads them from the records.

use ::terrace::bench::{Arena, RecordIndex};

use super::OffsetIndex;

pub(super) fn create(arena: &Arena) -> Box<dyn OffsetIndex> {
    Box::new(RecordIndex::new(arena))
}

impl OffsetIndex for RecordIndex {
    fn insert(&self, key: &[u8], at: u64) {
        RecordIndex::insert(self, key, super::SEQ, at);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        RecordIndex::get(self, key)
    }

    fn scan(&self, from: &[u8], rows: usize, show: &mut dyn FnMut(u64)) {
        RecordIndex::scan(self, from, rows, show);
    }
}
