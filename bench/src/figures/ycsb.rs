//! `ycsb`: workloads A to F of the Yahoo cloud serving benchmark, on Terrace and every peer that
//! is built in; 8-byte keys and 500-byte values, as the source has them. In memory: the data fits
//! in what each store may cache, and the figure says so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::Settings;
use crate::latency::{Latency, let_work};
use crate::random::{Random, Zipfian};
use crate::report::Report;
use crate::stores::{Kind, Memory, Store};

const VALUE: usize = 500;
const MEMORY: Memory = Memory { write: 256 << 20, cache: 512 << 20 };

/// One workload: shares of operations in percent; the rest are reads followed by a write.
#[derive(Clone, Copy, Debug)]
struct Workload {
    name: &'static str,
    read: u64,
    update: u64,
    insert: u64,
    scan: u64,
    latest: bool,
}

const WORKLOADS: [Workload; 6] = [
    Workload { name: "A", read: 50, update: 50, insert: 0, scan: 0, latest: false },
    Workload { name: "B", read: 95, update: 5, insert: 0, scan: 0, latest: false },
    Workload { name: "C", read: 100, update: 0, insert: 0, scan: 0, latest: false },
    Workload { name: "D", read: 95, update: 0, insert: 5, scan: 0, latest: true },
    Workload { name: "E", read: 0, update: 0, insert: 5, scan: 95, latest: false },
    Workload { name: "F", read: 50, update: 0, insert: 0, scan: 0, latest: false },
];

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    for kind in Kind::ALL {
        if !kind.is_built() {
            eprintln!("skipped: {} is not built in; see `cargo xtask peers`", kind.name());
        }
    }
    for _ in 0..settings.rounds {
        for kind in Kind::ALL.into_iter().filter(|k| k.is_built()) {
            for durable in [false, true] {
                round(settings, report, kind, durable)?;
            }
        }
    }
    Ok(())
}

/// Loads a new store and runs every workload on it.
fn round(settings: &Settings, report: &mut Report, kind: Kind, durable: bool) -> Result<()> {
    let sync = if durable { "durable" } else { "unsynced" };
    let cases = || WORKLOADS.iter().map(|w| (w, format!("{} in memory, {sync}", w.name)));
    if !cases().any(|(_, case)| settings.wants(&case, kind.name())) {
        return Ok(());
    }
    let records: u64 = if settings.quick { 100_000 } else { 1_000_000 };
    let time = Duration::from_millis(if settings.quick { 500 } else { 5000 });
    let dir = settings.dir.join("store");
    let store = kind.open(&dir, MEMORY)?;
    for n in 0..records {
        store.put(&key(n), &[n as u8; VALUE], false)?;
    }
    store.rest()?;
    let inserted = AtomicU64::new(records);
    let threads = if durable { 16 } else { 2 };
    for (workload, case) in cases() {
        if !settings.wants(&case, kind.name()) {
            continue;
        }
        let run = Run { workload: *workload, durable, inserted: &inserted, seed: settings.seed };
        let (operations, latency, took) = run.drive(&*store, threads, time)?;
        let rate = operations as f64 / took.as_secs_f64();
        report.add(&case, kind.name(), "throughput", rate, "op/s");
        report.add(&case, kind.name(), "p50", latency.micros(0.5), "µs");
        report.add(&case, kind.name(), "p99", latency.micros(0.99), "µs");
        report.add(&case, kind.name(), "p99.9", latency.micros(0.999), "µs");
    }
    drop(store);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// The n-th key: scattered over the key space, as hashed keys are.
fn key(n: u64) -> [u8; 8] {
    Random::new(n).next().to_be_bytes()
}

/// One workload on one store.
struct Run<'a> {
    workload: Workload,
    durable: bool,
    inserted: &'a AtomicU64,
    seed: u64,
}

impl Run<'_> {
    fn drive(
        &self,
        store: &dyn Store,
        threads: u64,
        time: Duration,
    ) -> Result<(u64, Latency, Duration)> {
        let stop = AtomicBool::new(false);
        let zipfian = Zipfian::new(self.inserted.load(Ordering::Relaxed));
        let from = Instant::now();
        let results = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (stop, zipfian) = (&stop, &zipfian);
                    let random = Random::new(self.seed ^ (thread + 1) << 40);
                    scope.spawn(move || self.work(store, zipfian, random, stop))
                })
                .collect();
            let_work(time);
            stop.store(true, Ordering::Relaxed);
            let join =
                |w: std::thread::ScopedJoinHandle<'_, Result<_>>| w.join().expect("no panic");
            workers.into_iter().map(join).collect::<Result<Vec<(u64, Latency)>>>()
        })?;
        let took = from.elapsed();
        let mut all = Latency::new();
        results.iter().for_each(|(_, latency)| all.add(latency));
        Ok((results.iter().map(|(n, _)| n).sum(), all, took))
    }

    fn work(
        &self,
        store: &dyn Store,
        zipfian: &Zipfian,
        mut random: Random,
        stop: &AtomicBool,
    ) -> Result<(u64, Latency)> {
        let (mut latency, mut n) = (Latency::new(), 0);
        while !stop.load(Ordering::Relaxed) {
            let from = Instant::now();
            self.operation(store, zipfian, &mut random)?;
            latency.record(from.elapsed());
            n += 1;
        }
        Ok((n, latency))
    }

    fn operation(&self, store: &dyn Store, zipfian: &Zipfian, random: &mut Random) -> Result<()> {
        let rank = zipfian.draw(random);
        let n = if self.workload.latest {
            self.inserted.load(Ordering::Relaxed) - 1 - rank
        } else {
            // Scrambled: popular keys lie anywhere.
            Random::new(rank ^ 0x5bd1).next() % zipfian.items()
        };
        let key_at = key(n);
        let w = &self.workload;
        let draw = random.below(100);
        if draw < w.read {
            // What another thread is inserting may not be there yet.
            let there = store.get(&key_at)?.is_some() || n >= zipfian.items();
            anyhow::ensure!(there, "key {n} is missing");
        } else if draw < w.read + w.update {
            store.put(&key_at, &value(random), self.durable)?;
        } else if draw < w.read + w.update + w.insert {
            let n = self.inserted.fetch_add(1, Ordering::Relaxed);
            store.put(&key(n), &value(random), self.durable)?;
        } else if draw < w.read + w.update + w.insert + w.scan {
            store.scan(&key_at, 1 + random.below(100) as usize)?;
        } else {
            anyhow::ensure!(store.get(&key_at)?.is_some(), "key {n} is missing");
            store.put(&key_at, &value(random), self.durable)?;
        }
        Ok(())
    }
}

fn value(random: &mut Random) -> [u8; VALUE] {
    [random.next() as u8; VALUE]
}
