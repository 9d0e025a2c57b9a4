//! Look-ups of many keys that a level answers from memory, one by one and together.

use std::path::Path;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use terrace::{Compression, Database, Durability, GetBatch, Options, ShardedTable, Table};

use crate::keys::key;
use crate::random::Random;

/// Keys that are looked up together.
pub(super) const BATCH: u64 = 256;

/// Has callgrind count what the threads of shards do.
pub(super) const TOGGLE: &str = "--toggle-collect=*ShardServer::run";

const TABLES: u64 = 4;

/// Records of a table.
const RECORDS: u64 = 5000;

const SHARDS: usize = 2;

const VALUE: [u8; 8] = [7; 8];

/// How keys are looked up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Way {
    Get,
    /// Under other levels whose extents have keys around it.
    Deep,
    Lent,
    Many,
    Read,
    Batch,
}

pub(super) const WAYS: [(&str, Way); 6] = [
    ("get, a hit in a level", Way::Get),
    ("get, a hit under eight sublevels", Way::Deep),
    ("get_with, a hit in a level", Way::Lent),
    ("get, one of multi_get with 64 keys of a table", Way::Many),
    ("get, one of ShardScope::read with 64 keys of a table", Way::Read),
    ("get, one of a per-core batch of 256 keys of 4 tables", Way::Batch),
];

/// A database whose rows lie in a level, in memory.
pub(super) struct Loaded {
    db: Database,
    tables: Vec<Table>,
}

impl Loaded {
    pub(super) fn new(dir: &Path, way: Way) -> Result<Loaded> {
        let none = Compression::None;
        let options = Options::new().pm_size(8 << 20).cache_size(64 << 20).compression(none, none);
        // So large that nothing leaves level 1.
        let options = options.level1_size(1 << 30);
        let db = options.open(dir.join("db"))?;
        let tables = (0..TABLES).map(|n| db.table(&format!("t{n}")));
        let tables: Vec<Table> = tables.collect::<terrace::Result<_>>()?;
        for table in &tables {
            let relaxed = table.durability(Durability::Relaxed);
            for n in 0..RECORDS {
                relaxed.put(key(n), VALUE)?;
            }
            ensure!(db.compact_range(table, ..)?.is_finished, "a compaction did not finish");
            if matches!(way, Way::Deep) {
                cover(&db, table)?;
            }
            for n in 0..RECORDS {
                ensure!(table.get(key(n))?.as_deref() == Some(&VALUE[..]), "a wrong value");
            }
        }
        Ok(Loaded { db, tables })
    }

    /// Looks so many keys up.
    pub(super) fn look_up(&self, way: Way, operations: u64) -> Result<()> {
        let mut random = Random::new(2);
        let keys = (0..operations).map(|_| key(random.below(RECORDS)));
        // Before the count: the keys and their tables are the same for all ways.
        let batches: Vec<Vec<_>> =
            keys.collect::<Vec<_>>().chunks(BATCH as usize).map(<[_]>::to_vec).collect();
        match way {
            Way::Get | Way::Deep | Way::Lent | Way::Many => {
                for batch in &batches {
                    counted_operations(&self.tables, way, batch)?;
                }
            }
            Way::Read => {
                let cores = self.db.per_core(SHARDS)?;
                for (n, batch) in batches.into_iter().enumerate() {
                    let (tables, n) = (self.tables.clone(), n % SHARDS);
                    let run = move |shard: &terrace::ShardScope<'_>| {
                        for (table, keys) in by_table(&tables, &batch) {
                            shard.read(table, |reads| {
                                let is = |key| reads.get_with(key, |found| found == VALUE);
                                keys.iter().all(|key| matches!(is(key), Ok(Some(true))))
                            })?;
                        }
                        Ok(())
                    };
                    cores.submit_to(n, run)?.wait()?;
                }
            }
            Way::Batch => {
                let cores = self.db.per_core(SHARDS)?;
                let sharded = self.tables.iter().map(|table| cores.table(table));
                let sharded: Vec<ShardedTable> = sharded.collect::<terrace::Result<_>>()?;
                let mut again = cores.batch();
                for batch in &batches {
                    again = batched_counted_operations(again, &sharded, batch)?;
                }
            }
        }
        Ok(())
    }
}

/// Puts other keys. In the end eight sublevels cover the table's rows.
fn cover(db: &Database, table: &Table) -> Result<()> {
    let covered = || {
        let stats = db.stats().tables.into_iter().find(|one| one.name == table.name());
        stats.is_some_and(|one| one.levels.iter().map(|level| level.sublevels).sum::<u64>() > 8)
    };
    let relaxed = table.durability(Durability::Relaxed);
    for n in RECORDS.. {
        ensure!(n < 1 << 20, "so many rows made no eight sublevels");
        relaxed.put(key(n), [7; 200])?;
        if n % 1000 == 0 && covered() {
            break;
        }
    }
    Ok(())
}

/// The keys of each table.
fn by_table<'a, T, K>(tables: &'a [T], batch: &'a [K]) -> impl Iterator<Item = (&'a T, &'a [K])> {
    tables.iter().zip(batch.chunks(batch.len().div_ceil(tables.len())))
}

/// Found by its name in the program's symbols.
#[inline(never)]
fn counted_operations<K: AsRef<[u8]>>(tables: &[Table], way: Way, batch: &[K]) -> Result<()> {
    for (table, keys) in by_table(tables, batch) {
        if matches!(way, Way::Many) {
            let values = table.multi_get(keys)?;
            ensure!(values.iter().all(|value| value.as_deref() == Some(&VALUE[..])), "a value");
            continue;
        }
        for key in keys {
            let is_right = match way {
                Way::Lent => table.get_with(key, |value| value == VALUE)?,
                _ => table.get(key)?.map(|value| value == VALUE[..]),
            };
            ensure!(is_right == Some(true), "a wrong value");
        }
    }
    Ok(())
}

/// Found by its name, too.
#[inline(never)]
fn batched_counted_operations<K: AsRef<[u8]>>(
    mut again: GetBatch,
    tables: &[ShardedTable],
    batch: &[K],
) -> Result<GetBatch> {
    for (table, keys) in by_table(tables, batch) {
        for key in keys {
            again.get(table, key);
        }
    }
    let values = again.run()?;
    ensure!(values.iter().all(|value| value == Some(&VALUE[..])), "a wrong value");
    Ok(values.into_batch())
}
