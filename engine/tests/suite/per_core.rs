//! The per-core executor: batches of look-ups against a model while jobs run, closures in their
//! order, transactions over shards, panics, and its end.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::content::Content;
use crate::common::{Chance, rounds, tiny, wait_until};
use terrace::{
    Database, Durability, Error, ErrorKind, FoundValues, GetBatch, PerCore, ShardedTable, Snapshot,
    Table,
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn open() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (dir, db, table)
}

/// Holds what a batch finds of all rows, and of keys beside them, against `want`.
pub(crate) fn check(db: &Database, want: &Content) {
    for shards in [1, 3] {
        let cores = db.per_core(shards).unwrap();
        let mut batch = cores.batch();
        let mut expected = Vec::new();
        for (name, rows) in &want.0 {
            let table = cores.table(&db.existing_table(name).unwrap()).unwrap();
            for (key, value) in rows {
                batch.get(&table, key);
                expected.push(Some(value.clone()));
                let beside = [key.as_slice(), b"!"].concat();
                batch.get(&table, &beside);
                expected.push(rows.get(&beside).cloned());
            }
        }
        let values = batch.run().unwrap();
        assert_eq!(values.len(), expected.len());
        for (n, (found, want)) in values.iter().zip(&expected).enumerate() {
            assert_eq!(found, want.as_deref(), "key {n} of {shards} shards");
        }
    }
}

/// A table with what it should have.
struct Modelled {
    table: Table,
    sharded: ShardedTable,
    rows: Rows,
}

fn key(chance: &mut Chance) -> Vec<u8> {
    format!("key {:03}", chance.below(300)).into_bytes()
}

fn change(db: &Database, one: &mut Modelled, chance: &mut Chance) {
    let key = key(chance);
    match chance.below(100) {
        0 => {
            db.truncate_table(&one.table.name()).unwrap();
            one.rows.clear();
        }
        1..=2 => {
            let end = [key.as_slice(), b"~"].concat();
            one.table.delete_range(key.as_slice()..end.as_slice()).unwrap();
            one.rows.retain(|row, _| *row < key || *row >= end);
        }
        3..=20 => {
            one.table.durability(Durability::Relaxed).delete(&key).unwrap();
            one.rows.remove(&key);
        }
        _ => {
            let len = chance.below(900) as usize;
            let value = chance.bytes(len);
            one.table.durability(Durability::Relaxed).put(&key, &value).unwrap();
            one.rows.insert(key, value);
        }
    }
}

/// Looks up many keys of all tables; the batch for the next time.
fn look_up(mut batch: GetBatch, tables: &[Modelled], chance: &mut Chance) -> GetBatch {
    let mut sought = Vec::new();
    for _ in 0..chance.below(200) {
        let (n, key) = (chance.below(tables.len() as u64) as usize, key(chance));
        batch.get(&tables[n].sharded, &key);
        sought.push((n, key));
    }
    let values = batch.run().unwrap();
    assert_eq!(values.len(), sought.len());
    for (found, (n, key)) in values.iter().zip(&sought) {
        assert_eq!(found, tables[*n].rows.get(key).map(Vec::as_slice), "{key:?} of table {n}");
    }
    values.into_batch()
}

fn look_up_at(cores: &PerCore, (snapshot, then): &(Snapshot, Rows), sharded: &ShardedTable) {
    let mut batch = cores.batch();
    for key in then.keys() {
        batch.get(sharded, key);
    }
    match batch.at(snapshot).len() {
        0 => {}
        len => {
            let values: FoundValues = batch.run().unwrap();
            assert_eq!(values.len(), len);
            let is_same = then.values().map(|value| Some(value.as_slice())).eq(values.iter());
            assert!(is_same, "a snapshot changed");
        }
    }
}

#[test]
fn batches_find_what_a_model_has_while_jobs_run() {
    for seed in 0..rounds(3, 40) {
        let dir = tempfile::tempdir().unwrap();
        let db = tiny().open(dir.path().join("db")).unwrap();
        let mut chance = Chance::new(seed);
        let mut cores = db.per_core(1 + chance.below(4) as usize).unwrap();
        let names = ["a", "b", "c"];
        let mut tables = names.map(|name| {
            let table = db.table(name).unwrap();
            let sharded = cores.table(&table).unwrap();
            Modelled { table, sharded, rows: Rows::new() }
        });
        let (mut batch, mut before) = (cores.batch(), None);
        for round in 0..120 {
            for _ in 0..chance.below(60) {
                let n = chance.below(tables.len() as u64) as usize;
                change(&db, &mut tables[n], &mut chance);
                if n == 0 && tables[0].rows.is_empty() {
                    before = None;
                }
            }
            batch = look_up(batch, &tables, &mut chance);
            if let Some(before) = &before {
                look_up_at(&cores, before, &tables[0].sharded);
            }
            if round % 10 == 0 {
                before = Some((db.snapshot().unwrap(), tables[0].rows.clone()));
            }
            if round % 40 == 39 {
                // Drawn anew, by what is there now.
                cores = db.per_core(1 + chance.below(4) as usize).unwrap();
                batch = cores.batch();
                for one in &mut tables {
                    one.sharded = cores.table(&one.table).unwrap();
                }
            }
        }
    }
}

/// Each thread sees what was committed before it asked, of every shard.
#[test]
fn batches_of_threads_see_what_was_committed_before() {
    const KEYS: u64 = 64;
    let (_dir, db, table) = open();
    let committed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    for n in 0..KEYS {
        table.durability(Durability::Relaxed).put(n.to_be_bytes(), 0u64.to_le_bytes()).unwrap();
    }
    let (cores, done) = (db.per_core(2).unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (sharded, mut batch) = (cores.table(&table).unwrap(), cores.batch());
                while !done.load(Ordering::Acquire) {
                    for n in 0..KEYS {
                        batch.get(&sharded, n.to_be_bytes());
                    }
                    let read = |n: &AtomicU64| n.load(Ordering::Acquire);
                    let least: Vec<u64> = committed.iter().map(read).collect();
                    let values = batch.run().unwrap();
                    for (value, least) in values.iter().zip(least) {
                        let value = u64::from_le_bytes(value.unwrap()[..8].try_into().unwrap());
                        assert!(value >= least, "{value} after {least} was committed");
                    }
                    batch = values.into_batch();
                }
            });
        }
        let mut chance = Chance::new(1);
        for round in 1..rounds(3000, 100_000) {
            let n = chance.below(KEYS);
            let value = [round.to_le_bytes().as_slice(), &[7; 500]].concat();
            table.durability(Durability::Relaxed).put(n.to_be_bytes(), value).unwrap();
            committed[n as usize].store(round, Ordering::Release);
        }
        done.store(true, Ordering::Release);
    });
}

const ACCOUNTS: u64 = 40;

fn amount(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

/// Transactions of closures move money between accounts of all shards. Batches as of a snapshot see
/// the exact sum meanwhile.
#[test]
fn transactions_span_shards_and_snapshots_of_all_shards_are_exact() {
    let (_dir, db, table) = open();
    for n in 0..ACCOUNTS {
        table.put(n.to_be_bytes(), 100u64.to_le_bytes()).unwrap();
    }
    let cores = db.per_core(3).unwrap();
    let sharded = cores.table(&table).unwrap();
    let owners: std::collections::BTreeSet<usize> =
        (0..ACCOUNTS).map(|n| sharded.shard_of(n.to_be_bytes())).collect();
    assert_eq!(owners.len(), 3, "every shard owns an account");
    let mut chance = Chance::new(7);
    let mut tasks = Vec::new();
    for _ in 0..rounds(300, 5000) {
        let (from, to) = (chance.below(ACCOUNTS), chance.below(ACCOUNTS));
        let (within, table) = (db.clone(), table.clone());
        let transfer = move |_: &terrace::ShardScope<'_>| {
            within.run(|txn| {
                let read = |n: u64| txn.get_for_update(&table, n.to_be_bytes());
                let (have, other) = (read(from)?.unwrap(), read(to)?.unwrap());
                if from != to && amount(&have) > 0 {
                    let (less, more) = (amount(&have) - 1, amount(&other) + 1);
                    txn.put(&table, from.to_be_bytes(), less.to_le_bytes())?;
                    txn.put(&table, to.to_be_bytes(), more.to_le_bytes())?;
                }
                Ok(())
            })
        };
        tasks.push(sharded.submit(from.to_be_bytes(), transfer).unwrap());
        if tasks.len() % 20 == 0 {
            assert_eq!(sum(&cores, &sharded, &db), 100 * ACCOUNTS);
        }
    }
    tasks.into_iter().for_each(|task| task.wait().unwrap());
    assert_eq!(sum(&cores, &sharded, &db), 100 * ACCOUNTS);
}

fn sum(cores: &PerCore, sharded: &ShardedTable, db: &Database) -> u64 {
    let mut batch = cores.batch();
    for n in 0..ACCOUNTS {
        batch.get(sharded, n.to_be_bytes());
    }
    batch.at(&db.snapshot().unwrap());
    batch.run().unwrap().iter().map(|value| amount(value.unwrap())).sum()
}

/// Closures for one key run in the order of their submission, one at a time, without transactions.
#[test]
fn closures_of_a_key_run_in_order() {
    let (_dir, db, table) = open();
    let cores = db.per_core(2).unwrap();
    let sharded = cores.table(&table).unwrap();
    let mut tasks = Vec::new();
    for n in 0..200u64 {
        let table = table.clone();
        let task = sharded.submit((n % 5).to_be_bytes(), move |_| {
            let key = (n % 5).to_be_bytes();
            let old = table.get(key)?.map_or(0, |old| amount(&old));
            table
                .durability(Durability::Relaxed)
                .put(key, old.wrapping_mul(3).wrapping_add(n).to_le_bytes())
        });
        tasks.push(task.unwrap());
    }
    tasks.into_iter().for_each(|task| task.wait().unwrap());
    for key in 0..5u64 {
        let of_key = (0..200u64).filter(|n| n % 5 == key);
        let want = of_key.fold(0u64, |old, n| old.wrapping_mul(3).wrapping_add(n));
        assert_eq!(amount(&table.get(key.to_be_bytes()).unwrap().unwrap()), want);
    }
}

#[test]
fn a_panic_in_a_closure_is_its_callers_error_alone() {
    let (_dir, db, table) = open();
    table.put("k", "v").unwrap();
    let cores = db.per_core(1).unwrap();
    let panics = cores.submit_to::<(), _>(0, |_| panic!("row {} is missing", 4711)).unwrap();
    let error = panics.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("row 4711 is missing"), "{error}");
    let within = table.clone();
    let panics = cores.submit_to(0, move |shard| {
        shard.read(&within, |reads| reads.get_with("k", |_| panic!("in a read"))).map(drop)
    });
    assert!(panics.unwrap().wait().unwrap_err().to_string().contains("in a read"));

    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let bomb = cores.submit_to::<(), _>(0, |_| std::panic::panic_any(Bomb)).unwrap();
    assert!(bomb.wait().unwrap_err().to_string().contains("no message"));

    let sharded = cores.table(&table).unwrap();
    let mut batch = cores.batch();
    batch.get(&sharded, "k");
    assert_eq!(batch.run().unwrap().get(0), Some(&b"v"[..]), "the shard goes on");
    table.put("k", "w").unwrap();
    let stats = cores.stats();
    assert_eq!((stats[0].closures, stats[0].panics, stats[0].batches), (3, 3, 1));
}

/// A shard that runs a closure until it is let go.
struct Held {
    go_on: mpsc::Sender<()>,
    task: terrace::ShardTask<()>,
}

fn hold(cores: &PerCore, shard: usize) -> Held {
    let (go_on, gate) = mpsc::channel();
    let (began, begins) = mpsc::channel();
    let task = cores.submit_to(shard, move |_| {
        began.send(()).unwrap();
        gate.recv().unwrap();
        Ok(())
    });
    begins.recv().unwrap();
    Held { go_on, task: task.unwrap() }
}

/// How an executor ends while work is queued.
fn queued_work_ends_with_closed(end: impl FnOnce(&Database, PerCore, &dyn Fn())) {
    let (_dir, db, table) = open();
    table.put("k", "v").unwrap();
    let cores = db.per_core(1).unwrap();
    let held = hold(&cores, 0);
    let ran = std::sync::Arc::new(AtomicBool::new(false));
    let runs = std::sync::Arc::clone(&ran);
    let task = cores.submit_to(0, move |_| {
        runs.store(true, Ordering::Release);
        Ok(())
    });
    let mut batch = cores.batch();
    batch.get(&cores.table(&table).unwrap(), "k");
    let gets = batch.submit().unwrap();
    assert!(!gets.is_done());
    let Held { go_on, task: running } = held;
    end(&db, cores, &|| go_on.send(()).unwrap());
    running.wait().unwrap();
    let closed = |error: Error| assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    closed(task.unwrap().wait().unwrap_err());
    closed(gets.wait().unwrap_err());
    assert!(!ran.load(Ordering::Acquire), "what has not begun does not run");
}

#[test]
fn queued_work_ends_with_closed_when_the_database_is_closed() {
    queued_work_ends_with_closed(|db, cores, go_on| {
        db.clone().close().unwrap();
        go_on();
        let error = cores.submit_to(0, |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(cores.batch().run().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(db.per_core(1).unwrap_err().kind(), ErrorKind::Closed);
    });
}

#[test]
fn queued_work_ends_with_closed_when_the_executor_is_closed() {
    queued_work_ends_with_closed(|db, cores, go_on| {
        let other = cores.clone();
        thread::scope(|scope| {
            let closing = scope.spawn(|| cores.close());
            // It waits for the closure that runs.
            wait_until("the executor closes", || other.batch().run().is_err());
            go_on();
            closing.join().unwrap().unwrap();
        });
        let error = other.submit_to(0, |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        other.close().unwrap();
        db.table("t").unwrap().put("k", "the database is open").unwrap();
    });
}

/// Bug: `close` of a second handle returned while closures still ran. Cause: the first one had
/// taken the threads to wait for. Fix: they are waited for with their mutex held.
#[test]
fn a_second_close_waits_for_closures_that_run() {
    let (_dir, db, _table) = open();
    let cores = db.per_core(1).unwrap();
    let held = hold(&cores, 0);
    let others = [cores.clone(), cores.clone(), cores];
    let is_closed = others[0].clone();
    thread::scope(|scope| {
        let closing = others.map(|cores| scope.spawn(|| cores.close()));
        wait_until("the executor closes", || is_closed.batch().run().is_err());
        (0..20_000).for_each(|_| thread::yield_now());
        let waits = closing.iter().filter(|closing| !closing.is_finished()).count();
        assert_eq!(waits, 3, "each waits for the closure");
        held.go_on.send(()).unwrap();
        closing.into_iter().for_each(|closing| closing.join().unwrap().unwrap());
    });
    held.task.wait().unwrap();
}

/// The executor is the last handle of the database, and a closure of its own the last of it.
#[test]
fn a_database_closes_with_its_executor_on_whichever_thread() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    for on_a_shard in [false, true] {
        let db = tiny().open(&path).unwrap();
        let sharded = {
            let table = db.table("t").unwrap();
            table.put("k", "v").unwrap();
            db.per_core(2).unwrap().table(&table).unwrap()
        };
        drop(db);
        if on_a_shard {
            let last = sharded.clone();
            let task = sharded.submit("k", move |_| last.table().get("k")).unwrap();
            drop(sharded);
            match task.wait() {
                Ok(value) => assert_eq!(value.unwrap(), "v"),
                // All other handles went before it began.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
            }
        } else {
            assert_eq!(sharded.table().get("k").unwrap().unwrap(), "v");
            drop(sharded);
        }
        // A shard that holds the last handle closes the database later than this.
        let end = Instant::now() + Duration::from_secs(60);
        let again = loop {
            match tiny().open(&path) {
                Err(_) if Instant::now() < end => thread::yield_now(),
                opened => break opened.unwrap(),
            }
        };
        again.close().unwrap();
    }
}

#[test]
fn what_cannot_be_done_is_refused() {
    let (_dir, db, table) = open();
    let (_other_dir, other_db, foreign) = open();
    table.put("k", "v").unwrap();
    let invalid = |error: Error, says: &str| {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    invalid(db.per_core(0).unwrap_err(), "1 to 1024");
    invalid(db.per_core(1025).unwrap_err(), "1 to 1024");
    let cores = db.per_core(2).unwrap();
    invalid(cores.submit_to(2, |_| Ok(())).unwrap_err(), "0 to 1");
    invalid(cores.table(&foreign).unwrap_err(), "another database");
    let sharded = cores.table(&table).unwrap();

    let others = db.per_core(2).unwrap().table(&table).unwrap();
    let mut batch = cores.batch();
    batch.get(&sharded, "k").get(&others, "k");
    invalid(batch.run().unwrap_err(), "key 1");
    let mut batch = cores.batch();
    batch.get(&sharded, "k").at(&other_db.snapshot().unwrap());
    invalid(batch.run().unwrap_err(), "another database");

    let of_others = foreign;
    let task = cores.submit_to(0, move |shard| shard.read(&of_others, |_| ()));
    invalid(task.unwrap().wait().unwrap_err(), "another database");

    // A write in a read could wait for the read.
    let within = table;
    let task = cores.submit_to(0, move |shard| shard.read(&within, |_| within.put("k", "w"))?);
    invalid(task.unwrap().wait().unwrap_err(), "is lent");

    // A shard waits for no shard, and not for itself.
    let own = cores.clone();
    let task = cores.submit_to(0, move |_| {
        let waits = own.submit_to(0, |_| Ok(()))?.wait().unwrap_err();
        Ok((waits, own.close().unwrap_err()))
    });
    let (waits, closes) = task.unwrap().wait().unwrap();
    invalid(waits, "would wait");
    invalid(closes, "would wait");

    let before = db.snapshot().unwrap();
    db.truncate_table("t").unwrap();
    let mut batch = cores.batch();
    batch.get(&sharded, "k");
    let values = batch.run().unwrap();
    assert_eq!(values.get(0), None, "it was emptied");
    let mut batch = values.into_batch();
    batch.get(&sharded, "k").at(&before);
    invalid(batch.run().unwrap_err(), "truncated");
    db.drop_table("t").unwrap();
    let mut batch = cores.batch();
    batch.get(&sharded, "k");
    let dropped = batch.run().unwrap_err();
    assert_eq!(dropped.kind(), ErrorKind::MissingTable, "{dropped}");
}

/// A closure looks up keys of all shards, by a batch and by `ShardScope::read`, and fills the
/// queue of a shard until it is refused.
#[test]
fn a_closure_reads_what_other_shards_own() {
    let (_dir, db, table) = open();
    for n in 0..100u64 {
        table.durability(Durability::Relaxed).put(n.to_be_bytes(), n.to_le_bytes()).unwrap();
    }
    let cores = db.per_core(2).unwrap();
    let sharded = cores.table(&table).unwrap();
    let (own, handle, rows) = (cores.clone(), sharded, table);
    let task = cores.submit_to(1, move |shard| {
        let mut batch = own.batch();
        for n in 0..100u64 {
            batch.get(&handle, n.to_be_bytes());
        }
        let values = batch.run()?;
        let by_batch: u64 = values.iter().map(|value| amount(value.unwrap())).sum();
        let by_read = shard.read(&rows, |reads| {
            let one = |n: u64| Ok(reads.get_with(n.to_be_bytes(), amount)?.unwrap_or(0));
            assert!(reads.contains_key(1u64.to_be_bytes())? && !reads.contains_key("none")?);
            assert_eq!(reads.get(2u64.to_be_bytes())?.as_deref(), Some(&2u64.to_le_bytes()[..]));
            (0..100).map(one).sum::<terrace::Result<u64>>()
        })??;
        Ok((by_batch, by_read))
    });
    assert_eq!(task.unwrap().wait().unwrap(), (4950, 4950));
    assert_eq!(cores.stats()[1].gets, 103, "what other shards own is counted where it was read");

    let held = hold(&cores, 0);
    let own = cores.clone();
    let fills =
        cores.submit_to(1, move |_| Ok((0..2000).find_map(|_| own.submit_to(0, |_| Ok(())).err())));
    let error = fills.unwrap().wait().unwrap().unwrap();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    held.go_on.send(()).unwrap();
    held.task.wait().unwrap();
}
