//! `memory-limit`: an hour of puts, deletes, look-ups and ranges over eight times as much data as
//! the limit. The process's own memory each second, as the operating system counts it, beside the
//! limit. What the region has in memory counts; pages of files that the system caches do not.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::isolated;
use crate::kernel::own_memory;
use crate::keys::{Values, key};
use crate::latency::let_work;
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory, Store, System, load};

const FIGURE: &str = "memory-limit";

const MIB: f64 = (1 << 20) as f64;

/// How often the process's memory is looked at.
const TICK: Duration = Duration::from_secs(1);

/// Threads of the load.
const THREADS: u64 = 2;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    memory: Memory,
    value: usize,
    records: u64,
    millis: u64,
    seed: u64,
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let whole = Memory { write: 64 << 20, cache: 192 << 20 };
    let quick = Memory { write: 16 << 20, cache: 48 << 20 };
    let (memory, seconds) = settings.pick((quick, 20), (whole, 600), (whole, 3600));
    let memory = load.memory(memory);
    let value = load.value.unwrap_or(500);
    let system = System::disk(Kind::Terrace);
    let cell = Cell {
        system,
        memory,
        value,
        records: 8 * (memory.write + memory.cache) / (8 + value as u64),
        millis: load.time(Duration::from_secs(seconds)).as_millis() as u64,
        seed: settings.seed,
    };
    if settings.wants(FIGURE, &system.name()) {
        isolated::run(settings, report, FIGURE, &cell)?;
    }
    Ok(())
}

/// In a process of its own.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    let home = cell.system.home(dir)?;
    let before = own_memory()?;
    let store = cell.system.open(&home, cell.memory, report)?;
    load(&*store, cell.records, &Values::new(cell.value), &mut Random::new(cell.seed))?;
    let rows = drive(&*store, &cell, before)?;
    let (case, system) = ("mixed load, data 8× memory", &cell.system.name());
    report.series(case, system, &["second", "MiB"], &rows);
    let limit = (cell.memory.write + cell.memory.cache) as f64 / MIB;
    let held = || rows.iter().map(|row| row[1]);
    let most = held().fold(0.0, f64::max);
    let last = held().next_back().unwrap_or(0.0);
    report.add(case, system, "limit", limit, "MiB");
    report.add(case, system, "memory of the process, most", most, "MiB");
    report.add(case, system, "memory of the process, last", last, "MiB");
    report.add(case, system, "most, of the limit", 100.0 * most / limit, "%");
    Ok(())
}

/// Threads that read and write at random; what the process held meanwhile, each second.
fn drive(store: &dyn Store, cell: &Cell, before: u64) -> Result<Vec<Vec<f64>>> {
    let (began, is_over) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                scope.spawn({
                    let is_over = &is_over;
                    move || work(store, cell, n, is_over)
                })
            })
            .collect();
        let mut rows = Vec::new();
        while began.elapsed() < Duration::from_millis(cell.millis) {
            let_work(TICK);
            let held = own_memory()?.saturating_sub(before);
            rows.push(vec![began.elapsed().as_secs_f64(), held as f64 / MIB]);
        }
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread of the load panicked"))??;
        }
        Ok(rows)
    })
}

fn work(store: &dyn Store, cell: &Cell, thread: u64, is_over: &AtomicBool) -> Result<()> {
    let values = Values::new(cell.value);
    let mut random = Random::new(cell.seed + 1 + thread);
    while !is_over.load(Ordering::Relaxed) {
        let key = key(random.below(cell.records));
        match random.below(20) {
            0 => store.delete(&key)?,
            1..7 => store.put(&key, values.draw(&mut random), false)?,
            7..18 => drop(store.get(&key)?),
            _ => ensure!(store.scan(&key, 100)? <= 100, "no more rows than were asked for"),
        }
    }
    Ok(())
}
