//! `shared`: what sharing costs a writer, how long a remote commit takes, how far a follower lags,
//! what its reads cost, how long a takeover takes, and how many requests are made. The store is a
//! directory. Where a row says so, the engine holds up each request to it for 20 ms, and its bytes
//! as a connection of 100 MiB/s does (`Options::object_store_distance`): no network is in between.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use terrace::{Database, Durability, Follower, Options, Table, WriteBatch};

use crate::Settings;
use crate::drive::Drive;
use crate::keys::{Values, key};
use crate::latency::{Latency, let_work};
use crate::random::Random;
use crate::report::Report;

const REGION: u64 = 64 << 20;

/// A request to a bucket, and the bytes a second of a connection.
const REQUEST: Duration = Duration::from_millis(20);
const CONNECTION: u64 = 100 << 20;

/// A takeover has all of its data by then.
const LONGEST: Duration = Duration::from_secs(3600);

/// Seconds of a month.
const MONTH: f64 = 30.0 * 86_400.0;

/// What S3 asks for a thousand writes and for a thousand reads, in dollars.
const PRICES: (f64, f64) = (0.005, 0.0004);

/// The nodes of a round.
struct Place<'a> {
    settings: &'a Settings,
    round: u32,
}

impl Place<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.settings.dir.join(format!("{name} {}", self.round))
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    fn writer(&self, name: &str) -> Result<(Database, Table)> {
        self.writer_of(name, Options::new())
    }

    fn writer_of(&self, name: &str, options: Options) -> Result<(Database, Table)> {
        let url = self.url(&format!("bucket {name}"));
        let options = options.pm_size(REGION).object_store(url).share(true);
        let db = options.open(self.path(name))?;
        let table = db.table("t")?;
        Ok((db, table))
    }

    fn follower(&self, name: &str, n: u32) -> Result<Follower> {
        let url = self.url(&format!("bucket {name}"));
        let path = self.path(&format!("follower {n} {name}"));
        Ok(Options::new().pm_size(REGION).follow(&url, path)?)
    }
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    for round in 0..settings.rounds {
        let place = Place { settings, round };
        throughput(&place, report)?;
        remote(&place, report)?;
        lag(&place, report)?;
        takeover(&place, report)?;
        requests(&place, report)?;
    }
    for case in ["relaxed", "durable"] {
        let rate = |system: &str| report.median(case, system, "throughput");
        if let (Some(on), Some(off)) = (rate("shared"), rate("alone")) {
            report.add(case, "shared", "of alone", on / off, "ratio");
        }
    }
    Ok(())
}

fn time(settings: &Settings) -> Duration {
    Duration::from_millis(settings.pick(500, 2000, 10_000))
}

/// Writers with shipping on and off.
fn throughput(place: &Place<'_>, report: &mut Report) -> Result<()> {
    let values = Values::new(100);
    for (case, durability) in [("relaxed", Durability::Relaxed), ("durable", Durability::Durable)] {
        for system in ["alone", "shared"] {
            let name = format!("{case} {system}");
            let (_db, table) = match system {
                "shared" => place.writer(&name)?,
                _ => {
                    let db = Options::new().pm_size(REGION).open(place.path(&name))?;
                    let table = db.table("t")?;
                    (db, table)
                }
            };
            let seen = Drive::closed(4, time(place.settings)).run(|thread| {
                let mut random = Random::new(place.settings.seed << 8 | thread);
                let (table, values) = (table.durability(durability), &values);
                move || {
                    let n = random.next() % 1_000_000;
                    Ok(table.put(key(n), values.draw(&mut random))?)
                }
            })?;
            report.add(case, system, "throughput", seen.rate(), "puts/s");
        }
    }
    Ok(())
}

/// Commits that wait for the store.
fn remote(place: &Place<'_>, report: &mut Report) -> Result<()> {
    let far = Options::new().object_store_distance(REQUEST, CONNECTION);
    let (_db, table) = place.writer_of("remote", far)?;
    for writers in [1, 16, 64] {
        let seen = Drive::closed(writers, time(place.settings)).run(|thread| {
            let mut n = thread << 32;
            let table = table.durability(Durability::Remote);
            move || {
                n += 1;
                Ok(table.put(key(n), "value")?)
            }
        })?;
        let case = format!("remote at 20 ms a request, {writers} writers");
        report.seen(&case, "shared", &seen);
    }
    Ok(())
}

/// How long after its commit a follower shows a row, and what its reads cost.
fn lag(place: &Place<'_>, report: &mut Report) -> Result<()> {
    let (db, table) = place.writer("lag")?;
    table.durability(Durability::Remote).put("first", "row")?;
    let follower = place.follower("lag", 1)?;
    let (done, mut lags) = (AtomicBool::new(false), Latency::new());
    let (told, commits) = std::sync::mpsc::channel();
    let (end, values) = (Instant::now() + time(place.settings), Values::new(100));
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<()> {
            let mut random = Random::new(place.settings.seed);
            while Instant::now() < end {
                let mut batch = WriteBatch::new();
                for _ in 0..50 {
                    batch.put(&table, key(random.next() % 100_000), values.draw(&mut random));
                }
                let pending = db.enqueue(batch, Durability::Relaxed)?;
                told.send((pending.number(), Instant::now()))?;
                pending.wait()?;
                let_work(Duration::from_millis(1));
            }
            done.store(true, Ordering::Release);
            Ok(())
        });
        let mut waiting = std::collections::VecDeque::new();
        while !done.load(Ordering::Acquire) || !waiting.is_empty() {
            waiting.extend(commits.try_iter());
            let shown = follower.status().commit;
            while let Some((_, at)) = waiting.pop_front_if(|(n, _): &mut (u64, _)| *n <= shown) {
                lags.record(Instant::now().duration_since(at));
            }
            ensure!(Instant::now() < end + Duration::from_secs(60), "the follower stands still");
            let_work(Duration::from_millis(2));
        }
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?
    })?;
    report.latency("lag at 50,000 rows a second", "follower", &lags);
    let reads = |table: &Table| {
        let seen = Drive::closed(1, time(place.settings)).run(|thread| {
            let mut random = Random::new(thread);
            move || Ok(table.get(key(random.next() % 100_000)).map(drop)?)
        });
        seen.map(|seen| seen.rate())
    };
    let own = reads(&table)?;
    let other = reads(&follower.database()?.existing_table("t")?)?;
    report.add("reads", "writer", "throughput", own, "gets/s");
    report.add("reads", "follower", "throughput", other, "gets/s");
    Ok(())
}

/// From the call on an empty machine to the first read and the first write, and until all data is
/// on it: from then on reads are at full speed. How many random reads a second there are at first
/// and in the end.
fn takeover(place: &Place<'_>, report: &mut Report) -> Result<()> {
    let mib = place.settings.pick(16, 256, 10 << 10);
    let (db, table) = place.writer("takeover")?;
    let (values, mut random) = (Values::new(1000), Random::new(place.settings.seed));
    let relaxed = table.durability(Durability::Relaxed);
    for n in 0..mib * 1000 {
        relaxed.put(key(n), values.draw(&mut random))?;
    }
    table.durability(Durability::Remote).put("last", "row")?;
    db.close()?;
    std::fs::remove_dir_all(place.path("takeover"))?;
    let url = place.url("bucket takeover");
    let near = Options::new().pm_size(REGION);
    let far = near.clone().object_store_distance(REQUEST, CONNECTION);
    for (store, options) in [("", near), (" at 20 ms a request", far)] {
        let case = format!("takeover of {mib} MiB{store}");
        let path = place.path(&format!("taken over{store}"));
        let mut add = |what, value, unit| report.add(&case, "shared", what, value, unit);
        let began = Instant::now();
        let db = options.open_shared(&url, &path)?;
        let table = db.table("t")?;
        ensure!(table.get(key(mib * 500))?.is_some(), "a row is not there");
        add("to the first read", began.elapsed().as_secs_f64(), "s");
        table.durability(Durability::Remote).put("own", "row")?;
        add("to the first remote write", began.elapsed().as_secs_f64(), "s");
        let mut random = Random::new(place.settings.seed);
        let mut reads = |least: Duration| -> Result<f64> {
            let (from, mut reads) = (Instant::now(), 0u32);
            while from.elapsed() < least {
                ensure!(table.get(key(random.next() % (mib * 1000)))?.is_some(), "a row is lost");
                reads += 1;
            }
            Ok(f64::from(reads) / from.elapsed().as_secs_f64())
        };
        let second = Duration::from_secs(1);
        add("reads at first", reads(second)?, "gets/s");
        while db.stats().tables.iter().any(|table| table.misplaced_bytes > 0) {
            let rate = reads(second / 10)?;
            ensure!(rate > 0.0 && began.elapsed() < LONGEST, "its data does not come");
        }
        add("to all data", began.elapsed().as_secs_f64(), "s");
        add("reads then", reads(second)?, "gets/s");
        db.close()?;
        std::fs::remove_dir_all(&path)?;
    }
    Ok(())
}

/// Requests of a writer with two followers, and what a month of them costs.
fn requests(place: &Place<'_>, report: &mut Report) -> Result<()> {
    let (db, table) = place.writer("requests")?;
    table.durability(Durability::Remote).put("first", "row")?;
    let followers = [place.follower("requests", 1)?, place.follower("requests", 2)?];
    // Until they ask as seldom as they do when idle.
    let_work(Duration::from_secs(3));
    for case in ["idle", "busy"] {
        let asked = || {
            let stats = db.stats().share;
            let (puts, own) = stats.map_or((0, 0), |stats| (stats.puts, stats.gets));
            let gets = followers.iter().map(|follower| follower.status().gets).sum::<u64>();
            (puts, own + gets)
        };
        let (before, began) = (asked(), Instant::now());
        while began.elapsed() < time(place.settings) {
            if case == "busy" {
                table.durability(Durability::Relaxed).put(key(7), "value")?;
            }
            let_work(Duration::from_millis(5));
        }
        let (after, seconds) = (asked(), began.elapsed().as_secs_f64());
        let a_second = |before: u64, after: u64| (after - before) as f64 / seconds;
        let (puts, gets) = (a_second(before.0, after.0), a_second(before.1, after.1));
        let case = format!("a writer and two followers, {case}");
        report.add(&case, "shared", "writes", puts, "requests/s");
        report.add(&case, "shared", "reads", gets, "requests/s");
        let month = (puts * PRICES.0 + gets * PRICES.1) / 1000.0 * MONTH;
        report.add(&case, "shared", "requests of a month", month, "dollars");
    }
    Ok(())
}
