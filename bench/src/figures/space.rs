//! `space`: what the closed directory takes on disk, its region included, after all rows have been
//! written and half of them again, with memory for an eighth of the rows at most, the system's
//! cache of files included; the most it took on the way there, and the bytes that the device was
//! sent. The ideal is the rows alone, sorted, in blocks of 16 KiB of zstd.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::isolated;
use crate::kernel::{Device, disk_usage, peak_memory};
use crate::keys::key;
use crate::latency::let_work;
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory, System};

const FIGURE: &str = "space";

const MIB: f64 = (1 << 20) as f64;

/// A block of the ideal.
const BLOCK: usize = 16 * 1024;

const SYSTEMS: [System; 4] = [
    System::disk(Kind::Terrace),
    System::disk(Kind::RocksDbZstd),
    System::disk(Kind::RocksDbTuned),
    System::disk(Kind::RocksDb),
];

/// What rows look like.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Rows {
    /// Sysbench's: groups of digits.
    Sysbench,
    /// Order lines: numbers, dates, prices, words.
    Orders,
}

impl Rows {
    fn name(self) -> &'static str {
        match self {
            Rows::Sysbench => "sysbench-like rows",
            Rows::Orders => "order-like rows",
        }
    }

    fn row(self, random: &mut Random) -> String {
        match self {
            Rows::Sysbench => {
                let mut group = || format!("{:011}", random.below(100_000_000_000));
                let groups: Vec<String> = (0..15).map(|_| group()).collect();
                groups.join("-")
            }
            Rows::Orders => {
                const WORDS: [&str; 8] =
                    ["amber", "brook", "cedar", "delta", "ember", "fjord", "grove", "heath"];
                let word = |random: &mut Random| WORDS[random.below(8) as usize];
                let words: Vec<&str> = (0..4).map(|_| word(random)).collect();
                format!(
                    "{:010}|{:04}|2026-{:02}-{:02} {:02}:{:02}:00|{}|{}.{:02}|{}|OPEN|EUR",
                    random.below(3_000_000),
                    random.below(1000),
                    1 + random.below(12),
                    1 + random.below(28),
                    random.below(24),
                    random.below(60),
                    1 + random.below(10),
                    random.below(10_000),
                    random.below(100),
                    words.join(" "),
                )
            }
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    memory: Memory,
    rows: Rows,
    records: u64,
    seed: u64,
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let write = settings.pick(2 << 20, 16 << 20, 32 << 20);
    let memory = load.memory(Memory { write, cache: write });
    let most = settings.pick(2, SYSTEMS.len(), SYSTEMS.len());
    for rows in [Rows::Sysbench, Rows::Orders] {
        let row = 8 + rows.row(&mut Random::new(settings.seed)).len() as u64;
        // A tenth more than eight times: rows differ in length.
        let records = load.records.unwrap_or(8 * memory.all() / row * 11 / 10);
        let cell = |system| Cell { system, memory, rows, records, seed: settings.seed };
        for system in System::there(&SYSTEMS, settings, report).into_iter().take(most) {
            if settings.wants(rows.name(), &system.name()) {
                isolated::run_bounded(settings, report, FIGURE, (system, memory), &cell(system))?;
            }
        }
        let of = |report: &Report, kind: Kind| {
            report.median(rows.name(), kind.name(), "closed").unwrap_or(f64::NAN)
        };
        // Here and not beside a store: it takes memory that the store was not given.
        let ideal = ideal(&cell(SYSTEMS[0]))? as f64 / MIB;
        for System { kind, .. } in SYSTEMS.into_iter().take(most) {
            report.add(rows.name(), kind.name(), "of ideal", of(report, kind) / ideal, "×");
        }
        let share = of(report, Kind::Terrace) / of(report, Kind::RocksDbZstd);
        report.add(rows.name(), Kind::Terrace.name(), "of rocksdb-zstd", share, "×");
    }
    Ok(())
}

/// In a process of its own.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    let home = cell.system.home(dir)?;
    let device = Device::of(&home.path())?;
    let before = device.as_ref().map(Device::traffic).transpose()?;
    let (stop, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(disk_usage(&home.path())?, Ordering::Relaxed);
                let_work(Duration::from_millis(20));
            }
            anyhow::Ok(())
        });
        let filled = fill(&cell, &home, report);
        stop.store(true, Ordering::Relaxed);
        watch.join().expect("no panic")?;
        filled
    })?;
    let (case, system) = (cell.rows.name(), &cell.system.name());
    report.add(case, system, "peak memory", peak_memory()? as f64 / MIB, "MiB");
    let closed = disk_usage(&home.path())? as f64;
    report.add(case, system, "closed", closed / MIB, "MiB");
    report.add(case, system, "peak", peak.into_inner() as f64 / MIB, "MiB");
    if let (Some(device), Some(before)) = (device, before) {
        let written = device.traffic()?.since(before).written;
        report.add(case, system, "device bytes", written as f64 / MIB, "MiB");
    }
    Ok(())
}

/// The row with a number, and a version: what it holds is the same for all systems.
fn row(cell: &Cell, n: u64, version: u64) -> String {
    let mut random = Random::new(cell.seed ^ n << 8 ^ version);
    cell.rows.row(&mut random)
}

fn fill(cell: &Cell, home: &crate::stores::Home, report: &mut Report) -> Result<()> {
    let store = cell.system.open(home, cell.memory, report)?;
    for n in 0..cell.records {
        store.put(&key(n), row(cell, n, 0).as_bytes(), false)?;
    }
    for n in (0..cell.records).step_by(2) {
        store.put(&key(n), row(cell, n, 1).as_bytes(), false)?;
    }
    store.rest()
}

/// Bytes of the rows that are left, compressed as they are sorted.
fn ideal(cell: &Cell) -> Result<u64> {
    let mut keys: Vec<([u8; 8], u64)> = (0..cell.records).map(|n| (key(n), n)).collect();
    keys.sort_unstable();
    let (mut block, mut bytes) = (Vec::new(), 0);
    for (key, n) in keys {
        block.extend_from_slice(&key);
        block.extend_from_slice(row(cell, n, u64::from(n % 2 == 0)).as_bytes());
        if block.len() >= BLOCK {
            bytes += zstd::bulk::compress(&block, 1)?.len() as u64;
            block.clear();
        }
    }
    Ok(bytes + zstd::bulk::compress(&block, 1)?.len() as u64)
}
