//! fjall, with its defaults and tuned.

use std::path::Path;

use anyhow::Result;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy,
};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Kind, Memory, Store, read_value};

struct Fjall {
    db: Database,
    keyspace: Keyspace,
    /// None: no option was set.
    set: Option<Set>,
}

/// What is set; the rest is as fjall has it.
#[derive(Clone, Copy, Debug)]
struct Set {
    cache_size: u64,
    max_memtable_size: u64,
    worker_threads: Option<usize>,
    filter_bits: Option<f32>,
    block_size: Option<u32>,
    hash_ratio: Option<f32>,
}

pub(super) fn create(dir: &Path, memory: Memory, kind: Kind) -> Result<Box<dyn Store>> {
    if kind == Kind::FjallDefaults {
        let db = Database::builder(dir.join("db")).open()?;
        let keyspace = db.keyspace("t", KeyspaceCreateOptions::default)?;
        return Ok(Box::new(Fjall { db, keyspace, set: None }));
    }
    let total = memory.write + memory.cache;
    // The default memtable, where there is room for two.
    let memtable = (64 << 20).min(memory.write / 2);
    let mut set = Set {
        cache_size: total - 2 * memtable,
        max_memtable_size: memtable,
        worker_threads: None,
        filter_bits: None,
        block_size: None,
        hash_ratio: None,
    };
    if kind == Kind::FjallTuned {
        set.cache_size = memory.cache;
        set.max_memtable_size = memory.write / 2;
        set.worker_threads = Some(4);
        set.filter_bits = Some(10.0);
        set.block_size = Some(16 * 1024);
        set.hash_ratio = Some(8.0);
    }
    let mut builder = Database::builder(dir.join("db")).cache_size(set.cache_size);
    if let Some(threads) = set.worker_threads {
        builder = builder.worker_threads(threads);
    }
    let db = builder.open()?;
    let keyspace = db.keyspace("t", || options(&set))?;
    Ok(Box::new(Fjall { db, keyspace, set: Some(set) }))
}

fn options(set: &Set) -> KeyspaceCreateOptions {
    let mut options = KeyspaceCreateOptions::default().max_memtable_size(set.max_memtable_size);
    if let Some(bits) = set.filter_bits {
        let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits));
        options = options.filter_policy(FilterPolicy::all(bloom));
    }
    if let Some(bytes) = set.block_size {
        options = options.data_block_size_policy(BlockSizePolicy::all(bytes));
    }
    if let Some(ratio) = set.hash_ratio {
        options = options.data_block_hash_ratio_policy(HashRatioPolicy::all(ratio));
    }
    options
}

impl Store for Fjall {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        self.keyspace.insert(key, value)?;
        if durable {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.keyspace.get(key)?.map(|value| read_value(&value)))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Result<usize> {
        count(self.keyspace.range(from..).take(rows))
    }

    fn scan_back(&self, from: &[u8], rows: usize) -> Result<usize> {
        count(self.keyspace.range(..=from).rev().take(rows))
    }

    fn settings(&self) -> String {
        self.set.map_or("no option set".to_string(), |set| format!("{set:?}"))
    }
}

fn count(rows: impl Iterator<Item = fjall::Guard>) -> Result<usize> {
    let (mut bytes, mut n) = (0, 0);
    for row in rows {
        bytes += read_value(&row.into_inner()?.1);
        n += 1;
    }
    std::hint::black_box(bytes);
    Ok(n)
}
