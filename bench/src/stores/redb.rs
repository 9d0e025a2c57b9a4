//! redb, with its defaults.

use std::path::Path;

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use super::{Memory, Store};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("t");

struct Redb(Database);

pub(super) fn create(dir: &Path, memory: Memory) -> Result<Box<dyn Store>> {
    std::fs::create_dir_all(dir)?;
    let db = Database::builder()
        .set_cache_size((memory.cache + memory.write) as usize)
        .create(dir.join("db.redb"))?;
    let begin = db.begin_write()?;
    begin.open_table(TABLE)?;
    begin.commit()?;
    Ok(Box::new(Redb(db)))
}

impl Store for Redb {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        if !durable {
            transaction.set_durability(Durability::None)?;
        }
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        Ok(redb::ReadableTable::get(&table, key)?.map(|value| value.value().len()))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let mut bytes = 0;
        let mut n = 0;
        for row in redb::ReadableTable::range::<&[u8]>(&table, from..)?.take(rows) {
            bytes += row?.1.value().len();
            n += 1;
        }
        std::hint::black_box(bytes);
        Ok(n)
    }
}
