//! RocksDB's `OptimisticTransactionDB`, set as in redb's benchmark.

use std::path::Path;

use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, Cache, Direction, IteratorMode, OptimisticTransactionDB,
    OptimisticTransactionOptions, Options, ReadOptions, SnapshotWithThreadMode, Transaction,
    WriteOptions,
};

use super::{Meant, ReadWork, RowReader, RowStore, RowWriter, WriteWork};
use crate::stores::read_value;

/// Its transactions take memory without a bound, so redb's benchmark commits in between.
const MOST_WRITES: u64 = 100_000;

struct Rocks {
    db: OptimisticTransactionDB,
    cache: u64,
}

pub(super) fn open(dir: &Path, cache: u64) -> Result<Box<dyn RowStore>> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(cache as usize / 2)?);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(false);
    blocks.set_pin_top_level_index_and_filter(false);
    let mut options = Options::default();
    options.set_block_based_table_factory(&blocks);
    options.set_db_write_buffer_size(cache as usize / 2);
    options.create_if_missing(true);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    options.increase_parallelism(cores as i32);
    let db = OptimisticTransactionDB::open(&options, dir.join("db"))?;
    Ok(Box::new(Rocks { db, cache }))
}

impl RowStore for Rocks {
    fn write(&self, sync: bool, work: WriteWork<'_>) -> Result<()> {
        let mut writer = Writer { txn: begin(&self.db, sync), db: &self.db, sync, writes: 0 };
        work(&mut writer)?;
        Ok(writer.txn.commit()?)
    }

    fn read(&self, work: ReadWork<'_>) -> Result<()> {
        work(&mut Reader(self.db.snapshot()))
    }

    fn compact(&mut self) -> Result<()> {
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }

    fn settings(&self) -> String {
        format!(
            "optimistic transactions, cache and write buffers of {} bytes each, filters of 10 bits",
            self.cache / 2
        )
    }
}

fn begin(db: &OptimisticTransactionDB, sync: bool) -> Transaction<'_, OptimisticTransactionDB> {
    let mut write = WriteOptions::default();
    write.set_sync(sync);
    let mut options = OptimisticTransactionOptions::default();
    options.set_snapshot(true);
    db.transaction_opt(&write, &options)
}

struct Writer<'a> {
    txn: Transaction<'a, OptimisticTransactionDB>,
    db: &'a OptimisticTransactionDB,
    sync: bool,
    writes: u64,
}

impl Writer<'_> {
    fn count(&mut self) -> Result<()> {
        self.writes += 1;
        if self.writes == MOST_WRITES {
            self.writes = 0;
            std::mem::replace(&mut self.txn, begin(self.db, self.sync)).commit()?;
        }
        Ok(())
    }
}

impl RowWriter for Writer<'_> {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.count()?;
        Ok(self.txn.put(key, value)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.count()?;
        Ok(self.txn.delete(key)?)
    }

    fn pop(&mut self, from_back: bool) -> Result<bool> {
        let mode = if from_back { IteratorMode::End } else { IteratorMode::Start };
        let row = self.txn.iterator(mode).next().transpose()?;
        let Some((key, value)) = row else { return Ok(false) };
        self.remove(&key)?;
        std::hint::black_box(value);
        Ok(true)
    }

    fn retain(&mut self, stays: Meant<'_>) -> Result<u64> {
        let mut go = Vec::new();
        for row in self.txn.iterator(IteratorMode::Start) {
            let (key, value) = row?;
            if !stays(&key, &value) {
                go.push(key);
            }
        }
        go.iter().try_for_each(|key| self.remove(key))?;
        Ok(go.len() as u64)
    }

    fn extract_if(&mut self, from: &[u8], to: &[u8], goes: Meant<'_>) -> Result<u64> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        let from = IteratorMode::From(from, Direction::Forward);
        let mut go = Vec::new();
        for row in self.txn.iterator_opt(from, options) {
            let (key, value) = row?;
            if goes(&key, &value) {
                go.push((key, value));
            }
        }
        go.iter().try_for_each(|(key, _)| self.remove(key))?;
        Ok(std::hint::black_box(go).len() as u64)
    }
}

struct Reader<'a>(SnapshotWithThreadMode<'a, OptimisticTransactionDB>);

impl RowReader for Reader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.0.get(key)?.map(|value| read_value(&value)).is_some())
    }

    fn range(&mut self, from: &[u8], rows: usize) -> Result<usize> {
        let mut found = 0;
        let mut iterator = self.0.raw_iterator();
        iterator.seek(from);
        while found < rows
            && let Some(value) = iterator.value()
        {
            read_value(value);
            found += 1;
            iterator.next();
        }
        iterator.status()?;
        Ok(found)
    }
}
