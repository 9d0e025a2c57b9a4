//! `ycsb`: workloads A to F of the Yahoo cloud serving benchmark, on Terrace and every peer that
//! is built in; 8-byte keys and 500-byte values, as the source has them.
//!
//! Two settings. **In memory**: the data fits in what each store may cache. **Larger**: at least
//! four times as much data as each store's memory for writes and reads together, and turned over
//! three times, so that what was put off has to be done. At last popular rows are read there: the
//! share of level 1 in what the levels on disk answer says whether what is hot stays up.

pub(crate) mod cell;
pub(crate) mod workload;

use anyhow::{Result, ensure};
use cell::{Cell, End, Phase};
use workload::{WORKLOADS, Workload};

use crate::Settings;
use crate::isolated;
use crate::keys::Distribution;
use crate::report::Report;
use crate::stores::{Kind, Memory, System};

const FIGURE: &str = "ycsb";

/// Every store as it stands on disk.
const ON_DISK: [System; 10] = [
    System::disk(Kind::Terrace),
    System::disk(Kind::TerraceEmulated),
    System::disk(Kind::TerraceDelayed),
    System::disk(Kind::RocksDb),
    System::disk(Kind::RocksDbTuned),
    System::disk(Kind::Fjall),
    System::disk(Kind::FjallTuned),
    System::disk(Kind::Redb),
    System::disk(Kind::Lmdb),
    System::disk(Kind::LmdbTuned),
];

/// Those that a memory without syncs is a fair field for.
const ON_TMPFS: [System; 3] =
    [System::tmpfs(Kind::RocksDb), System::tmpfs(Kind::RocksDbTuned), System::tmpfs(Kind::Fjall)];

/// Those that are made for data that does not fit in memory.
const LARGER: [System; 8] = [
    System::disk(Kind::Terrace),
    System::disk(Kind::TerraceEmulated),
    System::disk(Kind::RocksDb),
    System::disk(Kind::RocksDbTuned),
    System::tmpfs(Kind::RocksDbTuned),
    System::disk(Kind::TerraceDelayed),
    System::disk(Kind::Fjall),
    System::disk(Kind::FjallTuned),
];

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let asked = settings.load.workloads.as_deref().unwrap_or_default();
    let unknown = asked.chars().find(|letter| Workload::of(*letter).is_none());
    ensure!(unknown.is_none(), "there is no workload {:?}; there are A to F", unknown);
    for _ in 0..settings.rounds_within(2) {
        for system in System::there(&ON_DISK, settings, report) {
            // As quick as can be: the variants of a store are left to the whole run.
            let variant = [Kind::TerraceDelayed, Kind::FjallTuned, Kind::LmdbTuned];
            if settings.quick && variant.contains(&system.kind) {
                continue;
            }
            for durable in [false, true] {
                in_memory(settings, report, system, durable)?;
            }
        }
        for system in System::there(&ON_TMPFS, settings, report) {
            in_memory(settings, report, system, true)?;
        }
    }
    // A turnover of all the data is a sample of its own: fewer rounds.
    for _ in 0..if settings.quick || settings.in_report { 1 } else { 2 } {
        let systems = System::there(&LARGER, settings, report);
        let most = settings.pick(3, 5, systems.len());
        for system in systems.into_iter().take(most) {
            larger(settings, report, system)?;
        }
    }
    Ok(())
}

/// The workloads and distributions asked for: each workload's own, and in a whole run A and C
/// uniform too.
fn chosen(settings: &Settings, letters: &str) -> Vec<(Workload, Distribution)> {
    let load = &settings.load;
    let asked = load.workloads.as_deref().unwrap_or(letters);
    let workloads = || WORKLOADS.into_iter().filter(|w| asked.contains(w.name));
    let own = |w: Workload| (w, load.distribution.unwrap_or(w.distribution));
    let both = |w: &Workload| {
        "AC".contains(w.name) && letters.len() > 1 && !settings.quick && load.distribution.is_none()
    };
    let uniform = workloads().filter(both).map(|w| (w, Distribution::Uniform));
    workloads().map(own).chain(uniform).collect()
}

/// The name of a case: a distribution that is not the workload's own is named.
fn case(workload: &Workload, distribution: Distribution, rest: &str) -> String {
    match distribution == workload.distribution {
        true => format!("{} {rest}", workload.name),
        false => format!("{} {} {rest}", workload.name, distribution.name()),
    }
}

fn in_memory(
    settings: &Settings,
    report: &mut Report,
    system: System,
    durable: bool,
) -> Result<()> {
    let load = &settings.load;
    let letters = match (system.on_tmpfs, settings.quick && durable) {
        (true, _) => "A",
        (false, true) => "A",
        (false, false) => "ABCDEF",
    };
    let sync = if durable { "durable" } else { "unsynced" };
    let threads = load.threads.unwrap_or(if durable { 16 } else { 2 });
    let time = std::time::Duration::from_millis(settings.pick(300, 700, 2000));
    let until = End::Millis(load.time(time).as_millis() as u64);
    let phase = |(workload, distribution): (Workload, Distribution)| {
        let mut rest = format!("in memory, {sync}");
        load.rate.into_iter().for_each(|rate| rest += &format!(", open loop at {rate}/s"));
        let case = case(&workload, distribution, &rest);
        Phase { case, workload, distribution, threads, rate: load.rate, until }
    };
    let mut phases: Vec<Phase> = chosen(settings, letters).into_iter().map(phase).collect();
    if let (None, true, Some(a)) = (load.rate, durable, phases.first().cloned()) {
        // The same load for all stores, which all but the slowest can carry.
        let rate = 4000.0;
        phases.push(Phase { case: format!("{}, at {rate}/s", a.case), rate: Some(rate), ..a });
    }
    if load.rate.is_none() && durable && !system.on_tmpfs {
        // Nothing but writes, alone and in company.
        phases.extend([(1, "1 client"), (16, "16 clients")].map(|(threads, clients)| Phase {
            case: format!("puts in memory, durable, {clients}"),
            workload: Workload::UPDATES,
            distribution: Distribution::Uniform,
            threads,
            rate: None,
            until,
        }));
    }
    run(settings, report, system, durable, MEMORY, RECORDS, phases)
}

/// In memory, all of the records are, quick or not.
const MEMORY: Memory = Memory { write: 256 << 20, cache: 512 << 20 };

/// As many as the figure loads, quick and whole.
const RECORDS: [u64; 2] = [30_000, 400_000];

fn larger(settings: &Settings, report: &mut Report, system: System) -> Result<()> {
    let load = &settings.load;
    let whole = Memory { write: 16 << 20, cache: 44 << 20 };
    let quick = Memory { write: 3 << 20, cache: 7 << 20 };
    let memory = load.memory(if settings.quick { quick } else { whole });
    let value = load.value.unwrap_or(VALUE) as u64;
    let records = 4 * (memory.write + memory.cache) / (8 + value) + 1;
    let times = if settings.quick { 1.0 } else { 3.0 };
    let turned = if settings.quick { "quick: turned over once" } else { "turned over 3 times" };
    let threads = load.threads.unwrap_or(2);
    let reads_for = load.time(std::time::Duration::from_secs(if settings.quick { 1 } else { 10 }));
    let mut phases = Vec::new();
    for (workload, own) in chosen(settings, "A") {
        let both = [Distribution::Uniform, own];
        let distributions = if own == Distribution::Uniform { &both[..1] } else { &both };
        for distribution in distributions {
            let rest = format!("larger, unsynced ({turned})");
            let until = match workload.writes() > 0.0 {
                true => End::Turnovers(times),
                false => End::Millis(reads_for.as_millis() as u64),
            };
            phases.push(Phase {
                case: case(&workload, *distribution, &rest),
                workload,
                distribution: *distribution,
                threads,
                rate: load.rate,
                until,
            });
        }
    }
    if load.workloads.is_none() && system == System::disk(Kind::Terrace) {
        // Nothing but reads of what a few keys are popular in: which level answers them.
        let reads = Workload::of('C');
        phases.extend(reads.map(|workload| Phase {
            case: case(&workload, Distribution::Zipfian, "larger, unsynced"),
            workload,
            distribution: Distribution::Zipfian,
            threads,
            rate: None,
            until: End::Millis(reads_for.as_millis() as u64),
        }));
    }
    run(settings, report, system, false, memory, [records; 2], phases)
}

const VALUE: usize = 500;

fn run(
    settings: &Settings,
    report: &mut Report,
    system: System,
    durable: bool,
    memory: Memory,
    records: [u64; 2],
    mut phases: Vec<Phase>,
) -> Result<()> {
    phases.retain(|phase| settings.wants(&phase.case, &system.name()));
    if phases.is_empty() {
        return Ok(());
    }
    let load = &settings.load;
    let cell = Cell {
        system,
        memory: load.memory(memory),
        records: load.records.unwrap_or(records[usize::from(!settings.quick)]),
        value: load.value.unwrap_or(VALUE),
        durable,
        seed: settings.seed,
        phases,
    };
    // In memory, all of the data is, and its files may be too.
    let fits = cell.records * (8 + cell.value as u64) <= cell.memory.all();
    match fits {
        true => isolated::run(settings, report, FIGURE, &cell),
        false => {
            let (system, memory) = (cell.system, cell.memory);
            isolated::run_bounded(settings, report, FIGURE, (system, memory), &cell)
        }
    }
}
