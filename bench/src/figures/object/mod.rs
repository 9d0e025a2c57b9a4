//! `object`: cold levels in an object store that is 20 ms away and sends 100 MB/s on a connection,
//! beside all levels on the SSD, and RocksDB there. Data are twenty times as large as each store's
//! memory, the system's cache of its files included. With `--quick` they are three times as large,
//! since a region of a few MiB is busy with nothing but its drains.
//!
//! The store is a directory of this machine. The engine delays each request and its bytes by the
//! distance (`Options::object_store_distance`), so no server and no network is measured.

mod cost;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::drive::{Drive, Seen};
use crate::isolated;
use crate::keys::{Values, key};
use crate::latency::{Latency, let_work};
use crate::random::Random;
use crate::report::Report;
use crate::stores::{Kind, Memory, ObjectUse, Store, System, load};
use cost::{DAILY, Footprint, Prices};

const FIGURE: &str = "object";

const MIB: f64 = (1 << 20) as f64;

/// The archive of which the cost is stated.
const ARCHIVE: f64 = (1u64 << 40) as f64;

/// Rows of ranges.
const RANGES: [usize; 4] = [50, 500, 5000, 50_000];

/// Scattered rows that are asked for together.
const TOGETHER: usize = 150;

const SYSTEMS: [System; 3] = [
    System::disk(Kind::TerraceObject),
    System::disk(Kind::Terrace),
    System::disk(Kind::RocksDbTuned),
];

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    system: System,
    memory: Memory,
    records: u64,
    value: usize,
    threads: u64,
    /// Of inserts, and of each kind of read.
    millis: [u64; 2],
    seed: u64,
}

impl Cell {
    /// Bytes of a row.
    fn row(&self) -> f64 {
        (8 + self.value) as f64
    }
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let load = &settings.load;
    let ([write, cache], times) =
        settings.pick(([56 << 20, 8 << 20], 3), ([16 << 20; 2], 20), ([32 << 20; 2], 20));
    let memory = load.memory(Memory { write, cache });
    let (inserts, reads) = settings.pick((15, 3), (60, 5), (600, 10));
    let value = load.value.unwrap_or(400);
    for _ in 0..settings.rounds_within(1).min(settings.pick(1, 1, u32::MAX)) {
        for system in System::there(&SYSTEMS, settings, report) {
            let cell = Cell {
                system,
                memory,
                records: load.records.unwrap_or(times * memory.all() / (8 + value as u64)),
                value,
                threads: load.threads.unwrap_or(2),
                millis: [load.time(Duration::from_secs(inserts)).as_millis() as u64, reads * 1000],
                seed: settings.seed,
            };
            if settings.wants("inserts reads cost", &system.name()) {
                isolated::run_bounded(settings, report, FIGURE, (system, memory), &cell)?;
            }
        }
    }
    compare(report);
    costs(report)
}

/// Objects beside the SSD.
fn compare(report: &mut Report) {
    let [objects, ssd, _] = SYSTEMS.map(System::name);
    let ratio = |report: &Report, case: &str, metric: &str| {
        let of = |system| report.median(case, system, metric).unwrap_or(f64::NAN);
        of(&objects) / of(&ssd)
    };
    let mut rows = vec![
        ("inserts".to_string(), "throughput"),
        ("inserts".to_string(), "p99.9"),
        ("compaction".to_string(), "rate"),
    ];
    rows.extend(RANGES.map(|n| (format!("range of {n}"), "throughput")));
    rows.push((format!("{TOGETHER} rows together"), "p50"));
    for (case, metric) in rows {
        let of_ssd = ratio(report, &case, metric);
        report.add(&case, &objects, &format!("{metric}, of ssd"), of_ssd, "×");
    }
}

/// What a month of an archive costs.
fn costs(report: &mut Report) -> Result<()> {
    let prices = Prices::read()?;
    let [objects, ssd, _] = SYSTEMS.map(System::name);
    let footprint = |report: &Report, system: &str| {
        let of = |metric| report.median("cost", system, metric).unwrap_or(f64::NAN);
        Footprint {
            volume: of("volume bytes"),
            objects: of("object bytes"),
            puts: of("puts") / 1e9,
            gets: of("gets") / 1e9,
        }
    };
    let [one, other] = [&objects, &ssd].map(|system| footprint(report, system));
    for (system, of) in [(&objects, one), (&ssd, other)] {
        let month = prices.month(of, ARCHIVE, DAILY);
        report.add("cost", system, "month of a TiB, 1 % a day", month, "$");
    }
    let share = prices.month(one, ARCHIVE, DAILY) / prices.month(other, ARCHIVE, DAILY);
    report.add("cost", &objects, "of ssd", share, "×");
    report.add("cost", &objects, "break-even", prices.break_even(one, other) * 100.0, "% a day");
    report.settings(&objects, &prices.text());
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
    inserts(&cell, &*store, report)?;
    drop(store);

    let system = cell.system.name();
    let began = Instant::now();
    let store = cell.system.open(&home, cell.memory, report)?;
    report.add("restart", &system, "time", began.elapsed().as_secs_f64() * 1e3, "ms");
    if let Some(used) = store.objects() {
        report.add("restart", &system, "requests", used.requests() as f64, "requests");
    }
    points(&cell, &*store, report)?;
    together(&cell, &*store, report)?;
    RANGES.into_iter().try_for_each(|rows| ranges(&cell, &*store, rows, report))
}

/// Rows are written again, any of them, as fast as they can be; then all comes to rest.
fn inserts(cell: &Cell, store: &dyn Store, report: &mut Report) -> Result<()> {
    let system = cell.system.name();
    let before = store.objects().unwrap_or_default();
    let written = |store: &dyn Store| -> Result<u64> {
        Ok(store.jobs()?.map_or(0, |jobs| jobs.written.iter().skip(2).sum()))
    };
    let (from, began) = (written(store)?, Instant::now());
    let (seen, level0) = under_watch(cell, store)?;
    report.seen("inserts", &system, &seen);
    let most = level0.iter().map(|sample| sample[1]).fold(0.0, f64::max);
    let has_region = store.jobs()?.is_some_and(|jobs| jobs.pm_used.is_some());
    let unit = if has_region { "of region" } else { "files" };
    report.add("level 0", &system, "most", most, unit);
    report.series("level 0", &system, &["seconds", unit], &level0);
    store.rest()?;
    let rate = (written(store)? - from) as f64 / MIB / began.elapsed().as_secs_f64();
    report.add("compaction", &system, "rate", rate, "MiB/s");
    let Some(used) = store.objects() else { return Ok(()) };
    let (rows, again) = (cell.records as f64 * cell.row(), seen.operations as f64 * cell.row());
    report.add("cost", &system, "volume bytes", used.volume_bytes as f64 / rows, "B/B");
    report.add("cost", &system, "object bytes", used.object_bytes as f64 / rows, "B/B");
    let puts = used.puts - before.puts;
    let gets = used.gets + used.others - before.gets - before.others;
    report.add("cost", &system, "puts", puts as f64 / again * 1e9, "a GB");
    report.add("cost", &system, "gets", gets as f64 / again * 1e9, "a GB");
    Ok(())
}

/// Writes for so long, and looks at level 0 meanwhile: seconds, and the part of the region that is
/// taken, or files.
fn under_watch(cell: &Cell, store: &dyn Store) -> Result<(Seen, Vec<Vec<f64>>)> {
    let drive = Drive::closed(cell.threads, Duration::from_millis(cell.millis[0]));
    let (is_over, values) = (AtomicBool::new(false), Values::new(cell.value));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| -> Result<Vec<Vec<f64>>> {
            let (mut samples, began) = (Vec::new(), Instant::now());
            while !is_over.load(Ordering::Relaxed) {
                let used = store.jobs()?.and_then(|jobs| jobs.pm_used);
                let level0 = match used {
                    Some(used) => used,
                    None => store.level0_files()?.unwrap_or(0) as f64,
                };
                samples.push(vec![began.elapsed().as_secs_f64(), level0]);
                let_work(Duration::from_millis(200));
            }
            Ok(samples)
        });
        let seen = drive.run(|thread| {
            let mut random = Random::new(cell.seed ^ (thread + 1) << 32);
            let values = &values;
            move || {
                let n = random.below(cell.records);
                store.put(&key(n), values.draw(&mut random), false)
            }
        });
        is_over.store(true, Ordering::Relaxed);
        let level0 = watch.join().ok().context("the watch ended early")??;
        Ok((seen?, level0))
    })
}

/// Requests since `before`, for each of so many calls.
fn requests_each(store: &dyn Store, before: Option<ObjectUse>, calls: u64) -> Option<f64> {
    let (before, now) = (before?, store.objects()?);
    Some((now.requests() - before.requests()) as f64 / calls.max(1) as f64)
}

/// Single rows: asked for the first time, and again.
fn points(cell: &Cell, store: &dyn Store, report: &mut Report) -> Result<()> {
    let system = cell.system.name();
    let mut random = Random::new(cell.seed ^ 0x90);
    let keys: Vec<_> = (0..cell.millis[1] / 25).map(|_| key(random.below(cell.records))).collect();
    for case in ["point read, cold", "point read, again"] {
        let (before, mut latency) = (store.objects(), Latency::new());
        for key in &keys {
            let began = Instant::now();
            ensure!(store.get(key)?.is_some(), "a row is missing");
            latency.record(began.elapsed());
        }
        report.latency(case, &system, &latency);
        if let Some(each) = requests_each(store, before, keys.len() as u64) {
            report.add(case, &system, "requests", each, "a read");
        }
    }
    Ok(())
}

/// Scattered rows, asked for together.
fn together(cell: &Cell, store: &dyn Store, report: &mut Report) -> Result<()> {
    let (system, case) = (cell.system.name(), format!("{TOGETHER} rows together"));
    let mut random = Random::new(cell.seed ^ 0x91);
    let (before, mut latency) = (store.objects(), Latency::new());
    let calls = 10;
    for _ in 0..calls {
        let keys: Vec<_> = (0..TOGETHER).map(|_| key(random.below(cell.records))).collect();
        let began = Instant::now();
        let found = store.get_many(&keys)?;
        latency.record(began.elapsed());
        ensure!(found == TOGETHER, "{found} of {TOGETHER} rows were found");
    }
    report.latency(&case, &system, &latency);
    if let Some(each) = requests_each(store, before, calls) {
        report.add(&case, &system, "requests", each, "a call");
    }
    Ok(())
}

/// Ranges of so many rows.
fn ranges(cell: &Cell, store: &dyn Store, rows: usize, report: &mut Report) -> Result<()> {
    let (system, case) = (cell.system.name(), format!("range of {rows}"));
    let mut random = Random::new(cell.seed ^ 0x92);
    let room = (rows as u64).min(cell.records / 2) * (u64::MAX / cell.records);
    let (before, began, mut latency) = (store.objects(), Instant::now(), Latency::new());
    let (mut found, mut calls) = (0, 0);
    while calls == 0 || began.elapsed() < Duration::from_millis(cell.millis[1]) {
        let from = random.below(u64::MAX - room);
        let call = Instant::now();
        found += store.scan(&from.to_be_bytes(), rows)?;
        latency.record(call.elapsed());
        calls += 1;
    }
    report.add(&case, &system, "throughput", found as f64 / began.elapsed().as_secs_f64(), "row/s");
    report.latency(&case, &system, &latency);
    if let Some(each) = requests_each(store, before, calls) {
        report.add(&case, &system, "requests", each, "a call");
    }
    Ok(())
}
