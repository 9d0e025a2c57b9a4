#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::base::error::{ErrorKind, Result};
use crate::base::options::{Durability, Options};
use crate::os::{time, with_deadline};
use crate::storage::object_testing::{ObjectServer, StoreFault};
use crate::table::{Table, WriteBatch};
use crate::txn::{Isolation, LockWait, Transaction, TxnOptions};

/// Bug: after a commit that came too late the database counted memory for writes that were on
/// disk by then, so that others spilled theirs. Cause: a commit spills the rest of its writes,
/// and what the transaction holds was not reported after a timeout. Fix: it is.
#[test]
fn a_commit_that_comes_too_late_reports_what_it_has_spilled() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let txn = db.begin_with(TxnOptions::new().spill_at(64 << 10)).unwrap();
    for n in 0..100u32 {
        txn.put(&table, n.to_be_bytes(), [7; 1000]).unwrap();
    }
    let info = || db.transactions().remove(0);
    let before = info();
    assert!(before.memory > 0 && before.spilled > 0, "{before:?}");
    let (shared, counted) = (&table.shared, || table.shared.write_memory.taken());
    let others = counted() - before.memory;
    shared.pace.set_delay(1 << 30, "a test says so");
    let late = with_deadline(time::now(), || txn.try_commit(time::now())).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
    let after = info();
    assert!(after.memory == 0 && after.spilled > before.spilled, "{after:?}");
    assert_eq!((counted(), after.writes), (others, before.writes));
    shared.pace.set_delay(0, "none");
    txn.commit().unwrap();
    assert_eq!(table.iter().map(Result::unwrap).count(), 100);
}

/// Fills the region to the last line.
fn fill(table: &Table, now: Instant) {
    for len in [10_000, 500, 1] {
        while with_deadline(now, || table.put("filler", vec![7; len])).is_ok() {}
    }
}

/// Bug: on a full region each try of a large commit wrote its rows to extents and two edits of
/// the journal, and then waited for the region. Batches, transactions, prepares and bulk loads
/// all did. So retries filled the disk with journal, and took the space that drains needed.
/// Cause: the region was asked for room once the runs were there. Fix: it is asked before.
#[test]
fn a_large_write_to_a_full_region_is_refused_before_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let spills = TxnOptions::new().isolation(Isolation::ReadCommitted).spill_at(64 << 10);
    let [commits, prepares] = [(); 2].map(|()| db.begin_with(spills.clone()).unwrap());
    let (mut load, mut batch) =
        (table.bulk_load(crate::table::Existing::Refuse).unwrap(), WriteBatch::new());
    for n in 0..3000u32 {
        batch.put(&table, n.to_be_bytes(), [7; 1000]);
        load.put((n + 10_000).to_be_bytes(), [7; 1000]).unwrap();
        for (at, txn) in [(20_000, &commits), (30_000, &prepares)] {
            txn.put(&table, (n + at).to_be_bytes(), [7; 1000]).unwrap();
        }
    }
    let now = Instant::now();
    let soon = |f: &mut dyn FnMut() -> Result<()>| with_deadline(now, f);
    fill(&table, now);
    let shared = &table.shared;
    let mut before = None;
    for n in 0..3 {
        let refused = [
            soon(&mut || {
                crate::os::with_deadline(now, || db.write_with(&batch, Durability::Durable))
            }),
            soon(&mut || commits.try_commit(now)),
            soon(&mut || prepares.try_prepare("p", now)),
            soon(&mut || load.finish()),
        ];
        for refused in refused.map(Result::unwrap_err) {
            assert_eq!(refused.kind(), ErrorKind::Timeout, "{refused}");
        }
        let written = (shared.set.store().bytes_written(), shared.set.floor().number);
        // The first try writes what was left of the transactions and of the load.
        assert_eq!(*before.get_or_insert(written), written, "try {n}");
    }
    assert_eq!(before.map(|(_, edits)| edits), Some(shared.set.floor().number));
    while db.step().unwrap() {}
    crate::os::with_deadline(now, || db.write_with(&batch, Durability::Durable)).unwrap();
    commits.try_commit(now).unwrap();
    prepares.try_prepare("p", now).unwrap();
    load.finish().unwrap();
    db.commit_prepared("p").unwrap();
    assert_eq!(table.iter().map(Result::unwrap).count(), 12_001);
}

/// Bug: on a full region each try of a commit wrote all its rows again, where they came out of
/// order or a savepoint was rolled back. Cause: what was spilled is merged into one run before
/// the region is asked for room, and the run was dropped when there was none. Fix: it takes
/// the place of what was spilled.
#[test]
fn a_commit_that_is_tried_again_merges_what_it_has_spilled_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let spills = TxnOptions::new().isolation(Isolation::ReadCommitted).spill_at(64 << 10);
    let [shuffled, rolled_back] = [(); 2].map(|()| db.begin_with(spills.clone()).unwrap());
    for n in 0..2000u32 {
        shuffled.put(&table, (n * 7919 % 2000).to_be_bytes(), [7; 1000]).unwrap();
        if n == 1000 {
            rolled_back.set_savepoint("s").unwrap();
        }
        rolled_back.put(&table, (n + 10_000).to_be_bytes(), [8; 1000]).unwrap();
    }
    rolled_back.roll_back_to("s").unwrap();
    let now = Instant::now();
    fill(&table, now);
    let store = table.shared.set.store();
    let try_all = || {
        let refused =
            with_deadline(now, || [shuffled.try_commit(now), rolled_back.try_prepare("p", now)]);
        for refused in refused.map(Result::unwrap_err) {
            assert_eq!(refused.kind(), ErrorKind::Timeout, "{refused}");
        }
        store.bytes_written()
    };
    let written = try_all();
    assert_eq!([(); 3].map(|()| try_all()), [written; 3], "later tries write nothing");
    // What is changed after that counts.
    shuffled.put(&table, 3u32.to_be_bytes(), [9; 10]).unwrap();
    rolled_back.put(&table, 20_000u32.to_be_bytes(), [9; 10]).unwrap();
    assert!(try_all() > written);
    rolled_back.roll_back_to("s").unwrap();
    while db.step().unwrap() {}
    shuffled.commit().unwrap();
    rolled_back.try_prepare("p", now).unwrap();
    db.commit_prepared("p").unwrap();
    assert_eq!(table.get(3u32.to_be_bytes()).unwrap().as_deref(), Some(&[9; 10][..]));
    assert_eq!(table.get(20_000u32.to_be_bytes()).unwrap(), None);
    assert_eq!(table.iter().map(Result::unwrap).count(), 2000 + 1000 + 1);
}

/// Bug: a large batch of puts and range deletes took the part of a full region that is kept for
/// commits which free space. Cause: what was left of it beside its runs only deletes. Fix: a
/// commit with runs is an ordinary one.
#[test]
fn a_large_write_that_also_deletes_a_range_frees_no_space() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(4 << 20).stepped().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let mut batch = WriteBatch::new();
    for n in 0..3000u32 {
        batch.put(&table, n.to_be_bytes(), [7; 1000]);
    }
    batch.delete_range(&table, "x".."y");
    let now = Instant::now();
    fill(&table, now);
    let refused =
        crate::os::with_deadline(now, || db.write_with(&batch, Durability::Durable)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Timeout, "{refused}");
    with_deadline(now, || table.delete_range("x".."y")).unwrap();
}

/// Bug: while the shared store was away, rows that a `Remote` commit had changed stayed locked,
/// though all could read it: other writes of them timed out, and a kill waited. Cause: commits
/// waited for the store with their locks and their transaction. Fix: they wait behind these.
#[test]
fn no_row_lock_waits_for_the_shared_store() {
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let options = Options::new().pm_size(4 << 20).object_store(server.url()).share(true);
    let db = options.open(dir.path().join("db")).unwrap();
    let (table, remote) = (db.table("t").unwrap(), Durability::Remote);
    table.put("z", "1").unwrap();
    let far = table.durability(remote);
    let begin = || {
        let txn = db.begin_with(TxnOptions::new().durability(remote)).unwrap();
        txn.put(&table, "k", "1").unwrap();
        txn
    };
    type Way<'a> = &'a (dyn Fn() -> Result<()> + Sync);
    let ways: [(&str, Way<'_>); 7] = [
        ("commit", &|| begin().commit()),
        ("enqueue", &|| begin().enqueue()?.wait()),
        ("await", &|| block_on(begin().enqueue()?)),
        ("put", &|| far.put("k", "1")),
        ("replace", &|| far.replace("k", "1").map(drop)),
        ("pop", &|| far.pop_last().map(drop)),
        ("write", &|| {
            let mut batch = WriteBatch::new();
            batch.put(&table, "k", "1");
            db.write_with(&batch, remote)
        }),
    ];
    begin().commit().unwrap();
    server.always(Some(StoreFault::Refuse));
    let committer = &table.shared.committer;
    let until = time::now() + std::time::Duration::from_mins(2);
    let comes = |what: &dyn Fn() -> bool| {
        while !what() && time::now() < until {
            std::thread::yield_now();
        }
        what()
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let done = ways.map(|(way, call)| {
            let before = committer.visible();
            let thread = scope.spawn(call);
            let is_visible = comes(&|| committer.visible() > before);
            let is_free = is_visible && comes(&|| db.locks_held() == (0, 0));
            // Each that has ended is no more to be killed, and nothing waits for it.
            let killed = || db.transactions().iter().any(|it| db.kill_transaction(it.id));
            let is_ended = is_free && !thread.is_finished() && !killed();
            let goes_on = is_ended && table.put("k", "2").is_ok();
            (way, goes_on, thread)
        });
        server.always(None);
        done.map(|(way, goes_on, thread)| (way, goes_on, thread.join().unwrap())).into()
    });
    for (way, goes_on, outcome) in done {
        assert!(goes_on && outcome.is_ok(), "{way}: {outcome:?}");
    }
}

/// Two calls beside each other, which both begin while `holder` has rows that each of them has to
/// wait for; what became of them after its end.
fn beside<T: Send>(
    waits: &Receiver<()>,
    holder: Transaction,
    calls: [&(dyn Fn() -> T + Sync); 2],
) -> [T; 2] {
    while waits.try_recv().is_ok() {}
    std::thread::scope(|scope| {
        let calls = calls.map(|call| scope.spawn(call));
        calls.iter().for_each(|_| waits.recv_timeout(Duration::from_mins(2)).unwrap());
        holder.roll_back();
        calls.map(|call| call.join().unwrap())
    })
}

/// Bug: two plain writes beside each other failed with `Deadlock`, and optimistic transactions with
/// `Deadlock` in place of `Conflict`. Cause: ranges were locked before all rows, and those of a
/// transaction table by table as it had used them: each held a range in which the other one's next
/// lock was. Fix: rows and ranges are locked in one order, that of their first keys.
#[test]
fn writes_beside_each_other_lock_rows_and_ranges_in_one_order() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, waits) = std::sync::mpsc::channel();
    let options =
        Options::new().pm_size(4 << 20).on_lock_wait(move |_, _| sender.send(()).unwrap());
    let db = &options.open(dir.path().join("db")).unwrap();
    let [t, later] = ["t", "u"].map(|name| db.table(name).unwrap());
    let holder = || {
        let holder = db.begin().unwrap();
        for (of, key) in [(&t, "A"), (&t, "m"), (&later, "m")] {
            holder.put(of, key, "").unwrap();
        }
        holder
    };
    let write = |range: std::ops::Range<&'static str>, keys: [&'static str; 2]| {
        let mut batch = WriteBatch::new();
        batch.delete_range(&t, range);
        for key in keys {
            batch.put(&t, key, "");
        }
        move || db.write_with(&batch, Durability::Durable)
    };
    let calls = [write("a".."c", ["m", "x"]), write("w".."z", ["A", "b"])];
    for done in beside(&waits, holder(), [&calls[0], &calls[1]]) {
        done.unwrap();
    }

    // Each has seen what the other one writes: one of them has to be run again.
    for of_ranges_alone in [false, true] {
        let patient = LockWait::AtMost(Duration::from_mins(5));
        let options = TxnOptions::new().optimistic().lock_wait(patient);
        let [first, second] = [(); 2].map(|()| db.begin_with(options.clone()).unwrap());
        let sees = |txn: &Transaction, of: &Table, range: std::ops::Range<&str>| {
            drop(txn.range_for_update(of, range).unwrap());
        };
        if of_ranges_alone {
            sees(&first, &t, "a".."c");
            sees(&first, &later, "m".."n");
            sees(&first, &later, "w".."z");
            first.put(&later, "x", "1").unwrap();
            sees(&second, &later, "w".."z");
            sees(&second, &t, "A".."B");
            sees(&second, &t, "a".."c");
            second.put(&t, "b", "1").unwrap();
        } else {
            sees(&first, &t, "a".."c");
            ["m", "x"].iter().for_each(|key| first.put(&t, key, "1").unwrap());
            sees(&second, &t, "w".."z");
            ["A", "b"].iter().for_each(|key| second.put(&t, key, "1").unwrap());
        }
        let now = time::now() + Duration::from_mins(5);
        let commits: [&(dyn Fn() -> _ + Sync); 2] =
            [&|| first.try_commit(now), &|| second.try_commit(now)];
        let ended = beside(&waits, holder(), commits);
        assert!(ended[0].is_ok(), "{ended:?}");
        assert_eq!(ended[1].as_ref().unwrap_err().kind(), ErrorKind::Conflict, "{ended:?}");
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
