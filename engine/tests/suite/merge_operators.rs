//! Merge operators: what the model does not reach. Operators that fail or are missing, options,
//! snapshots over long histories, bounded chains, copies of the database.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use terrace::operators::{APPEND, COUNTER, MAX};
use terrace::{
    BackgroundTuning, Database, Durability, ErrorKind, MergeOperator, Options, Table, TableOptions,
    Transaction, WriteBatch,
};

use crate::common::cuts::{Kind, PATH};
use crate::common::{rounds, tiny};

fn appending() -> TableOptions {
    TableOptions::new().merge_operator(APPEND)
}

fn text(table: &Table, key: &str) -> String {
    String::from_utf8(table.get(key).unwrap().unwrap_or_default().to_vec()).unwrap()
}

fn number(table: &Table, key: &str) -> i64 {
    let value = table.get(key).unwrap();
    value.map_or(0, |value| i64::from_be_bytes((&value[..]).try_into().unwrap()))
}

/// All background jobs that there are.
fn rest(db: &Database) {
    while db.step().unwrap() {}
}

/// Fails on operands that say so.
struct Picky;

impl MergeOperator for Picky {
    fn name(&self) -> &str {
        "test.picky"
    }

    fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        match operand {
            b"fail" => Err("as asked".into()),
            b"panic" => panic!("as asked"),
            _ => Ok([value.unwrap_or_default(), operand].concat()),
        }
    }
}

fn picky() -> TableOptions {
    TableOptions::new().merge_operator("test.picky")
}

#[test]
fn a_batch_counts_all_operands_of_a_key_and_what_is_before_them() {
    let machine = Kind::Files.machine();
    let db = tiny().stepped().machine(&machine).open(PATH).unwrap();
    let t = db.create_table("t", appending()).unwrap();
    t.put("a", "old ").unwrap();
    t.put("d", "old ").unwrap();
    let mut batch = WriteBatch::new();
    batch.merge(&t, "a", "1").merge(&t, "a", "2");
    batch.put(&t, "b", "0").merge(&t, "b", "1").merge(&t, "b", "2");
    batch.merge(&t, "c", "lost").delete(&t, "c").merge(&t, "c", "1");
    batch.merge(&t, "d", "lost").delete_range(&t, "d"..="d").merge(&t, "d", "1");
    batch.merge(&t, "e", "lost").put(&t, "e", "last");
    db.write(batch).unwrap();
    let check = |t: &Table| {
        let all = ["a", "b", "c", "d", "e"].map(|key| text(t, key));
        assert_eq!(all, ["old 12", "012", "1", "1", "last"]);
    };
    check(&t);
    rest(&db);
    check(&t);
    drop((t, db));
    let db = tiny().stepped().machine(&machine).open(PATH).unwrap();
    check(&db.table("t").unwrap());
}

/// An operand that fails spoils its key and nothing else, wherever it lies.
#[test]
fn an_operator_that_fails_or_panics_is_an_error_with_names_and_nothing_is_lost() {
    let machine = Kind::Files.machine();
    let open = || tiny().stepped().machine(&machine).merge_operator(Picky).open(PATH).unwrap();
    let db = open();
    let t = db.create_table("t", picky()).unwrap();
    for key in ["bad", "good", "worse"] {
        t.put(key, "0").unwrap();
        t.merge(key, "1").unwrap();
    }
    t.merge("bad", "fail").unwrap();
    t.merge("worse", "panic").unwrap();
    t.merge("bad", "2").unwrap();
    let check = |db: &Database, t: &Table| {
        for key in ["bad", "worse"] {
            let e = t.get(key).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Invalid);
            for name in ["\"t\"", "test.picky", &format!("\"{key}\"")] {
                assert!(e.to_string().contains(name), "{e}");
            }
            assert!(t.contains_key(key).unwrap(), "it is there, though nothing can be made of it");
        }
        assert_eq!(text(t, "good"), "01");
        assert!(t.iter().any(|row| row.is_err()) && t.iter().rev().any(|row| row.is_err()));
        assert_eq!(t.iter().keys().filter_map(Result::ok).count(), 3);
        let txn = db.begin().unwrap();
        assert!(txn.merge(t, "good", "fail").is_err());
        txn.merge(t, "good", "2").unwrap();
        assert_eq!(txn.get(t, "good").unwrap().as_deref(), Some(&b"012"[..]));
    };
    check(&db, &t);
    rest(&db);
    check(&db, &t);
    db.compact_range(&t, ..).unwrap();
    check(&db, &t);
    drop((t, db));
    let db = open();
    let t = db.table("t").unwrap();
    check(&db, &t);
    t.put("bad", "new").unwrap();
    assert_eq!(text(&t, "bad"), "new");
    assert!(db.verify().unwrap().damages.is_empty());
}

/// A table whose operator is not registered keeps its operands through drains and compactions.
#[test]
fn without_its_operator_a_table_says_so_and_loses_nothing() {
    let machine = Kind::Files.machine();
    let without = || tiny().stepped().machine(&machine).open(PATH).unwrap();
    let with = || tiny().stepped().machine(&machine).merge_operator(Picky).open(PATH).unwrap();
    let db = with();
    let t = db.create_table("t", picky()).unwrap();
    t.put("a", "0").unwrap();
    rest(&db);
    t.merge("a", "1").unwrap();
    t.merge("b", "1").unwrap();
    t.merge("a", "2").unwrap();
    drop((t, db));
    let db = without();
    let t = db.table("t").unwrap();
    for e in [t.get("a").unwrap_err(), t.merge("a", "3").unwrap_err()] {
        let text = e.to_string();
        assert!(e.kind() == ErrorKind::Invalid && text.contains("test.picky"), "{text}");
        assert!(text.contains("\"t\"") && text.contains("with merge_operator"), "{text}");
    }
    let mut batch = WriteBatch::new();
    batch.merge(&t, "a", "3");
    assert_eq!(db.write(batch).unwrap_err().kind(), ErrorKind::Invalid);
    t.put("c", "0").unwrap();
    rest(&db);
    db.compact_range(&t, ..).unwrap();
    assert!(db.create_table("u", picky()).is_err());
    drop((t, db));
    let db = with();
    let t = db.table("t").unwrap();
    assert_eq!(["a", "b", "c"].map(|key| text(&t, key)), ["012", "1", "0"]);
}

#[test]
fn a_table_keeps_its_operator_and_has_no_time_to_live() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path()).unwrap();
    let plain = db.table("plain").unwrap();
    assert_eq!(plain.merge("a", "1").unwrap_err().kind(), ErrorKind::Invalid);
    let hour = Duration::from_secs(3600);
    assert!(db.create_table("x", appending().ttl(hour)).is_err());
    db.set_ttl("plain", Some(hour)).unwrap();
    assert!(db.set_table_options("plain", appending()).is_err(), "it has a time to live");
    db.set_ttl("plain", None).unwrap();
    db.set_table_options("plain", appending()).unwrap();
    plain.merge("a", "1").unwrap();
    assert_eq!(text(&plain, "a"), "1");
    assert_eq!(plain.options().merge_operator_name(), Some(APPEND));
    assert!(db.set_ttl("plain", Some(hour)).is_err());
    assert!(db.set_table_options("plain", TableOptions::new()).is_err());
    assert!(db.set_table_options("plain", TableOptions::new().merge_operator(MAX)).is_err());
    db.truncate_table("plain").unwrap();
    plain.merge("a", "2").unwrap();
    drop(plain);
    db.close().unwrap();
    let db = tiny().open(dir.path()).unwrap();
    assert_eq!(text(&db.table("plain").unwrap(), "a"), "2");
    drop(db);
    struct Named(&'static str);
    impl MergeOperator for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[u8]) -> Result<Vec<u8>, String> {
            Ok(Vec::new())
        }
    }
    for name in ["", COUNTER, "a name of more than thirty-one bytes"] {
        assert!(Options::new().merge_operator(Named(name)).open(dir.path()).is_err(), "{name}");
    }
}

/// Snapshots see the value of their moment while operands are joined and merged around them.
#[test]
fn snapshots_keep_their_values_through_drains_and_compactions() {
    for kind in [Kind::Files, Kind::Memory, Kind::Index] {
        let machine = kind.machine();
        let db = tiny().stepped().machine(&machine).open(PATH).unwrap();
        let t = db.create_table("t", appending().large_values(512)).unwrap();
        let (mut taken, mut now) = (Vec::new(), String::new());
        for n in 0..rounds(200, 2000) {
            match n % 23 {
                0 => {
                    now = "x".repeat(700);
                    t.put("key", &now).unwrap();
                }
                11 => {
                    now.clear();
                    t.delete_range("k".."l").unwrap();
                }
                17 => {
                    now.clear();
                    t.delete("key").unwrap();
                }
                _ => {
                    t.merge("key", format!("{n} ")).unwrap();
                    now += &format!("{n} ");
                }
            }
            if n % 7 == 0 {
                taken.push((db.snapshot().unwrap(), now.clone()));
            }
            if n % 5 == 0 {
                for _ in 0..n % 4 {
                    db.step().unwrap();
                }
            }
            if n % 50 == 49 {
                rest(&db);
                db.compact_range(&t, ..).unwrap();
                taken.remove(n as usize % taken.len());
            }
            let of = |value: Option<bytes::Bytes>| value.unwrap_or_default();
            assert_eq!(of(t.get("key").unwrap()), now, "{n}");
            for (snapshot, then) in &taken {
                assert_eq!(of(snapshot.get(&t, "key").unwrap()), *then, "after {n}");
                let rows: Vec<_> = snapshot.range(&t, ..).rev().map(Result::unwrap).collect();
                assert_eq!(rows.first().map_or("", |row| str::from_utf8(&row.1).unwrap()), then);
            }
        }
    }
}

/// Counts what it is asked to do.
struct Counting;

static MERGED: AtomicU64 = AtomicU64::new(0);

impl MergeOperator for Counting {
    fn name(&self) -> &str {
        "test.counting"
    }

    fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        MERGED.fetch_add(1, Ordering::Relaxed);
        let sum = value.map_or(0, |value| value[0]).wrapping_add(operand[0]);
        Ok(vec![sum])
    }
}

/// However many operands a key gets, a read merges a few.
#[test]
fn a_read_merges_a_bounded_number_of_operands() {
    let machine = Kind::Files.machine();
    let options = tiny().stepped().machine(&machine).merge_operator(Counting);
    let db = options.open(PATH).unwrap();
    let t = db.create_table("t", TableOptions::new().merge_operator("test.counting")).unwrap();
    for n in 0..1000u64 {
        if n % 2 == 0 {
            t.merge("key", [1]).unwrap();
        } else {
            let mut batch = WriteBatch::new();
            batch.merge(&t, "key", [1]);
            db.write(batch).unwrap();
        }
        let before = MERGED.load(Ordering::Relaxed);
        assert_eq!(t.get("key").unwrap().unwrap()[0], (n + 1) as u8);
        let merged = MERGED.load(Ordering::Relaxed) - before;
        assert!(merged <= 65, "{merged} operands after {n}");
    }
    db.compact_range(&t, ..).unwrap();
    let before = MERGED.load(Ordering::Relaxed);
    t.get("key").unwrap();
    assert!(MERGED.load(Ordering::Relaxed) - before <= 1, "a drain has merged them");
}

/// Adds as [`Counting`] does, in the test below alone.
struct Deep;

static DEEP: AtomicU64 = AtomicU64::new(0);

impl MergeOperator for Deep {
    fn name(&self) -> &str {
        "test.deep"
    }

    fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        DEEP.fetch_add(1, Ordering::Relaxed);
        Ok(vec![value.map_or(0, |value| value[0]).wrapping_add(operand[0])])
    }
}

/// Threads that merge, by every call, lose nothing; a read merges few operands then, though the
/// threads have kept the row locked for each other.
#[test]
fn operands_of_several_threads_all_count() {
    const THREADS: i64 = 4;
    let each = rounds(300, 5000) as i64;
    let dir = tempfile::tempdir().unwrap();
    let tiny = || tiny().merge_operator(Deep);
    let db = tiny().open(dir.path()).unwrap();
    let options = TableOptions::new().merge_operator(COUNTER);
    let (t, u) = (db.create_table("t", options).unwrap(), db.create_table("u", options).unwrap());
    let v = db.create_table("v", TableOptions::new().merge_operator("test.deep")).unwrap();
    let one = 1i64.to_be_bytes();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, t, u, v) = (&db, &t, &u, &v);
            scope.spawn(move || {
                for n in 0..each {
                    v.merge("hits", [1]).unwrap();
                    match (n + thread) % 3 {
                        0 => t.merge("hits", one).unwrap(),
                        1 => {
                            let mut batch = WriteBatch::new();
                            batch.merge(t, "hits", one).merge(u, "hits", one);
                            db.write(batch).unwrap();
                        }
                        // Others merge without a pause: all its runs may meet conflicts.
                        _ => {
                            while let Err(error) = db.run(|txn| txn.merge(t, "hits", one)) {
                                assert_eq!(error.kind(), ErrorKind::Conflict);
                            }
                        }
                    }
                    if n % 50 == 0 {
                        assert!(number(t, "hits") > n / 2);
                    }
                }
            });
        }
    });
    assert_eq!(number(&t, "hits"), THREADS * each);
    assert_eq!(number(&u, "hits"), THREADS * each / 3);
    (0..64).for_each(|_| v.merge("hits", [1]).unwrap());
    let before = DEEP.load(Ordering::Relaxed);
    assert_eq!(v.get("hits").unwrap().unwrap()[0], (THREADS * each + 64) as u8);
    let merged = DEEP.load(Ordering::Relaxed) - before;
    assert!(merged <= 65, "{merged} operands in a row");
    drop((t, u, v));
    db.close().unwrap();
    let db = tiny().open(dir.path()).unwrap();
    assert_eq!(number(&db.table("t").unwrap(), "hits"), THREADS * each);
}

/// What lies in the region, in levels and in runs, through every way to copy a database.
#[test]
fn copies_of_a_database_have_the_same_values() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = tiny().open(at("db")).unwrap();
    let t = db.create_table("t", appending().large_values(512)).unwrap();
    let fill = |db: &Database, from: u32| {
        for n in from..from + 300 {
            let (key, operand) = (format!("{:03}", n % 100), format!("{n} "));
            match n % 7 {
                0 => t.put(&key, "y".repeat(n as usize % 900)).unwrap(),
                _ => t.merge(&key, &operand).unwrap(),
            }
        }
        // A commit of this size goes to extents.
        let mut large = WriteBatch::new();
        for n in 0..100u32 {
            large.merge(&t, format!("{n:03}"), "z".repeat(6000));
        }
        db.write(large).unwrap();
    };
    fill(&db, 0);
    db.compact_range(&t, ..).unwrap();
    let held = db.snapshot().unwrap();
    fill(&db, 300);
    let all = |t: &Table| t.iter().map(Result::unwrap).collect::<Vec<_>>();
    let want = all(&t);
    let check = |path: &Path| {
        let db = tiny().open(path).unwrap();
        assert_eq!(all(&db.table("t").unwrap()), want, "{}", path.display());
        assert!(db.verify().unwrap().damages.is_empty());
    };
    db.backup(at("set")).unwrap();
    terrace::Options::new().backup_set(at("set")).unwrap().restore(1, at("restored")).unwrap();
    drop((held, t));
    db.close().unwrap();
    check(&at("db"));
    check(&at("restored"));
    let report = terrace::Options::new().salvage(at("db"), at("salvaged")).unwrap();
    assert_eq!(report.lost, []);
    check(&at("salvaged"));
}

/// What an operator does besides, and what came of that.
type Calls = Box<dyn FnOnce() -> Vec<terrace::Result<()>> + Send>;

/// Calls the database once, when it is asked to.
struct Caller(Arc<Mutex<Option<Calls>>>, mpsc::Sender<Vec<terrace::Result<()>>>);

impl MergeOperator for Caller {
    fn name(&self) -> &str {
        "test.caller"
    }

    fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
        let calls = self.0.lock().unwrap().take();
        calls.into_iter().for_each(|calls| self.1.send(calls()).unwrap());
        Ok([value.unwrap_or_default(), operand].concat())
    }
}

/// Bug: an operator that called the database hung: on the transaction that it ran for, in a drain,
/// or in a kill. Cause: it runs under what the call that needs it has locked. Fix: calls inside of
/// an operator fail, and a transaction that is dropped there ends with the call that needs it.
///
/// Bug: calls that check and tune, a step, and the wait for a commit waited for themselves there,
/// or ran the operator again. Cause: they asked only whether the database was open. Fix: they fail.
#[test]
fn an_operator_that_calls_the_database_is_refused() {
    let (calls, (told, tells)) = (Arc::new(Mutex::new(None)), mpsc::channel());
    let caller = Caller(Arc::clone(&calls), told);
    let machine = Kind::Files.machine();
    let db = tiny().stepped().machine(&machine).merge_operator(caller).open(PATH).unwrap();
    let t = db.create_table("t", TableOptions::new().merge_operator("test.caller")).unwrap();
    let merge = || ["1", "2"].iter().for_each(|operand| t.merge("k", operand).unwrap());
    let refused = |what: &str| {
        let results = tells.try_recv().unwrap_or_else(|_| panic!("{what}: it merges"));
        assert!(!results.is_empty());
        for error in results.into_iter().map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
            assert!(error.to_string().contains("merge operator"), "{what}: {error}");
        }
    };
    // A read of a dropped table looks for one that a truncation made, with what that has locked.
    let gone = db.create_table("gone", TableOptions::new()).unwrap();
    db.drop_table(&gone).unwrap();
    let ask = |asked: Calls| *calls.lock().unwrap() = Some(asked);
    let all = |txn: &Arc<Transaction>| -> Calls {
        let (db, t, gone, txn) = (db.clone(), t.clone(), gone.clone(), Arc::clone(txn));
        let mut batch = WriteBatch::new();
        batch.put(&t, "enqueued", "1");
        let pending = Mutex::new(Some(db.enqueue(batch, Durability::Durable).unwrap()));
        Box::new(move || {
            let soon = Instant::now();
            assert!(!db.kill_transaction(txn.id()));
            let pending = pending.lock().unwrap().take().unwrap();
            vec![
                db.verify().map(drop),
                db.digest().map(drop),
                db.step().map(drop),
                db.tune_background(BackgroundTuning::new()),
                db.backup("/set").map(drop),
                db.compact_range(&t, ..).map(drop),
                db.sync(),
                pending.wait(),
                txn.get(&t, "other").map(drop),
                txn.put(&t, "other", "1"),
                txn.set_savepoint("s"),
                txn.try_commit(soon),
                txn.try_prepare("p", soon),
                db.begin().map(drop),
                t.get("other").map(drop),
                gone.get("other").map(drop),
                gone.iter().next().unwrap().map(drop),
                t.put("other", "1"),
                t.iter().next().unwrap().map(drop),
                db.create_table("new", TableOptions::new()).map(drop),
                db.drop_table(&t),
                db.clone().close(),
            ]
        })
    };
    merge();
    let txn = Arc::new(db.begin().unwrap());
    ask(all(&txn));
    assert_eq!(txn.get(&t, "k").unwrap().unwrap(), "12");
    refused("a read of a transaction");
    ask(all(&txn));
    assert_eq!(txn.iter(&t).unwrap().next().unwrap().unwrap().1, "12");
    refused("a range of a transaction");
    ask(all(&txn));
    txn.merge(&t, "k", "3").unwrap();
    refused("a merge of a transaction");
    assert_eq!(txn.get(&t, "k").unwrap().unwrap(), "123");
    ask(all(&txn));
    assert_eq!(t.get("k").unwrap().unwrap(), "12");
    refused("a read");
    ask(all(&txn));
    db.compact_range(&t, ..).unwrap();
    refused("a drain");
    txn.try_commit(Instant::now()).unwrap();
    drop(txn);
    assert_eq!(t.get("k").unwrap().unwrap(), "123");

    // A transaction that goes while a range of it needs the operator.
    merge();
    let txn = db.begin().unwrap();
    txn.put(&t, "z", "1").unwrap();
    let mut range = txn.range(&t, "k"..).unwrap();
    let left = Mutex::new(Some(txn));
    ask(Box::new(move || {
        drop(left.lock().unwrap().take());
        Vec::new()
    }));
    assert_eq!(range.next().unwrap().unwrap().0, "k", "the call that was under way is done");
    assert_eq!(tells.try_recv().unwrap().len(), 0);
    assert_eq!(range.next().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    t.put("z", "2").unwrap();
    assert!(db.transactions().is_empty());
}
