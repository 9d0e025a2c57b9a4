//! The parts of the executor that no user sees: its end by the last handle, and what is drawn.

mod reads;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use super::Database;
use crate::base::error::ErrorKind;
use crate::base::options::{Compression, Durability, Options};
use crate::per_core::PerCore;

fn open(options: Options) -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let db = options.open(dir.path().join("db")).unwrap();
    (dir, db)
}

#[test]
fn queued_work_ends_with_closed_when_the_last_handle_goes() {
    let (_dir, db) = open(Options::new().pm_size(2 << 20));
    let cores = db.per_core(1).unwrap();
    let (is_closed, ran) = (cores.closes(), Arc::new(AtomicBool::new(false)));
    let (go_on, gate) = mpsc::channel::<()>();
    let (began, begins) = mpsc::channel();
    let running = cores.submit_to(0, move |_| {
        began.send(()).unwrap();
        gate.recv().unwrap();
        Ok(1)
    });
    begins.recv().unwrap();
    let runs = Arc::clone(&ran);
    let queued = cores.submit_to(0, move |_| {
        runs.store(true, Ordering::Release);
        Ok(2)
    });
    let (running, queued) = (running.unwrap(), queued.unwrap());
    thread::scope(|scope| {
        scope.spawn(move || drop(cores));
        while !is_closed() {
            thread::yield_now();
        }
        assert!(!running.is_done() && !queued.is_done());
        go_on.send(()).unwrap();
    });
    assert_eq!(running.wait().unwrap(), 1, "a closure that runs is waited for");
    assert_eq!(queued.wait().unwrap_err().kind(), ErrorKind::Closed);
    assert!(!ran.load(Ordering::Acquire), "what has not begun does not run");
}

/// Which shards own the keys, in the order of the keys, without repetitions.
fn owners(cores: &PerCore, db: &Database, table: &str) -> Vec<usize> {
    let table = db.existing_table(table).unwrap();
    let sharded = cores.table(&table).unwrap();
    let keys = table.iter().map(|row| row.unwrap().0);
    let mut owners: Vec<usize> = keys.map(|key| sharded.shard_of(key)).collect();
    owners.dedup();
    owners
}

fn fill(db: &Database, table: &str, rows: u32, len: usize) {
    let table = db.table(table).unwrap();
    for n in 0..rows {
        let key = n.wrapping_mul(0x9E37_79B9).to_be_bytes();
        table.durability(Durability::Relaxed).put(key, vec![7; len]).unwrap();
    }
}

#[test]
fn small_tables_have_one_shard_and_large_ones_are_cut() {
    let none = Compression::None;
    let (_dir, db) = open(Options::new().pm_size(4 << 20).compression(none, none));
    for name in ["s0", "s1", "s2", "s3"] {
        fill(&db, name, 50, 300);
    }
    fill(&db, "memory", 1000, 300);
    let cores = db.per_core(2).unwrap();
    let cut = owners(&cores, &db, "memory");
    assert!(cut.len() > 100, "by a hash: no level has extents");
    let mut whole: Vec<usize> = ["s0", "s1", "s2", "s3"]
        .iter()
        .flat_map(|name| {
            let owners = owners(&cores, &db, name);
            assert_eq!(owners.len(), 1, "{name} is one shard's");
            owners
        })
        .collect();
    whole.sort_unstable();
    assert_eq!(whole, [0, 0, 1, 1], "small tables are spread by their sizes");

    fill(&db, "disk", 12_000, 2000);
    db.compact_range(&db.existing_table("disk").unwrap(), ..).unwrap();
    let cores = db.per_core(2).unwrap();
    assert_eq!(owners(&cores, &db, "disk"), [0, 1, 0, 1, 0, 1, 0, 1], "eight ranges of extents");
    fill(&db, "later", 1000, 300);
    assert!(owners(&cores, &db, "later").len() > 100, "a table of later is cut by a hash");
    assert_eq!(owners(&db.per_core(1).unwrap(), &db, "disk"), [0]);
}

/// Bug: a merge operator that waited for a shard could wait for the shard that needed the operator.
/// Cause: waits asked only whether their thread is a shard's. Fix: a wait that would last fails
/// inside of an operator, as each call of a database does. What is done already is handed out.
#[test]
fn waits_for_shards_inside_of_an_operator_are_refused() {
    let (_dir, db) = open(Options::new().pm_size(2 << 20));
    fill(&db, "t", 10, 10);
    let cores = db.per_core(2).unwrap();
    let table = cores.table(&db.existing_table("t").unwrap()).unwrap();
    let (go_on, gate) = mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let blocks = |shard| {
        let gate = Arc::clone(&gate);
        let waits = cores.submit_to(shard, move |_| {
            gate.lock().unwrap().recv().unwrap();
            Ok(shard)
        });
        waits.unwrap()
    };
    let done = cores.submit_to(0, |_| Ok(7)).unwrap();
    while !done.is_done() {
        thread::yield_now();
    }
    let under_way = [blocks(0), blocks(1)];
    let mut batch = cores.batch();
    (0..10u32).for_each(|n| _ = batch.get(&table, n.wrapping_mul(0x9E37_79B9).to_be_bytes()));
    let batch = batch.submit().unwrap();
    let inside = || {
        let refused = under_way.map(|task| task.wait().unwrap_err());
        let closed = cores.clone().close().unwrap_err();
        let batch = batch.wait().map(drop).unwrap_err();
        (refused.into_iter().chain([closed, batch]).collect::<Vec<_>>(), done.wait())
    };
    let (refused, done) = crate::base::operator::run(inside).unwrap();
    (0..2).for_each(|_| go_on.send(()).unwrap());
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("merge operator"), "{error}");
    }
    assert_eq!(done.unwrap(), 7);
    assert_eq!(cores.submit_to(1, |_| Ok(8)).unwrap().wait().unwrap(), 8, "it goes on");
    cores.close().unwrap();
}
