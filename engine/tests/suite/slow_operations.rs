//! Slow operations are told with where their time went.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{tiny, wait_until};
use terrace::events::{Event, SlowOperationInfo};
use terrace::{Durability, ErrorKind, LockWait, Options, TxnOptions, WriteBatch};

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<SlowOperationInfo>>>);

impl Told {
    /// Tells of operations that take longer than that.
    fn by(&self, options: Options, slow: Duration) -> Options {
        let told = self.clone();
        options.slow_operation(slow).on_event(move |event| {
            if let Event::SlowOperation(info) = event {
                told.0.lock().unwrap().push(info.clone());
            }
        })
    }

    /// Those of one kind, none of which has more in parts than in all.
    fn of(&self, operation: &str) -> Vec<SlowOperationInfo> {
        let told = self.0.lock().unwrap();
        let parts = |one: &SlowOperationInfo| {
            one.lock_ms + one.pace_ms + one.sync_ms + one.remote_ms + one.read_ms
        };
        assert!(told.iter().all(|one| parts(one) <= one.ms + 1e-6), "{told:?}");
        told.iter().filter(|one| one.operation == operation).cloned().collect()
    }
}

#[test]
fn a_slow_operation_says_where_its_time_went() {
    let dir = tempfile::tempdir().unwrap();
    let (told, path) = (Told::default(), dir.path().join("db"));
    let options = |told: &Told| told.by(tiny().stepped(), Duration::ZERO);
    let db = options(&told).open(&path).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..500u32 {
        table.put(n.to_be_bytes(), [7; 1000]).unwrap();
    }
    db.compact_range(&table, ..).unwrap();
    while db.step().unwrap() {}
    db.close().unwrap();
    let commits = told.of("commit");
    assert!(commits.len() >= 500, "{}", commits.len());
    assert!(commits.iter().all(|commit| commit.table.is_none() && commit.reads == 0));
    assert!(commits.iter().any(|commit| commit.sync_ms > 0.0), "{commits:?}");

    let told = Told::default();
    let db = options(&told).open(&path).unwrap();
    let table = db.existing_table("t").unwrap();
    let other = |_: &[u8]| table.get(9u32.to_be_bytes()).unwrap().unwrap().len();
    assert_eq!(table.get_with(3u32.to_be_bytes(), other).unwrap(), Some(1000));
    assert_eq!(table.range(..).count(), 500);
    db.close().unwrap();
    let gets = told.of("get");
    assert_eq!(gets.len(), 1, "a look-up inside of another one is part of it: {gets:?}");
    assert_eq!(gets[0].table.as_deref(), Some("t"));
    assert!(gets[0].reads > 0 && gets[0].read_bytes > 0 && gets[0].read_ms > 0.0, "{gets:?}");
    assert!(gets[0].extents >= 2, "two look-ups: {gets:?}");
    let ranges = told.of("range");
    assert!(ranges.len() > 1, "a chunk each: {ranges:?}");
    // The rest is read ahead, by other threads.
    assert!(ranges.iter().map(|range| range.read_bytes).sum::<u64>() > 0, "{ranges:?}");
}

#[test]
fn waits_for_locks_and_for_space_are_told() {
    let told = Told::default();
    let db = told.by(tiny().in_memory(64 << 20).stepped(), Duration::ZERO).open("db").unwrap();
    let table = db.table("t").unwrap();
    let wait = Duration::from_millis(20);
    let holder = db.begin().unwrap();
    holder.put(&table, "key", "held").unwrap();
    let (plain, waiter) = (|| table.put("key", "plain"), db.begin().unwrap());
    let locks: [&dyn Fn() -> terrace::Result<()>; 2] = [&plain, &|| waiter.put(&table, "key", "2")];
    for put in locks {
        let error = terrace::with_deadline(Instant::now() + wait, put).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
    drop((holder, waiter));
    // No step makes space.
    let put = |n: u32| {
        let put = || table.put(n.to_be_bytes(), vec![n as u8; 30_000]);
        terrace::with_deadline(Instant::now() + wait, put)
    };
    let full = (0..1000).find_map(|n| put(n).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::Timeout, "{full}");
    // Bug: a wait in vain counted for nothing, and an alert on it was silent on a full region.
    let before = db.stats().commit.throttled_ms;
    put(1001).unwrap_err();
    assert!(db.stats().commit.throttled_ms > before, "a wait in vain counts");
    db.close().unwrap();
    let commits = told.of("commit");
    assert!(commits.iter().any(|commit| commit.lock_ms > 0.0), "{commits:?}");
    assert!(commits.iter().any(|commit| commit.pace_ms > 0.0), "{commits:?}");
    let calls = told.of("transaction");
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls.iter().all(|call| call.table.as_deref() == Some("t")));
    assert!(calls[0].lock_ms == 0.0 && calls[1].lock_ms > 0.0, "{calls:?}");
}

/// Bug: while every writer stood still, statistics said that none waits. Cause: a wait was counted
/// when it ended. Fix: it counts from its beginning.
#[test]
fn a_wait_is_in_the_statistics_as_it_goes_on() {
    let db = tiny().in_memory(64 << 20).stepped().open("db").unwrap();
    let table = db.table("t").unwrap();
    let holder = db.begin().unwrap();
    holder.put(&table, "key", "held").unwrap();
    std::thread::scope(|scope| {
        let waits = db.begin_with(TxnOptions::new().lock_wait(LockWait::Endless)).unwrap();
        let table = &table;
        scope.spawn(move || waits.put(table, "key", "waits"));
        let locks = || db.stats().locks;
        wait_until("it waits", || locks().waiting == 1);
        let one = locks();
        wait_until("its wait goes on", || locks().waiting_ms > one.waiting_ms);
        assert!(locks().waited_ms > one.waited_ms && locks().waiting == 1, "{one:?}");
        // Bug: the history had a wait of a minute as six that waited at once, when it ended.
        assert!(db.metric_values()["terrace_lock_waited_seconds_total"] > 0.0);
        holder.roll_back();
    });
    let ended = db.stats().locks;
    assert!(ended.waiting == 0 && ended.waiting_ms == 0.0 && ended.waited_ms > 0.0, "{ended:?}");
}

/// Bug: nothing told of an update, a pop or an optimistic commit that stood behind a row's lock.
/// Cause: what was timed was the commit of its batch alone. Fix: the whole call is the operation.
///
/// Bug: no commit of a program with a log of its own was told. Cause: what came before the place in
/// the order was not timed. Fix: that is an operation, and so is a prepare.
#[test]
fn all_that_a_commit_waits_for_is_told() {
    let told = Told::default();
    let db = told.by(tiny().in_memory(64 << 20).stepped(), Duration::ZERO).open("db").unwrap();
    let table = db.table("t").unwrap();
    table.put("key", "first").unwrap();
    let holder = db.begin().unwrap();
    holder.put(&table, "key", "held").unwrap();
    let optimistic = db.begin_with(TxnOptions::new().optimistic()).unwrap();
    optimistic.put(&table, "key", "optimistic").unwrap();
    let later = || Instant::now() + Duration::from_millis(20);
    let errors = [
        terrace::with_deadline(later(), || table.insert_if_absent("key", "x").map(drop)),
        terrace::with_deadline(later(), || table.pop_first().map(drop)),
        optimistic.try_commit(later()),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
    }
    let mut batch = WriteBatch::new();
    batch.put(&table, "key", "enqueued");
    let enqueued = terrace::with_deadline(later(), || db.enqueue(batch, Durability::Durable));
    assert_eq!(enqueued.map(drop).unwrap_err().kind(), ErrorKind::Timeout);
    drop((holder, optimistic));
    assert!(!table.insert_if_absent("key", "x").unwrap());
    let prepared = db.begin().unwrap();
    prepared.put(&table, "prepared", "x").unwrap();
    prepared.prepare("p").unwrap();
    db.commit_prepared("p").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&table, "other", "enqueued");
    db.enqueue(batch, Durability::Durable).unwrap().wait().unwrap();
    db.close().unwrap();
    let commits = told.of("commit");
    let waited = commits.iter().filter(|commit| commit.lock_ms > 0.0).count();
    assert_eq!((commits.len(), waited), (8, 3), "one for each call: {commits:?}");
    let enqueued = told.of("enqueue");
    let waited = enqueued.iter().filter(|enqueue| enqueue.lock_ms > 0.0).count();
    assert_eq!((enqueued.len(), waited), (3, 1), "{enqueued:?}");
}

/// Bug: a slow look-up in one database, inside of a look-up of another, was not told. Cause: the
/// thread knew that it timed something, not of which database. Fix: an operation is part of
/// another one of its own database.
#[test]
fn an_operation_inside_of_one_of_another_database_is_told() {
    let (told, of_outer) = (Told::default(), Told::default());
    let opened = |told: &Told| {
        let options = tiny().in_memory(64 << 20).stepped();
        told.by(options, Duration::ZERO).open("db").unwrap()
    };
    let (outer, inner) = (opened(&of_outer), opened(&told));
    let [of_outer_db, of_inner_db] = [&outer, &inner].map(|db| db.table("t").unwrap());
    of_outer_db.put("key", "value").unwrap();
    of_outer_db.get_with("key", |_| of_inner_db.get("key").unwrap()).unwrap();
    inner.close().unwrap();
    outer.close().unwrap();
    assert_eq!((told.of("get").len(), of_outer.of("get").len()), (1, 1));
}

#[test]
fn what_is_fast_and_what_nobody_asked_for_is_not_told() {
    for slow in [Some(Duration::from_secs(3600)), None] {
        let told = Told::default();
        let options = tiny().in_memory(64 << 20);
        let db = told.by(options, Duration::ZERO).slow_operation(slow).open("db").unwrap();
        let table = db.table("t").unwrap();
        table.put("key", "value").unwrap();
        assert!(table.get("key").unwrap().is_some() && table.range(..).count() == 1);
        db.close().unwrap();
        assert_eq!(told.0.lock().unwrap().len(), 0);
    }
}
