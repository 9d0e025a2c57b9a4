//! `level0`: one sorted level 0 beside one that has piled up. Both hold the same records, nothing
//! is compacted, everything is in memory and warm; RocksDB has 58 files in level 0, with filters,
//! as many as the source saw. Points read one record, ranges 100.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::Settings;
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory, Store};

/// Files in level 0 of the peer.
const FILES: u64 = 58;

/// Rows that a range reads.
const ROWS: usize = 100;

const VALUE: [u8; 100] = [7; 100];

const SYSTEMS: [Kind; 3] = [Kind::Terrace, Kind::TerraceEmulated, Kind::RocksDbPiled];

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let records = FILES * if settings.quick { 4_000 } else { 50_000 };
    let time = Duration::from_millis(if settings.quick { 400 } else { 3000 });
    for system in SYSTEMS {
        if !settings.wants("level 0", system.name()) {
            continue;
        }
        if !system.is_built() {
            report.not_built(system.name());
            continue;
        }
        let dir = settings.dir.join(system.name());
        std::fs::create_dir_all(&dir)?;
        let write = if system == Kind::RocksDbPiled { 1 << 30 } else { region(records) };
        let store = system.open(&dir, Memory { write, cache: 4 << 30 })?;
        fill(&*store, settings.seed, records)?;
        let files = store.level0_files()?.unwrap_or(FILES);
        ensure!(files == FILES, "{} has {files} files in level 0 for {FILES}", system.name());
        // Warm: every block is in the cache, every record was touched.
        let rows = store.scan(&[], usize::MAX)?;
        ensure!(rows as u64 == records, "{rows} of {records} rows were found");
        for round in 0..settings.rounds_within(1) {
            for threads in [1, 2] {
                let seed = settings.seed + 1000 * u64::from(round + 1);
                let run = Run { store: &*store, settings, records, threads, time, seed };
                let case = format!("{threads} threads");
                let points = run.rate(|store, key| Ok(store.get(key)?.map_or(0, |_| 1)))?;
                report.add(&case, system.name(), "points", points / 1e3, "kop/s");
                let ranges = run.rate(|store, key| Ok(store.scan(key, ROWS)?.min(1)))?;
                report.add(&case, system.name(), "ranges of 100", ranges / 1e3, "kop/s");
            }
        }
        drop(store);
        std::fs::remove_dir_all(&dir)?;
    }
    ratios(report);
    Ok(())
}

/// A region of which the records take less than half, so that nothing is drained.
fn region(records: u64) -> u64 {
    // A commit of one record takes its header's line and whole lines of the record.
    (records * 256 * 5 / 2).max(64 << 20)
}

/// The key of record `n`; any two numbers have different ones.
fn key(seed: u64, n: u64) -> [u8; 8] {
    Random::new(seed.wrapping_add(n)).next().to_be_bytes()
}

fn fill(store: &dyn Store, seed: u64, records: u64) -> Result<()> {
    for n in 0..records {
        store.put(&key(seed, n), &VALUE, false)?;
        if (n + 1) % (records / FILES) == 0 {
            store.seal()?;
        }
    }
    store.rest()
}

struct Run<'a> {
    store: &'a dyn Store,
    settings: &'a Settings,
    records: u64,
    threads: u64,
    time: Duration,
    seed: u64,
}

impl Run<'_> {
    /// How many times a second `read` succeeds with keys that are there.
    fn rate(&self, read: fn(&dyn Store, &[u8]) -> Result<usize>) -> Result<f64> {
        let from = Instant::now();
        let done = std::thread::scope(|scope| {
            let work = |thread| {
                let mut random = Random::new(self.seed + thread);
                let mut done = 0;
                while from.elapsed() < self.time {
                    let key = key(self.settings.seed, random.below(self.records));
                    ensure!(read(self.store, &key)? == 1, "a key is missing");
                    done += 1;
                }
                Ok(done)
            };
            let workers: Vec<_> = (0..self.threads).map(|t| scope.spawn(move || work(t))).collect();
            let done = workers.into_iter().map(|w| w.join().expect("no panic"));
            done.sum::<Result<u64>>()
        })?;
        Ok(done as f64 / from.elapsed().as_secs_f64())
    }
}

/// The ratios that the source has figures for.
fn ratios(report: &mut Report) {
    for system in [Kind::Terrace, Kind::TerraceEmulated] {
        for case in ["1 threads", "2 threads"] {
            let metrics =
                [("points", "points of piled", 113.0), ("ranges of 100", "ranges of piled", 21.0)];
            for (metric, of_piled, paper) in metrics {
                let Some(ours) = report.median(case, system.name(), metric) else { continue };
                let piled = report.median(case, Kind::RocksDbPiled.name(), metric);
                let ratio = ours / piled.unwrap_or(f64::NAN);
                report.add(case, system.name(), of_piled, ratio, "×");
                report.paper(case, system.name(), of_piled, paper);
            }
        }
    }
}
