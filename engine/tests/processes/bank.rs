//! A bank: money is only ever moved, by commits in one phase and in two, by many threads, in
//! processes that are killed. There is as much of it as in the beginning, always.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::common::child::{given, tell, told_until_killed};
use crate::common::{Chance, rounds, tiny};
use terrace::{Database, Durability, Error, Isolation, Table, TxnOptions, WriteBatch};

const ACCOUNTS: u64 = 12;
const EACH: u64 = 1000;
const THREADS: u64 = 4;

fn number(value: Option<impl AsRef<[u8]>>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value.as_ref().try_into().unwrap()))
}

fn account(n: u64) -> Vec<u8> {
    format!("account {n}").into_bytes()
}

fn found(directory: &Path) {
    let db = tiny().open(directory).unwrap();
    let table = db.table("accounts").unwrap();
    let mut batch = WriteBatch::new();
    for n in 0..ACCOUNTS {
        batch.put(&table, account(n), EACH.to_be_bytes());
    }
    db.write(batch).unwrap();
    db.close().unwrap();
}

fn sum(db: &Database, table: &Table) -> u64 {
    let snapshot = db.snapshot().unwrap();
    (0..ACCOUNTS).map(|n| number(snapshot.get(table, account(n)).unwrap())).sum()
}

/// Transfer `n` of thread `t`, which also writes down its number; whether it was made.
fn transfer(db: &Database, table: &Table, (t, n): (u64, u64)) -> Result<bool, Error> {
    let mut chance = Chance::new(t << 40 | n);
    let level = *chance.pick(&[Isolation::ReadCommitted, Isolation::Snapshot]);
    let txn = db.begin_with(TxnOptions::new().isolation(level))?;
    let from = chance.below(ACCOUNTS);
    let to = (from + 1 + chance.below(ACCOUNTS - 1)) % ACCOUNTS;
    let has = number(txn.get_for_update(table, account(from))?);
    let amount = chance.below(has + 1);
    let then = number(txn.get_for_update(table, account(to))?) + amount;
    txn.put(table, account(from), (has - amount).to_be_bytes())?;
    txn.put(table, account(to), then.to_be_bytes())?;
    txn.put(table, format!("last {t}"), n.to_be_bytes())?;
    let name = format!("{t} {n}");
    match chance.below(6) {
        0 => txn
            .prepare(&name)
            .and_then(|()| db.roll_back_prepared(&name, terrace::Durability::Durable))
            .map(|()| false),
        1 | 2 => txn.prepare(&name).and_then(|()| db.commit_prepared(&name)).map(|()| true),
        3 => txn.enqueue()?.wait().map(|()| true),
        _ => txn.commit().map(|()| true),
    }
}

/// Not a test of its own: what the killed process runs. Without its variables it does nothing.
#[test]
fn child_entry() {
    let Some((directory, first)) = given() else { return };
    let db = tiny().open(directory).unwrap();
    let table = db.table("accounts").unwrap();
    let first: u64 = first.parse().unwrap();
    thread::scope(|scope| {
        for t in 0..THREADS {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for n in first.. {
                    match transfer(db, table, (t, n)) {
                        Ok(true) => tell(&format!("{t} {n}")),
                        Ok(false) => {}
                        Err(e) => assert!(e.is_retryable(), "{e}"),
                    }
                }
            });
        }
        // Rows beside them, with which the accounts freeze, drain and sink.
        let padding = db.table("padding").unwrap();
        let mut chance = Chance::new(first);
        for n in 0u64.. {
            let key = chance.below(200).to_be_bytes();
            padding.durability(Durability::Relaxed).put(key, chance.bytes(3000)).unwrap();
            if n % 8 == 0 {
                assert_eq!(sum(&db, &table), ACCOUNTS * EACH);
                tell(&format!("drains {}", db.stats().background.drains));
            }
        }
    });
}

#[test]
fn money_is_neither_made_nor_lost_by_kills() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    found(&path);
    let (mut chance, mut first, mut resolved, mut drains) = (Chance::new(3), 1, 0, 0);
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let enough = rounds(6, 100);
    for n in 0..10 * enough {
        // A slow machine takes more rounds for as many transfers.
        if n >= enough && drains > 0 && first > 20 {
            break;
        }
        let wait = Duration::from_millis(50 + chance.below(150));
        for line in told_until_killed("bank::child_entry", &path, &first.to_string(), wait) {
            let (t, n) = line.split_once(' ').unwrap();
            if t == "drains" {
                drains = drains.max(n.parse::<u64>().unwrap());
                continue;
            }
            last.insert(t.parse().unwrap(), n.parse().unwrap());
        }
        let db = tiny().open(&path).unwrap();
        let table = db.existing_table("accounts").unwrap();
        assert_eq!(sum(&db, &table), ACCOUNTS * EACH, "before what is prepared is resolved");
        for prepared in db.list_prepared() {
            match chance.percent(50) {
                true => db.commit_prepared(&prepared.id).unwrap(),
                false => db.roll_back_prepared(&prepared.id, terrace::Durability::Durable).unwrap(),
            }
            resolved += 1;
            assert_eq!(sum(&db, &table), ACCOUNTS * EACH);
        }
        assert_eq!(db.locks_held(), (0, 0));
        for t in 0..THREADS {
            let there = number(table.get(format!("last {t}")).unwrap());
            let told = last.get(&t).copied().unwrap_or(0);
            assert!(there >= told, "transfer {told} of thread {t} is missing, the last is {there}");
            first = first.max(there + 2);
        }
        assert!(db.verify().unwrap().damages.is_empty());
        db.close().unwrap();
    }
    assert!(drains > 0, "nothing was drained");
    assert!(first > 20, "there was work: {first} transfers a thread, {resolved} left prepared");
}
