//! A thread that would wait for a transaction that it runs itself is told so, and no other one is.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::cell::Cell;
use std::sync::mpsc;
use std::thread;

use crate::common::{tiny, wait_until};
use terrace::testing::Machine;
use terrace::{
    Database, Error, ErrorKind, Isolation, LockWait, Options, Table, Transaction, TxnOptions,
};

fn open() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (dir, db, table)
}

fn until_one_waits(db: &Database) {
    let waits = || db.transactions().iter().any(|t| t.waits_for.is_some());
    wait_until("a transaction waits for a lock", waits);
}

fn endless() -> TxnOptions {
    TxnOptions::new().lock_wait(LockWait::Endless)
}

/// A write that waited for space would wait for the epoch that its own thread holds.
#[test]
fn a_write_inside_of_a_closure_that_is_lent_a_value_is_refused() {
    let (_dir, db, table) = open();
    table.put("k", "1").unwrap();
    let inside = table.get_with("k", |_| table.put("k", "2")).unwrap().unwrap();
    let error = inside.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("is lent"), "{error}");
    let inside = db.snapshot().unwrap().get_with(&table, "k", |_| {
        let txn = db.begin()?;
        txn.put(&table, "k", "3")?;
        txn.commit()
    });
    assert_eq!(inside.unwrap().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(table.get("k").unwrap().unwrap(), "1");
    table.put("k", "4").unwrap();
    // A row of a range is lent from the range's own memory.
    let inside = table.range(..).next_with(|key, _| table.put(key, "5")).unwrap().unwrap();
    inside.unwrap();
    assert_eq!(table.get("k").unwrap().unwrap(), "5");
}

/// Bug: a read of a snapshot, inside of a closure that a value is lent to, could wait for a change
/// of tables that waited for the epoch of the same thread. Cause: it met a table that was gone, and
/// waited to learn whether it was truncated. Fix: such a read fails at once.
#[test]
fn a_read_of_a_dropped_table_waits_for_no_change_of_tables_inside_of_a_closure() {
    let (_dir, db, table) = open();
    table.put("k", "1").unwrap();
    let gone = db.table("gone").unwrap();
    gone.put("k", "1").unwrap();
    let snapshot = db.snapshot().unwrap();
    let range = gone.range(..);
    db.drop_table("gone").unwrap();
    let outside = [gone.get("k").unwrap_err(), snapshot.get(&gone, "k").unwrap_err()];
    assert!(outside.iter().all(|error| error.to_string().contains("was dropped")), "{outside:?}");
    let inside = table.get_with("k", |_| {
        let reads = [gone.get("k").map(drop), snapshot.get(&gone, "k").map(drop)];
        let many = snapshot.multi_get(&gone, ["k"; 600]).map(drop);
        let rows = range.collect::<terrace::Result<Vec<_>>>().map(drop);
        reads.into_iter().chain([many, rows]).map(Result::unwrap_err).collect::<Vec<_>>()
    });
    for error in inside.unwrap().unwrap() {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("once the closure has returned"), "{error}");
    }
    let all = snapshot.multi_get(&table, ["k"; 600]).unwrap();
    assert!(all.iter().all(|value| value.as_deref() == Some(b"1")));
}

/// Bug: a plain write inside of `run`, to a row that the transaction has locked, waited ten seconds
/// for its own thread, and failed with `Timeout`. Cause: the lock table knew owners and no threads.
/// Fix: it knows which transactions a thread runs.
#[test]
fn a_plain_write_inside_of_run_does_not_wait_for_its_own_transaction() {
    let (_dir, db, table) = open();
    let failed = db.run(|txn| {
        txn.put(&table, "k", "1")?;
        let error = table.put("k", "2").unwrap_err();
        assert!(error.to_string().contains(&format!("transaction {}", txn.id())), "{error}");
        assert!(error.to_string().contains("this thread runs"), "{error}");
        assert_eq!(table.delete_range("a".."z").unwrap_err().kind(), ErrorKind::Invalid);
        // Other rows are free.
        table.put("other", "3")?;
        Err::<(), _>(error)
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Invalid);
    // One run inside of another.
    let nested = db.run(|outer| {
        outer.put(&table, "k", "1")?;
        db.run_with(&endless(), |inner| inner.put(&table, "k", "2"))
    });
    assert_eq!(nested.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(table.get("k").unwrap(), None);
    table.put("k", "3").unwrap();
}

/// Other threads wait for a transaction that is run, and a thread waits for a transaction that it
/// began and gave away.
#[test]
fn waits_for_other_threads_are_no_errors() {
    let (_dir, db, table) = open();
    let (locked, is_locked) = mpsc::channel();
    thread::scope(|scope| {
        let (db, table) = (&db, &table);
        let writer = scope.spawn(move || {
            is_locked.recv().unwrap();
            // The default, a snapshot, would conflict with what it waits for.
            db.run_with(&endless().isolation(Isolation::ReadCommitted), |txn| {
                txn.put(table, "k", "second")
            })
        });
        db.run(|txn| {
            txn.put(table, "k", "first")?;
            locked.send(()).unwrap();
            until_one_waits(db);
            Ok::<_, terrace::Error>(())
        })
        .unwrap();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(table.get("k").unwrap().unwrap(), "second");

    let given = db.begin().unwrap();
    given.put(&table, "k", "third").unwrap();
    thread::scope(|scope| {
        let db = &db;
        scope.spawn(move || {
            until_one_waits(db);
            given.commit().unwrap();
        });
        // The thread that began it waits for the one that commits it.
        db.run_with(&endless().isolation(Isolation::ReadCommitted), |txn| {
            txn.put(&table, "k", "fourth")
        })
        .unwrap();
    });
    assert_eq!(table.get("k").unwrap().unwrap(), "fourth");
}

/// A thread that runs a transaction waits for another transaction, which waits for the first one:
/// a deadlock through the thread, whichever of the two waits last.
#[test]
fn a_deadlock_through_a_thread_is_found() {
    for plain_is_last in [true, false] {
        let (_dir, db, table) = open();
        let (db, table) = (&db, &table);
        let (held, holds) = mpsc::channel();
        let (go, goes) = mpsc::channel();
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let txn = db.begin_with(endless()).unwrap();
                txn.put(table, "b", "other").unwrap();
                held.send(()).unwrap();
                goes.recv().unwrap();
                txn.put(table, "a", "other").and_then(|()| txn.commit())
            });
            holds.recv().unwrap();
            let runs = Cell::new(0);
            db.run(|txn| {
                runs.set(runs.get() + 1);
                txn.put(table, "a", "own")?;
                if runs.get() == 1 {
                    go.send(()).unwrap();
                    if plain_is_last {
                        until_one_waits(db);
                    }
                }
                table.put("b", "own").inspect_err(|error| {
                    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
                    assert!(error.to_string().contains("the thread that runs"), "{error}");
                })
            })
            .unwrap();
            assert!(runs.get() > 1, "of two waiters the one with fewer locks gives way");
            other.join().unwrap().unwrap();
            assert_eq!(table.get("b").unwrap().unwrap(), "own");
        });
    }
}

/// A transaction that `run` runs, of which a plain write meets a deadlock; `behind` it comes the
/// commit. The error of `run`.
fn fails_behind_a_deadlock(db: &Database, behind: impl Fn(&Transaction)) -> Error {
    let table = &db.table("t").unwrap();
    let ((held, holds), (go, goes)) = (mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            let txn = db.begin_with(endless()).unwrap();
            txn.put(table, "b", "other").unwrap();
            held.send(()).unwrap();
            goes.recv().unwrap();
            drop(txn.put(table, "a", "other"));
        });
        holds.recv().unwrap();
        let runs = Cell::new(0);
        let failed = db.run(|txn| {
            runs.set(runs.get() + 1);
            assert_eq!(runs.get(), 1, "it is run once");
            txn.put(table, "a", "own")?;
            go.send(()).unwrap();
            until_one_waits(db);
            assert_eq!(table.put("b", "own").unwrap_err().kind(), ErrorKind::Deadlock);
            behind(txn);
            Ok::<_, Error>(())
        });
        other.join().unwrap();
        failed.unwrap_err()
    })
}

/// Bug: a transaction whose commit had an unknown outcome was run again, and its rows could be
/// there twice. Cause: a plain write in the closure had met a deadlock, and that alone was a reason
/// to run again. Fix: nothing is run again whose commit is there, or may be.
#[test]
fn run_does_not_repeat_a_commit_with_an_unknown_outcome() {
    let has_unknown_outcome = || {
        let machine = Machine::with_files();
        let db = Options::new().pm_size(4 << 20).machine(&machine).open("/db").unwrap();
        match fails_behind_a_deadlock(&db, |_| machine.fail_sync_after(1)).kind() {
            ErrorKind::UnknownOutcome => true,
            // The sync was that of a zone, which the commit still waited for.
            ErrorKind::Unavailable => false,
            kind => panic!("a failed sync has become {kind:?}"),
        }
    };
    assert!((0..100).any(|_| has_unknown_outcome()), "the sync is the commit's own");
}

/// Bug: a transaction that was killed behind a deadlock of a plain write was run again, and so was
/// one whose commit could not be written. Cause: the deadlock alone was a reason to run again.
/// Fix: behind the deadlock it is run again where its closure failed, and not where its commit did.
#[test]
fn run_does_not_repeat_a_commit_that_fails_behind_a_deadlock() {
    let (_dir, db, table) = open();
    let failed = fails_behind_a_deadlock(&db, |txn| assert!(db.kill_transaction(txn.id())));
    assert_eq!(failed.kind(), ErrorKind::Closed, "{failed}");
    assert_eq!(table.get("a").unwrap(), None);
}

/// Bug: three threads waited for each other for ever, with endless waits for locks. Cause: a thread
/// that runs a transaction called another one, and waited for a call that was under way there; the
/// search for deadlocks did not know of that wait. Fix: it does, whichever of the waits is last.
#[test]
fn a_deadlock_through_a_call_of_another_thread_is_found() {
    for call_is_last in [true, false] {
        let (_dir, db, table) = open();
        let (db, table) = (&db, &table);
        let shared = &db.begin_with(endless()).unwrap();
        let other = db.begin_with(endless()).unwrap();
        other.put(table, "of other", "1").unwrap();
        let (go, goes) = mpsc::channel();
        let ends = thread::scope(|scope| {
            let calls = scope.spawn(|| shared.put(table, "of other", "2"));
            until_one_waits(db);
            let other = scope.spawn(move || {
                goes.recv().unwrap();
                let done = other.put(table, "of run", "1");
                done.and_then(|()| other.commit())
            });
            let runs = Cell::new(0);
            let run = db.run(|txn| {
                runs.set(runs.get() + 1);
                txn.put(table, "of run", "2")?;
                if runs.get() == 1 {
                    go.send(()).unwrap();
                    let waits =
                        || db.transactions().iter().filter(|t| t.waits_for.is_some()).count();
                    if call_is_last {
                        wait_until("two wait for locks", || waits() == 2);
                    }
                }
                // A call that waits for the other thread's, or finds it ended.
                shared.get(table, "k").map(drop)
            });
            [calls.join().unwrap(), other.join().unwrap(), run]
        });
        let kinds = ends.map(|end| end.err().map(|error| error.kind()));
        let deadlocks = kinds.iter().filter(|kind| **kind == Some(ErrorKind::Deadlock));
        assert_eq!(deadlocks.count(), 1, "one gives way: {kinds:?}");
        table.put("of run", "3").unwrap();
    }
}

/// Bug: `try_commit` waited beyond its deadline while another thread had a call under way on the
/// transaction. Cause: the deadline bounded the row locks at its end alone. Fix: it bounds the wait
/// for that call too.
#[test]
fn a_try_does_not_wait_for_a_call_of_another_thread_beyond_its_deadline() {
    let (_dir, db, table) = open();
    let (db, table) = (&db, &table);
    let (shared, other) = (&db.begin_with(endless()).unwrap(), db.begin().unwrap());
    other.put(table, "k", "1").unwrap();
    thread::scope(|scope| {
        let calls = scope.spawn(|| shared.get_for_share(table, "k"));
        until_one_waits(db);
        let now = std::time::Instant::now();
        let late = [
            shared.try_commit(now),
            shared.try_enqueue(now).map(drop),
            shared.try_prepare("p", now),
            terrace::with_deadline(now, || shared.put(table, "other", "1")),
        ];
        for late in late.map(Result::unwrap_err) {
            assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
            assert!(late.to_string().contains("another call"), "{late}");
        }
        other.roll_back();
        assert_eq!(calls.join().unwrap().unwrap(), None);
    });
    shared.put(table, "k", "2").unwrap();
    shared.try_commit(std::time::Instant::now()).unwrap();
    assert_eq!(table.get("k").unwrap().unwrap(), "2");
}
