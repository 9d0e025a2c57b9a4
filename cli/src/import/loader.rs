//! Puts records into a table, a batch at a time.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use terrace::{Database, Table, WriteBatch};

/// A batch is committed once it holds this much. Small enough for the smallest region, large
/// enough that the sync of a commit is shared by many rows.
const BATCH_BYTES: usize = 64 * 1024;

/// Keys are remembered up to this many: a hash takes 9 to 18 bytes, and an import may have any
/// number of rows.
const MOST_KEYS: usize = 10_000_000;

/// A table being filled.
pub(crate) struct Loader<'a> {
    database: &'a Database,
    table: &'a Table,
    batch: WriteBatch,
    batch_rows: usize,
    batch_bytes: usize,
    most_rows: usize,
    seen: HashSet<u64>,
    most_keys: usize,
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
    /// There were more keys than are remembered, and `repeated` counts no further.
    pub(crate) has_uncounted: bool,
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
            most_keys: MOST_KEYS,
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
        self.count(key);
        if self.batch_rows >= self.most_rows { self.commit() } else { Ok(()) }
    }

    /// Counts a key that an earlier row had, as long as all keys are remembered.
    fn count(&mut self, key: &[u8]) {
        if self.loaded.has_uncounted {
            return;
        }
        if !self.seen.insert(self.hasher.hash_one(key)) {
            self.loaded.repeated += 1;
        } else if self.seen.len() > self.most_keys {
            self.loaded.has_uncounted = true;
            self.seen = HashSet::new();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: an import took 9 to 18 bytes of memory for each row. Cause: it remembered every key,
    /// for a remark. Fix: beyond a bound it forgets them and says so.
    #[test]
    fn keys_are_remembered_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let options = terrace::Options::new().pm_size(4 << 20);
        let database = options.open(dir.path().join("db")).unwrap();
        let table = database.table("t").unwrap();
        let mut loader = Loader::new(&database, &table, 2);
        loader.most_keys = 3;
        [b"a", b"b", b"a", b"c"].iter().for_each(|key| loader.add(*key, b"").unwrap());
        assert!(!loader.loaded.has_uncounted && loader.loaded.repeated == 1);
        [b"d", b"d", b"e"].iter().for_each(|key| loader.add(*key, b"").unwrap());
        loader.commit().unwrap();
        assert!(loader.loaded.has_uncounted && loader.seen.capacity() == 0);
        assert_eq!(loader.loaded.rows, 7);
    }
}
