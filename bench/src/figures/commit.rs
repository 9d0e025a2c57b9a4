//! `commit`: what a commit costs, by threads, records a batch and tables, in each mode; beside
//! bare loops that move the same bytes with nothing around them, or with the index alone.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use terrace::{CommitTuning, Database, Durability, Mode, Options, Stats, WriteBatch};

use crate::Settings;
use crate::latency::{Latency, let_work};
use crate::random::Random;
use crate::report::Report;

/// Bytes of a value; with a key of 8 the source's record of 24 and its header.
const VALUE: usize = 16;

/// How long a case is given to come to the streams that it asks for.
const WARM_UP: Duration = Duration::from_secs(10);

/// One point of the figure.
#[derive(Clone, Copy, Debug)]
struct Case {
    threads: usize,
    batch: usize,
    tables: usize,
}

impl Case {
    fn name(&self) -> String {
        format!("{}×{} in {} tables", self.threads, self.batch, self.tables)
    }
}

/// A system under test.
#[derive(Clone, Copy, Debug)]
struct System {
    name: &'static str,
    mode: Mode,
    tuning: CommitTuning,
    /// How many tables may have a stream of their own.
    own_streams: u32,
}

const EMULATED: Mode = Mode::Emulated { delay: Duration::ZERO };
const PLAIN: CommitTuning = CommitTuning::new();

impl System {
    /// One by default but for so many streams.
    const fn new(name: &'static str, mode: Mode, own_streams: u32) -> System {
        System { name, mode, tuning: PLAIN.own_streams(own_streams), own_streams }
    }

    const fn batches(self, most: u32) -> System {
        System { tuning: self.tuning.group_batches(most), ..self }
    }

    const fn published_rule(self) -> System {
        System { tuning: self.tuning.published_rule(true), ..self }
    }

    /// How many streams a case has: the shared one, and those of tables.
    fn streams(&self, case: Case) -> u32 {
        1 + self.own_streams.min(case.tables as u32)
    }
}

/// The modes as they are by default.
const SYSTEMS: [System; 3] = [
    System::new("terrace-file", Mode::File, 0),
    System::new("terrace-emulated", EMULATED, 8),
    System::new("terrace-emu-300ns", Mode::Emulated { delay: Duration::from_nanos(300) }, 8),
];

/// What can be chosen: which side batches (the caller, or a leader for several), which streams,
/// and the published rule, which stores tails and fences once more for each group.
const CHOICES: [System; 6] = [
    System::new("file, leader batches", Mode::File, 0).batches(16),
    System::new("file, own streams", Mode::File, 4),
    System::new("emulated, leader batches", EMULATED, 8).batches(16),
    System::new("emulated, shared stream", EMULATED, 0),
    System::new("emulated, own streams", EMULATED, 4),
    System::new("emulated, published rule", EMULATED, 4).published_rule(),
];

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let (threads, batches, tables): (&[usize], &[usize], &[usize]) = settings.pick(
        (&[1, 16], &[1, 50], &[1]),
        (&[1, 4, 16], &[1, 8, 50], &[1, 4]),
        (&[1, 2, 4, 8, 16], &[1, 8, 50, 128], &[1, 2, 3, 4]),
    );
    let time = Duration::from_millis(if settings.quick { 250 } else { 600 });
    for round in 0..settings.rounds {
        bare(settings, report, time)?;
        for &threads in threads {
            for &batch in batches {
                for &tables in tables {
                    for system in SYSTEMS.into_iter().chain(choices(threads, batch, tables)) {
                        let case = Case { threads, batch, tables };
                        let wanted = settings.wants(&case.name(), system.name);
                        if batch < tables || !wanted {
                            continue;
                        }
                        run(settings, report, case, system, time, u64::from(round))?;
                    }
                }
            }
        }
    }
    ratios(report);
    Ok(())
}

/// The choices, where they matter: many threads, and four tables.
fn choices(threads: usize, batch: usize, tables: usize) -> Vec<System> {
    let many =
        threads == 16 && (batch, tables) == (1, 1) || threads == 1 && (batch, tables) == (8, 4);
    let many = many || threads == 16 && (batch, tables) == (50, 4);
    CHOICES.into_iter().filter(|_| many).collect()
}

fn run(
    settings: &Settings,
    report: &mut Report,
    case: Case,
    system: System,
    time: Duration,
    round: u64,
) -> Result<()> {
    let (dir, region) = (settings.dir.join("commit"), region_path(settings, system)?);
    let size = if settings.quick { 256 << 20 } else { 512 << 20 };
    let mut options = Options::new().mode(system.mode).pm_size(size).pm_initial_size(size);
    options = options.commit_tuning(system.tuning);
    if system.mode != Mode::File {
        options = options.pm_path(&region);
    }
    let db = options.create(&dir).context("cannot create the database")?;
    for table in 0..case.tables {
        db.table(&format!("t{table}"))?;
    }
    warm_up(&db, case, system)?;
    let before = db.stats();
    let (records, latency, took) = drive(&db, case, time, settings.seed + round)?;
    let after = db.stats();
    db.close()?;
    std::fs::remove_dir_all(&dir)?;
    if system.mode != Mode::File {
        std::fs::remove_file(&region)?;
    }
    let name = case.name();
    publish(report, &name, system.name, records as f64 / took.as_secs_f64(), &latency);
    counts(report, &name, system.name, &before, &after);
    Ok(())
}

/// Writes to all tables until they have the streams that the case is about: a table gets its own
/// only after a sixteenth of the region was appended.
fn warm_up(db: &Database, case: Case, system: System) -> Result<()> {
    let tables = (0..case.tables).map(|t| db.table(&format!("t{t}")));
    let tables = tables.collect::<terrace::Result<Vec<_>>>()?;
    let (wanted, enough) = (system.streams(case), db.stats().pm.capacity / 4);
    let (mut random, from) = (Random::new(1), Instant::now());
    while db.stats().pm.streams_used != wanted {
        if from.elapsed() > WARM_UP {
            let used = db.stats().pm.streams_used;
            bail!("{} of {}: {used} streams and not {wanted}", case.name(), system.name);
        }
        if db.stats().pm.appended_bytes > enough {
            // The background looks now and then.
            let_work(Duration::from_millis(10));
            continue;
        }
        for table in &tables {
            let mut batch = WriteBatch::new();
            for _ in 0..16 {
                batch.put(table, random.next().to_be_bytes(), [7; 4096]);
            }
            db.write_with(&batch, Durability::Relaxed)?;
        }
    }
    Ok(())
}

/// Emulated regions lie on tmpfs.
fn region_path(settings: &Settings, system: System) -> Result<PathBuf> {
    let name = format!("terrace-bench-{}", std::process::id());
    let shm = PathBuf::from("/dev/shm");
    if system.mode != Mode::File && shm.is_dir() {
        return Ok(shm.join(name));
    }
    Ok(settings.dir.join(name))
}

/// Commits from all threads until the time is over: records, latencies of commits, time taken.
fn drive(db: &Database, case: Case, time: Duration, seed: u64) -> Result<(u64, Latency, Duration)> {
    let (stop, records) = (AtomicBool::new(false), AtomicU64::new(0));
    let from = Instant::now();
    let latencies = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..case.threads)
            .map(|thread| {
                let (stop, records) = (&stop, &records);
                scope.spawn(move || -> Result<Latency> {
                    let tables = (0..case.tables).map(|t| db.table(&format!("t{t}")));
                    let tables = tables.collect::<terrace::Result<Vec<_>>>()?;
                    let mut random = Random::new(seed ^ (thread as u64) << 32);
                    let mut latency = Latency::new();
                    while !stop.load(Ordering::Relaxed) {
                        let mut batch = WriteBatch::new();
                        for i in 0..case.batch {
                            let key = random.next().to_be_bytes();
                            batch.put(&tables[i % case.tables], key, [7; VALUE]);
                        }
                        let from = Instant::now();
                        db.write(batch)?;
                        latency.record(from.elapsed());
                        records.fetch_add(case.batch as u64, Ordering::Relaxed);
                    }
                    Ok(latency)
                })
            })
            .collect();
        let_work(time);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|t| t.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    let took = from.elapsed();
    let mut all = Latency::new();
    latencies.iter().for_each(|l| all.add(l));
    Ok((records.into_inner(), all, took))
}

fn publish(report: &mut Report, case: &str, system: &str, rate: f64, latency: &Latency) {
    report.add(case, system, "throughput", rate, "rec/s");
    report.add(case, system, "p50", latency.micros(0.5), "µs");
    report.add(case, system, "p99", latency.micros(0.99), "µs");
    report.add(case, system, "p99.9", latency.micros(0.999), "µs");
}

fn counts(report: &mut Report, case: &str, system: &str, before: &Stats, after: &Stats) {
    let (a, b) = (&after.commit, &before.commit);
    let groups = (a.groups - b.groups) as f64;
    let records = (a.records - b.records) as f64;
    let runs = (a.runs - b.runs) as f64;
    let rows = [
        ("groups/run", groups / runs, "groups"),
        ("syncs/run", (a.syncs - b.syncs) as f64 / runs, "syncs"),
        ("syncs/group", (a.syncs - b.syncs) as f64 / groups, "syncs"),
        ("syncs/record", (a.syncs - b.syncs) as f64 / records, "syncs"),
        ("fences/group", (a.fences - b.fences) as f64 / groups, "fences"),
        ("fences/record", (a.fences - b.fences) as f64 / records, "fences"),
        ("flushes/group", (a.flushes - b.flushes) as f64 / groups, "lines"),
        ("flushes/record", (a.flushes - b.flushes) as f64 / records, "lines"),
        ("records/group", records / groups, "records"),
        ("blocks/group", (a.blocks - b.blocks) as f64 / groups, "blocks"),
        ("blocks/record", (a.blocks - b.blocks) as f64 / records, "blocks"),
        ("bytes/record", (a.bytes - b.bytes) as f64 / records, "bytes"),
        ("switches", (a.zone_switches - b.zone_switches) as f64, "zones"),
        ("streams", f64::from(after.pm.streams_used), "streams"),
    ];
    for (metric, value, unit) in rows {
        report.add(case, system, metric, value, unit);
    }
}

/// The bytes that a batch of such records takes in a zone.
fn zone_bytes(batch: usize) -> usize {
    (64 + batch * (24 + 8 + VALUE)).next_multiple_of(64)
}

/// The bare loops: the same bytes, and nothing else.
fn bare(settings: &Settings, report: &mut Report, time: Duration) -> Result<()> {
    use crate::figures::bare;
    for batch in [1, 50] {
        let name = format!("1×{batch} in 1 tables");
        if settings.wants(&name, "bare-file") {
            let (rate, latency) = bare::overwrite_and_sync(settings, zone_bytes(batch), time)?;
            publish(report, &name, "bare-file", rate * batch as f64, &latency);
        }
        if settings.wants(&name, "bare-emulated") {
            let (rate, latency) = bare::stream_and_fence(settings, zone_bytes(batch), time)?;
            publish(report, &name, "bare-emulated", rate * batch as f64, &latency);
        }
        if settings.wants(&name, "bare-emulated, indexed") {
            let (rate, latency) = bare::stream_fence_and_index(settings, (batch, VALUE), time)?;
            publish(report, &name, "bare-emulated, indexed", rate * batch as f64, &latency);
        }
    }
    Ok(())
}

/// The ratios that the expectations are about.
fn ratios(report: &mut Report) {
    let median = |report: &Report, case: &str, system: &str, metric: &str| {
        report.median(case, system, metric).unwrap_or(f64::NAN)
    };
    for batch in [1, 50] {
        let case = format!("1×{batch} in 1 tables");
        let bare = median(report, &case, "bare-emulated", "throughput");
        let ours = median(report, &case, "terrace-emulated", "throughput");
        report.add(&case, "terrace-emulated", "of bare", ours / bare, "×");
        let indexed = median(report, &case, "bare-emulated, indexed", "throughput");
        report.add(&case, "terrace-emulated", "of bare, indexed", ours / indexed, "×");
    }
    let case = "1×1 in 1 tables";
    for metric in ["p50", "p99"] {
        let bare = median(report, case, "bare-file", metric);
        let ours = median(report, case, "terrace-file", metric);
        report.add(&format!("{case}, {metric}"), "terrace-file", "of bare", ours / bare, "×");
    }
    let many = median(report, "16×1 in 1 tables", "terrace-file", "throughput");
    let one = median(report, case, "terrace-file", "throughput");
    report.add("16 writers of 1", "terrace-file", "speed-up", many / one, "×");
    let fifty = median(report, "16×50 in 1 tables", "terrace-emulated", "throughput");
    let one = median(report, "16×1 in 1 tables", "terrace-emulated", "throughput");
    report.add("batch 50 of 1, 16 threads", "terrace-emulated", "speed-up", fifty / one, "×");
    report.paper("batch 50 of 1, 16 threads", "terrace-emulated", "speed-up", 49.0);
}
