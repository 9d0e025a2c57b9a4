//! Commits in two phases: transactions prepared under a name of their caller's, their locks,
//! restarts and verdicts; commits that are enqueued and waited for later; blobs.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::thread;

use crate::common::cuts::{ALL_KINDS, PATH, Rig, options};
use crate::common::{rounds, tiny, together, wait_until};
use terrace::testing::Survive;
use terrace::{
    Database, Durability, Error, ErrorKind, Isolation, LockWait, Table, TxnOptions, WriteBatch,
};

fn open() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (dir, db, table)
}

/// Closes it and opens it again.
fn reopen(dir: &tempfile::TempDir, db: Database) -> (Database, Table) {
    db.close().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (db, table)
}

fn names(db: &Database) -> Vec<String> {
    db.list_prepared().into_iter().map(|p| String::from_utf8(p.id).unwrap()).collect()
}

/// Whether another transaction has the key locked.
fn is_locked(db: &Database, table: &Table, key: &str) -> bool {
    let txn = db.begin_with(TxnOptions::new().lock_wait(LockWait::NoWait)).unwrap();
    match txn.get_for_update(table, key) {
        Ok(_) => false,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Timeout, "{e}");
            true
        }
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn put(db: &Database, table: &Table, key: &str, value: &str) {
    let txn = db.begin().unwrap();
    txn.put(table, key, value).unwrap();
    txn.commit().unwrap();
}

#[test]
fn what_is_prepared_is_seen_from_its_verdict_on() {
    let _together = together();
    for restart in [false, true] {
        let (dir, mut db, mut table) = open();
        put(&db, &table, "old", "1");
        let txn = db.begin().unwrap();
        txn.put(&table, "new", "2").unwrap();
        txn.delete(&table, "old").unwrap();
        txn.prepare("one").unwrap();
        if restart {
            (db, table) = reopen(&dir, db);
        }
        let listed = db.list_prepared();
        assert_eq!((listed.len(), listed[0].writes, listed[0].locks), (1, 2, 2));
        assert_eq!(listed[0].id, b"one");
        let before = db.snapshot().unwrap();
        assert_eq!(table.get("new").unwrap(), None);
        assert!(table.get("old").unwrap().is_some());
        db.commit_prepared("one").unwrap();
        assert_eq!(before.get(&table, "new").unwrap(), None);
        assert!(before.get(&table, "old").unwrap().is_some());
        assert_eq!(table.get("new").unwrap().unwrap(), "2");
        assert_eq!(table.get("old").unwrap(), None);
        assert!(names(&db).is_empty());
        assert_eq!(db.locks_held(), (0, 0));
        drop(before);
        let (db, table) = reopen(&dir, db);
        assert!(names(&db).is_empty());
        assert_eq!(table.iter().count(), 1);
    }
}

#[test]
fn what_is_rolled_back_leaves_nothing() {
    let _together = together();
    for restart in [false, true] {
        let (dir, mut db, table) = open();
        put(&db, &table, "old", "1");
        let txn = db.begin().unwrap();
        txn.put(&table, "old", "2").unwrap();
        txn.put(&table, "new", "2").unwrap();
        txn.prepare("one").unwrap();
        if restart {
            (db, _) = reopen(&dir, db);
        }
        db.roll_back_prepared("one", terrace::Durability::Durable).unwrap();
        assert_eq!(db.locks_held(), (0, 0));
        let (db, table) = reopen(&dir, db);
        assert!(names(&db).is_empty());
        assert_eq!(table.get("old").unwrap().unwrap(), "1");
        assert_eq!(table.get("new").unwrap(), None);
        // The name is free again.
        let txn = db.begin().unwrap();
        txn.put(&table, "new", "3").unwrap();
        txn.prepare("one").unwrap();
        db.commit_prepared("one").unwrap();
        assert_eq!(table.get("new").unwrap().unwrap(), "3");
    }
}

/// Rows, rows locked and not written, ranges with their gaps, shared ones too: before another
/// caller could have taken one, and for plain writes too.
#[test]
fn locks_are_held_again_after_a_restart() {
    let _together = together();
    let (dir, db, table) = open();
    for key in ["a", "c", "g"] {
        put(&db, &table, key, "1");
    }
    let options = TxnOptions::new().isolation(Isolation::Serializable);
    let txn = db.begin_with(options).unwrap();
    txn.put(&table, "written", "1").unwrap();
    txn.get_for_update(&table, "asked for").unwrap();
    assert_eq!(txn.range_for_update(&table, "a".."e").unwrap().count(), 2);
    assert_eq!(txn.get(&table, "g").unwrap().unwrap(), "1");
    let held = db.locks_held();
    txn.prepare("one").unwrap();
    assert_eq!(db.locks_held(), held);
    let (db, table) = reopen(&dir, db);
    assert_eq!(db.locks_held(), held);
    for key in ["written", "asked for", "a", "b", "d", "g"] {
        assert!(is_locked(&db, &table, key), "{key}");
    }
    for key in ["e", "f", "h"] {
        assert!(!is_locked(&db, &table, key), "{key}");
    }
    let reads = TxnOptions::new().isolation(Isolation::Serializable).lock_wait(LockWait::NoWait);
    let reads = db.begin_with(reads).unwrap();
    assert_eq!(reads.get(&table, "g").unwrap().unwrap(), "1", "it is locked shared");
    reads.roll_back();
    // A plain write waits for the verdict.
    thread::scope(|scope| {
        let writer = scope.spawn(|| table.put("written", "2"));
        db.commit_prepared("one").unwrap();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(table.get("written").unwrap().unwrap(), "2");
    assert_eq!(db.locks_held(), (0, 0));
}

/// A row that lies in a range of its own transaction has no lock of its own.
#[test]
fn a_range_with_the_rows_written_in_it_is_held_again() {
    let _together = together();
    let (dir, db, table) = open();
    let txn = db.begin().unwrap();
    assert_eq!(txn.range_for_update(&table, "a".."e").unwrap().count(), 0);
    txn.put(&table, "b", "1").unwrap();
    txn.prepare("one").unwrap();
    let (db, table) = reopen(&dir, db);
    for key in ["a", "b", "d"] {
        assert!(is_locked(&db, &table, key), "{key}");
    }
    assert!(!is_locked(&db, &table, "e"));
    db.roll_back_prepared("one", terrace::Durability::Durable).unwrap();
    assert!(!is_locked(&db, &table, "b"));
}

/// It is locked with its gaps, and deletes what is there at its verdict.
/// Bug: of whole tables that a transaction had locked, the second was not locked any more after a
/// restart, and a verdict deleted rows of others there. Cause: the names of neighbouring tables
/// touch, so their ranges became one, and a prepare wrote the part of the first table.
#[test]
fn whole_tables_that_are_prepared_are_locked_after_a_restart() {
    let _together = together();
    let (dir, db, first) = open();
    let second = db.table("u").unwrap();
    let txn = db.begin().unwrap();
    for table in [&first, &second] {
        txn.delete_range(table, ..).unwrap();
    }
    txn.prepare("both").unwrap();
    for table in [&first, &second] {
        assert!(is_locked(&db, table, "key"));
    }
    drop((first, second));
    let (db, first) = reopen(&dir, db);
    let second = db.table("u").unwrap();
    for table in [&first, &second] {
        assert!(is_locked(&db, table, "key"), "{}", table.name());
    }
    db.commit_prepared("both").unwrap();
}

#[test]
fn a_range_delete_is_prepared_with_the_rest() {
    let _together = together();
    for (restart, commits) in [(false, true), (true, true), (true, false)] {
        let (dir, mut db, mut table) = open();
        for key in ["a", "b", "c", "d"] {
            put(&db, &table, key, "1");
        }
        let txn = db.begin().unwrap();
        txn.put(&table, "ba", "gone").unwrap();
        txn.delete_range(&table, "b".."d").unwrap();
        txn.put(&table, "c", "2").unwrap();
        txn.prepare("one").unwrap();
        if restart {
            (db, table) = reopen(&dir, db);
        }
        assert_eq!(db.list_prepared()[0].writes, 2);
        for key in ["b", "bb", "c", "cc"] {
            assert!(is_locked(&db, &table, key), "{key}");
        }
        assert!(!is_locked(&db, &table, "a") && !is_locked(&db, &table, "d"));
        put(&db, &table, "d", "3");
        let before = db.snapshot().unwrap();
        if commits {
            db.commit_prepared("one").unwrap();
        } else {
            db.roll_back_prepared("one", terrace::Durability::Durable).unwrap();
        }
        assert_eq!(before.range(&table, ..).count(), 4);
        assert_eq!(db.locks_held(), (0, 0));
        drop(before);
        for _ in 0..2 {
            let rows = table.iter().map(|row| {
                let (key, value) = row.unwrap();
                [key, value].concat()
            });
            let want: &[&[u8]] =
                if commits { &[b"a1", b"c2", b"d3"] } else { &[b"a1", b"b1", b"c1", b"d3"] };
            assert_eq!(rows.collect::<Vec<_>>(), want);
            (db, table) = reopen(&dir, db);
        }
    }
}

#[test]
fn a_snapshot_from_before_the_verdict_conflicts() {
    let _together = together();
    let (_dir, db, table) = open();
    put(&db, &table, "row", "1");
    let txn = db.begin().unwrap();
    txn.put(&table, "row", "2").unwrap();
    txn.prepare("one").unwrap();
    let late = db.begin().unwrap();
    db.commit_prepared("one").unwrap();
    assert_eq!(kind(late.put(&table, "row", "3")), ErrorKind::Conflict);
}

#[test]
fn optimistic_ones_are_validated_when_they_are_prepared() {
    let _together = together();
    let (_dir, db, table) = open();
    let (first, second) =
        (db.begin_with(TxnOptions::new().optimistic()).unwrap(), db.begin().unwrap());
    first.put(&table, "row", "1").unwrap();
    second.put(&table, "row", "2").unwrap();
    second.prepare("second").unwrap();
    db.commit_prepared("second").unwrap();
    assert_eq!(kind(first.prepare("first")), ErrorKind::Conflict);
    let third = db.begin_with(TxnOptions::new().optimistic()).unwrap();
    third.put(&table, "row", "3").unwrap();
    third.prepare("third").unwrap();
    assert!(is_locked(&db, &table, "row"));
    db.commit_prepared("third").unwrap();
    assert_eq!(table.get("row").unwrap().unwrap(), "3");
}

#[test]
fn what_is_refused_changes_nothing() {
    let _together = together();
    let (_dir, db, table) = open();
    let begin = |key: &str| {
        let txn = db.begin().unwrap();
        txn.put(&table, key, "1").unwrap();
        txn
    };
    assert_eq!(kind(begin("a").prepare("")), ErrorKind::Invalid);
    assert_eq!(kind(begin("a").prepare([7; 141])), ErrorKind::TooLarge);
    begin("a").prepare([7; 140]).unwrap();
    assert_eq!(kind(begin("b").prepare([7; 140])), ErrorKind::Exists);
    assert!(!is_locked(&db, &table, "b"), "it was rolled back");
    assert_eq!(kind(db.commit_prepared("none")), ErrorKind::Invalid);
    assert_eq!(
        kind(db.roll_back_prepared("none", terrace::Durability::Durable)),
        ErrorKind::Invalid
    );
    for refused in [db.drop_table("t"), db.truncate_table("t")] {
        let e = refused.unwrap_err();
        assert!(e.to_string().contains("1 prepared"), "{e}");
    }
    db.rename_table("t", "u").unwrap();
    let blob = vec![0; 4097];
    assert_eq!(
        kind(db.enqueue_prepared([7; 140], Some(&blob), Durability::Durable)),
        ErrorKind::TooLarge
    );
    db.commit_prepared([7; 140]).unwrap();
    assert!(table.get("a").unwrap().is_some());
    db.truncate_table("u").unwrap();
    db.drop_table("u").unwrap();
}

/// Open prepares keep at most a quarter of the zones and one, so that there is always room for
/// their verdicts.
#[test]
fn open_prepares_leave_room_for_their_verdicts() {
    let _together = together();
    let (_dir, db, table) = open();
    let value = vec![1; 60_000];
    let mut open = 0;
    let e = loop {
        let txn = db.begin().unwrap();
        txn.put(&table, format!("{open}"), &value).unwrap();
        match txn.prepare(format!("{open}")) {
            Ok(()) => open += 1,
            Err(e) => break e,
        }
        assert!(open < 40, "there is no end");
    };
    assert_eq!(e.kind(), ErrorKind::Full, "{e}");
    for n in 0..open {
        db.commit_prepared(format!("{n}")).unwrap();
        table.put(format!("more {n}"), &value).unwrap();
    }
    assert_eq!(table.iter().count(), 2 * open);
}

/// A prepare costs one group and its verdict another one, which has the records again.
#[test]
fn two_phases_cost_two_groups() {
    let _together = together();
    let (_dir, db, table) = open();
    put(&db, &table, "warm", "1");
    let before = db.stats().commit;
    let txn = db.begin().unwrap();
    txn.put(&table, "row", vec![1; 1000]).unwrap();
    txn.prepare("one").unwrap();
    db.commit_prepared("one").unwrap();
    let now = db.stats().commit;
    assert_eq!(now.groups - before.groups, 2);
    assert_eq!(now.records - before.records, 4, "prepare, row; verdict, row");
}

#[test]
fn zones_of_prepares_are_used_again_after_the_verdict() {
    let _together = together();
    for kind in ALL_KINDS {
        let mut rig = Rig::new(kind, 9, None);
        rig.create("a");
        rig.create("b");
        for n in 0..rounds(120, 600) {
            rig.make_room(30_000);
            let txn = rig.db.begin().unwrap();
            let table = rig.db.existing_table("a").unwrap();
            txn.put(&table, format!("row {}", n % 7), vec![n as u8; 20_000]).unwrap();
            txn.prepare(format!("{n}")).unwrap();
            rig.make_room(30_000);
            match n % 3 {
                0 => {
                    rig.db.roll_back_prepared(format!("{n}"), terrace::Durability::Durable).unwrap()
                }
                _ => rig.db.commit_prepared(format!("{n}")).unwrap(),
            }
            rig.steps(3);
        }
        assert!(rig.db.stats().background.zones_released > 5);
        let cut = rig.machine.crash(Survive::Nothing);
        let db = options(&cut, None).open(PATH).unwrap();
        assert_eq!(names(&db), [""; 0]);
        assert_eq!(db.table("a").unwrap().iter().count(), 7);
    }
}

/// The zone of the commit that left it has long been released.
#[test]
fn the_last_blob_is_there_after_drains_and_restarts() {
    let _together = together();
    for kind in ALL_KINDS {
        let mut rig = Rig::new(kind, 9, None);
        rig.create("a");
        let table = rig.db.existing_table("a").unwrap();
        assert_eq!(rig.db.last_blob(), None);
        for n in 0..3 {
            let mut batch = WriteBatch::new();
            batch.put(&table, "row", "1").set_blob(format!("position {n}"));
            rig.db.write(batch).unwrap();
        }
        assert_eq!(rig.db.last_blob().unwrap(), "position 2");
        for n in 0..400 {
            rig.put("a", &format!("row {}", n % 40), 9000, Durability::Relaxed);
            rig.steps(4);
        }
        assert!(rig.db.stats().background.zones_released > 10);
        assert_eq!(rig.db.last_blob().unwrap(), "position 2");
        let cut = rig.machine.crash(Survive::Nothing);
        let db = options(&cut, None).open(PATH).unwrap();
        assert_eq!(db.last_blob().unwrap(), "position 2");
        // One that is a commit by itself, and one that comes with a verdict.
        let mut batch = WriteBatch::new();
        batch.set_blob("alone");
        db.write(batch).unwrap();
        assert_eq!(db.last_blob().unwrap(), "alone");
        let txn = db.begin().unwrap();
        txn.put(&db.table("a").unwrap(), "row", "2").unwrap();
        txn.prepare("one").unwrap();
        db.enqueue_prepared("one", Some(b"verdict"), Durability::Durable).unwrap().wait().unwrap();
        let txn = db.begin().unwrap();
        txn.set_blob("rolled back").unwrap();
        txn.roll_back();
        let cut = cut.crash(Survive::Nothing);
        let db = options(&cut, None).open(PATH).unwrap();
        assert_eq!(db.last_blob().unwrap(), "verdict");
    }
}

#[test]
fn commits_become_visible_in_the_order_in_which_they_were_enqueued() {
    let _together = together();
    let (dir, db, table) = open();
    let mut pending = Vec::new();
    for n in 0..50u32 {
        let mut batch = WriteBatch::new();
        batch.put(&table, "row", n.to_be_bytes());
        let txn = db.begin().unwrap();
        txn.put(&table, format!("{n}"), "1").unwrap();
        txn.set_blob(n.to_be_bytes()).unwrap();
        pending.push(txn.enqueue().unwrap());
        if n % 3 == 0 {
            let durability = if n % 2 == 0 { Durability::Relaxed } else { Durability::Durable };
            pending.push(db.enqueue(batch, durability).unwrap());
            // It has its row locked until it is waited for.
            pending.pop().unwrap().wait().unwrap();
        }
    }
    assert!(pending.is_sorted_by(|a, b| a.number() < b.number()));
    let last = pending.pop().unwrap();
    let others = thread::spawn(move || drop(pending));
    last.wait().unwrap();
    assert_eq!(table.iter().count(), 51);
    others.join().unwrap();
    wait_until("the locks are given back", || db.locks_held() == (0, 0));
    let (db, table) = reopen(&dir, db);
    assert_eq!(table.iter().count(), 51);
    assert_eq!(&db.last_blob().unwrap()[..], 49u32.to_be_bytes());
}

/// No thread waits for it, so only the background publishes it.
#[test]
fn a_commit_that_nobody_waits_for_is_made_all_the_same() {
    let _together = together();
    let (_dir, db, table) = open();
    let mut batch = WriteBatch::new();
    batch.put(&table, "row", "1");
    drop(db.enqueue(batch, Durability::Durable).unwrap());
    wait_until("the row is there", || table.get("row").unwrap().is_some());
    let txn = db.begin().unwrap();
    txn.put(&table, "row", "2").unwrap();
    drop(txn.enqueue().unwrap());
    // The destructor does not wait: the locks are given back once the commit is visible.
    wait_until("the locks are given back", || db.locks_held() == (0, 0));
    assert_eq!(table.get("row").unwrap().unwrap(), "2");
    let empty = db.begin().unwrap().enqueue().unwrap();
    empty.wait().unwrap();
}

/// Bug: a transaction that had read or locked rows of a table was prepared after that table had
/// been dropped or truncated. No verdict could be given, the database was not opened again, and no
/// follower went on. Cause: a prepare asked for the tables that it writes to, and its verdicts
/// named all that it had used. Fix: it names the same ones, and leaves out those that are gone.
#[test]
fn a_table_that_is_gone_before_a_prepare_keeps_no_verdict_up() {
    let _together = together();
    for (case, truncates) in (0..12).map(|case| (case, case % 2 == 1)) {
        let (dir, mut db, _) = open();
        let (gone, kept) = (db.table("gone").unwrap(), db.table("kept").unwrap());
        put(&db, &gone, "a", "1");
        let level = if case % 3 == 2 { Isolation::Serializable } else { Isolation::Snapshot };
        let txn = db.begin_with(TxnOptions::new().isolation(level)).unwrap();
        match case % 3 {
            0 => drop(txn.get(&gone, "a").unwrap()),
            1 => drop(txn.get_for_update(&gone, "a").unwrap()),
            _ => {
                txn.set_savepoint("before").unwrap();
                txn.put(&gone, "b", "2").unwrap();
                txn.roll_back_to("before").unwrap();
                assert_eq!(txn.range(&gone, ..).unwrap().count(), 1);
            }
        }
        txn.put(&kept, "k", "v").unwrap();
        if truncates { db.truncate_table("gone") } else { db.drop_table("gone") }.unwrap();
        txn.prepare("p").unwrap();
        if case < 6 {
            drop((gone, kept));
            db = reopen(&dir, db).0;
        }
        assert_eq!(names(&db), ["p"]);
        let kept = db.existing_table("kept").unwrap();
        if case % 4 < 2 {
            db.commit_prepared("p").unwrap();
        } else {
            db.roll_back_prepared("p", Durability::Durable).unwrap();
        }
        assert_eq!(kept.get("k").unwrap().is_some(), case % 4 < 2, "case {case}");
    }
}

/// Bug: a database was not opened again after a prepare that held a lock on a key, or up to a
/// bound, that is longer than keys can be. Cause: the lock was written as a record with that key,
/// which no opening takes. Fix: such a key is not locked, and a bound is cut to what keys can be.
#[test]
fn locks_up_to_longer_bounds_than_keys_are_held_again() {
    let _together = together();
    let long = vec![b'x'; terrace::limits::MAX_KEY_LEN + 1];
    let (dir, db, table) = open();
    let txn = db.begin_with(TxnOptions::new().isolation(Isolation::Serializable)).unwrap();
    assert_eq!(kind(txn.get(&table, &long)), ErrorKind::TooLarge);
    let optimistic = TxnOptions::new().isolation(Isolation::Serializable).optimistic();
    let other = db.begin_with(optimistic).unwrap();
    assert_eq!(kind(other.get(&table, &long)), ErrorKind::TooLarge);
    assert_eq!(txn.range_for_update(&table, long.clone()..).unwrap().count(), 0);
    assert_eq!(txn.range_for_update(&table, b"b".to_vec()..=long.clone()).unwrap().count(), 0);
    txn.put(&table, "a", "1").unwrap();
    txn.prepare("p").unwrap();
    drop(table);
    let (db, table) = reopen(&dir, db);
    let last = &long[..terrace::limits::MAX_KEY_LEN];
    for (key, locked) in [("a", true), ("aa", false), ("b", true), ("xx", true), ("y", true)] {
        assert_eq!(is_locked(&db, &table, key), locked, "{key}");
    }
    assert!(is_locked(&db, &table, std::str::from_utf8(last).unwrap()));
    db.commit_prepared("p").unwrap();
    assert!(!is_locked(&db, &table, "b") && table.get("a").unwrap().is_some());
}
