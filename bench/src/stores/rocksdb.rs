//! RocksDB, as its documentation has it and tuned.

use std::path::Path;

use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Direction, IteratorMode, Options, WriteOptions,
};

use super::{Kind, Memory, Store};

struct Rocks(DB);

pub(super) fn open(dir: &Path, memory: Memory, kind: Kind) -> Result<Box<dyn Store>> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(memory.cache as usize)?);
    match kind {
        Kind::RocksDbTuned => {
            filtered(&mut blocks);
            options.set_recycle_log_file_num(4);
            options.set_enable_pipelined_write(true);
            options.set_write_buffer_size((memory.write / 4) as usize);
            options.set_max_write_buffer_number(4);
            options.set_max_background_jobs(4);
            options.set_level_compaction_dynamic_level_bytes(true);
            options.set_bytes_per_sync(1 << 20);
        }
        Kind::RocksDbPiled => {
            filtered(&mut blocks);
            options.set_write_buffer_size(memory.write as usize);
            options.set_disable_auto_compactions(true);
            options.set_level_zero_slowdown_writes_trigger(1 << 20);
            options.set_level_zero_stop_writes_trigger(1 << 20);
        }
        Kind::RocksDbLogged => options.set_write_buffer_size(memory.write as usize),
        _ => {}
    }
    options.set_block_based_table_factory(&blocks);
    Ok(Box::new(Rocks(DB::open(&options, dir.join("db"))?)))
}

/// Filters and larger blocks.
fn filtered(blocks: &mut BlockBasedOptions) {
    blocks.set_bloom_filter(10.0, false);
    blocks.set_block_size(16 * 1024);
    blocks.set_format_version(5);
}

impl Store for Rocks {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(durable);
        Ok(self.0.put_opt(key, value, &options)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.0.get_pinned(key)?.map(|value| value.len()))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        let mut bytes = 0;
        let mut n = 0;
        for row in self.0.iterator(IteratorMode::From(from, Direction::Forward)).take(rows) {
            bytes += row?.1.len();
            n += 1;
        }
        std::hint::black_box(bytes);
        Ok(n)
    }

    fn seal(&self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    fn rest(&self) -> Result<()> {
        while self.0.property_int_value("rocksdb.num-running-compactions")?.unwrap_or(0) > 0 {
            crate::latency::let_work(std::time::Duration::from_millis(100));
        }
        Ok(())
    }
}
