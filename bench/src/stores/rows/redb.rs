//! redb, with the cache that its benchmark gives it.

use std::path::Path;

use anyhow::Result;
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, Table, TableDefinition};

use super::{Meant, ReadWork, RowReader, RowStore, RowWriter, WriteWork};
use crate::stores::read_value;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("t");

struct Redb {
    db: Database,
    cache: u64,
}

pub(super) fn open(dir: &Path, cache: u64) -> Result<Box<dyn RowStore>> {
    std::fs::create_dir_all(dir)?;
    let db = Database::builder().set_cache_size(cache as usize).create(dir.join("db.redb"))?;
    let begin = db.begin_write()?;
    begin.open_table(TABLE)?;
    begin.commit()?;
    Ok(Box::new(Redb { db, cache }))
}

impl RowStore for Redb {
    fn write(&self, sync: bool, work: WriteWork<'_>) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        if !sync {
            transaction.set_durability(Durability::None)?;
        }
        work(&mut Writer(transaction.open_table(TABLE)?))?;
        Ok(transaction.commit()?)
    }

    fn read(&self, work: ReadWork<'_>) -> Result<()> {
        work(&mut Reader(self.db.begin_read()?.open_table(TABLE)?))
    }

    fn compact(&mut self) -> Result<()> {
        self.db.compact()?;
        Ok(())
    }

    fn settings(&self) -> String {
        format!("cache of {} bytes; unsynced commits do not survive the process", self.cache)
    }
}

struct Writer<'a>(Table<'a, &'static [u8], &'static [u8]>);

impl RowWriter for Writer<'_> {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, value)?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.0.remove(key)?;
        Ok(())
    }

    fn pop(&mut self, from_back: bool) -> Result<bool> {
        let popped = if from_back { self.0.pop_last()? } else { self.0.pop_first()? };
        Ok(popped.is_some())
    }

    fn retain(&mut self, stays: Meant<'_>) -> Result<u64> {
        let mut removed = 0;
        self.0.retain(|key, value| {
            let one_stays = stays(key, value);
            removed += u64::from(!one_stays);
            one_stays
        })?;
        Ok(removed)
    }

    fn extract_if(&mut self, from: &[u8], to: &[u8], goes: Meant<'_>) -> Result<u64> {
        let mut removed = 0;
        for row in self.0.extract_from_if(from..to, goes)? {
            std::hint::black_box(row?);
            removed += 1;
        }
        Ok(removed)
    }
}

struct Reader(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl RowReader for Reader {
    fn get(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.0.get(key)?.map(|value| read_value(value.value())).is_some())
    }

    fn range(&mut self, from: &[u8], rows: usize) -> Result<usize> {
        let mut found = 0;
        for row in self.0.range::<&[u8]>(from..)?.take(rows) {
            read_value(row?.1.value());
            found += 1;
        }
        Ok(found)
    }
}
