//! Events of a running database: each is told once, in order, and nothing waits for who is told.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::mem::discriminant;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{tiny, wait_until};
use terrace::events::{DrainInfo, Event};
use terrace::{Database, Durability, Existing, Options, Stats, Table, WriteBatch};

const LONG: Duration = Duration::from_mins(2);

/// What was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Event>>>);

impl Told {
    fn by(&self, options: Options) -> Options {
        let told = self.clone();
        options.on_event(move |event| told.0.lock().unwrap().push(event.clone()))
    }

    fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// Of one kind.
    fn of<T>(&self, kind: impl Fn(Event) -> Option<T>) -> Vec<T> {
        self.all().into_iter().filter_map(kind).collect()
    }

    fn drains(&self) -> Vec<DrainInfo> {
        self.of(|event| if let Event::Drain(info) = event { Some(info) } else { None })
    }
}

/// In memory, small enough for all jobs to run.
fn small() -> Options {
    tiny().in_memory(64 << 20)
}

fn fill(table: &Table, rows: std::ops::Range<u64>) {
    let table = table.durability(Durability::Relaxed);
    for n in rows {
        let words = (0..25u64).map(|i| (n << 8 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let value: Vec<u8> = words.flat_map(|word| (word ^ word >> 29).to_be_bytes()).collect();
        table.put(n.to_be_bytes(), value).unwrap();
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Steps a database until nothing is left to do.
fn rest(db: &Database) {
    while db.step().unwrap() {}
}

fn by_hand(db: &Database, table: &Table) {
    fill(table, 0..50);
    std::thread::scope(|scope| {
        let compacted = scope.spawn(|| db.compact_range(table, ..));
        while !compacted.is_finished() {
            db.step().unwrap();
        }
        compacted.join().unwrap().unwrap();
    });
    rest(db);
}

/// Drains for each reason, compactions and moves.
fn work(db: &Database) -> Stats {
    let table = db.table("t").unwrap();
    for part in 0..40 {
        fill(&table, part * 200..(part + 1) * 200);
        rest(db);
    }
    // The second one meets what the first one has brought down.
    let small = db.table("small").unwrap();
    (0..2).for_each(|_| by_hand(db, &small));
    let loaded = db.table("loaded").unwrap();
    let mut load = loaded.bulk_load(Existing::Replace).unwrap();
    for n in 0..2000u64 {
        load.put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    load.finish().unwrap();
    rest(db);
    let mut large = WriteBatch::new();
    for n in 0..10_000u64 {
        large.put(&loaded, n.to_be_bytes(), [2; 100]);
    }
    db.write(large).unwrap();
    rest(db);
    loaded.delete_range(..).unwrap();
    rest(db);
    for n in 0..8000u64 {
        table.durability(Durability::Relaxed).delete(n.to_be_bytes()).unwrap();
        if n % 200 == 0 {
            rest(db);
        }
    }
    rest(db);
    db.stats()
}

#[test]
fn each_job_is_told_once_and_in_order_with_what_it_did() {
    let (told, before) = (Told::default(), now_ms());
    let db = told.by(small().stepped()).open("db").unwrap();
    let opened = db.stats().open;
    let Stats { background: stats, tables, .. } = work(&db);
    db.close().unwrap();
    let all = told.all();
    let (first, last) = (all.first().unwrap(), all.last().unwrap());
    let Event::Opened(info) = first else { panic!("{first:?}") };
    assert_eq!((info.mode, info.read_only, info.ms), ("file", false, opened.total_ms));
    assert!(matches!(last, Event::Closed(info) if info.error.is_none()), "{last:?}");
    assert_eq!(all.iter().filter(|event| discriminant(*event) == discriminant(last)).count(), 1);
    assert!(all.is_sorted_by(|a, b| a.number() < b.number() && a.at_ms() <= b.at_ms()));
    assert!(before <= first.at_ms() && last.at_ms() <= now_ms());
    assert!(all.iter().all(|event| event.dropped() == 0));

    let flushes = told.of(|event| if let Event::Flush(info) = event { Some(info) } else { None });
    assert_eq!(flushes.len() as u64, stats.merges);
    assert!(stats.merges > 0 && flushes.iter().all(|flush| !flush.row_table));
    let left = tables.iter().map(|table| table.memtable_records).sum::<u64>();
    let flushed = flushes.iter().map(|flush| flush.records).sum::<u64>();
    assert!(flushed > 0 && flushed + left >= 16_100, "{flushed} and {left} of what was written");
    assert!(flushes.iter().all(|flush| (flush.bytes > 0) == (flush.records > 0)));

    let drains = told.drains();
    assert_eq!(drains.len() as u64, stats.drains);
    let of_level0 = drains.iter().map(|drain| drain.level0_bytes).sum::<u64>();
    assert_eq!(of_level0, stats.drained_level0_bytes);
    for reason in ["region", "runs", "deletes", "call"] {
        assert!(drains.iter().any(|drain| drain.reason == reason), "{reason}: {drains:?}");
    }
    let by_deletes = drains.iter().filter(|drain| drain.reason == "deletes").count() as u64;
    assert_eq!(by_deletes, stats.tombstone_drains);
    assert!(drains.iter().any(|drain| drain.table == "loaded" && drain.reason == "runs"));
    assert!(drains.iter().all(|drain| (drain.extents_out > 0) == (drain.bytes_out > 0)));
    assert!(drains.iter().any(|drain| drain.bytes_out > 0 && drain.ms > 0.0));

    let compactions =
        told.of(|event| if let Event::Compaction(info) = event { Some(info) } else { None });
    let (hidden, others): (Vec<_>, Vec<_>) =
        compactions.iter().partition(|info| info.reason == "hidden");
    assert_eq!(hidden.len() as u64, stats.delete_only_compactions);
    let bytes = hidden.iter().map(|info| info.bytes_in).sum::<u64>();
    assert!(bytes > 0 && bytes == stats.delete_only_bytes);
    let (moves, merges): (Vec<_>, Vec<_>) = others.into_iter().partition(|info| info.is_move);
    assert_eq!(moves.iter().map(|info| info.extents_in).sum::<u64>(), stats.moves);
    assert_eq!(merges.len() as u64, stats.compactions);
    assert!(moves.iter().any(|info| info.reason == "load" && info.from_level == 0), "{moves:?}");
    assert!(stats.compactions > 0);
    let moved = compactions.iter().map(|info| info.extents_moved).sum::<u64>();
    assert_eq!(moved, stats.trivially_moved_extents);
    assert!(moves.iter().all(|info| info.extents_out == 0 && info.from_level < info.to_level));
    assert!(merges.iter().all(|info| info.extents_in > 0 && info.bytes_in > 0), "{merges:?}");
    assert!(merges.iter().any(|info| info.bytes_out > 0 && info.reason == "call"), "{merges:?}");
    assert!(merges.iter().any(|info| info.from_level == 1 && info.to_level == 2), "{merges:?}");
}

/// A database that has a memtable merged, and a drain, with each call.
fn compact(db: &Database) {
    let table = db.table("t").unwrap();
    table.put("k", "v").unwrap();
    db.compact_range(&table, ..).unwrap();
}

#[test]
fn nothing_waits_for_who_is_slow_and_what_is_left_out_is_counted() {
    let (told, (go, wait)) = (Told::default(), mpsc::channel::<()>());
    let (listens, wait) = (told.clone(), Mutex::new(wait));
    let options = small().on_event(move |event| {
        if listens.all().is_empty() {
            wait.lock().unwrap().recv_timeout(LONG).unwrap();
        }
        listens.0.lock().unwrap().push(event.clone());
    });
    let db = options.open("db").unwrap();
    let sent = || {
        let stats = db.stats().background;
        stats.merges + stats.drains + stats.compactions + stats.moves
    };
    while sent() < 1200 {
        compact(&db);
    }
    assert!(told.all().is_empty(), "who is told has not come to the second event");
    go.send(()).unwrap();
    wait_until("the queue is empty", || told.all().len() >= 1025);
    compact(&db);
    let sent = 2 + sent();
    db.close().unwrap();
    let all = told.all();
    let dropped: Vec<u64> = all.iter().map(Event::dropped).filter(|dropped| *dropped > 0).collect();
    assert_eq!(dropped.len(), 1, "the next that fits says it");
    assert_eq!(all.len() as u64 + dropped[0], sent);
}

#[test]
fn a_panic_of_who_is_told_ends_there() {
    let told = Told::default();
    let listens = told.clone();
    let options = small().on_event(move |event| {
        listens.0.lock().unwrap().push(event.clone());
        panic!("planned");
    });
    let db = options.open("db").unwrap();
    compact(&db);
    db.close().unwrap();
    let all = told.all();
    assert!(matches!(all[..], [Event::Opened(_), .., Event::Closed(_)]), "{all:?}");
    assert!(!told.drains().is_empty());
}

/// A database that who is told of its events can have.
type Lent = Arc<Mutex<Option<Database>>>;

#[test]
fn who_is_told_may_call_the_database() {
    let (lent, (tell, told)) = (Lent::default(), mpsc::channel());
    let has = Arc::clone(&lent);
    let options = small().on_event(move |event| {
        if let (Event::Drain(_), Some(db)) = (event, &*has.lock().unwrap()) {
            let table = db.table("events").unwrap();
            table.put("k", "told").unwrap();
            tell.send(db.stats().background.drains).unwrap();
        }
    });
    let db = options.open("db").unwrap();
    *lent.lock().unwrap() = Some(db.clone());
    compact(&db);
    assert!(told.recv_timeout(LONG).unwrap() > 0);
    assert!(db.table("events").unwrap().get("k").unwrap().is_some());
    *lent.lock().unwrap() = None;
    db.close().unwrap();
}

/// Who is told closes the database, by a call or with its last handle: its thread would wait for
/// itself.
#[test]
fn who_is_told_may_close_the_database() {
    for by_call in [true, false] {
        let (lent, (tell, told)) = (Lent::default(), mpsc::channel());
        let has = Arc::clone(&lent);
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let options = small().on_event(move |event| {
            if let Event::Drain(_) = event
                && let Some(db) = has.lock().unwrap().take()
            {
                wait.lock().unwrap().recv_timeout(LONG).unwrap();
                if by_call {
                    db.clone().close().unwrap();
                }
                drop(db);
            }
            tell.send(event.clone()).unwrap();
        });
        let db = options.clone().open("db").unwrap();
        *lent.lock().unwrap() = Some(db.clone());
        compact(&db);
        drop(db);
        go.send(()).unwrap();
        let closed = loop {
            if let Event::Closed(info) = told.recv_timeout(LONG).unwrap() {
                break info;
            }
        };
        assert_eq!(closed.error, None);
        // The thread has ended, or this opening would find the database in use.
        let again = options.open("db").unwrap();
        assert!(again.table("t").unwrap().get("k").unwrap().is_some());
        again.close().unwrap();
        let all: Vec<Event> = told.try_iter().collect();
        assert!(matches!(all[..], [Event::Opened(_), .., Event::Closed(_)]), "{all:?}");
    }
}
