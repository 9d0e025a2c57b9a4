//! How near estimates of ranges are to what the ranges have, and what they read for that.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::path::Path;

use crate::common::together;
use terrace::{Database, Durability, Options, Table};

const ROWS: u64 = 60_000;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A table of which nothing lies in memory: each row is below level 1.
fn filled(path: &Path) -> (Database, Table) {
    let options = Options::new().pm_size(4 << 20).cache_size(4 << 20).stepped();
    let db = options.create(path).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..ROWS {
        let value: Vec<u8> = (0..8u64).flat_map(|i| (n ^ i << 20).to_le_bytes()).collect();
        table.durability(Durability::Relaxed).put(key(n), value).unwrap();
        if n % 100 == 0 {
            db.step().unwrap();
        }
    }
    db.compact_range(&table, ..).unwrap();
    let stats = db.stats();
    let of_table = &stats.tables[0];
    assert_eq!(of_table.memtable_records + of_table.level0_records, 0, "{stats:?}");
    let extents: u64 = of_table.levels.iter().map(|level| level.extents).sum();
    assert!(extents >= 3, "ranges cross extents: {stats:?}");
    (db, table)
}

/// Bug: a range of three keys on disk was estimated as thousands, so that the optimizer of MariaDB
/// took the wrong index. Cause: each extent across an end counted by half. Fix: its blocks count,
/// and the keys in those at the ends.
#[test]
fn a_small_range_has_as_many_keys_as_it_has() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let (_db, table) = filled(dir.path());
    for start in (0..ROWS - 600).step_by(997) {
        for len in [0, 1, 3, 40, 500] {
            let found = table.approximate_len(key(start)..key(start + len)).unwrap();
            assert!(found.abs_diff(len) <= len / 10, "{len} keys from {start}: {found}");
            if len < 50 {
                assert_eq!(found, len, "from {start}");
            }
        }
    }
    let bytes = table.approximate_size(key(7)..key(10)).unwrap();
    assert_eq!(bytes, 3 * (8 + 64));
}

#[test]
fn a_large_range_has_about_as_many_keys_as_it_has() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let (_db, table) = filled(dir.path());
    for (start, end) in [(0, ROWS), (1, ROWS), (0, ROWS / 2), (777, 20_000), (30_000, 59_999)] {
        let found = table.approximate_len(key(start)..key(end)).unwrap();
        let len = end - start;
        assert!(found.abs_diff(len) <= len / 20, "{start}..{end}: {found}");
    }
    assert_eq!(table.approximate_len(..).unwrap(), ROWS);
    assert_eq!(table.approximate_len(key(ROWS)..).unwrap(), 0);
    assert_eq!(table.approximate_len(key(ROWS - 2)..).unwrap(), 2);
    assert_eq!(table.approximate_len(..=key(1)).unwrap(), 2);
}

#[test]
fn an_estimate_reads_the_ends_alone() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = filled(dir.path());
    drop(table);
    db.close().unwrap();
    let db =
        Options::new().pm_size(4 << 20).cache_size(4 << 20).stepped().open(dir.path()).unwrap();
    let table = db.existing_table("t").unwrap();
    let reads = || db.stats().disk.reads;
    let before = reads();
    assert_eq!(table.approximate_len(..).unwrap(), ROWS);
    assert_eq!(reads(), before, "all keys cost no I/O");
    table.approximate_len(key(100)..key(50_000)).unwrap();
    // An index takes one or two reads, and its end may have few blocks.
    assert!((1..=6).contains(&(reads() - before)), "two ends: {} reads", reads() - before);
    let before = reads();
    table.approximate_len(key(100)..key(103)).unwrap();
    assert!(reads() - before <= 2, "a block: {} reads", reads() - before);
    let before = reads();
    table.approximate_len(key(100)..key(103)).unwrap();
    assert_eq!(reads(), before, "which is cached");
}
