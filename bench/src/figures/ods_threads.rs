//! `ods`, with threads: inserts and reads of one map with keys of eight bytes by 1 to 16 threads.
//! The engine's persistent index makes a record durable before a read finds it. The engine's index
//! in memory and the standard map behind a lock are measured beside it. Both persist nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Barrier, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use terrace::bench::{Arena, PersistentIndex, RecordIndex, encode_put};

use crate::Settings;
use crate::random::Random;
use crate::report::Report;

/// Bytes in a cache line.
const LINE: usize = 64;

const THREADS: [u64; 5] = [1, 2, 4, 8, 16];

/// When something began and when it ended.
type Span = (Instant, Instant);

/// A map that threads share.
trait Shared: Sync {
    /// Adds a key, with a value of eight bytes; `buffer` saves an allocation.
    fn insert(&self, key: u64, buffer: &mut Vec<u8>) -> Result<()>;
    fn get(&self, key: u64) -> Result<bool>;
}

/// The engine's persistent index, and the records.
struct Persistent {
    arena: Arena,
    index: PersistentIndex,
}

impl Shared for Persistent {
    fn insert(&self, key: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let key = key.to_be_bytes();
        buffer.clear();
        encode_put(buffer, &key, 1, &key);
        buffer.resize(buffer.len().next_multiple_of(LINE), 0);
        let at = self.arena.append_durably(buffer)?;
        Ok(self.index.insert(&key, 1, at)?)
    }

    fn get(&self, key: u64) -> Result<bool> {
        Ok(self.index.get(&key.to_be_bytes())?.is_some())
    }
}

/// The engine's index over records in memory.
struct Volatile {
    arena: Arena,
    index: RecordIndex,
}

impl Shared for Volatile {
    fn insert(&self, key: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let key = key.to_be_bytes();
        let at = self.arena.append(&key, 1, &key, buffer);
        self.index.insert(&key, 1, at);
        Ok(())
    }

    fn get(&self, key: u64) -> Result<bool> {
        Ok(self.index.get(&key.to_be_bytes()).is_some())
    }
}

impl Shared for RwLock<BTreeMap<u64, u64>> {
    fn insert(&self, key: u64, _: &mut Vec<u8>) -> Result<()> {
        self.write().map_err(|_| anyhow!("a thread panicked"))?.insert(key, key);
        Ok(())
    }

    fn get(&self, key: u64) -> Result<bool> {
        Ok(self.read().map_err(|_| anyhow!("a thread panicked"))?.contains_key(&key))
    }
}

const SYSTEMS: [&str; 3] = ["terrace", "engine's index", "BTreeMap + lock"];

fn make(system: &str, path: &Path, keys: u64) -> Result<Box<dyn Shared>> {
    Ok(match system {
        "terrace" => {
            // A record takes a line, and its slot at most twice as much with what is around it.
            let arena = Arena::emulated(&path.with_extension("records"), keys * LINE as u64)?;
            let index = PersistentIndex::create(&arena, path, keys * 128)?;
            Box::new(Persistent { arena, index })
        }
        "engine's index" => {
            let scratch = path.parent().unwrap_or(Path::new("."));
            // A record has 40 bytes here.
            let arena = Arena::new(scratch, (keys * 40).next_multiple_of(4096))?;
            Box::new(Volatile { index: RecordIndex::new(&arena), arena })
        }
        _ => Box::new(RwLock::new(BTreeMap::new())),
    })
}

pub(super) fn measure(settings: &Settings, report: &mut Report, dir: &Path) -> Result<()> {
    let keys = if settings.quick { 40_000 } else { 1_000_000 };
    for round in 0..settings.rounds_within(1) {
        for threads in THREADS {
            for system in SYSTEMS {
                let case = format!("{threads} threads");
                if !settings.wants(&case, system) {
                    continue;
                }
                let path = dir.join(format!("{round}-{threads}-threads"));
                let map = make(system, &path, keys)?;
                let (inserted, read) = rates(&*map, settings.seed, threads, keys)?;
                for path in [path.with_extension("records"), path] {
                    if path.exists() {
                        std::fs::remove_file(&path)?;
                    }
                }
                report.add(&case, system, "insert", inserted, "op/s");
                report.add(&case, system, "get", read, "op/s");
            }
        }
    }
    Ok(())
}

/// Inserts and then reads a second, all threads together.
fn rates(map: &dyn Shared, seed: u64, threads: u64, keys: u64) -> Result<(f64, f64)> {
    let each = keys / threads;
    let barrier = Barrier::new(threads as usize);
    let work = |thread: u64| -> Result<[Span; 2]> {
        let keys = || {
            let mut random = Random::new(seed ^ thread << 32);
            (0..each).map(move |_| (random.next() >> 2) | 1)
        };
        barrier.wait();
        let inserts = Instant::now();
        let mut buffer = Vec::new();
        keys().try_for_each(|key| map.insert(key, &mut buffer))?;
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
