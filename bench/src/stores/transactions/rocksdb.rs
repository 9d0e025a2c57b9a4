//! RocksDB's `TransactionDB`: as it is, and tuned, with deadlocks found at once.

use std::path::Path;

use anyhow::Result;
use rocksdb::{
    ErrorKind, ReadOptions, TransactionDB, TransactionDBOptions, TransactionOptions, WriteOptions,
};

use super::super::rocksdb::Set;
use super::{Kind, Memory, Transaction, Transactional, Visit};

struct Rocks {
    db: TransactionDB,
    set: Set,
    detect: bool,
}

pub(super) fn open(dir: &Path, memory: Memory, kind: Kind) -> Result<Box<dyn Transactional>> {
    let set = Set::of(kind, memory);
    let db =
        TransactionDB::open(&set.options()?, &TransactionDBOptions::default(), dir.join("db"))?;
    Ok(Box::new(Rocks { db, set, detect: kind == Kind::RocksDbTuned }))
}

/// Whether another transaction was in the way.
pub(super) fn is_retryable(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<rocksdb::Error>().map(rocksdb::Error::kind);
    matches!(kind, Some(ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain))
}

impl Transactional for Rocks {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>> {
        let mut write = WriteOptions::default();
        write.set_sync(true);
        let mut options = TransactionOptions::default();
        options.set_deadlock_detect(self.detect);
        Ok(Box::new(Running(self.db.transaction_opt(&write, &options))))
    }

    fn settings(&self) -> String {
        format!("TransactionDB, deadlock_detect {}, {:?}", self.detect, self.set)
    }
}

struct Running<'a>(rocksdb::Transaction<'a, TransactionDB>);

impl Transaction for Running<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key)?)
    }

    fn get_for_update(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get_for_update(key, true)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.0.delete(key)?)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        let mut rows = self.0.raw_iterator_opt(options);
        rows.seek(from);
        while let (Some(key), Some(value)) = (rows.key(), rows.value()) {
            if !visit(key, value) {
                break;
            }
            rows.next();
        }
        Ok(rows.status()?)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(self.0.commit()?)
    }
}
