//! Closing a database: calls that wait are told at once, and nothing is written afterwards.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Chance, rounds, tiny, wait_until};
use terrace::testing::Machine;
use terrace::{
    BackgroundTuning, Database, Durability, ErrorKind, Existing, Index, LockWait, MergeOperator,
    Mode, Table, TableOptions, TxnOptions, WriteBatch,
};

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
    let full = (0u32..).find_map(|n| {
        terrace::with_deadline(soon(), || table.put(n.to_be_bytes(), [7; 4096])).err()
    });
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
/// given the directory back. Cause: nothing held it up in between. Fix: the sequencer is shut
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
                        if let Err(error) = table.durability(how).put([thread], n.to_be_bytes()) {
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

/// What a thread does with an open database until it is told `Closed`.
type Work = fn(&Database, &Table) -> terrace::Result<()>;

fn long_value(n: u32) -> Vec<u8> {
    Chance::new(u64::from(n) + 1).bytes(48 << 10)
}

fn load(_: &Database, table: &Table) -> terrace::Result<()> {
    let mut load = table.bulk_load(Existing::Replace)?;
    (0..400u32).try_for_each(|n| load.put(n.to_be_bytes(), long_value(n)))?;
    load.finish()
}

fn spill(db: &Database, table: &Table) -> terrace::Result<()> {
    let txn = db.begin_with(TxnOptions::new().spill_at(256 << 10))?;
    // Not in the order of keys, so that pieces are merged.
    (0..400u32).try_for_each(|n| txn.put(table, (n * 7919 % 400).to_be_bytes(), long_value(n)))?;
    txn.commit()
}

fn large_commit(db: &Database, table: &Table) -> terrace::Result<()> {
    let mut batch = WriteBatch::new();
    (0..80u32).for_each(|n| {
        batch.put(table, n.to_be_bytes(), long_value(n));
    });
    db.write(batch)
}

fn prepare(db: &Database, table: &Table) -> terrace::Result<()> {
    let txn = db.begin_with(TxnOptions::new().spill_at(256 << 10))?;
    (0..20u32).try_for_each(|n| txn.put(table, n.to_be_bytes(), long_value(n)))?;
    txn.prepare("both")?;
    db.commit_prepared("both")
}

fn events(db: &Database, _: &Table) -> terrace::Result<()> {
    let made = db.table("made")?;
    made.put("k", "v")?;
    db.truncate_table("made")?;
    db.set_ttl("made", Some(Duration::from_secs(1 << 20)))?;
    db.rename_table("made", "moved")?;
    db.drop_table("moved")
}

fn enqueue(db: &Database, table: &Table) -> terrace::Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(table, "queued", "v");
    db.enqueue(batch, Durability::Durable)?.wait()
}

fn compact(db: &Database, table: &Table) -> terrace::Result<()> {
    table.put("more", long_value(1))?;
    db.compact_range(table, ..).map(drop)
}

fn grow(db: &Database, _: &Table) -> terrace::Result<()> {
    let size = db.stats().pm.capacity + (64 << 10);
    match db.grow_pm(size) {
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
        grown => grown.map(drop),
    }
}

const WORK: [(&str, Work); 12] = [
    ("a bulk load", load),
    ("a transaction that spills", spill),
    ("a large commit", large_commit),
    ("a prepare", prepare),
    ("table events", events),
    ("an enqueued commit", enqueue),
    ("a manual compaction", compact),
    ("growth", grow),
    ("a verification", |db, _| db.verify().map(drop)),
    ("a backup", |db, _| db.backup("/set").map(drop)),
    ("tuning", |db, _| db.tune_background(BackgroundTuning::default().threads(3))),
    ("a put", |_, table| table.put("put", "v")),
];

/// Goes on until the thread may have missed its turn for long. A call that is held up goes on after
/// a minute, and on a loaded machine each turn of another thread takes milliseconds.
fn yield_long() {
    let end = Instant::now() + Duration::from_secs(2);
    (0..20_000).take_while(|_| Instant::now() < end).for_each(|_| thread::yield_now());
}

/// Bug: writes of calls under way came after `close` had returned, into space that the next opening
/// had given to others, or over its superblock. Cause: the closing waited for commits and for its
/// own threads, and each other call that writes looked at a flag and wrote later. Fix: each such
/// call is inside of the gate, and the closing waits for it.
#[test]
fn no_call_writes_a_file_after_the_close() {
    for (seed, (what, work)) in WORK.into_iter().enumerate() {
        for round in 0..rounds(3, 30) {
            let machine =
                if round % 2 == 0 { Machine::with_files() } else { Machine::with_memory() };
            let machine = machine.index(round % 4 == 1);
            let options = || tiny().machine(&machine);
            let mut chance = Chance::new(round * 100 + seed as u64);
            let db = options().create("/db").unwrap();
            let table = db.table("t").unwrap();
            table.put("first", "there").unwrap();
            thread::scope(|scope| {
                let (begun, begins) = mpsc::channel();
                let (of_thread, of_table) = (db.clone(), table.clone());
                let worker = scope.spawn(move || {
                    loop {
                        begun.send(()).unwrap_or(());
                        if let Err(error) = work(&of_thread, &of_table) {
                            return error;
                        }
                    }
                });
                begins.recv().unwrap();
                (0..chance.below(3000)).for_each(|_| thread::yield_now());
                db.close().unwrap();
                let db = options().open("/db").unwrap();
                let again = db.table("t").unwrap();
                // Its locks are there again.
                for prepared in db.list_prepared() {
                    db.roll_back_prepared(&prepared.id, terrace::Durability::Durable).unwrap();
                }
                for n in 0..40u32 {
                    again.put(n.to_be_bytes(), long_value(n + 1000)).unwrap();
                }
                db.compact_range(&again, ..).unwrap();
                let error = worker.join().unwrap();
                let is_told = error.kind() == ErrorKind::Closed || error.kind().is_refusal();
                assert!(is_told, "{what}: {error}");
                assert_eq!(machine.late_changes(), 0, "{what}");
                assert_eq!(db.verify().unwrap().damages, [], "{what}");
                assert_eq!(again.get("first").unwrap().unwrap(), "there", "{what}");
                for n in 0..40u32 {
                    let found = again.get(n.to_be_bytes()).unwrap();
                    assert_eq!(found.unwrap(), long_value(n + 1000), "{what}");
                }
            });
            drop(table);
            assert_eq!(machine.late_changes(), 0, "{what}");
        }
    }
}

/// Has a call write while the database is closed: it is held up at its write until the closing
/// has had time to return. Its error, and the machine.
fn closed_during(write: &str, work: Work) -> terrace::Error {
    let machine = Machine::with_files();
    let options = || tiny().machine(&machine);
    let db = options().create("/db").unwrap();
    let table = db.table("t").unwrap();
    let held = machine.hold_writes(write);
    let error = thread::scope(|scope| {
        let worker = scope.spawn(|| work(&db, &table));
        assert!(held.wait(), "it writes");
        let closing = scope.spawn(|| db.clone().close());
        wait_until("the closing begins", || db.snapshot().is_err());
        yield_long();
        assert!(!closing.is_finished(), "it waits for what writes");
        drop(held);
        closing.join().unwrap().unwrap();
        options().open("/db").unwrap();
        worker.join().unwrap().unwrap_err()
    });
    assert_eq!(machine.late_changes(), 0);
    error
}

/// The same bug, each call held up at its write.
#[test]
fn a_close_waits_for_the_extent_that_a_bulk_load_writes_and_no_longer() {
    let error = closed_during("extents-00000001", load);
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

#[test]
fn a_close_waits_for_the_extent_that_a_transaction_spills_and_no_longer() {
    let error = closed_during("extents-00000001", spill);
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

/// Bug: a read of an extent that a closing overtook had bytes of the next opening: `Corrupt`, or
/// another value. Cause: a transaction that reads what it has spilled looks at the gate before it
/// reads, and the closing gives the space back meanwhile. Fix: a read asks once it has the bytes.
#[test]
fn a_read_of_an_extent_that_a_close_overtakes_is_told() {
    let machine = Machine::with_files();
    let options = || tiny().machine(&machine);
    let db = options().create("/db").unwrap();
    let table = db.table("t").unwrap();
    let txn = db.begin().unwrap();
    for n in 0..1500u32 {
        txn.put(&table, n.to_be_bytes(), long_value(n)).unwrap();
    }
    let held = machine.hold_reads("extents-00000001");
    thread::scope(|scope| {
        let reader = scope.spawn(|| txn.get(&table, 0u32.to_be_bytes()));
        assert!(held.wait(), "it reads");
        db.clone().close().unwrap();
        drop(held);
        let error = reader.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    });
    options().open("/db").unwrap().close().unwrap();
}

/// Bug: `close` did not wait for `grow_pm`, which wrote its superblock over that of the next
/// opening: the database could not be opened again. Cause: growth was in none of the flags of the
/// closing. Fix: growth is inside of the gate, and ends after the piece of zeros under way.
#[test]
fn a_close_ends_a_growth_under_way() {
    let error = closed_during("region", |db, _| db.grow_pm(20 << 20).map(drop));
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

/// Bug: a second `close` returned `Ok` while the first still wrote. Cause: it found the flag set.
/// Fix: it waits for the first, and has its result.
#[test]
fn a_second_close_waits_for_the_first_and_has_its_result() {
    for fails in [false, true] {
        let machine = Machine::with_files();
        let db = tiny().machine(&machine).create("/db").unwrap();
        let table = db.table("t").unwrap();
        table.durability(Durability::Relaxed).put("k", "v").unwrap();
        let held = machine.hold_syncs("region");
        thread::scope(|scope| {
            let first = scope.spawn(|| db.clone().close());
            assert!(held.wait(), "the closing makes all durable");
            if fails {
                machine.fail_sync_after(1);
            }
            let second = scope.spawn(|| db.clone().close());
            yield_long();
            assert!(!second.is_finished(), "it waits for the first");
            drop(held);
            for closing in [first, second] {
                let closed = closing.join().unwrap().map_err(|error| error.kind());
                assert_eq!(closed, if fails { Err(ErrorKind::Unavailable) } else { Ok(()) });
            }
        });
        assert_eq!(db.close().is_err(), fails);
    }
}

/// Bug: `compact_range` never returned on a full disk, and could not be cancelled. Cause: the jobs
/// before its own failed, which only the background was told, and `progress` was asked after jobs
/// alone. Fix: what the disk has no room for ends it, and `progress` is asked while it waits.
#[test]
fn a_manual_compaction_ends_on_a_full_disk_and_when_it_is_cancelled() {
    let machine = Machine::with_files();
    let db = tiny().machine(&machine).create("/db").unwrap();
    let table = db.table("t").unwrap();
    machine.set_capacity(Some(12 << 20));
    let put = |n: u32| table.put(n.to_be_bytes(), long_value(n));
    let full = (0..1000).find_map(|n| put(n).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    let full = db.compact_range(&table, ..).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    machine.mend();
    // Its job does not end as long as this is held.
    let held = machine.hold_writes("extents-00000001");
    thread::scope(|scope| {
        let cancelled = scope.spawn(|| {
            db.compact_range_with(&table, .., |_| match held.is_holding() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        });
        assert!(held.wait(), "a job writes");
        wait_until("it is cancelled", || cancelled.is_finished());
        assert!(!cancelled.join().unwrap().unwrap().is_finished);
    });
    drop(held);
    assert!(db.compact_range(&table, ..).unwrap().is_finished);
    assert_eq!(db.verify().unwrap().damages, []);
}

/// An operator that has a handle of its database: it closes it and lets it go when a thread of the
/// database merges, once the test has let go of its own.
struct Holder {
    handle: Arc<Mutex<Option<Database>>>,
    alone: Mutex<mpsc::Receiver<()>>,
    told: mpsc::Sender<Option<ErrorKind>>,
}

impl MergeOperator for Holder {
    fn name(&self) -> &str {
        "test.holder"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        let is_own = thread::current().name().is_some_and(|name| name.starts_with("terrace-"));
        let handle = is_own.then(|| self.handle.lock().unwrap().take()).flatten();
        if let Some(db) = handle {
            self.told.send(None).unwrap();
            self.alone.lock().unwrap().recv().unwrap();
            let closed = db.close();
            self.told.send(closed.err().map(|error| error.kind())).unwrap();
        }
        Ok(operand.to_vec())
    }
}

/// Bug: a closing on a thread of the background waited for itself: in an operator, or where the
/// last handle went there. Fix: such a call is refused, and the last handle closes on another
/// thread.
#[test]
fn a_database_whose_last_handle_goes_on_a_thread_of_its_own_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let handle = Arc::new(Mutex::new(None));
    let (alone, is_alone) = mpsc::channel();
    let (told, tells) = mpsc::channel();
    let holder = Holder { handle: Arc::clone(&handle), alone: Mutex::new(is_alone), told };
    let db = tiny().merge_operator(holder).create(&path).unwrap();
    let table = db.create_table("t", TableOptions::new().merge_operator("test.holder")).unwrap();
    *handle.lock().unwrap() = Some(db.clone());
    let merge = || table.durability(Durability::Relaxed).merge("k", [7; 1000]);
    while tells.try_recv().is_err() {
        // The drain rests in the operator, so a thread that is late here can find the region full.
        if let Err(error) = merge() {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            assert_eq!(tells.recv_timeout(Duration::from_secs(60)), Ok(None));
            break;
        }
    }
    drop((table, db));
    alone.send(()).unwrap();
    assert_eq!(tells.recv().unwrap(), Some(ErrorKind::Invalid), "it would wait for itself");
    let open = || tiny().open(&path);
    wait_until("it is closed", || open().is_ok());
}

/// An operator that closes the database when a read merges.
struct Closer(Mutex<Option<Database>>, mpsc::Sender<terrace::Result<()>>);

impl MergeOperator for Closer {
    fn name(&self) -> &str {
        "test.closer"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        let is_own = thread::current().name().is_some_and(|name| name.starts_with("terrace-"));
        let handle = (!is_own).then(|| self.0.lock().unwrap().take()).flatten();
        handle.into_iter().for_each(|db| self.1.send(db.close()).unwrap());
        Ok(operand.to_vec())
    }
}

/// Bug: a closing in an operator, or in a closure that a value is lent to, waited for what its own
/// thread reads, as another closing did, so neither ended. Cause: a read is not inside of the gate,
/// which alone was asked. Fix: a thread that has an epoch pinned is refused as well.
#[test]
fn a_close_in_what_a_read_calls_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mode = Mode::Emulated { delay: Duration::ZERO };
    for (index, region) in [(Index::Persistent, "one"), (Index::Volatile, "two")] {
        let (told, tells) = mpsc::channel();
        let closer = Arc::new(Closer(Mutex::new(None), told));
        let options = || tiny().mode(mode).pm_path(dir.path().join(region)).index(index);
        let path = path.with_extension(region);
        let db = options().merge_operator(Shared(Arc::clone(&closer))).create(&path).unwrap();
        let merged = TableOptions::new().merge_operator("test.closer");
        let table = db.create_table("t", merged).unwrap();
        let plain = db.create_table("plain", TableOptions::new()).unwrap();
        plain.put("k", "1").unwrap();
        let lent = plain.get_with("k", |_| db.clone().close()).unwrap().unwrap();
        assert_eq!(lent.unwrap_err().kind(), ErrorKind::Invalid, "it would wait for itself");
        table.merge("k", "1").unwrap();
        table.merge("k", "2").unwrap();
        *closer.0.lock().unwrap() = Some(db.clone());
        assert_eq!(table.get("k").unwrap().unwrap(), "2");
        let closed = tells.try_recv().expect("the read merges");
        assert_eq!(closed.unwrap_err().kind(), ErrorKind::Invalid, "it would wait for itself");
        // The last handle goes in such a closure: another thread closes.
        drop(table);
        let (only, last) = (plain.clone(), Mutex::new(Some((db, plain))));
        only.get_with("k", |_| drop(last.lock().unwrap().take())).unwrap();
        drop((only, closer));
        let (none, _) = mpsc::channel();
        let operator = || Closer(Mutex::new(None), none.clone());
        wait_until("it is closed", || options().merge_operator(operator()).open(&path).is_ok());
    }
}

/// An operator that the test has too.
struct Shared(Arc<Closer>);

impl MergeOperator for Shared {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn merge(&self, key: &[u8], base: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        self.0.merge(key, base, operand)
    }
}
