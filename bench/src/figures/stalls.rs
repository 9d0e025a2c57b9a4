//! `stalls`: values of 4 KiB at random, with memory for an eighth of the data, the system's cache
//! of its files included; a whole run ends when ten minutes are over and all of it has been written
//! five times over. Throughput each 100 ms, the longest write, the longest time without any; beside
//! them what the device and the scheduler did to a thread that does nothing else.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::drive::{Drive, Until};
use crate::kernel::peak_memory;
use crate::keys::{Values, key};
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory, System, load};
use crate::{isolated, probe};

const FIGURE: &str = "stalls";

const MIB: f64 = (1 << 20) as f64;

const SYSTEMS: [System; 4] = [
    System::disk(Kind::Terrace),
    System::disk(Kind::RocksDb),
    System::disk(Kind::RocksDbTuned),
    System::disk(Kind::TerraceEmulated),
];

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    memory: Memory,
    records: u64,
    value: usize,
    threads: u64,
    millis: u64,
    /// Writes that there have to be too before it ends.
    writes: u64,
    case: String,
    seed: u64,
}

/// How many times over everything is written in a whole run, once it is there.
const TURNOVERS: u64 = 5;

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let whole = Memory { write: 32 << 20, cache: 64 << 20 };
    let quick = Memory { write: 4 << 20, cache: 8 << 20 };
    let (memory, seconds) = settings.pick((quick, 2), (whole, 60), (whole, 600));
    let (memory, value) = (load.memory(memory), load.value.unwrap_or(4096));
    let records = load.records.unwrap_or(8 * memory.all() / value as u64);
    let is_whole = !settings.quick && !settings.in_report && load.seconds.is_none();
    let quick = if settings.quick { " (quick: seconds)" } else { "" };
    // Ten minutes are rounds enough.
    let rounds = if settings.quick { settings.rounds } else { 1 };
    for _ in 0..rounds {
        let systems = System::there(&SYSTEMS, settings, report);
        let most = if settings.quick || settings.in_report { 3 } else { systems.len() };
        for system in systems.into_iter().take(most) {
            let cell = Cell {
                system,
                memory,
                records,
                value,
                threads: load.threads.unwrap_or(2),
                millis: load.time(Duration::from_secs(seconds)).as_millis() as u64,
                writes: if is_whole { TURNOVERS * records } else { 0 },
                case: format!("random writes of {value} bytes{quick}"),
                seed: settings.seed,
            };
            if settings.wants(&cell.case, &system.name()) {
                isolated::run_bounded(settings, report, FIGURE, (system, memory), &cell)?;
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
    let values = Values::new(cell.value);
    let mut random = Random::new(cell.seed);
    load(&*store, cell.records, &values, &mut random)?;
    let until = Until::Later(Duration::from_millis(cell.millis), cell.writes);
    let drive = Drive { threads: cell.threads, until, rate: None };
    let (seen, probed) = probe::beside(dir, || {
        drive.run(|thread| {
            let mut random = Random::new(cell.seed ^ (thread + 1) << 40);
            let (store, values) = (&store, &values);
            move || {
                let n = random.below(cell.records);
                store.put(&key(n), values.draw(&mut random), false)
            }
        })
    })?;
    let (case, system) = (&cell.case, &cell.system.name());
    report.seen(case, system, &seen);
    let longest = seen.latency.micros(1.0) / 1e3;
    report.add(case, system, "longest write", longest, "ms");
    let gap = seen.longest_gap_ms() - probed.longest_sync_ms();
    report.add(case, system, "longest gap beyond the probe's", gap.max(0.0), "ms");
    let turnovers = (cell.records + seen.operations) as f64 / cell.records as f64;
    report.add(case, system, "written over", turnovers, "times");
    report.add(case, system, "peak memory", peak_memory()? as f64 / MIB, "MiB");
    probed.publish(report, case, system);
    Ok(())
}
