//! `queue`: rows come at the tail of a queue and go at its head, at a fixed rate, and its head is
//! read again and again. A store whose deletes stay in front of the head reads it ever more slowly.
//! The 50th and the 99th percentile of a read of the head, for each window of ten seconds.
//!
//! Two cases: a read from the first key of all, and one from the last head on. The latter is what a
//! user of RocksDB is told to do (a lower bound of the iterator); its collector that compacts on
//! deletes (`CompactOnDeletionCollector`) is not in the crate that this bench is built with.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::isolated;
use crate::keys::Values;
use crate::latency::{Latency, let_work};
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory, Store, System, load};

const FIGURE: &str = "queue";

const SYSTEMS: [System; 3] =
    [System::disk(Kind::Terrace), System::disk(Kind::RocksDb), System::disk(Kind::RocksDbTuned)];

/// Rows that wait in the queue.
const WAITING: u64 = 20_000;

/// Of so many rows that go through, one read of the head.
const READ_EVERY: u64 = 10;

/// How often what is due is done.
const TICK: Duration = Duration::from_millis(1);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    memory: Memory,
    value: usize,
    /// Rows a second.
    rate: u64,
    millis: u64,
    window_millis: u64,
    /// Whether a read begins at the last head instead of at the first key of all.
    from_head: bool,
    case: String,
    seed: u64,
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let whole = Memory { write: 128 << 20, cache: 128 << 20 };
    let quick = Memory { write: 8 << 20, cache: 8 << 20 };
    let (memory, seconds, window) =
        settings.pick((quick, 20, 2), (whole, 60, 10), (whole, 600, 10));
    let systems = System::there(&SYSTEMS, settings, report);
    for from_head in [false, true] {
        for system in &systems {
            let how = if from_head { "from the last head" } else { "from the first key" };
            let cell = Cell {
                system: *system,
                memory: load.memory(memory),
                value: load.value.unwrap_or(100),
                rate: 10_000,
                millis: load.time(Duration::from_secs(seconds)).as_millis() as u64,
                window_millis: window * 1000,
                from_head,
                case: format!("head of a queue, {how}"),
                seed: settings.seed,
            };
            if settings.wants(&cell.case, &system.name()) {
                isolated::run(settings, report, FIGURE, &cell)?;
            }
        }
    }
    Ok(())
}

/// In a process of its own.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    let home = cell.system.home(dir)?;
    let store = cell.system.open(&home, cell.memory, report)?;
    let windows = drive(&*store, &cell)?;
    let (case, system) = (&cell.case, &cell.system.name());
    let of = |quantile: f64| windows.iter().map(move |window| window.micros(quantile));
    let rows: Vec<Vec<f64>> = (0..)
        .zip(of(0.5).zip(of(0.99)))
        .map(|(n, (p50, p99))| vec![f64::from(n) * cell.window_millis as f64 / 1e3, p50, p99])
        .collect();
    report.series(case, system, &["second", "p50 in us", "p99 in us"], &rows);
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let (first, last) = (of(quantile).next(), of(quantile).next_back());
        report.add(case, system, &format!("{name}, first window"), first.unwrap_or(0.0), "us");
        report.add(case, system, &format!("{name}, last window"), last.unwrap_or(0.0), "us");
        let worst = of(quantile).fold(0.0, f64::max);
        report.add(case, system, &format!("{name}, worst window"), worst, "us");
    }
    Ok(())
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Sends rows through the queue; the latencies of reads of its head, by window.
fn drive(store: &dyn Store, cell: &Cell) -> Result<Vec<Latency>> {
    let values = Values::new(cell.value);
    let mut random = Random::new(cell.seed);
    load(store, WAITING, &values, &mut random)?;
    let (began, mut sent) = (Instant::now(), 0u64);
    let mut windows: Vec<Latency> = Vec::new();
    let end = Duration::from_millis(cell.millis);
    while began.elapsed() < end {
        let due = began.elapsed().as_micros() as u64 * cell.rate / 1_000_000;
        while sent < due {
            store.put(&key(WAITING + sent), values.draw(&mut random), false)?;
            store.delete(&key(sent))?;
            sent += 1;
            if sent.is_multiple_of(READ_EVERY) {
                let window = began.elapsed().as_millis() as u64 / cell.window_millis;
                windows.resize_with(windows.len().max(window as usize + 1), Latency::new);
                let from = key(if cell.from_head { sent } else { 0 });
                let before = Instant::now();
                ensure!(store.scan(&from, 1)? == 1, "the head is there");
                windows[window as usize].record(before.elapsed());
            }
        }
        let_work(TICK);
    }
    Ok(windows)
}
