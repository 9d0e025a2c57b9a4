//! LMDB, through heed. Whether commits sync is the environment's, and switched for each of them.

use std::ops::Bound;
use std::path::Path;

use anyhow::Result;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use super::{Kind, Store, read_value};

const MAP: usize = 32 << 30;

struct Lmdb {
    env: Env,
    db: Database<Bytes, Bytes>,
    flags: EnvFlags,
}

pub(super) fn create(dir: &Path, kind: Kind) -> Result<Box<dyn Store>> {
    let path = dir.join("db");
    std::fs::create_dir_all(&path)?;
    let flags = if kind == Kind::LmdbTuned { EnvFlags::WRITE_MAP } else { EnvFlags::empty() };
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP).max_readers(256);
    // SAFETY: no other process opens this environment, it is not on a network file system, and
    // only LMDB writes through its mapping.
    let env = unsafe { options.flags(flags).open(&path)? };
    let mut transaction = env.write_txn()?;
    let db = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(Box::new(Lmdb { env, db, flags }))
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
        Ok(self.db.get(&transaction, key)?.map(read_value))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        let transaction = self.env.read_txn()?;
        let bounds = (Bound::Included(from), Bound::Unbounded);
        count(self.db.range(&transaction, &bounds)?.take(rows))
    }

    fn scan_back(&self, from: &[u8], rows: usize) -> Result<usize> {
        let transaction = self.env.read_txn()?;
        let bounds = (Bound::Unbounded, Bound::Included(from));
        count(self.db.rev_range(&transaction, &bounds)?.take(rows))
    }

    fn settings(&self) -> String {
        format!(
            "map of {} GiB, {:?}; its cache is the page cache, which no setting bounds",
            MAP >> 30,
            self.flags
        )
    }
}

fn count<'a>(rows: impl Iterator<Item = heed::Result<(&'a [u8], &'a [u8])>>) -> Result<usize> {
    let (mut bytes, mut n) = (0, 0);
    for row in rows {
        bytes += read_value(row?.1);
        n += 1;
    }
    std::hint::black_box(bytes);
    Ok(n)
}
