//! `scan`: ranges of 100 and of 100,000 rows, up and down, over data eight times as large as each
//! store's memory, the system's cache of its files included.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::drive::Drive;
use crate::isolated;
use crate::kernel::peak_memory;
use crate::keys::Values;
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory, System, load};

const FIGURE: &str = "scan";

const MIB: f64 = (1 << 20) as f64;

/// In how many parts each kind of range is measured.
const TURNS: usize = 10;

/// Those that take minutes to load keys in no order come last: a report has no time for them.
const SYSTEMS: [System; 7] = [
    System::disk(Kind::Terrace),
    System::disk(Kind::RocksDb),
    System::disk(Kind::RocksDbTuned),
    System::disk(Kind::TerraceEmulated),
    System::disk(Kind::Fjall),
    System::disk(Kind::Redb),
    System::disk(Kind::Lmdb),
];

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    memory: Memory,
    records: u64,
    value: usize,
    threads: u64,
    millis: u64,
    seed: u64,
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let (buffer, millis) = settings.pick((2 << 20, 300), (16 << 20, 3000), (32 << 20, 3000));
    let memory = Memory { write: buffer, cache: buffer };
    let (memory, value) = (load.memory(memory), load.value.unwrap_or(200));
    let eight_times = 8 * memory.all() / (8 + value as u64);
    for _ in 0..settings.rounds_within(1) {
        let systems = System::there(&SYSTEMS, settings, report);
        let most = settings.pick(3, 5, systems.len());
        for system in systems.into_iter().take(most) {
            let cell = Cell {
                system,
                memory,
                records: load.records.unwrap_or(eight_times),
                value,
                threads: load.threads.unwrap_or(1),
                millis: load.time(Duration::from_millis(millis)).as_millis() as u64,
                seed: settings.seed,
            };
            if settings.wants("rows up down", &system.name()) {
                isolated::run_bounded(settings, report, FIGURE, (system, memory), &cell)?;
            }
        }
    }
    for system in SYSTEMS {
        for rows in ["100 rows", "100000 rows"] {
            let rate = |report: &Report, way: &str| {
                let case = format!("{rows} {way}");
                report.median(&case, &system.name(), "throughput").unwrap_or(f64::NAN)
            };
            let of_up = rate(report, "down") / rate(report, "up");
            report.add(&format!("{rows} down"), &system.name(), "of up", of_up, "×");
        }
    }
    Ok(())
}

/// In a process of its own.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    let cell: Cell = isolated::read(text)?;
    let home = cell.system.home(dir)?;
    let store = cell.system.open(&home, cell.memory, report)?;
    let values = Values::new(cell.value);
    let mut random = Random::new(cell.seed);
    load(&*store, cell.records, &values, &mut random)?;
    store.rest()?;
    let all = store.scan(&[0], usize::MAX)?;
    ensure!(all as u64 == cell.records, "{all} of {} rows were found", cell.records);
    // Both ways in turn, so that what the machine does meanwhile does it to both.
    let ways = [(100, true), (100, false), (100_000, true), (100_000, false)];
    for (rows, up) in ways.into_iter().cycle().take(TURNS * ways.len()) {
        let drive = Drive::closed(cell.threads, Duration::from_millis(cell.millis / TURNS as u64));
        let seen = drive.run(|thread| {
            let mut random = Random::new(cell.seed ^ (thread + 1) << 40);
            let store = &store;
            move || {
                // Far enough from the end for all of the rows, as a rule.
                let room = (rows as u64).min(cell.records / 2) * (u64::MAX / cell.records);
                let from = random.below(u64::MAX - room);
                let found = match up {
                    true => store.scan(&from.to_be_bytes(), rows)?,
                    false => store.scan_back(&(u64::MAX - from).to_be_bytes(), rows)?,
                };
                ensure!(found > rows.min(cell.records as usize) / 4, "{found} rows in a range");
                Ok(())
            }
        })?;
        let case = format!("{rows} rows {}", if up { "up" } else { "down" });
        let system = cell.system.name();
        report.add(&case, &system, "throughput", seen.rate() * rows as f64 / 1e6, "Mrow/s");
        report.latency(&case, &system, &seen.latency);
        report.add(&case, &system, "peak memory", peak_memory()? as f64 / MIB, "MiB");
    }
    Ok(())
}
