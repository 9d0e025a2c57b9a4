//! The step "per core": look-ups on the threads that own the keys. Closures read on a shard, as an
//! application does whose logic runs there. Batches come from as many other threads as there are
//! shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use terrace::{GetBatch, PendingGets, PerCore, ShardScope, ShardedTable};

use super::{Loaded, TABLES, key, timed, value};
use crate::Settings;
use crate::random::Random;
use crate::report::Report;

/// Keys of a batch.
const BATCH: usize = 256;

/// Keys of one table that a closure looks up together.
const TOGETHER: usize = 16;

/// The executor with its tables.
struct Sharded {
    cores: PerCore,
    tables: Vec<ShardedTable>,
    records: u64,
}

impl Sharded {
    fn new(loaded: &Loaded, shards: u64) -> Result<Arc<Sharded>> {
        let cores = loaded.db.per_core(shards as usize)?;
        let tables = loaded.tables.iter().map(|table| cores.table(table));
        let tables = tables.collect::<terrace::Result<_>>()?;
        Ok(Arc::new(Sharded { cores, tables, records: loaded.records }))
    }

    /// Looks up keys that the shard owns until it is done; how many.
    fn on_shard(
        &self,
        shard: &ShardScope<'_>,
        seed: u64,
        done: &AtomicBool,
    ) -> terrace::Result<u64> {
        let (mut random, mut count) = (Random::new(seed), 0);
        while !done.load(Ordering::Relaxed) {
            let number = random.below(TABLES);
            let table = &self.tables[number as usize];
            let mut own = Vec::with_capacity(TOGETHER);
            for _ in 0..TOGETHER {
                let key = key(number, random.below(self.records));
                if table.shard_of(key) == shard.number() {
                    own.push(key);
                }
            }
            if own.is_empty() {
                continue;
            }
            let right = shard.read(table.table(), |reads| {
                let is_right = |key| reads.get_with(key, |found| found == value(key));
                own.iter().filter(|key| matches!(is_right(key), Ok(Some(true)))).count()
            })?;
            assert_eq!(right, own.len(), "a wrong value");
            count += right as u64;
        }
        Ok(count)
    }

    /// Fills a batch with keys of all tables, and hands it over.
    fn submit(&self, mut batch: GetBatch, random: &mut Random) -> Result<Submitted> {
        let mut keys = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let (table, record) = (random.below(TABLES), random.below(self.records));
            let key = key(table, record);
            batch.get(&self.tables[table as usize], key);
            keys.push(key);
        }
        Ok(Submitted { keys, pending: batch.submit()? })
    }
}

struct Submitted {
    keys: Vec<[u8; 16]>,
    pending: PendingGets,
}

impl Submitted {
    /// Waits for the values, and checks them.
    fn wait(self) -> Result<GetBatch> {
        let values = self.pending.wait()?;
        for (key, found) in self.keys.iter().zip(values.iter()) {
            ensure!(found == Some(&value(key)[..]), "a wrong value");
        }
        Ok(values.into_batch())
    }
}

pub(super) fn run(
    settings: &Settings,
    report: &mut Report,
    loaded: &Loaded,
    (threads, time): (u64, Duration),
) -> Result<()> {
    let case = format!("look-ups, {threads} threads");
    let closures = "per core, closures";
    if settings.wants(&case, closures) {
        let sharded = Sharded::new(loaded, threads)?;
        let nanos = timed(threads, time, |n, done| {
            let (within, done) = (Arc::clone(&sharded), Arc::clone(done));
            let seed = settings.seed + n;
            let run = move |shard: &ShardScope<'_>| within.on_shard(shard, seed, &done);
            Ok(sharded.cores.submit_to(n as usize, run)?.wait()?)
        })?;
        report.add(&case, closures, "time", nanos, "ns");
    }
    let batches = format!("per core, batches of {BATCH}");
    if settings.wants(&case, &batches) {
        let sharded = Sharded::new(loaded, threads)?;
        let nanos = timed(threads, time, |n, done| {
            let (mut random, mut count) = (Random::new(settings.seed + n), 0);
            // One batch is on its way while the next one is made.
            let mut ahead = sharded.submit(sharded.cores.batch(), &mut random)?;
            let mut batch = sharded.cores.batch();
            while !done.load(Ordering::Relaxed) {
                let next = sharded.submit(batch, &mut random)?;
                batch = std::mem::replace(&mut ahead, next).wait()?;
                count += BATCH as u64;
            }
            ahead.wait()?;
            Ok(count + BATCH as u64)
        })?;
        report.add(&case, &batches, "time", nanos, "ns");
    }
    Ok(())
}
