//! `read-path`: look-ups and ranges that memory answers, each step of the read path added to the
//! one before. The first is a simpler path, kept for this figure: a hash and a lock lead to a
//! block. Ranges find blocks by swips in every step. 32 tables, keys of 16 bytes, values
//! of 8, all on disk in one level of uncompressed blocks, and in the cache after a first pass.

mod per_core;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use terrace::bench::read_path::{searches, use_hashes, use_huge_pages, use_search};
use terrace::{Compression, Database, Durability, Options, Table};

use crate::Settings;
use crate::random::Random;
use crate::report::Report;

const TABLES: u64 = 32;

/// Rows of a range.
const ROWS: usize = 100;

/// A step of the read path.
#[derive(Clone, Debug)]
struct Step {
    name: String,
    search: String,
    /// A hash leads to a block, under a lock, and a reference is counted.
    hashes: bool,
    /// Blocks lie in huge pages.
    huge_pages: bool,
    /// Values are lent.
    lent: bool,
}

/// Reads at random; how much it has read.
type One<'a> = &'a (dyn Fn(&mut Random) -> Result<u64> + Sync);

/// The steps, each with those before it.
fn steps() -> Vec<Step> {
    let searches = searches();
    let best = searches.last().cloned().unwrap_or_default();
    let first =
        Step { name: String::new(), search: best, hashes: true, huge_pages: false, lent: false };
    let by = |search: &String| {
        let name = format!("hashes, heap, searched by {search}");
        Step { name, search: search.clone(), ..first.clone() }
    };
    let mut steps: Vec<Step> = searches.iter().map(by).collect();
    let mut next = |name: &str, change: fn(&mut Step)| {
        let mut step = steps.last().unwrap_or(&first).clone();
        step.name = name.to_string();
        change(&mut step);
        steps.push(step);
    };
    next("+ swips", |step| step.hashes = false);
    next("+ huge pages", |step| step.huge_pages = true);
    next("+ lent values", |step| step.lent = true);
    steps
}

/// What is read.
struct Loaded {
    tables: Vec<Table>,
    records: u64,
    db: Database,
}

/// The key of a record: its number, scattered, so that keys are in no order of numbers.
fn key(table: u64, record: u64) -> [u8; 16] {
    let scattered = Random::new(record).next();
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scattered.to_be_bytes());
    key[8..].copy_from_slice(&(table << 40 | record).to_be_bytes());
    key
}

fn value(key: &[u8; 16]) -> [u8; 8] {
    let [mut high, mut low] = [0; 2].map(|_: u64| [0; 8]);
    high.copy_from_slice(&key[..8]);
    low.copy_from_slice(&key[8..]);
    Random::new(u64::from_be_bytes(high) ^ u64::from_be_bytes(low)).next().to_le_bytes()
}

impl Loaded {
    fn new(dir: &Path, records: u64) -> Result<Loaded> {
        let none = Compression::None;
        let options = Options::new().pm_size(64 << 20).cache_size(8 << 30).compression(none, none);
        let db = options.open(dir)?;
        let tables = (0..TABLES).map(|n| db.table(&format!("t{n}")));
        let tables: Vec<Table> = tables.collect::<terrace::Result<_>>()?;
        for (n, table) in (0..).zip(&tables) {
            let relaxed = table.durability(Durability::Relaxed);
            for record in 0..records {
                let key = key(n, record);
                relaxed.put(key, value(&key))?;
            }
        }
        for table in &tables {
            ensure!(db.compact_range(table, ..)?.is_finished, "a compaction did not finish");
        }
        let loaded = Loaded { tables, records, db };
        loaded.warm()?;
        Ok(loaded)
    }

    /// Looks each record up.
    fn warm(&self) -> Result<()> {
        for (n, table) in (0..).zip(&self.tables) {
            for record in 0..self.records {
                let key = key(n, record);
                let found = table.get(key)?;
                ensure!(found.as_deref() == Some(&value(&key)[..]), "a wrong value");
            }
        }
        Ok(())
    }

    /// One look-up of a record that there is.
    fn look_up(&self, random: &mut Random, lent: bool) -> Result<()> {
        let (table, record) = (random.below(TABLES), random.below(self.records));
        let (key, of) = (key(table, record), &self.tables[table as usize]);
        let is_right = if lent {
            of.get_with(key, |found| found == value(&key))?
        } else {
            of.get(key)?.map(|found| found[..] == value(&key))
        };
        ensure!(is_right == Some(true), "a wrong value");
        Ok(())
    }

    /// A range from a record on; how many rows there were.
    fn range(&self, random: &mut Random, back: bool, lent: bool) -> Result<u64> {
        let (table, record) = (random.below(TABLES), random.below(self.records));
        let (key, of) = (key(table, record), &self.tables[table as usize]);
        let range = if back { of.range(..key).rev() } else { of.range(key..) };
        let (mut range, mut rows) = (range.limit(ROWS), 0);
        while lent && let Some(row) = range.next_with(|key, value| (key.len(), value.len())) {
            ensure!(row? == (16, 8), "a wrong row");
            rows += 1;
        }
        for row in range {
            let (key, value) = row?;
            ensure!((key.len(), value.len()) == (16, 8), "a wrong row");
            rows += 1;
        }
        Ok(rows)
    }
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let records = settings.load.records.unwrap_or(settings.pick(64_000, 1_600_000, 6_400_000));
    let own = Duration::from_millis(settings.pick(200, 1000, 5000));
    let (time, threads) = (settings.load.time(own), settings.load.threads);
    let threads = threads.map_or_else(thread_counts, |threads| vec![threads]);
    let load = |name: &str, huge_pages| {
        use_huge_pages(huge_pages);
        Loaded::new(&settings.dir.join(name), (records / TABLES).max(1)).context("loading")
    };
    let heap = load("read-path-heap", false)?;
    let huge = load("read-path-huge", true)?;
    for _ in 0..settings.rounds_within(1) {
        for step in steps() {
            use_search(&step.search);
            let loaded = if step.huge_pages { &huge } else { &heap };
            use_hashes(step.hashes);
            if step.hashes {
                loaded.warm()?;
            }
            for &threads in &threads {
                run(settings, report, (loaded, &step), (threads, time))?;
            }
        }
        // As the last step, with the best search.
        for &threads in &threads {
            per_core::run(settings, report, &huge, (threads, time))?;
        }
    }
    use_hashes(false);
    use_search("");
    Ok(())
}

/// One thread, two, and doubled from there up to as many as there are processors.
fn thread_counts() -> Vec<u64> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let doubled = std::iter::successors(Some(1), |count| Some(2 * count));
    let mut counts: Vec<u64> = doubled.take_while(|count| *count < cores.max(2)).collect();
    counts.push(cores.max(2));
    counts
}

fn run(
    settings: &Settings,
    report: &mut Report,
    (loaded, step): (&Loaded, &Step),
    (threads, time): (u64, Duration),
) -> Result<()> {
    let lent = step.lent;
    let ways: [(&str, One<'_>); 3] = [
        ("look-ups", &|random| loaded.look_up(random, lent).map(|()| 1)),
        ("rows of ranges of 100, up", &|random| loaded.range(random, false, lent)),
        ("rows of ranges of 100, down", &|random| loaded.range(random, true, lent)),
    ];
    for (what, one) in ways {
        let case = format!("{what}, {threads} threads");
        if settings.wants(&case, &step.name) {
            let nanos = nanos_each(settings.seed, threads, time, one)?;
            report.add(&case, &step.name, "time", nanos, "ns");
        }
    }
    Ok(())
}

/// Nanoseconds of one thread for each of what `one` counts, with so many threads at it.
fn nanos_each(seed: u64, threads: u64, time: Duration, one: One<'_>) -> Result<f64> {
    timed(threads, time, |thread, done| {
        let (mut random, mut count) = (Random::new(seed + thread), 0);
        while !done.load(Ordering::Relaxed) {
            for _ in 0..64 {
                count += black_box(one(&mut random)?);
            }
        }
        Ok(count)
    })
}

/// Nanoseconds of one thread for each of what `work` counts on its thread until it is done.
fn timed(
    threads: u64,
    time: Duration,
    work: impl Fn(u64, &Arc<AtomicBool>) -> Result<u64> + Sync,
) -> Result<f64> {
    let (done, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let counts = std::thread::scope(|scope| {
        let (work, done) = (&work, &done);
        let running: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n, done))).collect();
        // A thread that ends wakes this one too.
        while let Some(rest) = time.checked_sub(began.elapsed()).filter(|rest| !rest.is_zero()) {
            std::thread::park_timeout(rest);
        }
        done.store(true, Ordering::Relaxed);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
        };
        running.into_iter().map(join).collect::<Result<Vec<u64>>>()
    })?;
    let all: u64 = counts.iter().sum();
    ensure!(all > 0, "nothing was read");
    Ok(began.elapsed().as_nanos() as f64 * threads as f64 / all as f64)
}
