//! `rows`: the work of redb's own benchmark (`lmdb_benchmark.rs` of its repository, at commit
//! 599626be21ad8f58f9b737c9caaba7d6454e8333), on Terrace with no option set and on the stores that
//! redb compares itself with, set as it sets them. Rows have 24 bytes of key and 150 of value, both
//! random. It differs from the original in these points:
//!
//! - Of each value that is found a byte of every cache line is read, not the first byte alone.
//! - Removals from both ends stop after five seconds, and their rate is that of what was done.
//! - RocksDB has a bound on its write buffers, not a manager that shares them with its cache.
//! - fjall compacts, where the original takes its size as it is. SQLite is left out.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::isolated;
use crate::kernel::disk_usage;
use crate::random::Random;
use crate::report::Report;
use crate::stores::rows::{self, RowStore, RowWriter};
use crate::stores::{Kind, System, version};

const FIGURE: &str = "rows";

const SYSTEMS: [System; 5] = [
    System::disk(Kind::TerraceDefaults),
    System::disk(Kind::RocksDb),
    System::disk(Kind::Fjall),
    System::disk(Kind::Redb),
    System::disk(Kind::Lmdb),
];

const KEY: usize = 24;
const VALUE: usize = 150;
const SCAN: usize = 10;
const BATCH: u64 = 1000;

/// How many times look-ups and ranges are measured; the median counts.
const TURNS: usize = 3;

/// Removals from the ends that have taken so long stand for all of them: some stores look at every
/// row that was removed before.
const MOST_OF_POPS: Duration = Duration::from_secs(5);

/// The rows of redb's benchmark; all else is in proportion.
const WHOLE: u64 = 5_000_000;

const MIB: f64 = (1 << 20) as f64;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    records: u64,
    cache: u64,
    seed: u64,
}

impl Cell {
    /// As many of `whole` as there are of the benchmark's rows.
    fn share(&self, whole: u64) -> u64 {
        (whole as f64 * self.records as f64 / WHOLE as f64).ceil() as u64
    }
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let records = settings.pick(20_000, 1_000_000, WHOLE);
    let cell = |system| Cell {
        system,
        records: settings.load.records.unwrap_or(records),
        cache: settings.load.memory.map_or(4 << 30, |mib| mib << 20),
        seed: settings.seed,
    };
    for _ in 0..settings.rounds_within(1) {
        for system in System::there(&SYSTEMS, settings, report) {
            if settings.wants("", &system.name()) {
                isolated::run(settings, report, FIGURE, &cell(system))?;
            }
        }
    }
    Ok(())
}

/// A key and a value.
struct Pair {
    key: [u8; KEY],
    value: [u8; VALUE],
}

/// Pairs in an order that can be had again.
#[derive(Clone)]
struct Pairs(Random);

impl Pairs {
    fn next(&mut self) -> Pair {
        let mut pair = Pair { key: [0; KEY], value: [0; VALUE] };
        for part in [&mut pair.key[..], &mut pair.value[..]] {
            for word in part.chunks_mut(8) {
                word.copy_from_slice(&self.0.next().to_le_bytes()[..word.len()]);
            }
        }
        pair
    }
}

/// One store, and what is said of it.
struct Run<'a> {
    cell: &'a Cell,
    system: String,
    store: Box<dyn RowStore>,
    /// New ones.
    pairs: Pairs,
    report: &'a mut Report,
}

/// In a process of its own.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    let home = cell.system.home(dir)?;
    let store = rows::open(cell.system.kind, &home.path(), cell.cache)?;
    let system = cell.system.name();
    report.settings(&system, &format!("{}; {}", version(cell.system.kind), store.settings()));
    let pairs = Pairs(Random::new(cell.seed));
    let mut run = Run { cell: &cell, system, store, pairs, report };
    let there = run.writes()?;
    run.reads(there)?;
    for threads in [4, 8, 16, 32] {
        run.reads_of_threads(threads, there)?;
    }
    run.removals(there)?;
    run.pops()?;
    run.size("size", &home.path())?;
    let from = Instant::now();
    run.store.compact()?;
    run.time("compaction", from.elapsed());
    run.size("size after compaction", &home.path())?;
    run.sorted()
}

impl Run<'_> {
    fn rate(&mut self, case: &str, operations: u64, took: Duration) {
        let rate = operations as f64 / took.as_secs_f64();
        self.report.add(case, &self.system, "throughput", rate, "/s");
    }

    fn time(&mut self, case: &str, took: Duration) {
        self.report.add(case, &self.system, "time", took.as_secs_f64() * 1e3, "ms");
    }

    fn size(&mut self, case: &str, dir: &Path) -> Result<()> {
        self.report.add(case, &self.system, "disk", disk_usage(dir)? as f64 / MIB, "MiB");
        Ok(())
    }

    /// Inserts new rows in one transaction.
    fn insert(&mut self, rows: u64, sync: bool) -> Result<()> {
        let pairs = &mut self.pairs;
        self.store.write(sync, &mut |writer| {
            (0..rows).try_for_each(|_| {
                let Pair { key, value } = pairs.next();
                writer.insert(&key, &value)
            })
        })
    }

    /// The phases that write; how many rows are there then.
    fn writes(&mut self) -> Result<u64> {
        let mut there = 0;
        for (case, commits, rows, sync) in [
            ("bulk load", 1, self.cell.records, true),
            ("durable commits of a row", self.cell.share(1000), 1, true),
            ("durable commits of 1000 rows", self.cell.share(100), BATCH, true),
            ("commits of a row, no sync", self.cell.share(50_000), 1, false),
        ] {
            let from = Instant::now();
            (0..commits).try_for_each(|_| self.insert(rows, sync))?;
            self.rate(case, commits * rows, from.elapsed());
            there += commits * rows;
        }
        Ok(there)
    }

    fn reads(&mut self, there: u64) -> Result<()> {
        let (gets, scans) = (self.cell.share(1_000_000), self.cell.share(500_000));
        let first = Pairs(Random::new(self.cell.seed));
        let (mut of_gets, mut of_scans) = (Vec::new(), Vec::new());
        self.store.read(&mut |reader| {
            for _ in 0..TURNS {
                let (from, mut pairs) = (Instant::now(), first.clone());
                for _ in 0..gets {
                    ensure!(reader.get(&pairs.next().key)?, "a row is missing");
                }
                of_gets.push(from.elapsed());
            }
            for _ in 0..TURNS {
                let (from, mut pairs) = (Instant::now(), first.clone());
                for _ in 0..scans {
                    ensure!(reader.range(&pairs.next().key, SCAN)? > 0, "a row is missing");
                }
                of_scans.push(from.elapsed());
            }
            let rows = reader.range(&[0], usize::MAX)? as u64;
            ensure!(rows == there, "{rows} of {there} rows are there");
            Ok(())
        })?;
        of_gets.sort_unstable();
        of_scans.sort_unstable();
        self.rate("random reads", gets, of_gets[TURNS / 2]);
        self.rate("random ranges of 10 rows", scans, of_scans[TURNS / 2]);
        Ok(())
    }

    fn reads_of_threads(&mut self, threads: u64, there: u64) -> Result<()> {
        let own = there / threads;
        let mut pairs = Pairs(Random::new(self.cell.seed));
        let mut shards = Vec::new();
        for _ in 0..threads {
            shards.push(pairs.clone());
            for _ in 0..own {
                pairs.next();
            }
        }
        let (start, store) = (Barrier::new(threads as usize), &*self.store);
        let read = |mut pairs: Pairs| {
            start.wait();
            store.read(&mut |reader| {
                for _ in 0..own {
                    ensure!(reader.get(&pairs.next().key)?, "a row is missing");
                }
                Ok(())
            })
        };
        let (read, from) = (&read, Instant::now());
        std::thread::scope(|scope| -> Result<()> {
            let all: Vec<_> =
                shards.into_iter().map(|shard| scope.spawn(move || read(shard))).collect();
            all.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        self.rate(&format!("random reads, {threads} threads"), own * threads, from.elapsed());
        Ok(())
    }

    /// Half by their keys, every other one of the rest by a predicate, and of a third of the keys
    /// again; as many new rows follow each of the latter two.
    fn removals(&mut self, there: u64) -> Result<()> {
        let mut pairs = Pairs(Random::new(self.cell.seed));
        let from = Instant::now();
        self.store.write(true, &mut |writer| {
            (0..there / 2).try_for_each(|_| writer.remove(&pairs.next().key))
        })?;
        self.rate("removals", there / 2, from.elapsed());
        let every_other = |writer: &mut dyn RowWriter| {
            let mut n = 0_u64;
            writer.retain(&mut |_, _| {
                n += 1;
                n % 2 == 1
            })
        };
        self.remove_by("retain", &every_other)?;
        let of_a_third = |writer: &mut dyn RowWriter| {
            let mut n = 0_u64;
            writer.extract_if(&[0x55; KEY], &[0xaa; KEY], &mut |_, _| {
                n += 1;
                n.is_multiple_of(2)
            })
        };
        self.remove_by("extract_if", &of_a_third)
    }

    fn remove_by(
        &mut self,
        case: &str,
        remove: &dyn Fn(&mut dyn RowWriter) -> Result<u64>,
    ) -> Result<()> {
        let (mut removed, from) = (0, Instant::now());
        self.store.write(true, &mut |writer| {
            removed = remove(writer)?;
            Ok(())
        })?;
        self.rate(case, removed, from.elapsed());
        self.insert(removed, true)
    }

    fn pops(&mut self) -> Result<()> {
        let whole = self.cell.share(500_000);
        let (mut popped, from) = (0, Instant::now());
        let mut took = Duration::ZERO;
        self.store.write(true, &mut |writer| {
            for n in 0..whole {
                ensure!(writer.pop(n % 2 == 1)?, "no row is left");
                popped += 1;
                took = from.elapsed();
                if took > MOST_OF_POPS {
                    break;
                }
            }
            Ok(())
        })?;
        self.rate("pops from both ends", popped, took);
        self.insert(popped, true)
    }

    /// Rows beyond all that are there, in order, in the way that the store has for it.
    fn sorted(&mut self) -> Result<()> {
        let rows = self.cell.share(1_000_000);
        let pairs = &mut self.pairs;
        let sorted: Vec<([u8; KEY + 8], [u8; VALUE])> = (0..rows)
            .map(|n| {
                let mut key = [0xff; KEY + 8];
                key[KEY..].copy_from_slice(&n.to_be_bytes());
                (key, pairs.next().value)
            })
            .collect();
        let from = Instant::now();
        self.store.write(true, &mut |writer| {
            sorted.iter().try_for_each(|(key, value)| writer.append(key, value))
        })?;
        self.rate("sorted inserts", rows, from.elapsed());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_done_and_a_missing_row_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let system = System::disk(Kind::TerraceDefaults);
        let cell = Cell { system, records: 3000, cache: 1 << 20, seed: 1 };
        let text = serde_json::to_string(&cell).unwrap();
        let mut report = Report::new(true);
        super::cell(&text, dir.path(), &mut report).unwrap();
        for case in ["bulk load", "random reads", "retain", "pops from both ends"] {
            assert!(report.median(case, "terrace-defaults", "throughput").unwrap() > 0.0, "{case}");
        }
        let store = rows::open(cell.system.kind, &dir.path().join("other"), 0).unwrap();
        let pairs = Pairs(Random::new(1));
        let system = cell.system.name();
        let mut run = Run { cell: &cell, system, store, pairs, report: &mut report };
        run.insert(700, false).unwrap();
        let failed = run.reads(700).map_err(|e| e.to_string());
        assert!(failed.is_ok(), "all that is asked for was inserted: {failed:?}");
        assert!(run.reads(701).is_err(), "a row is missing");
    }
}
