//! LMDB, through heed. It has one durability for an environment, so there are two of them.

use std::ops::Bound;
use std::path::Path;

use anyhow::Result;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use super::Store;

const MAP: usize = 32 << 30;

struct Lmdb {
    env: Env,
    db: Database<Bytes, Bytes>,
}

pub(super) fn create(dir: &Path) -> Result<Box<dyn Store>> {
    let path = dir.join("db");
    std::fs::create_dir_all(&path)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP).max_readers(256);
    // SAFETY: no other process opens this environment, and it is not on a network file system.
    let env = unsafe { options.open(&path)? };
    let mut transaction = env.write_txn()?;
    let db = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(Box::new(Lmdb { env, db }))
}

impl Store for Lmdb {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        let mode = if durable { heed::FlagSetMode::Disable } else { heed::FlagSetMode::Enable };
        // SAFETY: only whether commits sync is changed, never how pages are mapped.
        unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode)? };
        let mut transaction = self.env.write_txn()?;
        self.db.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        let transaction = self.env.read_txn()?;
        Ok(self.db.get(&transaction, key)?.map(<[u8]>::len))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        let transaction = self.env.read_txn()?;
        let mut bytes = 0;
        let mut n = 0;
        let bounds = (Bound::Included(from), Bound::Unbounded);
        for row in self.db.range(&transaction, &bounds)?.take(rows) {
            bytes += row?.1.len();
            n += 1;
        }
        std::hint::black_box(bytes);
        Ok(n)
    }
}
