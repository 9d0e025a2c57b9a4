//! Range deletes as their users see them: bounds, order, snapshots, restarts, and what becomes of
//! what they delete.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::ops::Bound;

use crate::common::content::read_all;
use crate::common::{Chance, alone, tiny, together, wait_until};
use terrace::{Database, Durability, ErrorKind, Options, Table, WriteBatch};

fn open() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (dir, db, table)
}

fn fill(table: &Table, keys: &[&str]) {
    keys.iter().for_each(|key| table.durability(Durability::Relaxed).put(key, *key).unwrap());
}

fn keys(table: &Table) -> Vec<String> {
    let keys: Vec<_> =
        table.iter().map(|row| String::from_utf8(row.unwrap().0.to_vec()).unwrap()).collect();
    let mut back: Vec<_> =
        table.iter().rev().map(|row| String::from_utf8(row.unwrap().0.to_vec()).unwrap()).collect();
    back.reverse();
    assert_eq!(keys, back);
    for key in ["", "a", "b", "ba", "c", "d"] {
        assert_eq!(table.get(key).unwrap().is_some(), keys.iter().any(|k| k == key), "{key}");
    }
    keys
}

#[test]
fn every_kind_of_bound_deletes_what_a_range_would_show() {
    let _together = together();
    use Bound::{Excluded, Included, Unbounded};
    let all = ["", "a", "b", "ba", "c", "d"];
    let (_dir, _db, table) = open();
    for lower in [Unbounded, Included("a"), Excluded("a"), Included("b"), Excluded("c")] {
        for upper in [Unbounded, Included("b"), Excluded("b"), Included("a"), Excluded("")] {
            fill(&table, &all);
            let shown: Vec<_> = table.range((lower, upper)).map(|row| row.unwrap().0).collect();
            table.delete_range((lower, upper)).unwrap();
            let left = all.iter().filter(|key| !shown.iter().any(|s| s == key.as_bytes()));
            assert_eq!(keys(&table), left.copied().collect::<Vec<_>>(), "{lower:?} {upper:?}");
        }
    }
    fill(&table, &all);
    table.delete_prefix("b").unwrap();
    assert_eq!(keys(&table), ["", "a", "c", "d"]);
}

#[test]
fn the_longest_keys_are_bounds_too() {
    let _together = together();
    let (_dir, db, table) = open();
    let longest = vec![b'x'; 64 * 1024];
    let last = vec![0xff; 64 * 1024];
    for key in [&longest, &last] {
        table.put(key, "v").unwrap();
        table.delete_range((Bound::Excluded(key), Bound::Unbounded)).unwrap();
        assert!(table.get(key).unwrap().is_some());
        table.delete_range((Bound::Unbounded, Bound::Excluded(key))).unwrap();
        assert!(table.get(key).unwrap().is_some());
        table.delete_range(key..=key).unwrap();
        assert_eq!(table.get(key).unwrap(), None);
    }
    let too_long = vec![b'x'; 64 * 1024 + 1];
    for range in [
        (Bound::Included(&too_long), Bound::Unbounded),
        (Bound::Unbounded, Bound::Included(&too_long)),
    ] {
        assert_eq!(table.delete_range(range).unwrap_err().kind(), ErrorKind::TooLarge);
    }
    let lsn = db.snapshot().unwrap().lsn();
    table.delete_range("b".."a").unwrap();
    table.delete_range((Bound::Excluded("a"), Bound::Excluded("a"))).unwrap();
    assert_eq!(db.snapshot().unwrap().lsn(), lsn, "what deletes nothing is no commit");
    db.drop_table("t").unwrap();
    assert_eq!(table.delete_range("a".."b").unwrap_err().kind(), ErrorKind::MissingTable);
}

#[test]
fn within_a_batch_the_order_counts() {
    let _together = together();
    let (dir, db, table) = open();
    fill(&table, &["a", "b", "c", "d"]);
    let other = db.table("other").unwrap();
    fill(&other, &["b"]);
    let mut batch = WriteBatch::new();
    batch
        .put(&table, "b", "gone")
        .delete_range(&table, "a".."c")
        .put(&table, "ba", "stays")
        .delete_range(&table, "bb".."d")
        .put(&other, "c", "of another table")
        .delete(&table, "d")
        .put(&table, "b", "last");
    assert_eq!(batch.len(), 7);
    db.write(batch).unwrap();
    assert_eq!(keys(&table), ["b", "ba"]);
    assert_eq!(keys(&other), ["b", "c"]);
    // Range deletes that overlap in one commit, and one that takes back what came before.
    let mut batch = WriteBatch::new();
    batch
        .delete_range(&table, "a".."bb")
        .put(&table, "a", "1")
        .delete_range(&table, "b"..)
        .put(&table, "c", "1")
        .delete_range(&table, .."b");
    db.write(batch).unwrap();
    assert_eq!(keys(&table), ["c"]);
    assert_eq!(db.stats().tables.iter().map(|t| t.range_deletes).sum::<u64>(), 2);
    drop((table, other));
    db.close().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    assert_eq!(keys(&db.existing_table("t").unwrap()), ["c"]);
}

#[test]
fn snapshots_and_iterators_see_what_was_there() {
    let _together = together();
    let (_dir, db, table) = open();
    fill(&table, &["a", "b", "c"]);
    let before = db.snapshot().unwrap();
    let mut rows = table.iter();
    table.delete_range("b"..).unwrap();
    let between = db.snapshot().unwrap();
    fill(&table, &["b"]);
    table.delete_range(.."b").unwrap();
    let count = |snapshot: &terrace::Snapshot| snapshot.range(&table, ..).count();
    assert_eq!((count(&before), count(&between)), (3, 1));
    assert_eq!(between.get(&table, "b").unwrap(), None);
    assert_eq!(before.get(&table, "c").unwrap().unwrap(), "c");
    assert_eq!(rows.next_back().unwrap().unwrap().0, "c");
    assert_eq!(rows.count(), 2);
    assert_eq!(keys(&table), ["b"]);
}

/// A database that has range deletes everywhere: in memtables, in level 0, in extents.
fn lived_in(path: &std::path::Path) -> Database {
    let db = tiny().open(path).unwrap();
    let table = db.table("t").unwrap();
    let mut chance = Chance::new(3);
    let key = |n: u64| format!("key {n:05}");
    // While a snapshot from before is there, range deletes stay in the extents that they come to.
    let mut held = None;
    for n in 0..4000u64 {
        if n == 400 {
            held = Some(db.snapshot().unwrap());
        }
        let k = chance.below(3000);
        match n % 40 {
            0 => table.delete_range(key(k)..key(k + 1 + chance.below(60))).unwrap(),
            _ => {
                let len = 100 + chance.below(1500) as usize;
                let value = chance.bytes(len);
                table.durability(Durability::Relaxed).put(key(k), value).unwrap();
            }
        }
    }
    let stats = db.stats();
    let levels = &stats.tables[0].levels;
    assert!(stats.tables[0].range_deletes > 0 && stats.background.drains > 0, "{stats:?}");
    assert!(levels.iter().any(|level| level.range_deletes > 0), "{stats:?}");
    drop(held);
    db
}

#[test]
fn they_are_found_again_and_salvaged() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = lived_in(&path);
    let content = read_all(&db).unwrap();
    assert!(db.verify().unwrap().damages.is_empty());
    db.close().unwrap();
    let db = tiny().open(&path).unwrap();
    assert_eq!(read_all(&db).unwrap().differs_from(&content), None);
    db.close().unwrap();
    let report = terrace::Options::new().salvage(&path, dir.path().join("new")).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    let db = Database::open(dir.path().join("new")).unwrap();
    assert_eq!(read_all(&db).unwrap().differs_from(&content), None);
}

/// A range delete of which the first keys alone were drained still hides what it hid of the others
/// after an opening.
#[test]
fn one_that_was_drained_in_part_is_found_again() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = || Options::new().pm_size(4 << 20).stepped();
    let db = options().create(&path).unwrap();
    let table = db.table("t").unwrap();
    let all: Vec<String> = ('a'..='z').map(String::from).collect();
    all.iter().for_each(|key| table.put(key, "v").unwrap());
    db.compact_range(&table, ..).unwrap();
    table.delete_range("c".."x").unwrap();
    db.compact_range(&table, "a".."f").unwrap();
    let left = |table: &Table| table.iter().map(|row| row.unwrap().0).collect::<Vec<_>>();
    let want = ["a", "b", "x", "y", "z"];
    assert_eq!(left(&table), want);
    drop(table);
    db.close().unwrap();
    let db = options().open(&path).unwrap();
    assert_eq!(left(&db.existing_table("t").unwrap()), want);
}

/// Bug: after an opening level 0 had bytes once it was empty, and waited for drains of them. Cause:
/// range deletes that the opening found counted among the records and again by themselves, and
/// went once. Fix: they count by themselves alone.
#[test]
fn range_deletes_that_an_opening_found_count_once() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = || Options::new().pm_size(4 << 20).stepped();
    let db = options().create(&path).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..40 {
        table.put(format!("{n:02}"), "v").unwrap();
        table.delete_range(format!("{n:02}x")..format!("{n:02}y")).unwrap();
    }
    let in_memtable = db.stats().tables[0].memtable_bytes;
    drop(table);
    db.close().unwrap();
    let db = options().open(&path).unwrap();
    let in_level0 = || (db.stats().tables[0].level0_records, db.stats().tables[0].level0_bytes);
    assert_eq!(in_level0(), (80, in_memtable));
    db.compact_range(&db.existing_table("t").unwrap(), ..).unwrap();
    wait_until("level 0 has no record", || {
        db.step().unwrap();
        in_level0().0 == 0
    });
    assert_eq!(in_level0(), (0, 0));
}

/// A range delete is a record like others to the cleaner: it is moved, and hides what it hid.
#[test]
fn a_cleaned_zone_gives_its_range_deletes_away() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = Options::new().pm_size(4 << 20).stepped();
    let db = options.clone().create(&path).unwrap();
    let (cold, hot) = (db.table("cold").unwrap(), db.table("hot").unwrap());
    for n in 0..20 {
        cold.durability(Durability::Relaxed).put(format!("{n:02}"), "cold").unwrap();
    }
    let cleaned = |db: &Database| db.stats().background.zones_cleaned;
    let (mut n, mut more) = (0u64, 0);
    while cleaned(&db) == 0 {
        // One record of each zone stays, so that it takes a cleaner to free it.
        if n % 18 == 0 {
            cold.durability(Durability::Relaxed).put(format!("more {n}"), "cold").unwrap();
            more += 1;
        }
        if n == 60 {
            cold.delete_range("05".."15").unwrap();
        }
        hot.durability(Durability::Relaxed).put(format!("{}", n % 4), vec![7; 6000]).unwrap();
        db.step().unwrap();
        n += 1;
        assert!(n < 20_000, "{:?}", db.stats());
    }
    let shown = |cold: &Table| cold.iter().count();
    assert_eq!(shown(&cold), 10 + more);
    // Until the zones that were cleaned are used for something else.
    let released = db.stats().background.zones_released;
    while db.stats().background.zones_released < released + 4 {
        hot.durability(Durability::Relaxed).put(format!("{}", n % 4), vec![7; 6000]).unwrap();
        db.step().unwrap();
        n += 1;
    }
    assert_eq!(shown(&cold), 10 + more);
    drop((cold, hot));
    db.close().unwrap();
    let db = options.open(&path).unwrap();
    assert_eq!(shown(&db.existing_table("cold").unwrap()), 10 + more);
}

/// Many over each other, as a queue leaves them that is cut off at its front again and again.
#[test]
fn a_queue_that_is_cut_off_at_its_front_stays_small() {
    let _together = together();
    let (_dir, db, queue) = open();
    let key = |n: u64| n.to_be_bytes();
    for n in 0..6000u64 {
        queue.durability(Durability::Relaxed).put(key(n), [7; 300]).unwrap();
        if n % 4 == 3 {
            let mut batch = WriteBatch::new();
            batch.delete_range(&queue, ..key(n.saturating_sub(20)));
            db.write_with(&batch, Durability::Relaxed).unwrap();
        }
    }
    assert_eq!(queue.iter().count(), 21);
    assert_eq!(queue.iter().next().unwrap().unwrap().0, key(5979).as_slice());
    let stats = db.stats();
    let on_disk: u64 = stats.tables[0].levels.iter().map(|level| level.bytes).sum();
    assert!(on_disk < 1 << 20, "{stats:?}");
}

/// Writes to another table until `done`, so that everything older is drained.
fn press(db: &Database, mut done: impl FnMut(&Database) -> bool) {
    let filler = db.table("filler").unwrap();
    for n in 0..20_000u64 {
        if done(db) {
            return;
        }
        filler.durability(Durability::Relaxed).put(format!("{}", n % 500), vec![7; 6000]).unwrap();
    }
    panic!("{:?}", db.stats());
}

fn ranges_on_disk(db: &Database) -> u64 {
    let tables = db.stats().tables;
    let of_t = tables.iter().find(|table| table.name == "t").unwrap();
    of_t.levels.iter().map(|level| level.range_deletes).sum()
}

/// A cut behind the longest key is a byte longer than a key can be.
#[test]
fn the_longest_keys_are_bounds_in_extents() {
    let _together = together();
    let (dir, db, table) = open();
    let key = |n: u8| [vec![n], vec![b'x'; 64 * 1024 - 1]].concat();
    (0..8).for_each(|n| table.put(key(n), "v").unwrap());
    let held = db.snapshot().unwrap();
    table.delete_range((Bound::Excluded(&key(1)), Bound::Included(&key(4)))).unwrap();
    table.delete_range(key(6)..).unwrap();
    let left = [key(0), key(1), key(5)];
    let shown = |table: &Table| table.iter().map(|row| row.unwrap().0.to_vec()).collect::<Vec<_>>();
    press(&db, |db| ranges_on_disk(db) >= 2);
    assert_eq!(shown(&table), left);
    assert_eq!(held.range(&table, ..).count(), 8);
    assert!(db.verify().unwrap().damages.is_empty());
    drop((table, held));
    db.close().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    assert_eq!(shown(&db.existing_table("t").unwrap()), left);
}

/// A table of the same name begins anew, wherever the range deletes of the former one are.
#[test]
fn a_table_that_went_takes_its_range_deletes_along() {
    let _together = together();
    for (drained, truncated) in [(false, false), (false, true), (true, false), (true, true)] {
        let (dir, db, mut table) = open();
        let all = ["a", "b", "c", "d"];
        fill(&table, &all);
        let held = db.snapshot().unwrap();
        table.delete_range("b"..).unwrap();
        if drained {
            press(&db, |db| ranges_on_disk(db) > 0);
        }
        if truncated {
            db.truncate_table("t").unwrap();
        } else {
            db.drop_table("t").unwrap();
            table = db.table("t").unwrap();
        }
        drop(held);
        assert_eq!(keys(&table), [""; 0]);
        fill(&table, &all);
        assert_eq!(keys(&table), all);
        drop(table);
        db.close().unwrap();
        let db = tiny().open(dir.path().join("db")).unwrap();
        assert_eq!(keys(&db.existing_table("t").unwrap()), all);
    }
}
