//! A writer of a shared store is killed and its directory deleted, again and again. Each time
//! another process takes over in an empty directory. A parent keeps the ledger: every commit that
//! was acknowledged as remote is there, and of each thread at most the one under way besides. A
//! follower looks on all the time.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::path::Path;
use std::time::Duration;

use crate::common::child::{given, tell, told_until_killed};
use crate::common::{Chance, rounds, tiny};
use terrace::{Database, Durability, Follower, Options, Table, WriteBatch};

const THREADS: u64 = 3;

/// Rows of a thread: commit `n` puts one, and removes the one twenty before.
fn row(t: u64, n: u64) -> Vec<u8> {
    format!("{t} {n:08}").into_bytes()
}

fn value(t: u64, n: u64) -> Vec<u8> {
    Chance::new(t << 40 | n).bytes(100 + n as usize % 900)
}

fn last_key(t: u64) -> Vec<u8> {
    format!("{t} last").into_bytes()
}

fn url(directory: &Path) -> String {
    format!("file://{}", directory.join("bucket").display())
}

fn node(directory: &Path, round: u64) -> std::path::PathBuf {
    directory.join(format!("node {round}"))
}

/// The last commit of a thread; 0 before the first.
fn last(table: &Table, t: u64) -> u64 {
    let row = table.get(last_key(t)).unwrap();
    row.map_or(0, |row| u64::from_be_bytes(row[..].try_into().unwrap()))
}

/// Whether a table has what its last commits say.
fn check(table: &Table) {
    let snapshot = table.range(..).collect::<terrace::Result<Vec<_>>>().unwrap();
    for t in 0..THREADS {
        let of = |key: &[u8]| key.starts_with(format!("{t} ").as_bytes());
        let rows: Vec<_> = snapshot.iter().filter(|(key, _)| of(key)).collect();
        let Some(((_, n), rows)) = rows.split_last() else { continue };
        let n = u64::from_be_bytes(n[..].try_into().unwrap());
        let expected: Vec<_> =
            (n.saturating_sub(20) + 1..=n).map(|n| (row(t, n), value(t, n))).collect();
        assert_eq!(rows.len(), expected.len(), "thread {t} at {n}");
        for ((key, value), (expected_key, expected_value)) in rows.iter().zip(&expected) {
            assert_eq!((&key[..], &value[..]), (&expected_key[..], &expected_value[..]));
        }
    }
}

fn open(directory: &Path, round: u64) -> Database {
    let path = node(directory, round);
    match round {
        0 => tiny().object_store(url(directory)).share(true).open(path).unwrap(),
        _ => tiny().open_shared(&url(directory), path).unwrap(),
    }
}

/// Not a test of its own: what the killed process runs. Without its variables it does nothing.
#[test]
fn child_entry() {
    let Some((directory, round)) = given() else { return };
    let db = open(&directory, round.parse().unwrap());
    let table = db.table("rows").unwrap();
    check(&table);
    for t in 0..THREADS {
        tell(&format!("found {t} {}", last(&table, t)));
    }
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for n in last(table, t) + 1.. {
                    let mut batch = WriteBatch::new();
                    batch.put(table, row(t, n), value(t, n));
                    batch.put(table, last_key(t), n.to_be_bytes());
                    if n > 20 {
                        batch.delete(table, row(t, n - 20));
                    }
                    db.write_with(&batch, Durability::Remote).unwrap();
                    tell(&format!("ack {t} {n}"));
                }
            });
        }
    });
}

/// What a follower shows is whole, and it goes on to what is shipped.
fn look_on(follower: &Follower, options: Options, url: &str) {
    let shipped = options.shared_status(url).unwrap().commit;
    let began = std::time::Instant::now();
    while follower.status().commit < shipped {
        assert!(began.elapsed() < Duration::from_mins(2), "{:?}", follower.status());
        std::thread::yield_now();
    }
    let db = follower.database().unwrap();
    // One moment, while it goes on.
    let snapshot = db.snapshot().unwrap();
    let table = db.existing_table("rows").unwrap();
    for t in 0..THREADS {
        let n = snapshot.get(&table, last_key(t)).unwrap();
        let n = n.map_or(0, |row| u64::from_be_bytes(row[..].try_into().unwrap()));
        if n > 0 {
            let shown = snapshot.get(&table, row(t, n)).unwrap().unwrap();
            assert_eq!(&shown[..], &value(t, n)[..], "thread {t} at {n}");
        }
        if n > 20 {
            assert_eq!(snapshot.get(&table, row(t, n - 20)).unwrap(), None);
        }
    }
}

#[test]
fn a_lost_machine_loses_nothing_that_was_remote() {
    let dir = tempfile::tempdir().unwrap();
    let (directory, url) = (dir.path(), url(dir.path()));
    let mut acked = [0; THREADS as usize];
    let mut follower: Option<Follower> = None;
    let enough = rounds(3, 20);
    for round in 0..10 * enough {
        // A slow machine takes more rounds for as many commits.
        if round >= enough && acked.iter().all(|n| *n > 5) {
            break;
        }
        let wait = Duration::from_millis(900 + 130 * (round % 7));
        let entry = "lost_machine::child_entry";
        let told = told_until_killed(entry, directory, &round.to_string(), wait);
        std::fs::remove_dir_all(node(directory, round)).unwrap();
        for line in &told {
            let (what, numbers) = line.split_once(' ').unwrap();
            let (t, n) = numbers.split_once(' ').unwrap();
            let (t, n): (usize, u64) = (t.parse().unwrap(), n.parse().unwrap());
            if what == "found" {
                assert!((acked[t]..=acked[t] + 1).contains(&n), "round {round}: {n}, {acked:?}");
            }
            acked[t] = n;
        }
        let follower = follower
            .get_or_insert_with(|| tiny().follow(&url, directory.join("follower")).unwrap());
        look_on(follower, tiny(), &url);
    }
    assert!(acked.iter().all(|n| *n > 5), "{acked:?}");
    let path = directory.join("last");
    let db = tiny().open_shared(&url, path).unwrap();
    let table = db.table("rows").unwrap();
    check(&table);
    for t in 0..THREADS {
        let found = last(&table, t);
        assert!((acked[t as usize]..=acked[t as usize] + 1).contains(&found), "{found} {acked:?}");
    }
    assert_eq!(db.verify().unwrap().damages, []);
}
