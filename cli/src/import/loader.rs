//! Puts records into a table, a batch at a time.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use terrace::{Database, Table, WriteBatch};

/// A batch is committed once it holds this much. Small enough for the smallest region, large
/// enough that the sync of a commit is shared by many rows.
const BATCH_BYTES: usize = 64 * 1024;

/// A table being filled.
pub(crate) struct Loader<'a> {
    database: &'a Database,
    table: &'a Table,
    batch: WriteBatch,
    batch_rows: usize,
    batch_bytes: usize,
    most_rows: usize,
    seen: HashSet<u64>,
    hasher: RandomState,
    /// What has been committed.
    pub(crate) loaded: Loaded,
}

/// Sums over the committed batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Rows whose key an earlier row had; the last one stays. Keys are told apart by a 64-bit
    /// hash, so that millions of them fit in memory.
    pub(crate) repeated: u64,
}

impl<'a> Loader<'a> {
    /// A loader that commits at least every `most_rows` rows.
    pub(crate) fn new(database: &'a Database, table: &'a Table, most_rows: usize) -> Loader<'a> {
        Loader {
            database,
            table,
            batch: WriteBatch::new(),
            batch_rows: 0,
            batch_bytes: 0,
            most_rows,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            loaded: Loaded::default(),
        }
    }

    /// Adds a record, and commits the batch when it is full.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> terrace::Result<()> {
        let bytes = key.len() + value.len();
        if self.batch_rows > 0 && self.batch_bytes + bytes > BATCH_BYTES {
            self.commit()?;
        }
        self.batch.put(self.table, key, value);
        self.batch_rows += 1;
        self.batch_bytes += bytes;
        if !self.seen.insert(self.hasher.hash_one(key)) {
            self.loaded.repeated += 1;
        }
        if self.batch_rows >= self.most_rows { self.commit() } else { Ok(()) }
    }

    /// Commits what was added since the last batch.
    pub(crate) fn commit(&mut self) -> terrace::Result<()> {
        if self.batch_rows == 0 {
            return Ok(());
        }
        self.database.write(std::mem::replace(&mut self.batch, WriteBatch::new()))?;
        self.loaded.rows += self.batch_rows as u64;
        self.loaded.bytes += self.batch_bytes as u64;
        (self.batch_rows, self.batch_bytes) = (0, 0);
        Ok(())
    }
}
