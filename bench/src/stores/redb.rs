//! redb, with its defaults.

use std::path::Path;

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use super::{Memory, Store, read_value};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("t");

struct Redb {
    db: Database,
    cache: u64,
}

pub(super) fn create(dir: &Path, memory: Memory) -> Result<Box<dyn Store>> {
    std::fs::create_dir_all(dir)?;
    let cache = memory.cache + memory.write;
    let db = Database::builder().set_cache_size(cache as usize).create(dir.join("db.redb"))?;
    let begin = db.begin_write()?;
    begin.open_table(TABLE)?;
    begin.commit()?;
    Ok(Box::new(Redb { db, cache }))
}

impl Store for Redb {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        if !durable {
            transaction.set_durability(Durability::None)?;
        }
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| read_value(value.value())))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        count(table.range::<&[u8]>(from..)?.take(rows))
    }

    fn scan_back(&self, from: &[u8], rows: usize) -> Result<usize> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        count(table.range::<&[u8]>(..=from)?.rev().take(rows))
    }

    fn settings(&self) -> String {
        format!("cache of {} bytes; unsynced commits do not survive the process", self.cache)
    }
}

type Row = (redb::AccessGuard<'static, &'static [u8]>, redb::AccessGuard<'static, &'static [u8]>);

fn count(rows: impl Iterator<Item = Result<Row, redb::StorageError>>) -> Result<usize> {
    let (mut bytes, mut n) = (0, 0);
    for row in rows {
        bytes += read_value(row?.1.value());
        n += 1;
    }
    std::hint::black_box(bytes);
    Ok(n)
}
