//! Commits that are awaited, by an executor of a few lines.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::common::cuts::{PATH, options};
use crate::common::{rounds, tiny};
use terrace::testing::Machine;
use terrace::{Database, Durability, ErrorKind, PendingCommit, Table, WriteBatch};

/// Wakes a thread, and counts.
struct Unpark(Thread, AtomicU64);

impl Unpark {
    fn here() -> Arc<Unpark> {
        Arc::new(Unpark(thread::current(), AtomicU64::new(0)))
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Unpark::here());
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

fn open() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (dir, db, table)
}

fn enqueue(db: &Database, table: &Table, n: u64, durability: Durability) -> PendingCommit {
    let mut batch = WriteBatch::new();
    batch.put(table, n.to_be_bytes(), "v");
    db.enqueue(batch, durability).unwrap()
}

#[test]
fn tasks_of_several_threads_await_their_commits() {
    let each = rounds(100, 3000);
    let (_dir, db, table) = open();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for n in 0..each {
                    let how = [Durability::Durable, Durability::Relaxed][(n % 2) as usize];
                    let n = thread << 32 | n;
                    block_on(async { enqueue(db, table, n, how).await }).unwrap();
                    assert!(table.contains_key(n.to_be_bytes()).unwrap(), "it is visible");
                }
            });
        }
    });
    assert_eq!(table.range(..).count() as u64, 4 * each);
}

/// Futures are polled in any order, by changing wakers, again after they were ready, or dropped;
/// those of transactions give their locks back.
#[test]
fn dropped_futures_leave_nothing() {
    let (_dir, db, table) = open();
    let first = Unpark::here();
    let waker = Waker::from(Arc::clone(&first));
    for round in 0..rounds(50, 1000) {
        let mut pending: Vec<PendingCommit> = (0..4)
            .map(|n| {
                let txn = db.begin().unwrap();
                txn.put(&table, [n], round.to_be_bytes()).unwrap();
                txn.enqueue().unwrap()
            })
            .collect();
        let mut polled = 0;
        for commit in &mut pending[1..] {
            let ready = Pin::new(commit).poll(&mut Context::from_waker(&waker)).is_ready();
            polled += u64::from(ready);
        }
        assert!(polled <= 3);
        // One that was not polled, and one that was.
        drop(pending.remove(0));
        drop(pending.remove(0));
        let mut last = pending.pop().unwrap();
        block_on(&mut last).unwrap();
        block_on(&mut last).unwrap();
        drop(pending);
        // The next round writes the same rows: their locks come back by themselves.
    }
    drop(enqueue(&db, &table, 1, Durability::Durable));
    db.clone().close().unwrap();
    assert_eq!(db.locks_held(), (0, 0));
    drop(waker);
    assert_eq!(Arc::strong_count(&first), 1, "no waker is left");
}

/// A commit that is done at the closing, and is awaited afterwards.
#[test]
fn a_closing_leaves_no_task_waiting() {
    let (_dir, db, table) = open();
    let mut pending: Vec<_> =
        (0..20).map(|n| enqueue(&db, &table, n, Durability::Durable)).collect();
    let unpark = Unpark::here();
    let waker = Waker::from(Arc::clone(&unpark));
    let mut is_ready = |commit: &mut PendingCommit| {
        Pin::new(commit).poll(&mut Context::from_waker(&waker)).is_ready()
    };
    let ready = pending[..10].iter_mut().map(&mut is_ready).filter(|ready| *ready).count() as u64;
    db.close().unwrap();
    assert!(unpark.1.load(Ordering::Relaxed) + ready >= 10, "all that were polled are woken");
    for commit in pending {
        block_on(commit).unwrap();
    }
}

#[test]
fn a_failed_device_is_told_to_all_who_await() {
    let machine = Machine::with_files();
    let db = options(&machine, None).open(PATH).unwrap();
    let table = db.table("t").unwrap();
    enqueue(&db, &table, 0, Durability::Durable).wait().unwrap();
    machine.fail_sync_after(0);
    let pending: Vec<_> = (1..5).map(|n| enqueue(&db, &table, n, Durability::Durable)).collect();
    for commit in pending {
        let error = block_on(commit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    }
}
