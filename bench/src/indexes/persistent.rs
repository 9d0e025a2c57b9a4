//! The persistent index: what instant restart costs while it runs.

use std::path::Path;

use ::terrace::bench::{Arena, PersistentIndex};
use anyhow::Result;

use super::OffsetIndex;

/// The index, and the directory that goes with it.
struct Kept {
    index: PersistentIndex,
    _dir: tempfile::TempDir,
}

pub(super) fn create(arena: &Arena) -> Result<Box<dyn OffsetIndex>> {
    let shm = Path::new("/dev/shm");
    let dir = if shm.is_dir() { tempfile::tempdir_in(shm)? } else { tempfile::tempdir()? };
    let index = PersistentIndex::create(arena, &dir.path().join("index"), arena.tail() / 2)?;
    Ok(Box::new(Kept { index, _dir: dir }))
}

impl OffsetIndex for Kept {
    fn insert(&self, key: &[u8], at: u64) {
        self.index.insert(key, super::SEQ, at).expect("the region was made large enough");
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.index.get(key).expect("mapped memory is read")
    }

    fn scan(&self, from: &[u8], rows: usize, show: &mut dyn FnMut(u64)) {
        self.index.scan(from, rows, show).expect("mapped memory is read");
    }

    fn persistent_bytes(&self) -> u64 {
        self.index.bytes()
    }
}
