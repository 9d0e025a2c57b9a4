//! Calls of transactions that fail, wait, or are made again: nothing is lost, and what a call
//! returns is what it did.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::common::cuts::{Kind, PATH, options};
use crate::common::{Chance, rounds, tiny, wait_until};
use terrace::testing::{Machine, ReadFaults};
use terrace::{
    Database, Durability, Error, ErrorKind, Isolation, LockWait, Table, Transaction, TxnOptions,
};

/// Each level, pessimistic and optimistic.
fn levels() -> Vec<TxnOptions> {
    let level = |isolation| TxnOptions::new().isolation(isolation);
    vec![
        level(Isolation::ReadCommitted),
        level(Isolation::Snapshot),
        level(Isolation::Snapshot).optimistic(),
        level(Isolation::Serializable),
        level(Isolation::Serializable).optimistic(),
    ]
}

/// What a transaction may meet beside others.
fn is_fine(e: &Error) -> bool {
    e.is_retryable() || e.kind() == ErrorKind::Timeout
}

/// A database that reads its rows from disk, with no block in memory.
fn on_disk() -> (Machine, Database, Table) {
    let machine = Kind::Files.machine();
    let db = options(&machine, None).cache_size(0).create(PATH).unwrap();
    let table = db.table("t").unwrap();
    (machine, db, table)
}

/// Moves all rows to disk.
fn settle(db: &Database, table: &Table) {
    db.compact_range(table, ..).unwrap();
}

/// With every read of a file failing.
fn failing<T>(machine: &Machine, f: impl FnOnce() -> T) -> T {
    machine.fault_reads(Some(ReadFaults { seed: 1, every: 1, flips: false }));
    let done = f();
    machine.fault_reads(None);
    done
}

/// Bug: under snapshot isolation a call whose check for a conflict failed, on a read error, kept
/// its lock. The same call, made again, found the lock there and did not check: the update of
/// another transaction was lost. Cause: only the call that got the lock checked. Fix: once a call
/// with a new lock has failed, each call checks the keys that it relies on.
#[test]
fn a_call_that_is_made_again_after_its_check_failed_finds_the_conflict() {
    type Call = fn(&Transaction, &Table) -> Result<(), Error>;
    let calls: [(&str, Call); 9] = [
        ("put", |txn, t| txn.put(t, "k", "own")),
        ("delete", |txn, t| txn.delete(t, "k")),
        ("get_for_update", |txn, t| txn.get_for_update(t, "k").map(drop)),
        ("get_for_share", |txn, t| txn.get_for_share(t, "k").map(drop)),
        ("insert_if_absent", |txn, t| txn.insert_if_absent(t, "k", "own").map(drop)),
        ("delete_range", |txn, t| txn.delete_range(t, "a".."z")),
        ("range_for_share", |txn, t| txn.range_for_share(t, "a".."z").map(drop)),
        ("range_skip_locked", |txn, t| txn.range_skip_locked(t, ..)?.next().transpose().map(drop)),
        ("pop_first", |txn, t| txn.pop_first(t).map(drop)),
    ];
    for (first, one) in calls {
        for (second, other) in calls {
            let (machine, db, table) = on_disk();
            table.put("k", "old").unwrap();
            let txn = db.begin().unwrap();
            table.put("k", "of another").unwrap();
            settle(&db, &table);
            let failed = failing(&machine, || one(&txn, &table));
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unavailable, "{first}");
            let again = other(&txn, &table);
            assert_eq!(
                again.map_err(|e| e.kind()),
                Err(ErrorKind::Conflict),
                "{second} after {first}"
            );
            drop(txn);
            assert_eq!(table.get("k").unwrap().unwrap(), "of another", "{second} after {first}");
        }
    }
}

/// Bug: the same, where the new range touches one that the transaction holds. Cause: ranges that
/// touch become one, and a call that failed was asked whether the number of locks had changed.
#[test]
fn a_range_that_touches_a_locked_one_is_checked_when_its_call_is_made_again() {
    let (machine, db, table) = on_disk();
    table.put("d", "old").unwrap();
    let txn = db.begin().unwrap();
    assert!(txn.range_for_update(&table, "a".."c").unwrap().next().is_none());
    table.put("d", "of another").unwrap();
    settle(&db, &table);
    let call = || txn.delete_range(&table, "c".."f");
    assert_eq!(failing(&machine, call).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(call().unwrap_err().kind(), ErrorKind::Conflict);
    drop(txn);
    assert_eq!(table.get("d").unwrap().unwrap(), "of another");
}

/// Rows that are counted up by transactions one of which is always behind, while reads fail now
/// and then and failed calls are made again: no acknowledged step is lost at any level.
#[test]
fn no_update_is_lost_whatever_fails() {
    const ROWS: u64 = 3;
    let (mut failed, mut conflicts, mut committed) = (0, 0, 0);
    for seed in 0..rounds(40, 2000) {
        let (machine, db, table) = on_disk();
        let mut chance = Chance::new(seed);
        let mut want = [0u64; ROWS as usize];
        for row in 0..ROWS {
            table.put(row.to_be_bytes(), 0u64.to_be_bytes()).unwrap();
        }
        let mut open: Vec<(Transaction, Isolation, Vec<u64>)> = Vec::new();
        for _ in 0..60 {
            if open.len() < 3 {
                let level = chance.pick(&levels()).clone().lock_wait(LockWait::NoWait);
                let txn = db.begin_with(level).unwrap();
                let isolation = txn.isolation();
                open.push((txn, isolation, Vec::new()));
            }
            let at = chance.below(open.len() as u64) as usize;
            let (txn, isolation, steps) = &mut open[at];
            if chance.percent(25) {
                let (txn, _, steps) = open.swap_remove(at);
                match txn.commit() {
                    Ok(()) => {
                        committed += 1;
                        steps.iter().for_each(|row| want[*row as usize] += 1);
                    }
                    Err(e) => assert!(is_fine(&e), "seed {seed}: {e}"),
                }
                if chance.percent(50) {
                    settle(&db, &table);
                }
                continue;
            }
            let row = chance.below(ROWS);
            let key = row.to_be_bytes();
            let mut done = Ok(());
            // A call that failed is made again, and then perhaps without failures.
            for _ in 0..3 {
                let every = *chance.pick(&[1, 2, 1000]);
                machine.fault_reads(Some(ReadFaults { seed: chance.next(), every, flips: false }));
                let old = match isolation {
                    Isolation::ReadCommitted => txn.get_for_update(&table, key),
                    _ => txn.get(&table, key),
                };
                done = old.and_then(|old| {
                    let old = u64::from_be_bytes(old.unwrap()[..].try_into().unwrap());
                    txn.put(&table, key, (old + 1).to_be_bytes())
                });
                machine.fault_reads(None);
                match &done {
                    Err(e) if e.kind() == ErrorKind::Unavailable => failed += 1,
                    _ => break,
                }
            }
            match done {
                Ok(()) => steps.push(row),
                Err(e) if [ErrorKind::Unavailable, ErrorKind::Timeout].contains(&e.kind()) => {}
                Err(e) => {
                    assert!(e.is_retryable(), "seed {seed}: {e}");
                    conflicts += 1;
                    open.swap_remove(at);
                }
            }
        }
        drop(open);
        let rows = (0..ROWS).map(|row| table.get(row.to_be_bytes()).unwrap().unwrap());
        let rows: Vec<u64> = rows.map(|v| u64::from_be_bytes(v[..].try_into().unwrap())).collect();
        assert_eq!(rows, want, "seed {seed}");
        assert_eq!(db.locks_held(), (0, 0));
    }
    eprintln!("{failed} calls failed, {conflicts} conflicts, {committed} commits");
    assert!(failed > 0 && conflicts > 0 && committed > 0);
}

/// Bug: `pop_first` of a serializable transaction that found no row read the whole table once more,
/// with a lock that it waited for. It returned what another transaction had put meanwhile, and did
/// not remove it. Cause: the row was looked for twice, and removed only after the first look. Fix:
/// a row that the second look finds is popped as any other.
#[test]
fn a_pop_that_waits_for_a_put_removes_what_it_returns() {
    for is_last in [false, true] {
        for level in levels() {
            let dir = tempfile::tempdir().unwrap();
            let db = tiny().open(dir.path().join("db")).unwrap();
            let table = db.table("t").unwrap();
            let other = db.begin().unwrap();
            other.put(&table, "k", "of another").unwrap();
            // However long a loaded machine takes for the rest.
            let wait = LockWait::AtMost(Duration::from_mins(5));
            let txn = db.begin_with(level.clone().lock_wait(wait)).unwrap();
            let id = txn.id();
            let popped = thread::scope(|s| {
                let pop = s.spawn(|| {
                    let row = if is_last { txn.pop_last(&table) } else { txn.pop_first(&table) };
                    row.unwrap().map(|(key, _)| key)
                });
                let waits =
                    || db.transactions().iter().any(|t| t.id == id && t.waits_for.is_some());
                wait_until("the pop waits or is done", || pop.is_finished() || waits());
                other.commit().unwrap();
                pop.join().unwrap()
            });
            match txn.commit() {
                Ok(()) => assert_eq!(table.get("k").unwrap().is_none(), popped.is_some()),
                Err(e) => assert!(e.is_retryable(), "{e}"),
            }
        }
    }
}

/// Bug: at read committed, `pop_first` of a transaction with a view returned a row that another
/// transaction had popped. Cause: where it found no row it read the table as of the view. Fix: it
/// looks for rows of now alone.
#[test]
fn a_pop_beside_a_view_does_not_return_what_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    table.put("k", "v").unwrap();
    let txn = db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted)).unwrap();
    txn.take_view(None).unwrap();
    assert!(db.run(|other| other.pop_first(&table)).unwrap().is_some());
    assert_eq!((txn.pop_first(&table).unwrap(), txn.pop_last(&table).unwrap()), (None, None));
    assert!(txn.get(&table, "k").unwrap().is_some(), "plain reads see the view");
    txn.commit().unwrap();
}

/// Workers at every level take rows from both ends of a queue that others fill, empty and roll back
/// on. Each row is had once, by a transaction that committed, or is still there.
#[test]
fn each_row_is_popped_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let (queue, next) = (db.table("t").unwrap(), AtomicU64::new(0));
    let had = Mutex::new(Vec::new());
    thread::scope(|s| {
        for t in 0..6u64 {
            let (db, queue, next, had) = (&db, &queue, &next, &had);
            s.spawn(move || {
                let mut chance = Chance::new(t);
                let relaxed = |level: TxnOptions| level.durability(Durability::Relaxed);
                let levels: Vec<TxnOptions> = levels().into_iter().map(relaxed).collect();
                for _ in 0..rounds(120, 10_000) {
                    let row = next.fetch_add(1, Ordering::Relaxed);
                    // In any order, and each once.
                    let key = row.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                    let put = |txn: &Transaction| txn.put(queue, key, "");
                    match chance.below(3) {
                        0 => queue.durability(Durability::Relaxed).put(key, "").unwrap(),
                        _ => db.run_with(chance.pick(&levels), put).unwrap(),
                    }
                    let txn = db.begin_with(chance.pick(&levels).clone()).unwrap();
                    if txn.isolation() == Isolation::ReadCommitted && chance.percent(50) {
                        txn.take_view(None).unwrap();
                    }
                    let mut popped = Vec::new();
                    let ends: Vec<bool> =
                        (0..chance.below(4)).map(|_| chance.percent(70)).collect();
                    let done = ends.into_iter().try_for_each(|first| {
                        let row = if first { txn.pop_first(queue)? } else { txn.pop_last(queue)? };
                        popped.extend(row.map(|(key, _)| key));
                        Ok::<_, Error>(())
                    });
                    let done = match chance.percent(80) {
                        true => {
                            done.and_then(|()| txn.commit().map(|()| had.lock().extend(popped)))
                        }
                        false => done,
                    };
                    assert!(done.as_ref().err().is_none_or(is_fine), "{done:?}");
                }
            });
        }
    });
    let (had, left) = (had.into_inner(), queue.iter().keys().map(Result::unwrap));
    let (count, all): (_, BTreeSet<_>) = (had.len(), had.iter().cloned().chain(left).collect());
    assert_eq!(had.into_iter().collect::<BTreeSet<_>>().len(), count, "no row twice");
    assert_eq!(all.len() as u64, next.into_inner(), "no row is lost");
    assert!(count > 0);
}

/// Bug: a transaction that a conflict had ended was still listed with locks and writes. Cause: the
/// call that ended it reported what it had held, and took back only the memory. Fix: it ends as any
/// other does.
#[test]
fn what_a_conflict_has_ended_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let txn = db.begin_with(TxnOptions::new().spill_at(1)).unwrap();
    for key in ["a", "b", "c"] {
        txn.put(&table, key, "1").unwrap();
    }
    table.put("d", "after the snapshot").unwrap();
    let held = &db.transactions()[0];
    assert!(held.locks == 3 && held.spilled > 0 && held.lock_memory > 0);
    assert_eq!(txn.put(&table, "d", "1").unwrap_err().kind(), ErrorKind::Conflict);
    let left = &db.transactions()[0];
    let left = (left.locks, left.lock_memory as u64, left.writes, left.memory, left.spilled);
    assert_eq!(left, (0, 0, 0, 0, 0));
    assert_eq!(db.locks_held(), (0, 0));
}

/// Bug: of two updates of a row in two threads of one transaction one was lost. Cause: the value
/// was read, and later written, in two calls, and locks keep other transactions out alone. Fix: the
/// call that writes finds the value that was read, or the closure gets the new one. Here another
/// thread changes the row, in each way, while the closure runs.
#[test]
fn updates_in_threads_of_one_transaction_are_all_made() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let add = |n: u8| move |old: Option<&[u8]>| Some([old.map_or(0, |old| old[0]) + n]);
    type Other = fn(&Transaction, &Table);
    let others: [(Other, Option<u8>); 4] = [
        (
            |txn, table| drop(txn.update(table, "k", |old| Some([old.unwrap()[0] + 10])).unwrap()),
            Some(12),
        ),
        (|txn, table| txn.put(table, "k", [50]).unwrap(), Some(51)),
        (|txn, table| txn.delete(table, "k").unwrap(), Some(1)),
        (|txn, _| txn.roll_back_to("s").unwrap(), Some(1)),
    ];
    for options in levels() {
        for (other, expected) in others {
            let txn = db.begin_with(options.clone()).unwrap();
            txn.set_savepoint("s").unwrap();
            txn.put(&table, "k", [1]).unwrap();
            let mut calls = 0;
            let new = txn.update(&table, "k", |old| {
                calls += 1;
                if calls == 1 {
                    thread::scope(|scope| scope.spawn(|| other(&txn, &table)).join().unwrap());
                }
                add(1)(old)
            });
            let value = |found: Option<bytes::Bytes>| found.map(|found| found[0]);
            assert_eq!((value(new.unwrap()), calls), (expected, 2));
            assert_eq!(value(txn.get(&table, "k").unwrap()), expected);
        }
    }
}
