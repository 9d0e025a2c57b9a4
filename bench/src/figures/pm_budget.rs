//! `pm-budget`: what the region holds over the bytes of the last turn of drains, and how smoothly
//! writers are slowed down, under four loads. Rate and use are taken every 100 ms.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use terrace::{Database, Durability, Options, Stats, Table};

use crate::Settings;
use crate::latency::{Latency, let_work};
use crate::plot::{self, Chart, Line};
use crate::random::Random;
use crate::report::Report;

const VALUE: [u8; 500] = [7; 500];

const SAMPLE: Duration = Duration::from_millis(100);

const SYSTEM: &str = "terrace-file";

/// Where a write goes: the number of a table, and a key.
type Next = fn(&mut Random, u64) -> (usize, [u8; 16]);

struct Load {
    name: &'static str,
    tables: usize,
    next: Next,
}

const LOADS: [Load; 4] = [
    Load { name: "90 % on 100 keys", tables: 1, next: hot },
    Load { name: "uniform inserts", tables: 1, next: |random, _| (0, wide(random.next())) },
    Load { name: "ever-growing keys", tables: 1, next: |_, n| (0, wide(n)) },
    Load { name: "1000 idle tables, 1 busy", tables: 1001, next: idle },
];

fn hot(random: &mut Random, n: u64) -> (usize, [u8; 16]) {
    let key = if random.below(10) > 0 { random.below(100) } else { (1 << 32) + n };
    (0, wide(key))
}

/// A hundred records for each idle table, a few at a time; all else goes to the busy one.
fn idle(random: &mut Random, n: u64) -> (usize, [u8; 16]) {
    if n < 10_000 {
        return (1 + (n % 1000) as usize, wide(n));
    }
    (0, wide(random.next()))
}

fn wide(n: u64) -> [u8; 16] {
    u128::from(n).rotate_left(64).to_be_bytes()
}

/// What was seen at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    seconds: f64,
    /// Commits a second since the sample before.
    rate: f64,
    used: f64,
    /// What the region may hold: bytes of the last turn, and zones that are open or pinned.
    bound: f64,
    capacity: f64,
    delay: f64,
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let (size, time) = settings.pick((32 << 20, 2), (256 << 20, 20), (256 << 20, 60));
    let mut charts = Vec::new();
    for round in 0..if settings.quick { 1 } else { settings.rounds_within(1) } {
        for load in LOADS {
            if !settings.wants(load.name, SYSTEM) {
                continue;
            }
            let dir = settings.dir.join("pm-budget");
            let db = Options::new().pm_size(size).create(&dir)?;
            let seed = settings.seed + u64::from(round);
            let (samples, latency) = run(&db, &load, Duration::from_secs(time), seed)?;
            let stats = db.stats();
            db.close()?;
            std::fs::remove_dir_all(&dir)?;
            publish(report, &load, &samples, &latency, &stats);
            if round == 0 {
                charts.push(chart(load.name, &samples));
            }
        }
    }
    match &settings.plot {
        Some(path) => plot::write(Path::new(path), "pm-budget", &charts),
        None => Ok(()),
    }
}

/// Writes from two threads for so long; samples, and latencies of writes.
fn run(db: &Database, load: &Load, time: Duration, seed: u64) -> Result<(Vec<Sample>, Latency)> {
    let table = |n| Ok(db.table(&format!("t{n}"))?.durability(Durability::Relaxed));
    let tables: Vec<Table> = (0..load.tables).map(table).collect::<terrace::Result<_>>()?;
    let (stop, next) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (stop, next, tables) = (&stop, &next, &tables);
        let work = move |thread| {
            let (mut random, mut latency) = (Random::new(seed << 8 | thread), Latency::new());
            while !stop.load(Ordering::Relaxed) {
                let (table, key) = (load.next)(&mut random, next.fetch_add(1, Ordering::Relaxed));
                let from = Instant::now();
                tables[table].put(key, VALUE)?;
                latency.record(from.elapsed());
            }
            anyhow::Ok(latency)
        };
        let workers: Vec<_> = (0..2).map(|thread| scope.spawn(move || work(thread))).collect();
        let (from, mut samples, mut before) = (Instant::now(), Vec::new(), 0);
        while from.elapsed() < time {
            let began = Instant::now();
            let_work(SAMPLE);
            let now = next.load(Ordering::Relaxed);
            let rate = (now - before) as f64 / began.elapsed().as_secs_f64();
            samples.push(sample(from.elapsed().as_secs_f64(), rate, &db.stats()));
            before = now;
        }
        stop.store(true, Ordering::Relaxed);
        let mut all = Latency::new();
        for worker in workers {
            all.add(&worker.join().expect("no panic")?);
        }
        Ok((samples, all))
    })
}

fn sample(seconds: f64, rate: f64, stats: &Stats) -> Sample {
    let pm = &stats.pm;
    let zone = pm.zone_size as f64;
    // One zone more: the one that the oldest record lies in.
    let kept = f64::from(pm.zones_open + pm.zones_pinned + 1) * zone;
    Sample {
        seconds,
        rate,
        used: f64::from(pm.zones_used) * zone,
        bound: pm.round_bytes as f64 + kept,
        capacity: f64::from(pm.zones) * zone,
        delay: stats.pace.delay_ns as f64,
    }
}

fn publish(report: &mut Report, load: &Load, samples: &[Sample], latency: &Latency, stats: &Stats) {
    let greatest = |of: fn(&Sample) -> f64| samples.iter().map(of).fold(0.0, f64::max);
    let mut rates: Vec<f64> = samples.iter().map(|s| s.rate).collect();
    rates.sort_by(f64::total_cmp);
    let middle = rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN);
    let least = rates.first().copied().unwrap_or(f64::NAN);
    let mut add = |metric, value, unit| report.add(load.name, SYSTEM, metric, value, unit);
    add("used of capacity", greatest(|s| s.used / s.capacity), "×");
    add("used of bound", greatest(|s| s.used / s.bound), "×");
    add("rate", middle / 1e3, "kop/s");
    add("slowest 100 ms of median", least / middle, "×");
    add("p99", latency.micros(0.99), "µs");
    add("longest", latency.micros(1.0) / 1e3, "ms");
    let appended = stats.pm.appended_bytes as f64 / stats.pm.capacity as f64;
    add("appended of capacity", appended, "×");
    add("drains", stats.background.drains as f64, "");
    add("zones cleaned", stats.background.zones_cleaned as f64, "");
    add("pruned", stats.background.pruned_records as f64 / 1e3, "k");
    let columns = ["seconds", "commits a second", "bytes used", "bound", "delay in ns a KiB"];
    let row = |s: &Sample| vec![s.seconds, s.rate, s.used, s.bound, s.delay];
    let rows: Vec<_> = samples.iter().map(row).collect();
    report.series(load.name, SYSTEM, &columns, &rows);
}

fn chart(name: &str, samples: &[Sample]) -> Chart {
    let line = |label: &str, of: fn(&Sample) -> f64| Line {
        label: label.into(),
        points: samples.iter().map(|s| (s.seconds, of(s))).collect(),
    };
    let most = samples.iter().map(|s| s.rate).fold(1.0, f64::max);
    let rate = Line {
        label: format!("commits a second, of {most:.0}"),
        points: samples.iter().map(|s| (s.seconds, s.rate / most)).collect(),
    };
    Chart {
        title: name.into(),
        lines: vec![
            rate,
            line("used of capacity", |s| s.used / s.capacity),
            line("bound of capacity", |s| (s.bound / s.capacity).min(1.2)),
        ],
    }
}
