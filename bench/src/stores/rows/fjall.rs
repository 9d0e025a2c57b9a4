//! fjall, with one writer at a time, and the cache that redb's benchmark gives it.

use std::path::Path;

use anyhow::Result;
use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable as _, SingleWriterTxDatabase,
    SingleWriterTxKeyspace, SingleWriterWriteTx, Snapshot,
};

use super::{Meant, ReadWork, RowReader, RowStore, RowWriter, WriteWork};
use crate::stores::read_value;

struct Fjall {
    db: SingleWriterTxDatabase,
    keyspace: SingleWriterTxKeyspace,
    cache: u64,
}

pub(super) fn open(dir: &Path, cache: u64) -> Result<Box<dyn RowStore>> {
    let db = SingleWriterTxDatabase::builder(dir.join("db")).cache_size(cache).open()?;
    let keyspace = db.keyspace("t", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { db, keyspace, cache }))
}

impl RowStore for Fjall {
    fn write(&self, sync: bool, work: WriteWork<'_>) -> Result<()> {
        let mut writer = Writer { txn: self.db.write_tx(), keyspace: &self.keyspace };
        work(&mut writer)?;
        writer.txn.commit()?;
        let mode = if sync { PersistMode::SyncAll } else { PersistMode::Buffer };
        Ok(self.db.persist(mode)?)
    }

    fn read(&self, work: ReadWork<'_>) -> Result<()> {
        work(&mut Reader { snapshot: self.db.read_tx(), keyspace: &self.keyspace })
    }

    fn compact(&mut self) -> Result<()> {
        Ok(self.keyspace.inner().major_compact()?)
    }

    fn settings(&self) -> String {
        format!("cache of {} bytes, one writer at a time", self.cache)
    }
}

struct Writer<'a> {
    txn: SingleWriterWriteTx<'a>,
    keyspace: &'a SingleWriterTxKeyspace,
}

impl RowWriter for Writer<'_> {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.insert(self.keyspace, key, value);
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.txn.remove(self.keyspace, key);
        Ok(())
    }

    fn pop(&mut self, from_back: bool) -> Result<bool> {
        let mut rows = self.txn.iter(self.keyspace);
        let row = if from_back { rows.next_back() } else { rows.next() };
        let Some((key, value)) = row.map(fjall::Guard::into_inner).transpose()? else {
            return Ok(false);
        };
        drop(rows);
        self.txn.remove(self.keyspace, key.as_ref());
        std::hint::black_box((key, value));
        Ok(true)
    }

    fn retain(&mut self, stays: Meant<'_>) -> Result<u64> {
        let mut go = Vec::new();
        for row in self.txn.iter(self.keyspace) {
            let (key, value) = row.into_inner()?;
            if !stays(&key, &value) {
                go.push(key);
            }
        }
        let removed = go.len() as u64;
        go.into_iter().for_each(|key| self.txn.remove(self.keyspace, key));
        Ok(removed)
    }

    fn extract_if(&mut self, from: &[u8], to: &[u8], goes: Meant<'_>) -> Result<u64> {
        let mut go = Vec::new();
        for row in self.txn.range(self.keyspace, from..to) {
            let (key, value) = row.into_inner()?;
            if goes(&key, &value) {
                go.push((key, value));
            }
        }
        go.iter().for_each(|(key, _)| self.txn.remove(self.keyspace, key.as_ref()));
        Ok(std::hint::black_box(go).len() as u64)
    }
}

struct Reader<'a> {
    snapshot: Snapshot,
    keyspace: &'a SingleWriterTxKeyspace,
}

impl RowReader for Reader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.snapshot.get(self.keyspace, key)?.map(|value| read_value(&value)).is_some())
    }

    fn range(&mut self, from: &[u8], rows: usize) -> Result<usize> {
        let mut found = 0;
        for row in self.snapshot.range(self.keyspace, from..).take(rows) {
            read_value(&row.into_inner()?.1);
            found += 1;
        }
        Ok(found)
    }
}
