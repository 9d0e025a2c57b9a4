//! RocksDB, as its documentation has it and tuned.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBPath, DBRawIterator, Options, WriteOptions,
};

use super::{Jobs, Kind, Memory, Store, read_value};

/// What is set; the rest is as RocksDB has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    block_cache: u64,
    write_buffer_size: u64,
    max_write_buffer_number: i32,
    compression: &'static str,
    filter_bits: Option<f64>,
    block_size: Option<usize>,
    recycle_log_file_num: Option<usize>,
    enable_pipelined_write: bool,
    max_background_jobs: Option<i32>,
    dynamic_level_bytes: bool,
    bytes_per_sync: Option<u64>,
    compacts: bool,
    level1_bytes: Option<u64>,
}

impl Set {
    /// The documented defaults, within the memory that there is: two write buffers of 64 MiB where
    /// they fit, the rest is cache.
    fn default(memory: Memory) -> Set {
        let buffer = (64 << 20).min(memory.write / 2);
        Set {
            block_cache: memory.write + memory.cache - 2 * buffer,
            write_buffer_size: buffer,
            max_write_buffer_number: 2,
            compression: "snappy",
            filter_bits: None,
            block_size: None,
            recycle_log_file_num: None,
            enable_pipelined_write: false,
            max_background_jobs: None,
            dynamic_level_bytes: false,
            bytes_per_sync: None,
            compacts: true,
            level1_bytes: None,
        }
    }

    fn tuned(memory: Memory) -> Set {
        Set {
            block_cache: memory.cache,
            write_buffer_size: memory.write / 4,
            max_write_buffer_number: 4,
            // Most figures have values that do not compress.
            compression: "none",
            recycle_log_file_num: Some(4),
            enable_pipelined_write: true,
            max_background_jobs: Some(4),
            dynamic_level_bytes: true,
            bytes_per_sync: Some(1 << 20),
            ..Set::default(memory).filtered()
        }
    }

    /// Filters and larger blocks.
    fn filtered(self) -> Set {
        Set { filter_bits: Some(10.0), block_size: Some(16 * 1024), ..self }
    }

    pub(super) fn of(kind: Kind, memory: Memory) -> Set {
        let default = Set::default(memory);
        let one = Set {
            write_buffer_size: memory.write,
            block_cache: memory.cache,
            max_write_buffer_number: 2,
            ..default
        };
        match kind {
            Kind::RocksDbTuned => Set::tuned(memory),
            Kind::RocksDbZstd => Set { compression: "zstd", ..Set::tuned(memory) },
            Kind::RocksDbPiled => Set { compacts: false, ..one.filtered() },
            Kind::RocksDbLogged => one,
            Kind::RocksDbScaled | Kind::RocksDbLevel0Tmpfs => Set {
                write_buffer_size: (memory.write / 128).max(1 << 20),
                level1_bytes: Some((memory.write / 32).max(4 << 20)),
                block_cache: memory.cache,
                compression: "none",
                ..default
            }
            .filtered(),
            _ => default,
        }
    }

    pub(super) fn options(&self) -> Result<Options> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(match self.compression {
            "zstd" => DBCompressionType::Zstd,
            "snappy" => DBCompressionType::Snappy,
            _ => DBCompressionType::None,
        });
        options.set_write_buffer_size(self.write_buffer_size as usize);
        options.set_max_write_buffer_number(self.max_write_buffer_number);
        options.set_enable_pipelined_write(self.enable_pipelined_write);
        options.set_level_compaction_dynamic_level_bytes(self.dynamic_level_bytes);
        self.recycle_log_file_num.into_iter().for_each(|n| options.set_recycle_log_file_num(n));
        self.max_background_jobs.into_iter().for_each(|n| options.set_max_background_jobs(n));
        self.bytes_per_sync.into_iter().for_each(|n| options.set_bytes_per_sync(n));
        if let Some(bytes) = self.level1_bytes {
            options.set_max_bytes_for_level_base(bytes);
            options.set_target_file_size_base((bytes / 4).max(1 << 20));
        }
        if !self.compacts {
            options.set_disable_auto_compactions(true);
            options.set_level_zero_slowdown_writes_trigger(1 << 20);
            options.set_level_zero_stop_writes_trigger(1 << 20);
        }
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(self.block_cache as usize)?);
        if let Some(bits) = self.filter_bits {
            blocks.set_bloom_filter(bits, false);
            blocks.set_format_version(5);
        }
        self.block_size.into_iter().for_each(|bytes| blocks.set_block_size(bytes));
        options.set_block_based_table_factory(&blocks);
        Ok(options)
    }
}

struct Rocks {
    db: DB,
    home: PathBuf,
    /// Level 0, if it lies elsewhere; removed with it.
    _level0: Option<tempfile::TempDir>,
    /// None: no option was set.
    set: Option<Set>,
}

pub(super) fn open(dir: &Path, memory: Memory, kind: Kind) -> Result<Box<dyn Store>> {
    let (set, home) = (Set::of(kind, memory), dir.join("db"));
    if kind == Kind::RocksDbDefaults {
        let mut options = Options::default();
        options.create_if_missing(true);
        let db = DB::open(&options, &home)?;
        return Ok(Box::new(Rocks { db, home, _level0: None, set: None }));
    }
    let mut options = set.options()?;
    let level0 = match kind {
        Kind::RocksDbLevel0Tmpfs => Some(tempfile::tempdir_in("/dev/shm")?),
        _ => None,
    };
    if let Some(level0) = &level0 {
        // Flushes go to the first path. Level 1 and what is below do not fit beside level 0 there,
        // for which it reckons with the bytes of level 1.
        let first = set.level1_bytes.unwrap_or_default();
        let paths = [DBPath::new(level0.path(), first)?, DBPath::new(&home, u64::MAX / 2)?];
        options.set_db_paths(&paths);
    }
    let db = DB::open(&options, &home)?;
    Ok(Box::new(Rocks { db, home, _level0: level0, set: Some(set) }))
}

impl Store for Rocks {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(durable);
        Ok(self.db.put_opt(key, value, &options)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete(key)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.db.get_pinned(key)?.map(|value| read_value(&value)))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek(from);
        count(iterator, rows, DBRawIterator::next)
    }

    fn scan_back(&self, from: &[u8], rows: usize) -> Result<usize> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek_for_prev(from);
        count(iterator, rows, DBRawIterator::prev)
    }

    fn settings(&self) -> String {
        self.set.map_or("no option set".to_string(), |set| format!("{set:?}"))
    }

    fn seal(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn level0_files(&self) -> Result<Option<u64>> {
        let files = self.db.property_value("rocksdb.num-files-at-level0")?;
        Ok(files.map(|files| files.parse()).transpose()?)
    }

    fn jobs(&self) -> Result<Option<Jobs>> {
        let log = std::fs::read_to_string(self.home.join("LOG"))?;
        let mut jobs = told(&log);
        let files = |level: u64| -> Result<u64> {
            let name = format!("rocksdb.num-files-at-level{level}");
            let files = self.db.property_value(name.as_str())?;
            Ok(files.map_or(Ok(0), |files| files.parse())?)
        };
        for level in 1..7 {
            jobs.depth += u64::from(files(level)? > 0);
        }
        Ok(Some(jobs))
    }

    fn catch_up(&self) -> Result<()> {
        let mut signs = vec![
            "rocksdb.num-running-flushes",
            "rocksdb.mem-table-flush-pending",
            "rocksdb.num-running-compactions",
        ];
        if self.set.is_none_or(|set| set.compacts) {
            // Where nothing compacts, what is pending stays so.
            signs.push("rocksdb.compaction-pending");
        }
        let is_busy = || -> Result<bool> {
            for sign in &signs {
                if self.db.property_int_value(*sign)?.unwrap_or(0) > 0 {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        while is_busy()? {
            crate::latency::let_work(std::time::Duration::from_millis(100));
        }
        Ok(())
    }
}

/// What the events of a log tell of compactions: those that took files of level 0 are its jobs.
fn told(log: &str) -> Jobs {
    let (mut jobs, mut of_level0) =
        (Jobs { written: vec![0; 7], ..Jobs::default() }, HashMap::new());
    let events = log.lines().filter_map(|line| line.split_once("EVENT_LOG_v1 "));
    let events = events.filter_map(|(_, json)| serde_json::from_str(json).ok());
    for event in events {
        let event: serde_json::Value = event;
        let number = |name: &str| event[name].as_u64().unwrap_or(0);
        let job = number("job");
        match event["event"].as_str() {
            Some("flush_started") => jobs.written[0] += number("total_data_size"),
            Some("compaction_started") if !event["files_L0"].is_null() => {
                of_level0.insert(job, number("input_data_size"));
            }
            Some("compaction_finished") => {
                let (level, bytes) = (number("output_level").min(6), number("total_output_size"));
                jobs.written[level as usize] += bytes;
                if let Some(input) = of_level0.remove(&job) {
                    jobs.count += 1;
                    jobs.bytes += input + bytes;
                    jobs.seconds += number("compaction_time_micros") as f64 / 1e6;
                }
            }
            _ => {}
        }
    }
    jobs
}

/// Reads rows where they lie, without copying them out.
fn count<'a>(
    mut iterator: DBRawIterator<'a>,
    rows: usize,
    step: impl Fn(&mut DBRawIterator<'a>),
) -> Result<usize> {
    let (mut bytes, mut n) = (0, 0);
    while n < rows && iterator.valid() {
        bytes += iterator.value().map_or(0, read_value);
        n += 1;
        if n < rows {
            step(&mut iterator);
        }
    }
    iterator.status()?;
    std::hint::black_box(bytes);
    Ok(n)
}
