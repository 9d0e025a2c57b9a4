//! Transactions as their users see them: own writes, cursors, savepoints, locks, limits, ends.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Chance, rounds, tiny, wait_until};
use terrace::{
    Database, Durability, Error, ErrorKind, Isolation, LockWait, Table, Transaction, TxnOptions,
    WriteBatch,
};

fn open() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (dir, db, table)
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn no_wait(db: &Database) -> Transaction {
    db.begin_with(TxnOptions::new().lock_wait(LockWait::NoWait)).unwrap()
}

/// One that waits for locks however long a loaded machine takes for the rest of a test.
fn patient(db: &Database) -> Transaction {
    let wait = LockWait::AtMost(Duration::from_mins(5));
    db.begin_with(TxnOptions::new().lock_wait(wait)).unwrap()
}

/// Returns once the transaction waits for a lock.
fn until_waiting(db: &Database, id: u64) {
    let waits = || db.transactions().iter().any(|t| t.id == id && t.waits_for.is_some());
    wait_until("the transaction waits for a lock", waits);
}

/// Own writes over committed rows, read from both ends while the transaction writes, against a
/// map of what should be there.
#[test]
fn scans_see_own_writes_from_both_ends_while_they_are_made() {
    for seed in 0..rounds(60, 3000) {
        let (_dir, db, table) = open();
        let mut chance = Chance::new(seed);
        let mut model: BTreeMap<u8, u8> = BTreeMap::new();
        for _ in 0..chance.below(40) {
            let (key, value) = (chance.below(60) as u8, chance.below(250) as u8);
            table.durability(Durability::Relaxed).put([key], [value]).unwrap();
            model.insert(key, value);
        }
        let txn = db.begin().unwrap();
        let write = |txn: &Transaction, model: &mut BTreeMap<u8, u8>, chance: &mut Chance| {
            let key = chance.below(60) as u8;
            if chance.percent(10) {
                let end = key + chance.below(20) as u8;
                txn.delete_range(&table, [key]..[end]).unwrap();
                model.retain(|k, _| !(key..end).contains(k));
            } else if chance.percent(40) {
                txn.delete(&table, [key]).unwrap();
                model.remove(&key);
            } else {
                let value = chance.below(250) as u8;
                txn.put(&table, [key], [value]).unwrap();
                model.insert(key, value);
            }
        };
        for _ in 0..chance.below(30) {
            write(&txn, &mut model, &mut chance);
        }
        let (low, high) = (chance.below(20) as u8, 40 + chance.below(20) as u8);
        let mut cursor = txn.range(&table, [low]..[high]).unwrap();
        // What is left lies between these.
        let (mut front, mut back) = (i32::from(low) - 1, i32::from(high));
        loop {
            if chance.percent(30) {
                write(&txn, &mut model, &mut chance);
            }
            let left = |(k, _): &(&u8, &u8)| i32::from(**k) > front && i32::from(**k) < back;
            let from_front = chance.percent(50);
            let (want, got) = if from_front {
                (model.iter().find(left), cursor.next())
            } else {
                (model.iter().rev().find(left), cursor.next_back())
            };
            let got = got.map(|row| row.map(|(k, v)| (k[0], v[0])).unwrap());
            assert_eq!(got, want.map(|(k, v)| (*k, *v)), "seed {seed}");
            match got {
                Some((key, _)) if from_front => front = key.into(),
                Some((key, _)) => back = key.into(),
                None => break,
            }
        }
        txn.commit().unwrap();
        let rows: Vec<_> = table.iter().map(|r| r.map(|(k, v)| (k[0], v[0])).unwrap()).collect();
        assert_eq!(rows, model.into_iter().collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn a_transaction_is_all_or_nothing_and_survives_reopening() {
    let (dir, db, table) = open();
    let other = db.table("other").unwrap();
    let txn = db.begin().unwrap();
    txn.put(&table, "a", "1").unwrap();
    txn.put(&other, "b", "2").unwrap();
    drop(txn);
    assert_eq!(table.get("a").unwrap(), None, "dropped is rolled back");
    let txn = db.begin().unwrap();
    txn.put(&table, "a", "1").unwrap();
    txn.put(&other, "b", "2").unwrap();
    // It may end in another thread than it began in.
    thread::spawn(move || txn.commit().unwrap()).join().unwrap();
    assert_eq!(db.locks_held(), (0, 0));
    drop((table, other));
    db.close().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    assert_eq!(db.table("t").unwrap().get("a").unwrap().unwrap(), "1");
    assert_eq!(db.table("other").unwrap().get("b").unwrap().unwrap(), "2");
}

#[test]
fn savepoints_nest_by_name() {
    let (_dir, db, table) = open();
    let txn = db.begin().unwrap();
    txn.put(&table, "k", "0").unwrap();
    txn.set_savepoint("s").unwrap();
    txn.put(&table, "k", "1").unwrap();
    txn.set_savepoint("s").unwrap();
    txn.delete(&table, "k").unwrap();
    txn.roll_back_to("s").unwrap();
    assert_eq!(txn.get(&table, "k").unwrap().unwrap(), "1");
    txn.release_savepoint("s").unwrap();
    txn.roll_back_to("s").unwrap();
    assert_eq!(txn.get(&table, "k").unwrap().unwrap(), "0");
    assert_eq!(kind(txn.roll_back_to("none")), ErrorKind::Invalid);
    txn.commit().unwrap();
    assert_eq!(table.get("k").unwrap().unwrap(), "0");
}

#[test]
fn a_locking_scan_keeps_others_out_of_the_gaps() {
    let (_dir, db, table) = open();
    table.put("a", "1").unwrap();
    table.put("c", "1").unwrap();
    let txn = db.begin().unwrap();
    assert_eq!(txn.range_for_update(&table, "a".."d").unwrap().count(), 2);
    let other = no_wait(&db);
    assert_eq!(kind(other.put(&table, "b", "new")), ErrorKind::Timeout);
    other.put(&table, "e", "outside").unwrap();
    txn.commit().unwrap();
    other.put(&table, "b", "new").unwrap();
    other.commit().unwrap();
}

#[test]
fn the_first_who_updates_wins() {
    let (_dir, db, table) = open();
    table.put("k", "0").unwrap();
    let (first, second) = (db.begin().unwrap(), db.begin().unwrap());
    let third = db.begin().unwrap();
    first.put(&table, "k", "1").unwrap();
    first.commit().unwrap();
    let error = second.put(&table, "k", "2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("\"k\"") && error.to_string().contains("\"t\""), "{error}");
    assert_eq!(kind(second.get(&table, "k")), ErrorKind::Closed, "it was rolled back");
    assert_eq!(kind(second.commit()), ErrorKind::Closed);
    assert_eq!(third.get(&table, "k").unwrap().unwrap(), "0", "its snapshot");
    assert_eq!(kind(third.range_for_update(&table, ..).map(drop)), ErrorKind::Conflict);
    assert_eq!(table.get("k").unwrap().unwrap(), "1");
}

/// A look for changes goes on behind thousands of rows that did not change, and ends where it is
/// told to.
#[test]
fn a_change_behind_thousands_of_rows_conflicts() {
    let (_dir, db, table) = open();
    let table = table.durability(Durability::Relaxed);
    let key = |n: u32| n.to_be_bytes();
    for is_compacted in [false, true] {
        (0..10_000).for_each(|n| table.put(key(n), "0").unwrap());
        let snapshot = || db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot)).unwrap();
        let (changed, ended, unchanged) = (snapshot(), snapshot(), snapshot());
        table.put(key(9999), "1").unwrap();
        if is_compacted {
            db.compact_range(&table, ..).unwrap();
        }
        let all_but_the_last = unchanged.range_for_update(&table, ..key(9999)).unwrap();
        assert_eq!(all_but_the_last.count(), 9999);
        unchanged.roll_back();
        assert_eq!(kind(changed.range_for_update(&table, ..).map(drop)), ErrorKind::Conflict);
        db.end_lock_wait(ended.id());
        assert_eq!(kind(ended.range_for_update(&table, ..).map(drop)), ErrorKind::Timeout);
    }
}

#[test]
fn a_deleted_key_conflicts_even_when_its_tombstone_could_go() {
    let (_dir, db, table) = open();
    table.put("k", "0").unwrap();
    let txn = db.begin().unwrap();
    table.delete("k").unwrap();
    // Enough to have everything frozen, merged, drained and compacted.
    let other = db.table("other").unwrap();
    for n in 0..6000u32 {
        other.durability(Durability::Relaxed).put(n.to_be_bytes(), [1; 900]).unwrap();
        table.durability(Durability::Relaxed).put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    assert_eq!(txn.get(&table, "k").unwrap().unwrap(), "0");
    assert_eq!(kind(txn.put(&table, "k", "1")), ErrorKind::Conflict);
}

#[test]
fn plain_writes_wait_for_locked_rows_and_for_no_others() {
    let (_dir, db, table) = open();
    table.put("k", "0").unwrap();
    let txn = db.begin().unwrap();
    assert_eq!(txn.get_for_update(&table, "k").unwrap().unwrap(), "0");
    table.put("free", "1").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            let mut batch = WriteBatch::new();
            batch.put(&table, "free", "2").put(&table, "k", "plain");
            db.write(batch).unwrap();
            done.store(true, Ordering::SeqCst);
        });
        wait_until("two rows are locked", || db.locks_held().0 >= 2);
        assert_eq!(table.get("free").unwrap().unwrap(), "1", "the whole batch waits");
        assert!(!done.load(Ordering::SeqCst));
        txn.put(&table, "k", "1").unwrap();
        txn.commit().unwrap();
    });
    assert_eq!(table.get("k").unwrap().unwrap(), "plain");
    assert_eq!(db.locks_held(), (0, 0));
}

/// Increments by transactions alone: none is lost although the first locks are taken while plain
/// writers run.
#[test]
fn no_plain_write_slips_under_the_first_lock() {
    for _ in 0..rounds(15, 500) {
        let (_dir, db, table) = open();
        table.put("k", 0u64.to_be_bytes()).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|s| {
            let plain = s.spawn(|| {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    table.durability(Durability::Relaxed).put("k", n.to_be_bytes()).unwrap();
                }
            });
            let options = TxnOptions::new().isolation(Isolation::ReadCommitted);
            let txn = db.begin_with(options).unwrap();
            let held = txn.get_for_update(&table, "k").unwrap();
            for _ in 0..50 {
                assert_eq!(txn.get(&table, "k").unwrap(), held, "no other transaction changes it");
            }
            stop.store(true, Ordering::Relaxed);
            drop(txn);
            plain.join().unwrap();
        });
    }
}

#[test]
fn two_in_a_deadlock_lose_one_and_a_retry_gets_through() {
    let (_dir, db, table) = open();
    let (first, second) = (patient(&db), patient(&db));
    first.put(&table, "a", "1").unwrap();
    first.put(&table, "more", "1").unwrap();
    second.put(&table, "b", "2").unwrap();
    let id = first.id();
    thread::scope(|s| {
        let waiting = s.spawn(|| first.put(&table, "b", "1").map(|()| first.commit().unwrap()));
        until_waiting(&db, id);
        let error = second.put(&table, "a", "2").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadlock);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(kind(second.commit()), ErrorKind::Closed);
    assert_eq!(table.get("b").unwrap().unwrap(), "1");
    assert_eq!(db.locks_held(), (0, 0));
}

#[test]
fn a_lock_is_waited_for_as_long_as_was_said() {
    let (_dir, db, table) = open();
    let holder = db.begin().unwrap();
    holder.put(&table, "k", "1").unwrap();
    let wait = LockWait::AtMost(Duration::from_millis(30));
    let other = db.begin_with(TxnOptions::new().lock_wait(wait)).unwrap();
    other.put(&table, "mine", "1").unwrap();
    let error = other.put(&table, "k", "2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains(&format!("transaction {}", holder.id())), "{error}");
    other.set_lock_wait(LockWait::NoWait).unwrap();
    assert_eq!(kind(other.get_for_update(&table, "k")), ErrorKind::Timeout);
    other.commit().unwrap();
    assert_eq!(table.get("mine").unwrap().unwrap(), "1", "only the call had failed");
}

#[test]
fn workers_take_different_rows_of_a_queue() {
    let (_dir, db, table) = open();
    for n in 0..6u8 {
        table.put([n], [n]).unwrap();
    }
    let (a, b) = (db.begin().unwrap(), db.begin().unwrap());
    let take = |txn: &Transaction, n| -> Vec<u8> {
        let rows = txn.range_skip_locked(&table, ..).unwrap();
        rows.take(n).map(|row| row.unwrap().0[0]).collect()
    };
    assert_eq!(take(&a, 2), [0, 1]);
    assert_eq!(take(&b, 3), [2, 3, 4]);
    a.delete(&table, [0]).unwrap();
    a.commit().unwrap();
    assert_eq!(take(&db.begin().unwrap(), 9), [1, 5]);
    drop(b);
    assert_eq!(take(&db.begin().unwrap(), 9), [1, 2, 3, 4, 5]);
}

/// The same calls as those of a range or one key, over prefixes and several keys.
#[test]
fn prefixes_and_several_keys_are_locked_as_ranges_and_rows_are() {
    let (_dir, db, table) = open();
    for key in ["a1", "a2", "b1", "b2"] {
        table.put(key, key).unwrap();
    }
    let keys = |rows: terrace::TxnRange| -> Vec<String> {
        rows.keys().map(|key| String::from_utf8(key.unwrap().to_vec()).unwrap()).collect()
    };
    let (txn, other) = (db.begin().unwrap(), no_wait(&db));
    assert_eq!(keys(txn.prefix_for_update(&table, "a").unwrap()), ["a1", "a2"]);
    assert_eq!(kind(other.put(&table, "a15", "in the gap")), ErrorKind::Timeout);
    assert_eq!(keys(other.prefix_skip_locked(&table, "a").unwrap()), [""; 0]);
    // One that is taken, and one that is left to others.
    assert_eq!(keys(other.prefix_skip_locked(&table, "b").unwrap().limit(1)), ["b1"]);
    assert_eq!(keys(txn.prefix_skip_locked(&table, "b").unwrap().rev().limit(3)), ["b2"]);
    // A key that is not there is locked too.
    let found = other.multi_get_for_update(&table, ["b1", "c"]).unwrap();
    assert_eq!(found, [Some("b1".into()), None]);
    txn.set_lock_wait(LockWait::NoWait).unwrap();
    assert_eq!(kind(txn.put(&table, "c", "new")), ErrorKind::Timeout);
    assert_eq!(kind(txn.multi_get_for_update(&table, ["b2", "b1"])), ErrorKind::Timeout);
    other.commit().unwrap();
    txn.delete_prefix(&table, "b").unwrap();
    txn.commit().unwrap();
    assert_eq!(table.range(..).count(), 2);
    assert_eq!(db.locks_held(), (0, 0));
}

#[test]
fn writes_over_the_limit_are_refused_and_the_rest_stays() {
    let (_dir, db, table) = open();
    let txn = db.begin_with(TxnOptions::new().write_limit(1000)).unwrap();
    txn.put(&table, "a", [1; 500]).unwrap();
    let error = txn.put(&table, "b", [1; 500]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("1000"), "{error}");
    txn.put(&table, "a", [2; 800]).unwrap();
    txn.commit().unwrap();
    assert_eq!(table.get("a").unwrap().unwrap(), [2u8; 800][..]);
}

#[test]
fn transactions_are_listed_and_killed_even_while_they_wait() {
    let (_dir, db, table) = open();
    let holder = db.begin().unwrap();
    holder.put(&table, "k", "1").unwrap();
    let waiting = patient(&db);
    let id = waiting.id();
    thread::scope(|s| {
        let call = s.spawn(|| waiting.put(&table, "k", "2"));
        until_waiting(&db, id);
        let list = db.transactions();
        assert_eq!((list.len(), list[0].id, list[0].locks), (2, holder.id(), 1));
        assert!(list[1].waits_for.as_deref().unwrap().contains("\"k\""));
        assert!(db.oldest_snapshot_age().is_some());
        assert!(db.kill_transaction(id));
        assert_eq!(kind(call.join().unwrap()), ErrorKind::Closed);
    });
    assert!(db.kill_transaction(holder.id()));
    assert!(!db.kill_transaction(holder.id()), "it has ended");
    assert_eq!(db.locks_held(), (0, 0));
    assert_eq!(kind(holder.commit()), ErrorKind::Closed);
    assert_eq!(table.get("k").unwrap(), None);
    drop(waiting);
    assert!(db.transactions().is_empty() && db.oldest_snapshot_age().is_none());
}

#[test]
fn a_truncated_or_dropped_table_fails_the_transaction_that_wrote_to_it() {
    let (_dir, db, table) = open();
    let txn = db.begin().unwrap();
    txn.put(&table, "k", "1").unwrap();
    db.truncate_table("t").unwrap();
    assert_eq!(kind(txn.commit()), ErrorKind::Conflict, "a run again finds the emptied table");
    assert_eq!(table.get("k").unwrap(), None);
    let txn = db.begin().unwrap();
    txn.put(&table, "k", "1").unwrap();
    db.drop_table("t").unwrap();
    assert_eq!(kind(txn.commit()), ErrorKind::MissingTable);
    assert_eq!(db.locks_held(), (0, 0));
}

/// A read of a transaction.
type Read<'a> = &'a dyn Fn(&Transaction) -> Result<(), Error>;

/// Bug: a transaction that had used a table failed with `Invalid`, as for a dropped table, once it
/// was truncated. Cause: batches of transactions name the table of the moment. Fix: it is a
/// conflict, and `run` runs it again.
#[test]
fn a_truncation_is_a_conflict_and_run_runs_again() {
    let (_dir, db, table) = open();
    table.put("old", "1").unwrap();
    for level in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let (runs, options) = (AtomicU64::new(0), TxnOptions::new().isolation(level));
        db.run_with(&options, |txn| {
            txn.put(&table, "k", "1")?;
            if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                db.truncate_table("t")?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 2, "{level:?}");
        assert_eq!(table.get("k").unwrap().unwrap(), "1");
        assert_eq!(table.get("old").unwrap(), None);
        table.put("old", "1").unwrap();
    }
    // Reads, cursors, and a table that is used for the first time after its truncation.
    let reads: [Read<'_>; 3] = [
        &|txn| txn.get(&table, "old").map(drop),
        &|txn| txn.range(&table, ..)?.next().map_or(Ok(()), |row| row.map(drop)),
        &|txn| txn.get_for_update(&table, "old").map(drop),
    ];
    for (used, read) in [false, true].into_iter().flat_map(|used| reads.map(|read| (used, read))) {
        let txn = db.begin().unwrap();
        if used {
            txn.get(&table, "other").unwrap();
        }
        db.truncate_table("t").unwrap();
        let error = read(&txn).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(kind(txn.commit()), ErrorKind::Closed, "it has ended");
    }
    let gone = db.run(|txn| {
        txn.put(&table, "k", "1")?;
        db.drop_table("t")
    });
    assert_eq!(kind(gone), ErrorKind::MissingTable, "a dropped table does not come back");
}

/// Money moves between accounts at every level, with plain deposits of nothing beside; none is
/// made or lost, also in what snapshots see meanwhile.
#[test]
fn a_bank_keeps_its_money() {
    const ACCOUNTS: u64 = 20;
    let (_dir, db, table) = open();
    let amount = |v: &[u8]| u64::from_be_bytes(v.try_into().unwrap());
    for n in 0..ACCOUNTS {
        table.put(n.to_be_bytes(), 100u64.to_be_bytes()).unwrap();
    }
    let transfers = AtomicU64::new(0);
    thread::scope(|s| {
        for t in 0..6u64 {
            let (db, table, transfers) = (&db, &table, &transfers);
            s.spawn(move || {
                let mut chance = Chance::new(t);
                let options = TxnOptions::new().durability(Durability::Relaxed);
                let options = match t % 3 {
                    0 => options,
                    1 => options.isolation(Isolation::Serializable),
                    _ => options.isolation(Isolation::ReadCommitted),
                };
                let options = if t == 3 { options.optimistic() } else { options };
                for _ in 0..rounds(150, 10_000) {
                    let (from, to) = (chance.below(ACCOUNTS), chance.below(ACCOUNTS));
                    let moved = chance.below(30);
                    let done: Result<(), Error> = db.run_with(&options, |txn| {
                        let read = |n: u64| {
                            let value = txn.get_for_update(table, n.to_be_bytes())?;
                            Ok::<_, Error>(amount(&value.unwrap()))
                        };
                        let (have, other) = (read(from)?, read(to)?);
                        if from != to && have >= moved {
                            txn.put(table, from.to_be_bytes(), (have - moved).to_be_bytes())?;
                            txn.put(table, to.to_be_bytes(), (other + moved).to_be_bytes())?;
                        }
                        Ok(())
                    });
                    if let Err(e) = done {
                        assert!(e.is_retryable(), "{e}");
                    } else {
                        transfers.fetch_add(1, Ordering::Relaxed);
                    }
                    let rows = table.iter().map(|row| amount(&row.unwrap().1));
                    assert_eq!(rows.sum::<u64>(), 100 * ACCOUNTS);
                }
            });
        }
    });
    assert!(transfers.load(Ordering::Relaxed) > 0);
    assert_eq!(db.locks_held(), (0, 0));
}

#[test]
fn a_deleted_range_is_locked_with_its_gaps_and_undone_with_its_savepoint() {
    let (_dir, db, table) = open();
    for key in ["a", "b", "c", "d"] {
        table.put(key, key).unwrap();
    }
    let keys = |txn: &Transaction| {
        let rows = txn.range(&table, ..).unwrap();
        rows.map(|row| row.unwrap().0[0] as char).collect::<String>()
    };
    let txn = db.begin().unwrap();
    txn.put(&table, "ba", "own").unwrap();
    txn.set_savepoint("before").unwrap();
    txn.delete_range(&table, "b".."d").unwrap();
    txn.put(&table, "c", "after").unwrap();
    assert_eq!(keys(&txn), "acd");
    assert_eq!(txn.get(&table, "ba").unwrap(), None);
    let other = no_wait(&db);
    assert_eq!(kind(other.put(&table, "bb", "in a gap")), ErrorKind::Timeout);
    other.put(&table, "e", "beside it").unwrap();
    other.commit().unwrap();
    txn.roll_back_to("before").unwrap();
    assert_eq!(keys(&txn), "abbcd");
    txn.delete_range(&table, ..="b").unwrap();
    txn.commit().unwrap();
    let left: Vec<_> = table.iter().map(|row| row.unwrap().0).collect();
    assert_eq!(left, ["ba", "c", "d", "e"]);
}

#[test]
fn a_range_that_was_put_into_since_the_snapshot_is_a_conflict_and_so_is_one_that_was_deleted() {
    for optimistic in [false, true] {
        let (_dir, db, table) = open();
        table.put("b", "1").unwrap();
        let options = || {
            let options = TxnOptions::new().isolation(Isolation::Snapshot);
            if optimistic { options.optimistic() } else { options }
        };
        let ends_in = |txn: Transaction, done: Result<(), Error>| match done {
            Ok(()) => kind(txn.commit()),
            Err(e) => e.kind(),
        };
        let txn = db.begin_with(options()).unwrap();
        table.put("c", "2").unwrap();
        let done = txn.delete_range(&table, "a".."d");
        assert_eq!(ends_in(txn, done), ErrorKind::Conflict);
        let txn = db.begin_with(options()).unwrap();
        table.delete_range("a".."d").unwrap();
        let done = txn.put(&table, "b", "3");
        assert_eq!(ends_in(txn, done), ErrorKind::Conflict);
        let txn = db.begin_with(options()).unwrap();
        txn.delete_range(&table, ..).map_or_else(|e| panic!("{e}"), |()| txn.commit().unwrap());
        assert_eq!(table.iter().count(), 0);
    }
}

/// A row that `f` of the tests below adds one to.
fn count(txn: &Transaction, table: &Table) -> Result<(), Error> {
    let old = txn.get_for_update(table, "count")?.map_or(0, |old| old[0]);
    txn.put(table, "count", [old + 1])
}

#[test]
fn run_calls_again_until_there_is_no_conflict_and_does_it_once() {
    for optimistic in [false, true] {
        for conflicts in [0, 1, 5] {
            let (_dir, db, table) = open();
            let options = TxnOptions::new();
            let options = if optimistic { options.optimistic() } else { options };
            let calls = AtomicU64::new(0);
            let done: Result<u64, Error> = db.run_with(&options, |txn| {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                txn.put(&table, format!("call {call}"), "")?;
                if call < conflicts {
                    // After the snapshot, and before the transaction has locked it.
                    table.put("other", [call as u8]).unwrap();
                }
                txn.put(&table, "other", "own")?;
                count(txn, &table)?;
                Ok(call)
            });
            assert_eq!(done.unwrap(), conflicts);
            assert_eq!(calls.into_inner(), conflicts + 1);
            let keys: Vec<_> = table.iter().map(|row| row.unwrap().0).collect();
            let last = format!("call {conflicts}");
            assert_eq!(keys, [last.as_bytes(), b"count", b"other"], "of one call alone");
            assert_eq!(table.get("count").unwrap().unwrap(), [1u8][..]);
            assert_eq!((db.transactions().len(), db.locks_held()), (0, (0, 0)));
        }
    }
}

#[test]
fn run_gives_up_at_once_on_what_another_call_does_not_help() {
    let (_dir, db, table) = open();
    let calls = AtomicU64::new(0);
    let failed = db.run(|txn| {
        calls.fetch_add(1, Ordering::Relaxed);
        count(txn, &table)?;
        txn.put(&table, vec![1; 70_000], "too long a key")
    });
    assert_eq!((kind(failed), calls.into_inner()), (ErrorKind::TooLarge, 1));
    // Nor does a row that another transaction has locked for longer than it may wait.
    let holder = db.begin().unwrap();
    holder.put(&table, "count", [9]).unwrap();
    let calls = AtomicU64::new(0);
    let failed = db.run_with(&TxnOptions::new().lock_wait(LockWait::NoWait), |txn| {
        calls.fetch_add(1, Ordering::Relaxed);
        count(txn, &table)
    });
    assert_eq!((kind(failed), calls.into_inner()), (ErrorKind::Timeout, 1));
    drop(holder);
    assert_eq!((table.iter().count(), db.locks_held()), (0, (0, 0)), "nothing is left of either");
}

#[test]
fn run_gives_up_after_as_many_calls_as_it_says() {
    let (_dir, db, table) = open();
    let calls = AtomicU64::new(0);
    let failed = db.run(|txn| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        table.put("other", [call as u8]).unwrap();
        count(txn, &table)?;
        txn.put(&table, "other", "own")
    });
    assert_eq!((kind(failed), calls.into_inner()), (ErrorKind::Conflict, 64));
    assert_eq!(table.get("count").unwrap(), None);
    assert_eq!(table.get("other").unwrap().unwrap(), [63u8][..]);
}

/// A commit that would wait too long leaves an optimistic transaction as before: without locks,
/// with all that it relies on, and with the memory that this takes counted.
#[test]
fn a_commit_that_comes_too_late_is_tried_again() {
    let (_dir, db, table) = open();
    table.put("a", "0").unwrap();
    let holder = db.begin().unwrap();
    holder.put(&table, "a", "1").unwrap();
    // It relies on what it reads.
    let options = TxnOptions::new().isolation(Isolation::Serializable).optimistic();
    let optimistic = || db.begin_with(options.clone()).unwrap();
    let soon = || Instant::now() + Duration::from_millis(5);
    let [commits, enqueues, prepares, conflicts] = [(); 4].map(|()| optimistic());
    for (n, txn) in [&commits, &enqueues, &prepares, &conflicts].into_iter().enumerate() {
        txn.put(&table, format!("own {n}"), "").unwrap();
        assert!(txn.get_for_update(&table, "a").unwrap().is_some());
        let counted = || db.transactions().iter().find(|t| t.id == txn.id()).unwrap().lock_memory;
        let before = counted();
        assert_eq!(kind(txn.try_commit(soon())), ErrorKind::Timeout);
        assert_eq!(kind(txn.try_enqueue(soon())), ErrorKind::Timeout);
        assert_eq!(kind(txn.try_prepare("p", soon())), ErrorKind::Timeout);
        assert!(txn.get(&table, "a").unwrap().is_some(), "it goes on");
        assert_eq!(counted(), before);
    }
    no_wait(&db).put(&table, "own 0", "").unwrap();
    holder.roll_back();
    commits.commit().unwrap();
    enqueues.enqueue().unwrap().wait().unwrap();
    prepares.prepare("p").unwrap();
    db.commit_prepared("p").unwrap();
    table.put("a", "2").unwrap();
    assert_eq!(kind(conflicts.commit()), ErrorKind::Conflict);
    assert_eq!(table.iter().count(), 4);
}

/// A deadline of the thread ends each wait for its turn, and nothing is written.
#[test]
fn a_deadline_ends_each_wait_for_a_lock() {
    let (_dir, db, table) = open();
    table.put("a", "0").unwrap();
    let holder = db.begin().unwrap();
    holder.put(&table, "a", "1").unwrap();
    let soon = || Instant::now() + Duration::from_millis(5);
    let batch = || {
        let mut batch = WriteBatch::new();
        batch.put(&table, "a", "2");
        batch
    };
    let txn = db.begin_with(TxnOptions::new().lock_wait(LockWait::Endless)).unwrap();
    type Call<'a> = (&'a str, &'a dyn Fn() -> Result<(), Error>);
    let calls: [Call<'_>; 9] = [
        ("put", &|| table.durability(Durability::Relaxed).put("a", "2")),
        ("delete_range", &|| table.delete_range(..)),
        ("write", &|| db.write(batch())),
        ("enqueue", &|| db.enqueue(batch(), Durability::Durable).map(drop)),
        ("pop", &|| table.pop_first().map(drop)),
        ("update", &|| table.update("a", |_| Some("2")).map(drop)),
        ("insert", &|| table.insert_if_absent("a", "2").map(drop)),
        ("transaction", &|| txn.put(&table, "a", "2")),
        ("range", &|| txn.range_for_update(&table, ..).map(drop)),
    ];
    for (name, call) in calls {
        assert_eq!(kind(terrace::with_deadline(soon(), call)), ErrorKind::Timeout, "{name}");
    }
    holder.roll_back();
    txn.roll_back();
    assert_eq!(table.get("a").unwrap().as_deref(), Some(&b"0"[..]));
}

/// An error of a caller's own.
#[derive(Debug, PartialEq)]
enum Own {
    Refused(u64),
    Engine(ErrorKind),
}

impl From<Error> for Own {
    fn from(e: Error) -> Own {
        Own::Engine(e.kind())
    }
}

/// What a closure makes of a call that failed.
type Made = fn(Result<(), Error>) -> Result<(), Own>;

/// Bug: the error of a closure that `run` runs could only be the engine's. A caller that returned
/// its own one as a value had its transaction committed. Cause: one type of error. Fix: `run`
/// takes any that can be made of the engine's, rolls back and returns it as it is.
#[test]
fn run_returns_the_caller_s_error_as_it_is_and_runs_again_after_conflicts() {
    let (_dir, db, table) = open();
    let options = TxnOptions::new();
    let calls = AtomicU64::new(0);
    let refused = db.run_with(&options, |txn| {
        txn.put(&table, "k", "1")?;
        Err::<(), _>(Own::Refused(calls.fetch_add(1, Ordering::Relaxed)))
    });
    assert_eq!((refused, calls.into_inner()), (Err(Own::Refused(0)), 1));
    assert_eq!((table.get("k").unwrap(), db.locks_held()), (None, (0, 0)), "it is rolled back");
    let kept = db.run_with(&options, |txn| txn.put(&table, "k", "1").map_err(Own::from));
    assert_eq!((kept, table.get("k").unwrap().is_some()), (Ok(()), true));
    // Whatever the closure makes of a conflict, the transaction remembers it.
    let made: [Made; 4] = [
        |failed| Ok(failed?),
        |failed| failed.map_err(|_| Own::Refused(7)),
        |failed| {
            failed.unwrap_or(());
            Ok(())
        },
        |failed| if failed.is_err() { Err(Own::Refused(8)) } else { Ok(()) },
    ];
    for (n, make) in made.iter().enumerate() {
        for conflicts in [0, 1, 3, 64] {
            let calls = AtomicU64::new(0);
            let done = db.run_with(&options, |txn| {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                if call < conflicts {
                    table.put("other", call.to_be_bytes())?;
                }
                make(txn.put(&table, "other", "own"))
            });
            assert_eq!(calls.into_inner(), (conflicts + 1).min(64), "{n} {conflicts}");
            assert_eq!(done.is_ok(), conflicts < 64, "{n} {conflicts}: {done:?}");
        }
    }
    // Only its own transaction counts: a conflict of another one does not go away by running again.
    let calls = AtomicU64::new(0);
    let nested: Result<(), Error> = db.run(|_| {
        calls.fetch_add(1, Ordering::Relaxed);
        let inner = db.begin()?;
        table.put("other", "changed")?;
        inner.put(&table, "other", "own")
    });
    assert_eq!((kind(nested), calls.into_inner()), (ErrorKind::Conflict, 1));
    // A plain error of the engine is the caller's to see, and no reason to run again.
    let calls = AtomicU64::new(0);
    let failed = db.run_with(&options, |txn| {
        calls.fetch_add(1, Ordering::Relaxed);
        Ok::<_, Own>(txn.put(&table, vec![1; 70_000], "too long a key")?)
    });
    assert_eq!((failed, calls.into_inner()), (Err(Own::Engine(ErrorKind::TooLarge)), 1));
}

/// Bug: a serializable transaction saw a table that was truncated under it as empty, and committed
/// what it made of that. Cause: a range read the table of its moment, and other reads that of the
/// transaction. Fix: a range of a table that was replaced is a conflict too.
#[test]
fn a_range_of_a_table_that_was_truncated_is_a_conflict() {
    let (_dir, db, table) = open();
    table.put("a", "1").unwrap();
    for level in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let txn = db.begin_with(TxnOptions::new().isolation(level)).unwrap();
        assert_eq!(txn.range(&table, ..).unwrap().count(), 1);
        db.truncate_table("t").unwrap();
        let found = txn.range(&table, ..).and_then(|mut rows| rows.next().unwrap()).unwrap_err();
        assert_eq!(found.kind(), ErrorKind::Conflict, "{level:?}: {found}");
        drop(txn);
        table.put("a", "1").unwrap();
    }
}
