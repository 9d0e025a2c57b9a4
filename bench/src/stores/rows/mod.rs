//! What redb's own benchmark asks of a store: one writer's transactions over one map, with removals
//! by a predicate and from either end, and readers at one moment. Each store does it in the way
//! that its authors or redb's benchmark chose for it.

#[cfg(feature = "peer-fjall")]
mod fjall;
#[cfg(feature = "peer-lmdb")]
mod lmdb;
#[cfg(feature = "peer-redb")]
mod redb;
#[cfg(feature = "peer-rocksdb")]
mod rocksdb;
mod terrace;

use std::path::Path;

use anyhow::{Result, bail};

use super::Kind;

/// A map that is written in transactions.
pub(crate) trait RowStore: Send + Sync {
    /// Does `work` in one transaction and commits it; with `sync`, it survives a power cut then.
    fn write(&self, sync: bool, work: WriteWork<'_>) -> Result<()>;

    /// Does `work` as of one moment.
    fn read(&self, work: ReadWork<'_>) -> Result<()>;

    /// Makes it as small as it can.
    fn compact(&mut self) -> Result<()>;

    /// What it is set to.
    fn settings(&self) -> String;
}

pub(crate) type WriteWork<'a> = &'a mut dyn FnMut(&mut dyn RowWriter) -> Result<()>;
pub(crate) type ReadWork<'a> = &'a mut dyn FnMut(&mut dyn RowReader) -> Result<()>;

/// Whether a row is meant.
pub(crate) type Meant<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// A transaction that writes.
pub(crate) trait RowWriter {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Inserts a row whose key is greater than all that are there.
    fn append(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key, value)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()>;

    /// Removes the first row, or the last one; whether there was one. It hands out key and value.
    fn pop(&mut self, from_back: bool) -> Result<bool>;

    /// Removes the rows that are not to stay; how many.
    fn retain(&mut self, stays: Meant<'_>) -> Result<u64>;

    /// Removes the rows from `from` to before `to` that are to go, and hands them out; how many.
    fn extract_if(&mut self, from: &[u8], to: &[u8], goes: Meant<'_>) -> Result<u64>;
}

/// What reads see at one moment. A byte of each cache line of what is found is read.
pub(crate) trait RowReader {
    /// Whether the key is there.
    fn get(&mut self, key: &[u8]) -> Result<bool>;

    /// Reads up to `rows` rows from `from` on; how many.
    fn range(&mut self, from: &[u8], rows: usize) -> Result<usize>;
}

/// Opens a store whose cache has `cache` bytes, where it has one.
pub(crate) fn open(kind: Kind, dir: &Path, cache: u64) -> Result<Box<dyn RowStore>> {
    match kind {
        Kind::TerraceDefaults => terrace::open(dir),
        #[cfg(feature = "peer-rocksdb")]
        Kind::RocksDb => rocksdb::open(dir, cache),
        #[cfg(feature = "peer-fjall")]
        Kind::Fjall => fjall::open(dir, cache),
        #[cfg(feature = "peer-redb")]
        Kind::Redb => redb::open(dir, cache),
        #[cfg(feature = "peer-lmdb")]
        Kind::Lmdb => lmdb::open(dir),
        _ => {
            let _ = cache;
            bail!("{} is not in this figure, or not built in", kind.name())
        }
    }
}
