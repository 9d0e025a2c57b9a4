//! `scaling`: what an operation costs beside `n` of something, and beside ten times as many. A cost
//! that grows with them shows as a ratio near 10; one that does not, near 1.

#[cfg(feature = "watch")]
use std::io::{Read, Write};
#[cfg(feature = "watch")]
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use parking_lot::{Condvar, Mutex};
use terrace::{Database, Durability, Isolation, Options, Table, TxnOptions, WriteBatch};

use crate::Settings;
use crate::report::Report;

/// What there is many of, and an operation beside them.
struct Subject {
    name: &'static str,
    few: usize,
    /// Nanoseconds of an operation beside so many.
    cost: fn(&Path, usize) -> Result<f64>,
}

const SUBJECTS: [Subject; 18] = [
    Subject { name: "tables: a put", few: 1000, cost: put_beside_tables },
    Subject { name: "tables: opening, for each", few: 1000, cost: open_tables },
    Subject { name: "snapshots: a put", few: 1000, cost: put_beside_snapshots },
    Subject { name: "snapshots: taking one", few: 1000, cost: take_snapshots },
    Subject { name: "savepoints: setting one", few: 1000, cost: set_savepoints },
    Subject { name: "prepared transactions: preparing one", few: 1000, cost: prepare },
    Subject { name: "runs of bulk loads: a get", few: 100, cost: get_beside_extents },
    Subject { name: "range tombstones: a delete of a range", few: 10_000, cost: delete_ranges },
    Subject { name: "range tombstones: a get", few: 10_000, cost: get_beside_ranges },
    Subject { name: "range tombstones: their drain, for each", few: 10_000, cost: drain_ranges },
    Subject { name: "range locks: a lock of a row", few: 1000, cost: lock_beside_ranges },
    Subject { name: "range deletes of one batch: each", few: 1000, cost: delete_in_a_batch },
    Subject { name: "own writes: a put", few: 10_000, cost: put_beside_own },
    Subject { name: "own deletes: the first row", few: 10_000, cost: first_beside_own_deletes },
    Subject { name: "versions of a row: a get", few: 10_000, cost: get_beside_versions },
    Subject { name: "row locks: one more", few: 100_000, cost: lock_rows },
    Subject { name: "threads that rest after reading: a put", few: 100, cost: put_beside_readers },
    Subject { name: "backups of a set: one more", few: 10, cost: back_up },
];

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    for Subject { name, few, cost } in SUBJECTS {
        if !settings.wants(name, "terrace") {
            continue;
        }
        let few = if settings.quick { few / 10 } else { few };
        for _ in 0..settings.rounds_within(1) {
            let mut costs = [0.0; 2];
            for (value, count) in costs.iter_mut().zip([few, 10 * few]) {
                let dir = tempfile::tempdir_in(&settings.dir)?;
                *value = cost(&dir.path().join("db"), count)?;
            }
            report.add(name, "terrace", &format!("at {few}"), costs[0], "ns");
            report.add(name, "terrace", "at ten times as many", costs[1], "ns");
            report.add(name, "terrace", "ratio", costs[1] / costs[0], "");
        }
    }
    let readers = ("readers of other openings: a put", "beside ten");
    beside(settings, report, readers, |_, path, end| {
        std::thread::scope(|scope| {
            let spawn = |_| scope.spawn(|| read_beside(path, end));
            let readers: Vec<_> = (0..10).map(spawn).collect();
            let join = |reader: ScopedJoinHandle<'_, Result<()>>| {
                reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))?
            };
            readers.into_iter().try_for_each(join)
        })
    })?;
    #[cfg(feature = "watch")]
    beside(settings, report, ("browsers of the page: a put", "beside fifty"), |db, _, end| {
        browse(db, end)
    })?;
    Ok(())
}

/// What goes on beside a writer, until it is told to end.
type Others = fn(&Database, &Path, &End) -> Result<()>;

/// Whether what goes on beside a writer is to end.
#[derive(Default)]
struct End {
    has_come: Mutex<bool>,
    changed: Condvar,
}

impl End {
    fn tell(&self) {
        *self.has_come.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for a second, or for the end; whether that has come.
    fn has_come_in_a_second(&self) -> bool {
        let mut has_come = self.has_come.lock();
        let wait = |has_come: &mut bool| !*has_come;
        self.changed.wait_while_for(&mut has_come, wait, Duration::from_secs(1));
        *has_come
    }
}

/// How many puts a second a writer makes alone, and beside others. The two cases take turns, so
/// that neither has the smaller database.
fn beside(
    settings: &Settings,
    report: &mut Report,
    (name, beside): (&str, &str),
    others: Others,
) -> Result<()> {
    if !settings.wants(name, "terrace") {
        return Ok(());
    }
    let dir = tempfile::tempdir_in(&settings.dir)?;
    let path = dir.path().join("db");
    let (db, table) = open(&path)?;
    puts(&table)?;
    let turn = Duration::from_secs(settings.pick(2, 5, 20));
    for _ in 0..settings.rounds_within(1) {
        let mut rates = [0.0; 2];
        for _ in 0..3 {
            rates[0] += puts_beside(&table, turn, |_| Ok(()))? / 3.0;
            rates[1] += puts_beside(&table, turn, |end| others(&db, &path, end))? / 3.0;
        }
        report.add(name, "terrace", "alone", rates[0], "puts/s");
        report.add(name, "terrace", beside, rates[1], "puts/s");
        report.add(name, "terrace", "ratio", rates[1] / rates[0], "");
    }
    Ok(())
}

fn puts_beside(
    table: &Table,
    turn: Duration,
    others: impl FnOnce(&End) -> Result<()> + Send,
) -> Result<f64> {
    let end = End::default();
    std::thread::scope(|scope| {
        let others = scope.spawn(|| others(&end));
        let (began, mut done, mut written) = (Instant::now(), 0.0, Ok(0.0));
        while written.is_ok() && began.elapsed() < turn {
            written = puts(table);
            done += 20_000.0;
        }
        let rate = done / began.elapsed().as_secs_f64();
        end.tell();
        others.join().map_err(|_| anyhow::anyhow!("what goes on beside the writer panicked"))??;
        written.map(|_| rate)
    })
}

/// A reader refreshes once a second, and gets ten rows.
fn read_beside(path: &Path, end: &End) -> Result<()> {
    let mut db = Options::new().open_read_only(path)?;
    loop {
        db = db.refresh()?;
        let table = db.existing_table("t")?;
        (0..10).try_for_each(|n| table.get(key(mixed(n))).map(drop))?;
        if end.has_come_in_a_second() {
            return Ok(());
        }
    }
}

/// Fifty browsers, each of which asks for the page, and for the charts, once a second.
#[cfg(feature = "watch")]
fn browse(db: &Database, end: &End) -> Result<()> {
    let monitor = terrace_monitor::serve(db, "127.0.0.1:0")?;
    loop {
        for _ in 0..50 {
            get(monitor.address(), "/")?;
            get(monitor.address(), "/history.json")?;
        }
        if end.has_come_in_a_second() {
            return Ok(());
        }
    }
}

/// Asks, and reads the answer. The page ends each connection behind it.
#[cfg(feature = "watch")]
fn get(address: SocketAddr, path: &str) -> Result<()> {
    let mut browser = TcpStream::connect(address)?;
    write!(browser, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    browser.read_to_end(&mut answer)?;
    anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200 "), "the page refuses {path}");
    Ok(())
}

fn open(path: &Path) -> Result<(Database, Table)> {
    let db = Options::new().pm_size(256 << 20).open(path)?;
    let table = db.table("t")?;
    Ok((db, table))
}

fn key(n: usize) -> [u8; 8] {
    (n as u64).to_be_bytes()
}

/// A number for each of `0..`, in no order.
fn mixed(n: usize) -> usize {
    (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 20
}

/// Mean nanoseconds of `times` calls.
fn each<T>(times: usize, mut call: impl FnMut(usize) -> terrace::Result<T>) -> Result<f64> {
    let began = Instant::now();
    for n in 0..times {
        drop(call(n)?);
    }
    Ok(began.elapsed().as_nanos() as f64 / times as f64)
}

fn puts(table: &Table) -> Result<f64> {
    let table = table.durability(Durability::Relaxed);
    each(20_000, |n| table.put(key(mixed(n)), [1; 100]))
}

fn gets(table: &Table, keys: usize) -> Result<f64> {
    each(20_000, |n| table.get(key(mixed(n) % keys)))
}

/// A transaction without time limits that may hold as many locks as it takes.
fn begin(db: &Database) -> Result<terrace::Transaction> {
    Ok(db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted))?)
}

fn create_tables(path: &Path, count: usize) -> Result<(Database, Table)> {
    let (db, table) = open(path)?;
    for n in 0..count {
        db.table(&format!("table {n:06}"))?.durability(Durability::Relaxed).put("row", [1; 100])?;
    }
    Ok((db, table))
}

fn put_beside_tables(path: &Path, count: usize) -> Result<f64> {
    let (_db, table) = create_tables(path, count)?;
    puts(&table)
}

fn open_tables(path: &Path, count: usize) -> Result<f64> {
    create_tables(path, count)?.0.close()?;
    let began = Instant::now();
    drop(open(path)?);
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

fn put_beside_snapshots(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let held = snapshots(&db, &table, count)?;
    let cost = puts(&table);
    drop(held);
    cost
}

fn snapshots(db: &Database, table: &Table, count: usize) -> Result<Vec<terrace::Snapshot>> {
    let mut held = Vec::with_capacity(count);
    for n in 0..count {
        table.durability(Durability::Relaxed).put(key(n % 100), [1; 100])?;
        held.push(db.snapshot()?);
    }
    Ok(held)
}

fn take_snapshots(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let held = snapshots(&db, &table, count)?;
    let cost = each(2000, |_| db.snapshot());
    drop(held);
    cost
}

fn set_savepoints(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let txn = begin(&db)?;
    for n in 0..count {
        txn.put(&table, key(n), "v")?;
        txn.set_savepoint(&format!("{n}"))?;
    }
    each(1000, |n| {
        let name = format!("more {n}");
        txn.set_savepoint(&name)?;
        txn.put(&table, key(count + n), "v")?;
        txn.roll_back_to(&name)
    })
}

fn prepare(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let one = |n: usize| -> terrace::Result<()> {
        let txn = db.begin_with(TxnOptions::new().durability(Durability::Relaxed))?;
        txn.put(&table, key(n), "v")?;
        txn.prepare(format!("{n}"))
    };
    (0..count).try_for_each(one)?;
    each(500, |n| one(count + n))
}

fn get_beside_extents(path: &Path, count: usize) -> Result<f64> {
    let (_db, table) = open(path)?;
    for n in 0..count {
        let mut load = table.bulk_load(terrace::Existing::Refuse)?;
        for row in 0..10 {
            load.put(key(n * 10 + row), [1; 100])?;
        }
        load.finish()?;
    }
    gets(&table, 10 * count)
}

fn ranges(db: &Database, table: &Table, count: usize) -> Result<f64> {
    each(count, |n| {
        let (start, mut batch) = (mixed(n), WriteBatch::new());
        batch.delete_range(table, key(start)..key(start + 3));
        db.write_with(&batch, Durability::Relaxed)
    })
}

fn delete_ranges(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    ranges(&db, &table, count)?;
    ranges(&db, &table, 2000)
}

fn get_beside_ranges(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    ranges(&db, &table, count)?;
    gets(&table, 1 << 40)
}

fn drain_ranges(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    ranges(&db, &table, count)?;
    let began = Instant::now();
    db.compact_range(&table, ..)?;
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

fn lock_beside_ranges(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let txn = begin(&db)?;
    for n in 0..count {
        drop(txn.range_for_update(&table, key(n * 10)..key(n * 10 + 3))?);
    }
    let other = begin(&db)?;
    each(2000, |n| other.put(&table, key(mixed(n) % count * 10 + 5), "v"))
}

fn delete_in_a_batch(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let txn = begin(&db)?;
    let began = Instant::now();
    for n in 0..count {
        txn.delete_range(&table, key(n * 10)..key(n * 10 + 3))?;
    }
    txn.commit()?;
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

fn put_beside_own(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let txn = begin(&db)?;
    (0..count).try_for_each(|n| txn.put(&table, key(mixed(n)), "v"))?;
    each(5000, |n| txn.put(&table, key(mixed(count + n)), "v"))
}

fn first_beside_own_deletes(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let mut batch = WriteBatch::new();
    for n in 0..count + 500 {
        batch.put(&table, key(n), "v");
    }
    db.write(batch)?;
    let txn = begin(&db)?;
    (0..count).try_for_each(|n| txn.delete(&table, key(n)))?;
    each(200, |_| txn.pop_first(&table))
}

fn get_beside_versions(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    table.put("row", "oldest")?;
    // Each version has a snapshot that needs it.
    let mut held = vec![db.snapshot()?];
    for n in 0..count {
        table.durability(Durability::Relaxed).put("row", key(n))?;
        held.push(db.snapshot()?);
    }
    each(20_000, |n| held[mixed(n) % held.len()].get(&table, "row"))
}

fn lock_rows(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let txn = begin(&db)?;
    for n in 0..count {
        txn.get_for_update(&table, key(mixed(n)))?;
    }
    each(5000, |n| txn.get_for_update(&table, key(mixed(count + n))))
}

fn put_beside_readers(path: &Path, count: usize) -> Result<f64> {
    let (_db, table) = open(path)?;
    puts(&table)?;
    let (rest, end) = (Barrier::new(count + 1), Barrier::new(count + 1));
    std::thread::scope(|scope| {
        for n in 0..count {
            let (table, rest, end) = (&table, &rest, &end);
            scope.spawn(move || {
                let read = (0..500).try_for_each(|k| table.get(key(mixed(n + k))).map(drop));
                rest.wait();
                end.wait();
                read
            });
        }
        rest.wait();
        let cost = puts(&table);
        end.wait();
        cost
    })
}

fn back_up(path: &Path, count: usize) -> Result<f64> {
    let (db, table) = open(path)?;
    let set = path.with_extension("set");
    let one = |n: usize| -> terrace::Result<()> {
        table.put(key(n), [1; 100])?;
        db.backup(&set).map(drop)
    };
    (0..count).try_for_each(one)?;
    each(5, |n| one(count + n))
}
