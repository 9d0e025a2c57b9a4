//! Closing a database: calls that wait are told at once, and nothing is written afterwards.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{tiny, wait_until};
use terrace::{Database, Durability, ErrorKind, LockWait, Table, TxnOptions};

fn open() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (dir, db, table)
}

/// Bug: `close` did not wake calls that wait for locks. One waited its full ten seconds and got
/// `Timeout`, an endless one until the holder was dropped. Cause: nothing told the lock table.
/// Fix: `LockManager::close` ends all waits, with `Closed`.
#[test]
fn waits_for_locks_end_when_the_database_is_closed() {
    let (_dir, db, table) = open();
    let holder = db.begin().unwrap();
    holder.put(&table, "k", "held").unwrap();
    let endless = || db.begin_with(TxnOptions::new().lock_wait(LockWait::Endless)).unwrap();
    let (row, range) = (endless(), endless());
    let waiting = [row.id(), range.id()];
    thread::scope(|scope| {
        let row = scope.spawn(|| row.get_for_update(&table, "k").map(drop));
        let range = scope.spawn(|| range.range_for_update(&table, "a".."z").map(drop));
        let plain = scope.spawn(|| table.put("k", "plain"));
        let waits =
            |id: &u64| db.transactions().iter().any(|t| t.id == *id && t.waits_for.is_some());
        wait_until("both wait for a lock", || waiting.iter().all(waits));
        db.clone().close().unwrap();
        for waiter in [row, range, plain] {
            let error = waiter.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
    });
    let error = holder.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

/// A write that waits for the drain gets `Closed`, and not `Full` after a minute.
#[test]
fn waits_for_space_end_when_the_database_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing drains by itself.
    let db = tiny().stepped().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let soon = || Instant::now() + Duration::from_millis(5);
    let full = (0u32..).find_map(|n| table.try_put(n.to_be_bytes(), [7; 4096], soon()).err());
    assert_eq!(full.unwrap().kind(), ErrorKind::Timeout);
    thread::scope(|scope| {
        let (begun, begins) = mpsc::channel();
        let table = &table;
        let writer = scope.spawn(move || {
            begun.send(()).unwrap();
            table.put("one more", [7; 4096])
        });
        begins.recv().unwrap();
        db.clone().close().unwrap();
        let error = writer.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    });
}

/// Bug: a thread that had found the database open could commit after the closing had settled, and
/// given the directory back. Cause: nothing held it up in between. Fix: the turnstile is shut
/// before the closing settles. Each commit that returned is there at the next opening.
#[test]
fn what_returned_before_a_closing_is_there_and_nothing_comes_after_it() {
    let (dir, db, table) = open();
    let mut last = [0u64; 4];
    thread::scope(|scope| {
        let (begun, begins) = mpsc::channel();
        let writers: Vec<_> = (0..4u8)
            .map(|thread| {
                let (table, begun) = (&table, begun.clone());
                scope.spawn(move || {
                    let how = [Durability::Durable, Durability::Relaxed][usize::from(thread % 2)];
                    for n in 1u64.. {
                        if let Err(error) = table.put_with([thread], n.to_be_bytes(), how) {
                            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                            return n - 1;
                        }
                        if n == 3 {
                            begun.send(()).unwrap();
                        }
                    }
                    unreachable!("the database is closed")
                })
            })
            .collect();
        (0..4).for_each(|_| begins.recv().unwrap());
        db.clone().close().unwrap();
        // The directory is free: nothing of the first opening writes to it any more.
        let again = tiny().open(dir.path().join("db")).unwrap();
        for (thread, writer) in writers.into_iter().enumerate() {
            last[thread] = writer.join().unwrap();
        }
        let table = again.table("t").unwrap();
        for (thread, n) in (0u8..).zip(last) {
            assert_eq!(table.get([thread]).unwrap().as_deref(), Some(&n.to_be_bytes()[..]));
        }
    });
}
