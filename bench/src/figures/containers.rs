//! `containers`: the three containers of level 0 beside RocksDB, on disk and with its level 0 on
//! tmpfs, by the workloads of MatrixKV's authors ("MatrixKV: Reducing Write Stalls and Write
//! Amplification in LSM-tree Based KV Stores with Matrix Container in NVM", ATC 2020). Theirs is 80
//! GB of data beside 8 GB of level 0. This figure takes ten times level 0 too. The regions of
//! emulated systems lie on tmpfs, as theirs lie in persistent memory.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::ycsb::cell as ycsb;
use super::ycsb::workload::WORKLOADS;
use crate::Settings;
use crate::drive::{Drive, Seen, Until};
use crate::isolated;
use crate::keys::{Values, key};
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Jobs, Kind, Memory, Store, System};

const FIGURE: &str = "containers";

const MIB: f64 = (1 << 20) as f64;

const SYSTEMS: [System; 7] = [
    System::disk(Kind::TerraceEmulated),
    System::disk(Kind::TerraceMatrix),
    System::disk(Kind::TerraceTriangle),
    System::disk(Kind::RocksDbScaled),
    System::disk(Kind::RocksDbLevel0Tmpfs),
    System::disk(Kind::TerraceMatrixFile),
    System::disk(Kind::TerraceTriangleFile),
];

/// Those whose reads of level 0 alone are measured.
const IN_LEVEL0: [System; 4] = [
    System::disk(Kind::TerraceEmulated),
    System::disk(Kind::TerraceMatrix),
    System::disk(Kind::TerraceTriangle),
    System::disk(Kind::RocksDbPiled),
];

/// Bytes of a value in everything but the fills of other sizes.
const VALUE: usize = 4096;

/// The reads of level 0 by hints, and without.
const READS: &str = "reads of level 0";
const READS_WITHOUT: &str = "reads of level 0, hints off";

/// Ranges of level 0 by hints, and without: short ones, which are searches more than reads.
const RANGES: &str = "ranges of level 0";
const RANGES_WITHOUT: &str = "ranges of level 0, hints off";

/// Rows in a long range, and in a short one.
const LONG_RANGE: usize = 1000;
const SHORT_RANGE: usize = 10;

/// How many files RocksDB's level 0 piles up.
const FILES: u64 = 16;

/// In which order keys come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Order {
    Random,
    Sequential,
}

/// One system's part.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Part {
    /// Fills a store, and reads from it if there is time given for that.
    Fill {
        order: Order,
        read_millis: Option<u64>,
        common: Common,
    },
    /// Reads from a store all of which is in level 0.
    Level0 {
        millis: u64,
        common: Common,
    },
    Ycsb(ycsb::Cell),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Common {
    system: System,
    memory: Memory,
    records: u64,
    value: usize,
    threads: u64,
    seed: u64,
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let memory = |mib: u64| Memory { write: mib << 20, cache: mib << 20 };
    let memory = settings.load.memory(settings.pick(memory(4), memory(16), memory(64)));
    let turnovers = settings.pick(2, 10, 10);
    let values: &[usize] = settings.pick(
        &[VALUE],
        &[64, VALUE, 64 << 10],
        &[64, 256, 1024, VALUE, 16 << 10, 64 << 10],
    );
    let rounds = settings.rounds_within(1).min(3);
    for _ in 0..if settings.quick { 1 } else { rounds } {
        let systems = System::there(&SYSTEMS, settings, report);
        let most = settings.pick(5, 5, systems.len());
        for system in systems.into_iter().take(most) {
            for value in values {
                fills(settings, report, (system, memory), (*value, turnovers))?;
            }
            workloads(settings, report, (system, memory), turnovers)?;
        }
        for system in System::there(&IN_LEVEL0, settings, report) {
            let wants = settings.wants(READS, &system.name());
            let records = memory.write / 5 / (16 + VALUE as u64);
            let common = common(settings, (system, memory), (records, VALUE));
            if wants {
                let part = Part::Level0 { millis: settings.pick(250, 1000, 5000), common };
                isolated::run(settings, report, FIGURE, &part)?;
            }
        }
    }
    ratios(report);
    Ok(())
}

fn common(
    settings: &Settings,
    (system, memory): (System, Memory),
    (records, value): (u64, usize),
) -> Common {
    let (threads, seed) = (settings.load.threads.unwrap_or(1), settings.seed);
    Common { system, memory, records, value, threads, seed }
}

fn case(order: Order, value: usize) -> String {
    let name = if order == Order::Random { "fillrandom" } else { "fillseq" };
    format!("{name}, {value} B")
}

/// Fills by both orders, and reads what came of the first if values are as large as usual.
fn fills(
    settings: &Settings,
    report: &mut Report,
    (system, memory): (System, Memory),
    (value, turnovers): (usize, u64),
) -> Result<()> {
    let records = turnovers * memory.write / (16 + value as u64);
    for order in [Order::Random, Order::Sequential] {
        if !settings.wants(&case(order, value), &system.name()) {
            continue;
        }
        let reads = order == Order::Random && value == VALUE;
        let read_millis = reads.then(|| settings.pick(250, 1000, 5000));
        let common = common(settings, (system, memory), (records, value));
        let part = Part::Fill { order, read_millis, common };
        isolated::run_bounded(settings, report, FIGURE, (system, memory), &part)?;
    }
    Ok(())
}

/// A to F, and A at a rate that all of them have to keep up with.
fn workloads(
    settings: &Settings,
    report: &mut Report,
    (system, memory): (System, Memory),
    turnovers: u64,
) -> Result<()> {
    let millis = settings.load.time(Duration::from_millis(settings.pick(250, 2000, 10_000)));
    let phase = |workload: super::ycsb::workload::Workload, rate: Option<f64>| ycsb::Phase {
        case: match rate {
            Some(rate) => format!("{} at {rate} a second", workload.name),
            None => workload.name.to_string(),
        },
        workload,
        distribution: workload.distribution,
        threads: settings.load.threads.unwrap_or(2),
        rate,
        until: ycsb::End::Millis(millis.as_millis() as u64),
    };
    let rate = settings.load.rate.unwrap_or(f64::from(settings.pick(200, 2000, 2000)));
    let mut phases: Vec<_> = WORKLOADS.map(|workload| phase(workload, None)).to_vec();
    phases.insert(1, ycsb::Phase { ..phase(WORKLOADS[0], Some(rate)) });
    phases.retain(|phase| settings.wants(&phase.case, &system.name()));
    if phases.is_empty() {
        return Ok(());
    }
    let cell = ycsb::Cell {
        system,
        memory,
        records: turnovers * memory.write / (8 + VALUE as u64),
        value: VALUE,
        durable: false,
        seed: settings.seed,
        phases,
    };
    isolated::run_bounded(settings, report, FIGURE, (system, memory), &Part::Ycsb(cell))
}

/// In a process of its own.
pub(crate) fn cell(text: &str, dir: &Path, report: &mut Report) -> Result<()> {
    match isolated::read(text)? {
        Part::Fill { order, read_millis, common } => {
            let home = common.system.home(dir)?;
            let store = common.system.open(&home, common.memory, report)?;
            fill(&*store, order, &common, report)?;
            if let Some(millis) = read_millis {
                store.rest()?;
                reads(&*store, millis, &common, report)?;
            }
        }
        Part::Level0 { millis, common } => level0(millis, &common, dir, report)?,
        Part::Ycsb(cell) => ycsb::measure(&serde_json::to_string(&cell)?, dir, report)?,
    }
    Ok(())
}

/// Sixteen bytes: scattered, or in the order of numbers.
fn key_of(order: Order, n: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    if order == Order::Random {
        bytes[..8].copy_from_slice(&key(n));
    }
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    bytes
}

/// Each record once in order, or as many at random.
fn fill(store: &dyn Store, order: Order, common: &Common, report: &mut Report) -> Result<()> {
    let Common { records, threads, seed, value, .. } = *common;
    let values = Values::new(value);
    let until = Until::Operations(records);
    let seen = Drive { threads, until, rate: None }.run(|thread| {
        let (mut random, mut next) = (Random::new(seed ^ (thread + 1) << 40), thread);
        let values = &values;
        move || {
            let n = if order == Order::Random { random.below(records) } else { next };
            next += threads;
            store.put(&key_of(order, n), values.draw(&mut random), false)
        }
    })?;
    let (case, system) = (case(order, value), common.system.name());
    report.seen(&case, &system, &seen);
    // What was put off is part of it.
    store.catch_up()?;
    if let Some(jobs) = store.jobs()? {
        tell(report, (&case, &system), &jobs, (16 + value as u64) * seen.operations);
    }
    Ok(())
}

/// The jobs of a store that was sent so many bytes.
fn tell(report: &mut Report, (case, system): (&str, &str), jobs: &Jobs, user: u64) {
    let each = |of: f64| of / jobs.count.max(1) as f64;
    report.add(case, system, "level 0 jobs", jobs.count as f64, "jobs");
    report.add(case, system, "bytes a job", each(jobs.bytes as f64) / MIB, "MiB");
    report.add(case, system, "time a job", each(jobs.seconds) * 1e3, "ms");
    if let Some(searching) = jobs.searching {
        // What threads that share the rows of a column could save at most.
        report.add(case, system, "search of rows a job", each(searching) * 1e3, "ms");
        let share = searching / jobs.seconds.max(f64::MIN_POSITIVE);
        report.add(case, system, "search of rows, of jobs", share * 100.0, "%");
    }
    for (level, bytes) in jobs.written.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        let name = format!("written to level {level}");
        report.add(case, system, &name, *bytes as f64 / user as f64, "B/B");
    }
    report.add(case, system, "depth", jobs.depth as f64, "levels");
    if let Some(used) = jobs.pm_used {
        report.add(case, system, "region taken", used * 100.0, "%");
    }
    if let Some(rows) = jobs.in_rows {
        report.add(case, system, "region in row tables", rows * 100.0, "%");
    }
}

/// Random reads, and then ranges.
fn reads(store: &dyn Store, millis: u64, common: &Common, report: &mut Report) -> Result<()> {
    let time = Duration::from_millis(millis);
    let seen = points(store, time, common)?;
    let system = common.system.name();
    report.seen(&format!("readrandom, {} B", common.value), &system, &seen);
    let rate = ranges(store, time, common, LONG_RANGE)?;
    report.add(&format!("readseq, {} B", common.value), &system, "throughput", rate, "op/s");
    Ok(())
}

/// Reads ranges of so many rows from random keys on; rows a second.
fn ranges(store: &dyn Store, time: Duration, common: &Common, rows: usize) -> Result<f64> {
    let (mut read, mut from) = (0, [0; 16]);
    let mut random = Random::new(common.seed);
    let begin = std::time::Instant::now();
    while begin.elapsed() < time {
        read += store.scan(&from, rows)?;
        from = key_of(Order::Random, random.below(common.records));
    }
    Ok(read as f64 / begin.elapsed().as_secs_f64())
}

/// Looks random keys up: those that fills at random have left out are not there.
fn points(store: &dyn Store, time: Duration, common: &Common) -> Result<Seen> {
    Drive::closed(common.threads, time).run(|thread| {
        let mut random = Random::new(common.seed ^ (thread + 1) << 20);
        move || {
            let n = random.below(common.records);
            std::hint::black_box(store.get(&key_of(Order::Random, n))?);
            Ok(())
        }
    })
}

/// Reads of a fifth of what the region holds; by hints and without where there are some.
fn level0(millis: u64, common: &Common, dir: &Path, report: &mut Report) -> Result<()> {
    let home = common.system.home(dir)?;
    let store = common.system.open(&home, common.memory, report)?;
    let (values, mut random) = (Values::new(common.value), Random::new(common.seed));
    for n in 0..common.records {
        let n = n * 7919 % common.records;
        store.put(&key_of(Order::Random, n), values.draw(&mut random), false)?;
        if (n + 1).is_multiple_of((common.records / FILES).max(1)) {
            store.seal()?;
        }
    }
    store.catch_up()?;
    let jobs = store.jobs()?.filter(|_| common.system.kind != Kind::RocksDbPiled);
    let (time, system) = (Duration::from_millis(millis), common.system.name());
    if jobs.is_some_and(|jobs| jobs.count > 0) {
        report.skipped(&format!("{system}: {READS}: not all of it stayed there"));
        return Ok(());
    }
    let measure = |report: &mut Report, (reads, of_ranges): (&str, &str)| -> Result<()> {
        report.seen(reads, &system, &points(&*store, time, common)?);
        let rate = ranges(&*store, time, common, SHORT_RANGE)?;
        report.add(of_ranges, &system, "throughput", rate, "op/s");
        Ok(())
    };
    measure(report, (READS, RANGES))?;
    if matches!(common.system.kind, Kind::TerraceMatrix | Kind::TerraceTriangle) {
        terrace::bench::follow_hints(false);
        let without = measure(report, (READS_WITHOUT, RANGES_WITHOUT));
        terrace::bench::follow_hints(true);
        without?;
    }
    Ok(())
}

/// What the source has figures for.
fn ratios(report: &mut Report) {
    const OF_ROCKSDB: &str = "of RocksDB's";
    for kind in [Kind::TerraceMatrix, Kind::TerraceTriangle] {
        for (with, without) in [(READS, READS_WITHOUT), (RANGES, RANGES_WITHOUT)] {
            over(report, (with, kind, "hints on of off"), (without, kind), None);
            let paper = (with == READS).then_some(17.5);
            over(report, (with, kind, OF_ROCKSDB), (with, Kind::RocksDbPiled), paper);
        }
        let case = case(Order::Random, VALUE);
        let paper = (kind == Kind::TerraceMatrix).then_some(3.6);
        over(report, (&case, kind, OF_ROCKSDB), (&case, Kind::RocksDbScaled), paper);
    }
    let case = case(Order::Random, VALUE);
    let triangle = (case.as_str(), Kind::TerraceTriangle, "of the matrix's");
    over(report, triangle, (&case, Kind::TerraceMatrix), Some(1.4));
}

/// Adds how many times as fast one case of a system is as another, where both were measured; beside
/// what the source has.
fn over(
    report: &mut Report,
    (case, kind, metric): (&str, Kind, &str),
    (other, than): (&str, Kind),
    paper: Option<f64>,
) {
    let of = |case: &str, kind: Kind| report.median(case, kind.name(), "throughput");
    let (Some(ours), Some(theirs)) = (of(case, kind), of(other, than)) else { return };
    report.add(case, kind.name(), metric, ours / theirs, "×");
    if let Some(paper) = paper {
        report.paper(case, kind.name(), metric, paper);
    }
}
