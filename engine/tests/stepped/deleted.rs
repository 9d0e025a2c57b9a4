//! What becomes of deleted data: drains, delete-only compactions and compactions for tombstones, at
//! rest and under load. What a range steps over is counted, not timed.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::path::Path;

use crate::common::{alone, together};
use terrace::{Database, Durability, Options, Stats, Table, TableStats, WriteBatch};

const ROWS: u64 = 8000;

fn options() -> Options {
    Options::new().pm_size(2 << 20).cache_size(1 << 20).level1_size(64 << 10).stepped()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Until nothing is left to do.
fn run_until_idle(db: &Database) {
    while db.step().unwrap() {}
}

/// Puts rows that do not compress.
fn fill(db: &Database, table: &Table, rows: std::ops::Range<u64>) {
    for n in rows {
        let words = (0..25u64).map(|i| (n << 8 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let value: Vec<u8> = words.flat_map(|word| (word ^ word >> 29).to_be_bytes()).collect();
        table.durability(Durability::Relaxed).put(key(n), value).unwrap();
        if n % 20 == 0 {
            db.step().unwrap();
        }
    }
}

fn of_t(stats: &Stats) -> &TableStats {
    stats.tables.iter().find(|table| table.name == "t").unwrap()
}

/// All that a range over the table may have to step over: records wherever they lie.
fn records(db: &Database) -> u64 {
    let stats = db.stats();
    let table = of_t(&stats);
    let on_disk: u64 = table.levels.iter().map(|level| level.records).sum();
    table.memtable_records + table.level0_records + on_disk
}

fn filled(path: &Path) -> (Database, Table) {
    let db = options().create(path).unwrap();
    let table = db.table("t").unwrap();
    fill(&db, &table, 0..ROWS);
    let on_disk: u64 = of_t(&db.stats()).levels.iter().map(|level| level.extents).sum();
    assert!(on_disk > 0, "{:?}", db.stats());
    (db, table)
}

/// Bug: after a range delete of a whole table the first row took as long as before, and the disk
/// space stayed, as long as no writes came.
/// Cause: the range tombstone, and the rows in the region, waited for a drain; drains wait for
/// writes.
/// Fix: extents that a tombstone hides go by an edit, wherever it lies, and places of level 0 where
/// most is deleted are drained at rest.
#[test]
fn a_range_delete_takes_what_it_deletes_while_nothing_is_written() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    drop(table);
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    let table = db.existing_table("t").unwrap();
    let before = db.stats();
    assert!(before.disk.extent_bytes > 1 << 20, "{before:?}");
    table.delete_range(..).unwrap();
    let read = db.stats().disk.read_bytes;
    while db.stats().background.delete_only_extents == 0 {
        assert!(db.step().unwrap(), "{:?}", db.stats());
    }
    assert_eq!(db.stats().disk.read_bytes, read, "they go unread");
    run_until_idle(&db);
    let stats = db.stats();
    assert_eq!(records(&db), 0, "{stats:?}");
    assert_eq!(table.approximate_len(..).unwrap(), 0);
    assert_eq!(stats.disk.extent_bytes, 0, "{stats:?}");
    // What stays is the reserve for jobs that free space.
    assert!(stats.disk.file_bytes <= 512 << 10, "{stats:?}");
    assert!(stats.disk.file_bytes < before.disk.file_bytes / 3, "{stats:?}");
    assert_eq!(stats.disk.written_bytes, 0, "nothing was worth writing: {stats:?}");
    assert!(table.iter().next().is_none());
    assert!(db.verify().unwrap().damages.is_empty());
    drop(table);
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    assert!(db.existing_table("t").unwrap().iter().next().is_none());
}

/// Bug: of a queue of which all rows but the last were deleted one by one, the first row took as
/// long as a walk over all that was deleted, until the region was filled with something else.
/// Cause: deletes waited in the region for a drain.
/// Fix: places where most keys are deleted are drained at rest, and compacted down to what they
/// delete.
#[test]
fn deletes_of_single_rows_vanish_while_nothing_is_written() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    run_until_idle(&db);
    for n in 0..ROWS - 1 {
        table.durability(Durability::Relaxed).delete(key(n)).unwrap();
        if n % 20 == 0 {
            db.step().unwrap();
        }
    }
    run_until_idle(&db);
    let stats = db.stats();
    assert!(records(&db) < 100, "{} records: {stats:?}", records(&db));
    assert!(stats.background.tombstone_drains > 0, "{stats:?}");
    assert!(stats.background.tombstone_compactions > 0, "{stats:?}");
    assert_eq!(table.iter().next().unwrap().unwrap().0, key(ROWS - 1).as_slice());
    assert_eq!(table.iter().count(), 1);
    // It has come to rest: nothing is written any more.
    let written = db.stats().disk.written_bytes;
    (0..50).for_each(|_| assert!(!db.step().unwrap()));
    assert_eq!(db.stats().disk.written_bytes, written);
    assert!(db.verify().unwrap().damages.is_empty());
}

/// What an opening finds in the region counts too: no list says where its deletes lie.
#[test]
fn deletes_that_an_opening_finds_vanish_too() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    run_until_idle(&db);
    (0..3000).for_each(|n| table.durability(Durability::Relaxed).delete(key(n)).unwrap());
    drop(table);
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    run_until_idle(&db);
    let left = ROWS - 3000;
    assert!(records(&db) < left + 300, "{} records: {:?}", records(&db), db.stats());
    assert_eq!(db.existing_table("t").unwrap().iter().count() as u64, left);
}

/// A snapshot keeps what it reads, and the background comes to rest beside it. Once it is gone, all
/// goes.
#[test]
fn what_a_snapshot_reads_stays_as_long_as_it_is_held() {
    let _alone = alone();
    for by_range in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = filled(dir.path());
        run_until_idle(&db);
        let held = db.snapshot().unwrap();
        if by_range {
            table.delete_range(..).unwrap();
        } else {
            for n in 0..ROWS {
                table.durability(Durability::Relaxed).delete(key(n)).unwrap();
                if n % 20 == 0 {
                    db.step().unwrap();
                }
            }
        }
        let mut steps = 0;
        while db.step().unwrap() {
            steps += 1;
            assert!(steps < 2000, "it does not come to rest: {:?}", db.stats());
        }
        let written = db.stats().disk.written_bytes;
        (0..50).for_each(|_| assert!(!db.step().unwrap()));
        assert_eq!(db.stats().disk.written_bytes, written);
        assert_eq!(held.range(&table, ..).count() as u64, ROWS);
        assert_eq!(table.iter().count(), 0);
        drop(held);
        run_until_idle(&db);
        assert_eq!(records(&db), 0, "by range: {by_range}: {:?}", db.stats());
        assert!(db.verify().unwrap().damages.is_empty());
    }
}

/// A few deletes among other writes, again and again with time between them, move nothing.
#[test]
fn a_trickle_of_deletes_moves_nothing() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    run_until_idle(&db);
    let before = db.stats();
    for round in 0..20u64 {
        for n in 0..10 {
            table.put(key(ROWS + 10 * round + n), "new").unwrap();
        }
        (0..20).for_each(|n| table.delete(key(40 * round + n)).unwrap());
        run_until_idle(&db);
    }
    let stats = db.stats();
    assert_eq!(stats.background.drains, before.background.drains, "{stats:?}");
    assert_eq!(stats.background.freezes, before.background.freezes, "{stats:?}");
    assert_eq!(stats.disk.written_bytes, before.disk.written_bytes, "{stats:?}");
}

/// A queue under load: rows come at its tail and go at its head. What lies in front of the head
/// stays as little as it was, however many went through. Without a time of rest.
#[test]
fn what_lies_in_front_of_a_queue_stays_little_under_load() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let db = options().pm_size(16 << 20).create(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let (waiting, all) = (2000u64, 120_000u64);
    let mut most = 0;
    for n in 0..all {
        let mut batch = WriteBatch::new();
        batch.put(&table, key(n), [7; 40]);
        if let Some(head) = n.checked_sub(waiting) {
            batch.delete(&table, key(head));
        }
        db.write_with(&batch, Durability::Relaxed).unwrap();
        if n % 50 == 0 {
            db.step().unwrap();
            most = most.max(records(&db));
        }
    }
    // A batch has two records of about 80 bytes: the region has room for all of them.
    let stats = db.stats();
    assert!(stats.background.tombstone_drains > 2, "{stats:?}");
    assert!(most < 60_000, "{most} records: {stats:?}");
    assert_eq!(table.iter().next().unwrap().unwrap().0, key(all - waiting).as_slice());
}

/// Many small range deletes side by side hide an extent that none of them hides alone.
#[test]
fn range_deletes_side_by_side_take_an_extent() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    run_until_idle(&db);
    for n in (0..ROWS).step_by(100) {
        let mut batch = WriteBatch::new();
        batch.delete_range(&table, key(n)..key(n + 100));
        db.write_with(&batch, Durability::Relaxed).unwrap();
    }
    run_until_idle(&db);
    let stats = db.stats();
    assert!(stats.background.delete_only_extents > 0, "{stats:?}");
    assert_eq!(records(&db), 0, "{stats:?}");
}

/// Rows that came after a range delete stay, wherever they are.
#[test]
fn what_came_after_a_range_delete_stays() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    run_until_idle(&db);
    table.delete_range(..).unwrap();
    for n in (0..ROWS).step_by(10) {
        table.durability(Durability::Relaxed).put(key(n), "new").unwrap();
    }
    run_until_idle(&db);
    let shown: Vec<_> = table.iter().map(|row| row.unwrap().1).collect();
    assert_eq!(shown.len() as u64, ROWS / 10);
    assert!(shown.iter().all(|value| value == "new"));
    assert!(db.verify().unwrap().damages.is_empty());
    drop(table);
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    assert_eq!(db.existing_table("t").unwrap().iter().count() as u64, ROWS / 10);
}

/// A manual compaction drains memory and makes all levels one, at once, for the keys that it is
/// called for; what a snapshot reads stays.
#[test]
fn a_manual_compaction_leaves_one_level_and_nothing_else() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    let held = db.snapshot().unwrap();
    for n in (0..ROWS).filter(|n| n % 3 > 0) {
        table.durability(Durability::Relaxed).delete(key(n)).unwrap();
        if n % 20 == 0 {
            db.step().unwrap();
        }
    }
    let left = ROWS.div_ceil(3);
    let mut last = 0;
    let done = db
        .compact_range_with(&table, .., |progress| {
            assert!(progress.drains + progress.compactions > last, "{progress:?}");
            last = progress.drains + progress.compactions;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    // Compactions that the background picks itself come first.
    assert!(done.is_finished && done.drains > 0, "{done:?}");
    assert_eq!(held.range(&table, ..).count() as u64, ROWS);
    assert_eq!(table.iter().count() as u64, left);
    drop(held);
    assert!(db.compact_range(&table, ..).unwrap().is_finished);
    db.step().unwrap();
    let stats = db.stats();
    let levels = of_t(&stats).levels.iter().filter(|level| level.extents > 0).count();
    assert_eq!((records(&db), levels), (left, 1), "{stats:?}");
    assert_eq!(table.iter().count() as u64, left);
    // There is nothing to do a second time.
    let again = db.compact_range(&table, ..).unwrap();
    assert_eq!((again.drains, again.compactions), (0, 0));
    assert!(db.verify().unwrap().damages.is_empty());
}

/// Bug: a compaction of a range failed with "was dropped" when the table was truncated meanwhile.
/// Cause: it kept the table of its begin, and the error of a job lost its signal on its way to the
/// caller. Fix: it goes on with the emptied table, as other calls do.
#[test]
fn a_manual_compaction_goes_on_after_a_truncation() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    let mut is_first = true;
    let done = db.compact_range_with(&table, .., |_| {
        if std::mem::take(&mut is_first) {
            db.truncate_table("t").unwrap();
            table.put(key(1), b"new").unwrap();
        }
        std::ops::ControlFlow::Continue(())
    });
    assert!(!is_first && done.unwrap().is_finished);
    assert_eq!(table.iter().count(), 1);
}

/// Only the keys of the range are compacted, and a call ends a compaction half-way.
#[test]
fn a_manual_compaction_is_of_a_range_and_is_cancelled() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    run_until_idle(&db);
    let cancelled =
        db.compact_range_with(&table, .., |_| std::ops::ControlFlow::Break(())).unwrap();
    assert!(!cancelled.is_finished && cancelled.drains + cancelled.compactions == 1);
    // What was drained leaves the region once no reader is left.
    db.step().unwrap();
    let in_memory = of_t(&db.stats()).level0_records;
    assert!(in_memory > 55, "{:?}", db.stats());
    let part = key(ROWS - 50)..key(ROWS - 40);
    assert!(db.compact_range(&table, part).unwrap().is_finished);
    db.step().unwrap();
    let left = of_t(&db.stats()).level0_records;
    assert!(left + 20 > in_memory && left < in_memory, "{left} of {in_memory}");
    assert_eq!(table.iter().count() as u64, ROWS);
    assert!(db.compact_range(&table, key(5).as_slice()..key(5).as_slice()).unwrap().is_finished);
    db.drop_table("t").unwrap();
    let refused = db.compact_range(&table, ..).unwrap_err();
    assert_eq!(refused.kind(), terrace::ErrorKind::MissingTable);
}
