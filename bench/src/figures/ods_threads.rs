//! `ods`, with threads: inserts and reads of one map by 1 to 16 threads, beside the standard map
//! behind a lock, which persists nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Barrier, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use terrace::Mode;
use terrace::ptree::{OdsTree, Options};

use crate::Settings;
use crate::random::Random;
use crate::report::Report;

const THREADS: [u64; 5] = [1, 2, 4, 8, 16];

/// When something began and when it ended.
type Span = (Instant, Instant);

/// A map that threads share.
trait Shared: Sync {
    fn insert(&self, key: u64) -> Result<()>;
    fn get(&self, key: u64) -> Result<bool>;
}

impl Shared for OdsTree {
    fn insert(&self, key: u64) -> Result<()> {
        OdsTree::insert(self, key, key)?;
        Ok(())
    }

    fn get(&self, key: u64) -> Result<bool> {
        Ok(OdsTree::get(self, key)?.is_some())
    }
}

impl Shared for RwLock<BTreeMap<u64, u64>> {
    fn insert(&self, key: u64) -> Result<()> {
        self.write().map_err(|_| anyhow!("a thread panicked"))?.insert(key, key);
        Ok(())
    }

    fn get(&self, key: u64) -> Result<bool> {
        Ok(self.read().map_err(|_| anyhow!("a thread panicked"))?.contains_key(&key))
    }
}

pub(super) fn measure(settings: &Settings, report: &mut Report, dir: &Path) -> Result<()> {
    let keys = if settings.quick { 100_000 } else { 1_000_000 };
    for round in 0..settings.rounds {
        for threads in THREADS {
            for system in ["terrace", "BTreeMap + lock"] {
                let case = format!("{threads} threads");
                if !settings.wants(&case, system) {
                    continue;
                }
                let path = dir.join(format!("{round}-{threads}-threads"));
                let (inserted, read) = if system == "terrace" {
                    let mode = Mode::Emulated { delay: Duration::ZERO };
                    let tree = Options::new().mode(mode).size(128 << 20).create(&path)?;
                    let rates = rates(&tree, settings.seed, threads, keys)?;
                    std::fs::remove_file(&path)?;
                    rates
                } else {
                    rates(&RwLock::new(BTreeMap::new()), settings.seed, threads, keys)?
                };
                report.add(&case, system, "insert", inserted, "op/s");
                report.add(&case, system, "get", read, "op/s");
            }
        }
    }
    Ok(())
}

/// Inserts and then reads a second, all threads together.
fn rates(map: &impl Shared, seed: u64, threads: u64, keys: u64) -> Result<(f64, f64)> {
    let each = keys / threads;
    let barrier = Barrier::new(threads as usize);
    let work = |thread: u64| -> Result<[Span; 2]> {
        let keys = || {
            let mut random = Random::new(seed ^ thread << 32);
            (0..each).map(move |_| (random.next() >> 2) | 1)
        };
        barrier.wait();
        let inserts = Instant::now();
        keys().try_for_each(|key| map.insert(key))?;
        let inserted = Instant::now();
        barrier.wait();
        let gets = Instant::now();
        for key in keys() {
            anyhow::ensure!(map.get(key)?, "key {key} is lost");
        }
        Ok([(inserts, inserted), (gets, Instant::now())])
    };
    let times = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<_>>| {
            thread.join().map_err(|_| anyhow!("a thread panicked"))?
        };
        threads.into_iter().map(join).collect::<Result<Vec<[Span; 2]>>>()
    })?;
    // From the first that began to the last that ended: they may not all have run at once.
    let rate = |part: usize| {
        let began = times.iter().map(|of| of[part].0).min();
        let ended = times.iter().map(|of| of[part].1).max();
        let time = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
        (each * threads) as f64 / time.as_secs_f64()
    };
    Ok((rate(0), rate(1)))
}
