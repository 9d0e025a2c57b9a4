//! What the process holds under a memory limit, as the operating system sees it. Alone in its
//! process, with the allocator that users have.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{Chance, alone, rounds};
use terrace::{Compression, Database, Durability, Options, Table};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 32 * MIB;

/// Bytes of memory, without what files are behind.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn key(n: u64) -> String {
    format!("{n:08}")
}

/// Each of two threads reads and writes at random; their memory is the background's a while later,
/// and the other way round.
fn work(table: &Table, rows: u64, times: u64) {
    let one = |seed| {
        let mut chance = Chance::new(seed);
        for _ in 0..times {
            let n = chance.below(rows);
            table.durability(Durability::Relaxed).put(key(n), chance.bytes(1000)).unwrap();
            table.get(key(chance.below(rows))).unwrap();
        }
    };
    std::thread::scope(|scope| (1..3).for_each(|seed| drop(scope.spawn(move || one(seed)))));
}

/// Bug: under a limit the process held half as much again. Cause: a heap keeps what is freed near
/// the thread that had taken it, and blocks are read by one thread and pushed out by another. Fix:
/// what was freed goes back to the operating system.
#[test]
fn the_process_follows_the_limit() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let before = resident();
    let none = Compression::None;
    let options = Options::new().pm_size(4 * MIB).memory(LIMIT).compression(none, none);
    let db: Database = options.create(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let mut most = 0;
    for round in 0..rounds(12, 100) {
        work(&table, (round + 1) * 10_000, 5_000);
        most = most.max(resident() - before);
    }
    let disk = db.stats().disk.extent_bytes;
    assert!(disk > LIMIT / 2 * 3, "{disk} bytes on disk");
    assert!(most > LIMIT / 2, "{most} bytes: what is measured is not what is used");
    assert!(most <= LIMIT / 4 * 5, "{most} bytes for a limit of {LIMIT}");
}

/// The names of the threads of this process that databases have started.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end between the two calls.
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("terrace")).collect()
}

/// Bug: while one `Table` lived, a closed database kept the image of its region and all else that
/// it had in memory. The threads that read behind outlived all handles. Cause: both went with the
/// last handle, the threads some time after it. Fix: the closing gives them back.
#[test]
fn a_closed_database_gives_back_its_memory_and_its_threads() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let before = resident();
    let db = Options::new().pm_size(64 * MIB).create(dir.path().join("db")).unwrap();
    let (table, loaded) = (db.table("t").unwrap(), db.table("loaded").unwrap());
    let mut load = loaded.bulk_load(terrace::Existing::Refuse).unwrap();
    (0..8000).for_each(|n| load.put(key(n), Chance::new(n).bytes(1000)).unwrap());
    load.finish().unwrap();
    assert_eq!(loaded.range(..).count(), 8000);
    (0..20_000).for_each(|n| table.durability(Durability::Relaxed).put(key(n), [1; 1000]).unwrap());
    let open = resident() - before;
    assert!(open > 16 * MIB, "{open} bytes: what is measured is not what is used");
    assert!(threads().iter().any(|name| name.starts_with("terrace-read")), "{:?}", threads());
    let snapshot = db.snapshot().unwrap();
    db.clone().close().unwrap();
    let closed = resident().saturating_sub(before);
    // The image has 19 MiB of records, beside the index and the cache. Buffers for direct reads,
    // and what the heap keeps, belong to the process and may stay.
    assert!(open - closed > 20 * MIB, "{closed} bytes of {open} are left");
    // One that was joined may be listed for a moment.
    let late = Instant::now() + Duration::from_secs(60);
    while !threads().is_empty() && Instant::now() < late {
        std::thread::yield_now();
    }
    assert_eq!(threads(), [""; 0]);
    // Handles that are left say so, and nothing reads what is gone.
    for error in [table.get(key(1)).unwrap_err(), snapshot.get(&loaded, key(1)).unwrap_err()] {
        assert_eq!(error.kind(), terrace::ErrorKind::Closed);
    }
    assert_eq!((db.last_blob(), db.list_prepared().len()), (None, 0));
    assert_eq!(db.stats().tables.len(), 2);
}
