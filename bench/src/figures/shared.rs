//! `shared`: what sharing costs a writer, how long a remote commit takes, how far a follower lags
//! and what a writer sends meanwhile, what reads cost, how long a takeover takes, and how many
//! requests are made. The store is a directory. Where a row says so, the engine holds up each
//! request to it for 20 ms, and its bytes as a connection of 100 MiB/s does
//! (`Options::object_store_distance`): no network is in between.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use terrace::{Database, Durability, Follower, Options, Table, WriteBatch};

use crate::Settings;
use crate::drive::Drive;
use crate::kernel::own_memory;
use crate::keys::{Values, key};
use crate::latency::{Latency, let_work};
use crate::random::Random;
use crate::report::Report;

const REGION: u64 = 64 << 20;

/// A request to a bucket, and the bytes a second of a connection.
const REQUEST: Duration = Duration::from_millis(20);
const CONNECTION: u64 = 100 << 20;

/// What each node beside another one may take of this machine's memory.
const MEMORY: u64 = 512 << 20;

/// So many write at once where writers are compared: the shipper has a processor of its own beside
/// one.
const WRITERS: [u64; 2] = [1, 4];

/// A takeover has all of its data by then.
const LONGEST: Duration = Duration::from_secs(3600);

const MIB: f64 = (1 << 20) as f64;

/// Seconds of a month.
const MONTH: f64 = 30.0 * 86_400.0;

/// What S3 asks for a thousand writes and for a thousand reads, in dollars.
const PRICES: (f64, f64) = (0.005, 0.0004);

fn price(writes: f64, reads: f64) -> f64 {
    (writes * PRICES.0 + reads * PRICES.1) / 1000.0
}

/// What a writer has sent and written, and how often it asked: lists and deletions cost no less
/// than writes.
struct Sent {
    puts: u64,
    gets: u64,
    segment_bytes: u64,
    checkpoint_bytes: u64,
    written_bytes: u64,
}

fn sent(db: &Database) -> Result<Sent> {
    let stats = db.stats();
    let share = stats.share.context("the database is not shared")?;
    Ok(Sent {
        puts: share.puts + share.others,
        gets: share.gets,
        segment_bytes: share.segment_bytes,
        checkpoint_bytes: share.checkpoint_bytes,
        written_bytes: stats.disk.written_bytes,
    })
}

/// What a writer has done in a time.
struct SeenOfWriter {
    rows: u32,
    /// At most, in bytes: of commits that waited, and of the process.
    unshipped: u64,
    memory: u64,
    starts: u64,
}

impl SeenOfWriter {
    fn report(&self, report: &mut Report, before: &Sent, after: &Sent) {
        let case = "a writer of 50,000 rows a second";
        let mut add = |what, value, unit| report.add(case, "shared", what, value, unit);
        let each = |n: fn(&Sent) -> u64| (n(after) - n(before)) as f64;
        let (asked, got) = (each(|sent| sent.puts), each(|sent| sent.gets));
        let millions = f64::from(self.rows) / 1e6;
        add("rows", f64::from(self.rows), "rows");
        add("requests for a million rows", (asked + got) / millions, "requests");
        add("price of a million rows", price(asked, got) / millions, "dollars");
        let (log, extents) = (each(|sent| sent.segment_bytes), each(|sent| sent.checkpoint_bytes));
        let written = each(|sent| sent.written_bytes);
        add("segments, before compression", log / MIB, "MiB");
        add("extents written", written / MIB, "MiB");
        add("extents sent", extents / MIB, "MiB");
        add("sent of segments and written extents", (log + extents) / (log + written), "ratio");
        add("unshipped at most", self.unshipped as f64 / MIB, "MiB");
        add("starts of the follower", self.starts as f64, "starts");
        add("memory of writer and follower at most", self.memory as f64 / MIB, "MiB");
    }
}

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
        self.writer_of(name, Options::new().pm_size(REGION))
    }

    fn writer_of(&self, name: &str, options: Options) -> Result<(Database, Table)> {
        let url = self.url(&format!("bucket {name}"));
        let options = options.object_store(url).share(true);
        let db = options.open(self.path(name))?;
        let table = db.table("t")?;
        Ok((db, table))
    }

    fn follower(&self, name: &str, n: u32) -> Result<Follower> {
        let url = self.url(&format!("bucket {name}"));
        let path = self.path(&format!("follower {n} {name}"));
        Ok(Options::new().pm_size(REGION).memory(MEMORY).follow(&url, path)?)
    }
}

type Part = fn(&Place<'_>, &mut Report) -> Result<()>;

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    for round in 0..settings.rounds {
        let place = Place { settings, round };
        let parts: [(&str, Part); 5] = [
            ("throughput", throughput),
            ("remote", remote),
            ("lag", lag),
            ("takeover", takeover),
            ("requests", requests),
        ];
        for (_, part) in parts.iter().filter(|(name, _)| settings.wants(name, "shared")) {
            part(&place, report)?;
        }
    }
    for writers in WRITERS {
        for case in ["relaxed", "durable"].map(|case| format!("{case}, {writers} writers")) {
            let rate = |system: &str| report.median(&case, system, "throughput");
            if let (Some(on), Some(off)) = (rate("shared"), rate("alone")) {
                report.add(&case, "shared", "of alone", on / off, "ratio");
            }
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
    let cases = [("relaxed", Durability::Relaxed), ("durable", Durability::Durable)];
    for (writers, (case, durability)) in WRITERS.into_iter().flat_map(|n| cases.map(|it| (n, it))) {
        let case = format!("{case}, {writers} writers");
        for system in ["alone", "shared"] {
            let name = format!("{case} {system}");
            let (db, table) = match system {
                "shared" => place.writer(&name)?,
                _ => {
                    let db = Options::new().pm_size(REGION).open(place.path(&name))?;
                    let table = db.table("t")?;
                    (db, table)
                }
            };
            let seen = Drive::closed(writers, time(place.settings)).run(|thread| {
                let mut random = Random::new(place.settings.seed << 8 | thread);
                let (table, values) = (table.durability(durability), &values);
                move || {
                    let n = random.next() % 1_000_000;
                    Ok(table.put(key(n), values.draw(&mut random))?)
                }
            })?;
            report.add(&case, system, "throughput", seen.rate(), "puts/s");
            db.close()?;
            std::fs::remove_dir_all(place.path(&name))?;
        }
    }
    Ok(())
}

/// Commits that wait for the store.
fn remote(place: &Place<'_>, report: &mut Report) -> Result<()> {
    let far = Options::new().pm_size(REGION).object_store_distance(REQUEST, CONNECTION);
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

/// How long after its commit a follower shows a row, and what the writer sends, asks for and keeps
/// meanwhile. What its reads cost. `--seconds` says for how long.
fn lag(place: &Place<'_>, report: &mut Report) -> Result<()> {
    let (db, table) = place.writer_of("lag", Options::new().pm_size(REGION).memory(MEMORY))?;
    table.durability(Durability::Remote).put("first", "row")?;
    let follower = place.follower("lag", 1)?;
    let (done, mut lags) = (AtomicBool::new(false), Latency::new());
    let (told, commits) = std::sync::mpsc::channel();
    let lasts = place.settings.load.time(time(place.settings));
    let (end, values) = (Instant::now() + lasts, Values::new(100));
    let (before, mut rows, mut unshipped, mut memory) = (sent(&db)?, 0u32, 0, 0);
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
            waiting.extend(commits.try_iter().inspect(|_| rows += 50));
            if rows % 4096 < 50 {
                memory = memory.max(own_memory()?);
            }
            let shown = follower.status().commit;
            while let Some((_, at)) = waiting.pop_front_if(|(n, _): &mut (u64, _)| *n <= shown) {
                lags.record(Instant::now().duration_since(at));
            }
            unshipped = unshipped.max(db.stats().share.map_or(0, |stats| stats.lag_bytes));
            ensure!(Instant::now() < end + Duration::from_secs(60), "the follower stands still");
            let_work(Duration::from_millis(2));
        }
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?
    })?;
    let seen = SeenOfWriter { rows, unshipped, memory, starts: follower.status().restarts };
    seen.report(report, &before, &sent(&db)?);
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
    let mib = place.settings.load.records.map_or(mib, |records| records / 1000);
    let region = place.settings.pick(REGION, REGION, 4 * REGION);
    let near = Options::new().pm_size(region);
    let (db, table) = place.writer_of("takeover", near.clone())?;
    let (values, mut random) = (Values::new(1000), Random::new(place.settings.seed));
    let relaxed = table.durability(Durability::Relaxed);
    for n in 0..mib * 1000 {
        relaxed.put(key(n), values.draw(&mut random))?;
    }
    settle(&db);
    for n in 0..REGION / 2000 {
        relaxed.put(key(n), values.draw(&mut random))?;
    }
    table.durability(Durability::Remote).put("last", "row")?;
    db.close()?;
    std::fs::remove_dir_all(place.path("takeover"))?;
    let log = log_to_apply(&place.path("bucket takeover"))? as f64 / MIB;
    let at_a_distance = |bytes| near.clone().object_store_distance(REQUEST, bytes);
    let stores = [
        ("", near.clone()),
        (" at 20 ms a request", at_a_distance(CONNECTION << 10)),
        (" at 20 ms a request and 100 MiB a second", at_a_distance(CONNECTION)),
    ];
    for (store, options) in stores {
        let case = format!("takeover of {mib} MiB{store}");
        let path = place.path(&format!("taken over{store}"));
        // Each from the same state, and from a disk at rest: the files of the one before are gone.
        let bucket = format!("bucket taken over{store}");
        link_all(&place.path("bucket takeover"), &place.path(&bucket))?;
        std::fs::File::open(place.path(&bucket))?.sync_all()?;
        let url = place.url(&bucket);
        let mut add = |what, value, unit| report.add(&case, "shared", what, value, unit);
        let began = Instant::now();
        let db = options.open_shared(&url, &path)?;
        let table = db.table("t")?;
        ensure!(table.get(key(mib * 500))?.is_some(), "a row is not there");
        add("log to apply", log, "MiB");
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
        std::fs::remove_dir_all(place.path(&bucket))?;
    }
    Ok(())
}

/// Waits until the load has come to rest: all is shipped, and no checkpoint has come for a while.
fn settle(db: &Database) {
    let state = || db.stats().share.map_or((0, 0), |it| (it.lag_commits, it.checkpoints));
    let (mut seen, mut since) = (state(), Instant::now());
    while since.elapsed() < Duration::from_secs(5) {
        let_work(Duration::from_millis(100));
        let now = state();
        if now != seen || now.0 > 0 {
            (seen, since) = (now, Instant::now());
        }
    }
}

/// Bytes of the entries from the first one of the newest checkpoint on, by their headers.
fn log_to_apply(bucket: &Path) -> Result<u64> {
    let (mut entries, mut from) = (Vec::new(), (0, 0));
    for file in std::fs::read_dir(bucket)? {
        let file = file?;
        if !file.file_name().to_string_lossy().contains("log%") {
            continue;
        }
        let bytes = std::fs::read(file.path())?;
        let header = bytes.get(..64).context("an entry has no header")?;
        let field = |at| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        let (number, first, is_checkpoint) = (field(32), field(56), header[20] == 4);
        if is_checkpoint {
            from = from.max((number, first));
        }
        entries.push((number, bytes.len() as u64));
    }
    Ok(entries.iter().filter(|(number, _)| *number >= from.1).map(|(_, bytes)| bytes).sum())
}

/// Has the files of a directory in another one too. A store replaces files, and writes into none.
fn link_all(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => link_all(&entry.path(), &to)?,
            false => std::fs::hard_link(entry.path(), &to)?,
        }
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
        report.add(&case, "shared", "requests of a month", price(puts, gets) * MONTH, "dollars");
    }
    Ok(())
}
