//! fjall, with its defaults.

use std::path::Path;

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Memory, Store};

struct Fjall {
    db: Database,
    keyspace: Keyspace,
}

pub(super) fn create(dir: &Path, memory: Memory) -> Result<Box<dyn Store>> {
    let db = Database::builder(dir.join("db")).cache_size(memory.cache).open()?;
    let keyspace = db.keyspace("t", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { db, keyspace }))
}

impl Store for Fjall {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        self.keyspace.insert(key, value)?;
        if durable {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.keyspace.get(key)?.map(|value| value.len()))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        let mut bytes = 0;
        let mut n = 0;
        for row in self.keyspace.range(from..).take(rows) {
            bytes += row.into_inner()?.1.len();
            n += 1;
        }
        std::hint::black_box(bytes);
        Ok(n)
    }
}
