//! What a snapshot kept goes when it does, wherever it lies by then, and without further writes:
//! in level 0, in level 1, in level 2; and of two snapshots' versions those of the one that
//! goes.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use crate::common::{alone, indexed, tiny, together};
use terrace::{Database, Durability, Options, Snapshot, Table, WriteBatch};

/// Keys of the table, of which the last write deletes some.
const KEYS: u64 = 600;
const DELETED: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Level0,
    Level1,
    Level2,
}

impl Place {
    fn options(self) -> Options {
        let options = tiny().pm_size(8 << 20).stepped();
        match self {
            Place::Level0 => options,
            Place::Level1 => options.level1_size(64 << 20),
            Place::Level2 => options.level1_size(1),
        }
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n:04}").into_bytes()
}

/// A value that tells which write it is of.
fn value(n: u64, write: u8) -> Vec<u8> {
    let mut value = vec![write; 1000];
    value[1..9].copy_from_slice(&n.to_le_bytes());
    value
}

/// Does all that is to be done, also what waits until no writer writes.
fn run_until_idle(db: &Database) {
    for _ in 0..2 {
        while db.step().unwrap() {}
    }
}

/// Gives all keys a version; enough for a memtable.
fn write(db: &Database, table: &Table, write: u8) {
    write_keys(db, table, 0..KEYS, write);
}

fn write_keys(db: &Database, table: &Table, keys: std::ops::Range<u64>, write: u8) {
    for keys in keys.collect::<Vec<_>>().chunks(50) {
        let mut batch = WriteBatch::new();
        for n in keys {
            batch.put(table, key(*n), value(*n, write));
        }
        db.write_with(&batch, Durability::Relaxed).unwrap();
    }
    run_until_idle(db);
}

fn delete_some(db: &Database, table: &Table) {
    let mut batch = WriteBatch::new();
    (KEYS - DELETED..KEYS).for_each(|n| {
        batch.delete(table, key(n));
    });
    db.write_with(&batch, Durability::Relaxed).unwrap();
}

/// Where the table has how many records: in memtables, in level 0, in level 1, and below.
fn records(db: &Database) -> [u64; 4] {
    let stats = db.stats();
    let table = stats.tables.iter().find(|table| table.name == "t").unwrap();
    let at = |n: u8| table.levels.iter().filter(|l| l.level == n).map(|l| l.records).sum::<u64>();
    [table.memtable_records, table.level0_records, at(1), (2..8).map(at).sum()]
}

/// Fills another table until all of this one has got to its place.
fn push_down(db: &Database, place: Place) {
    let filler = db.table("filler").unwrap();
    for n in 0u64.. {
        let [memtables, level0, level1, _] = records(db);
        let is_there = match place {
            Place::Level0 => memtables == 0,
            Place::Level1 => memtables + level0 == 0,
            Place::Level2 => memtables + level0 + level1 == 0,
        };
        if is_there {
            return;
        }
        assert!(n < 400, "{place:?}: {:?}", db.stats());
        let mut batch = WriteBatch::new();
        (0..8).for_each(|k| {
            batch.put(&filler, (n * 8 + k).to_be_bytes(), [7; 8000]);
        });
        db.write_with(&batch, Durability::Relaxed).unwrap();
        while db.step().unwrap() {}
    }
}

fn assert_reads(snapshot: &Snapshot, table: &Table, write: u8) {
    let rows = snapshot.range(table, ..).map(|row| row.unwrap().1.to_vec());
    let all: Vec<_> = rows.collect();
    assert_eq!(all.len() as u64, KEYS);
    assert!((0..).zip(&all).all(|(n, found)| *found == value(n, write)), "not write {write}");
}

fn assert_now(table: &Table, write: u8, keys: u64) {
    let rows = table.range(..).map(|row| row.unwrap().1.to_vec());
    assert!(rows.eq((0..keys).map(|n| value(n, write))));
}

fn only(place: Place, records: u64) -> [u64; 4] {
    match place {
        Place::Level0 => [0, records, 0, 0],
        Place::Level1 => [0, 0, records, 0],
        Place::Level2 => [0, 0, 0, records],
    }
}

fn go_with_their_snapshots(place: Place) {
    let dir = tempfile::tempdir().unwrap();
    let db = place.options().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    write(&db, &table, 1);
    let old = db.snapshot().unwrap();
    write(&db, &table, 2);
    let young = db.snapshot().unwrap();
    write(&db, &table, 3);
    push_down(&db, place);
    run_until_idle(&db);
    assert_eq!(records(&db), only(place, 3 * KEYS), "{place:?}");
    assert_reads(&old, &table, 1);
    assert_reads(&young, &table, 2);

    drop(young);
    run_until_idle(&db);
    assert_eq!(records(&db), only(place, 2 * KEYS), "{place:?}: only the younger one saw them");
    assert_reads(&old, &table, 1);
    assert_now(&table, 3, KEYS);

    drop(old);
    run_until_idle(&db);
    assert_eq!(records(&db), only(place, KEYS), "{place:?}");
    assert_now(&table, 3, KEYS);
    let before = db.stats().background;
    run_until_idle(&db);
    let after = db.stats().background;
    assert_eq!((before.compactions, before.merges), (after.compactions, after.merges), "it ends");
    assert!(db.verify().unwrap().damages.is_empty());
}

/// Bug, here and below: a table without further writes kept what a snapshot had needed for
/// ever. Cause: level 0 looked at the keys of a merge alone, and the picker did not know which
/// extents keep versions. Fix: both note the readers they keep them for.
#[test]
fn versions_go_with_their_snapshots_in_level_0() {
    let _together = together();
    go_with_their_snapshots(Place::Level0);
}

#[test]
fn versions_go_with_their_snapshots_in_level_1() {
    let _together = together();
    go_with_their_snapshots(Place::Level1);
}

#[test]
fn versions_go_with_their_snapshots_in_level_2() {
    let _together = together();
    go_with_their_snapshots(Place::Level2);
}

/// One superseded version among many records, which is not worth a compaction while there are
/// writers.
#[test]
fn few_versions_go_too() {
    // Readers of other databases would delay the pruning, and the count is exact.
    let _alone = alone();
    for place in [Place::Level0, Place::Level1, Place::Level2] {
        let dir = tempfile::tempdir().unwrap();
        let db = place.options().open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        write(&db, &table, 1);
        let snapshot = db.snapshot().unwrap();
        table.put(key(3), value(3, 2)).unwrap();
        write_keys(&db, &table, KEYS..2 * KEYS, 1);
        push_down(&db, place);
        run_until_idle(&db);
        assert_eq!(records(&db), only(place, 2 * KEYS + 1), "{place:?}");
        drop(snapshot);
        run_until_idle(&db);
        assert_eq!(records(&db), only(place, 2 * KEYS), "{place:?}");
        assert_eq!(table.get(key(3)).unwrap().as_deref(), Some(&value(3, 2)[..]));
    }
}

/// With nothing below them they hide what the snapshot reads, and nothing else.
#[test]
fn deletes_go_with_what_they_hide() {
    let _together = together();
    let place = Place::Level2;
    let dir = tempfile::tempdir().unwrap();
    let db = place.options().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    write(&db, &table, 1);
    let snapshot = db.snapshot().unwrap();
    write(&db, &table, 2);
    delete_some(&db, &table);
    push_down(&db, place);
    run_until_idle(&db);
    assert_eq!(
        records(&db),
        only(place, 2 * KEYS),
        "the last of each, and what the snapshot reads"
    );
    assert_reads(&snapshot, &table, 1);
    drop(snapshot);
    run_until_idle(&db);
    assert_eq!(records(&db), only(place, KEYS - DELETED));
    assert_now(&table, 2, KEYS - DELETED);
}

/// No reader is left after a restart, and what was kept is known by its number.
#[test]
fn what_was_kept_goes_after_a_restart() {
    let _together = together();
    for place in [Place::Level1, Place::Level2] {
        let dir = tempfile::tempdir().unwrap();
        let open = || place.options().open(dir.path().join("db")).unwrap();
        let db = open();
        let table = db.table("t").unwrap();
        write(&db, &table, 1);
        let snapshot = db.snapshot().unwrap();
        write(&db, &table, 2);
        push_down(&db, place);
        drop((snapshot, table));
        db.close().unwrap();

        let db = open();
        assert_eq!(records(&db), only(place, 2 * KEYS), "{place:?}");
        let read_before = db.stats().disk.reads;
        let young = db.snapshot().unwrap();
        run_until_idle(&db);
        assert_eq!(records(&db), only(place, KEYS), "{place:?}");
        assert!(db.stats().disk.reads > read_before);
        assert_reads(&young, &db.table("t").unwrap(), 2);
    }
}

#[test]
fn what_was_kept_in_the_persistent_index_goes_after_a_restart() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let options = || indexed().pm_size(8 << 20).pm_path(dir.path().join("region")).stepped();
    let db = options().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    write(&db, &table, 1);
    let snapshot = db.snapshot().unwrap();
    write(&db, &table, 2);
    assert_eq!(records(&db), only(Place::Level0, 2 * KEYS));
    drop((snapshot, table));
    db.close().unwrap();

    let db = options().open(dir.path().join("db")).unwrap();
    run_until_idle(&db);
    assert_eq!(records(&db), only(Place::Level0, KEYS));
    assert_now(&db.table("t").unwrap(), 2, KEYS);
    assert!(db.verify().unwrap().damages.is_empty());
}
