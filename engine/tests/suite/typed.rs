//! Typed tables: the same rows as a sorted map of values, in tables, snapshots, transactions and
//! batches; bytes of other types are errors that name table, key and type.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;

use crate::common::{Chance, tiny};
use serde::{Deserialize, Serialize};
use terrace::typed::TypedTable;
use terrace::{Database, ErrorKind, Isolation, TxnOptions, WriteBatch};

type Key = (u32, String, i16);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Value {
    Note(String),
    Point { x: f64, y: f64 },
    Nothing,
}

fn open(dir: &tempfile::TempDir) -> (Database, TypedTable<Key, Value>) {
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.typed("rows").unwrap();
    (db, table)
}

fn key(chance: &mut Chance) -> Key {
    let names = ["", "a", "a\0", "a\0b", "ab", "b"];
    let name = names[chance.below(names.len() as u64) as usize];
    (chance.below(3) as u32, name.to_string(), chance.below(5) as i16 - 2)
}

fn value(chance: &mut Chance) -> Value {
    match chance.below(3) {
        0 => Value::Note("x".repeat(chance.below(300) as usize)),
        1 => Value::Point { x: chance.below(100) as f64, y: -1.5 },
        _ => Value::Nothing,
    }
}

#[test]
fn rows_are_those_of_a_sorted_map() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let (mut chance, mut model) = (Chance::new(1), BTreeMap::new());
    for _ in 0..2000 {
        let (key, value) = (key(&mut chance), value(&mut chance));
        match chance.below(6) {
            0 => {
                table.delete(&key).unwrap();
                model.remove(&key);
            }
            1 => {
                let is_new = table.insert_if_absent(&key, &value).unwrap();
                assert_eq!(is_new, !model.contains_key(&key));
                model.entry(key).or_insert(value);
            }
            2 => {
                let mut batch = WriteBatch::new();
                table.add_put(&mut batch, &key, &value).unwrap();
                db.write(batch).unwrap();
                model.insert(key, value);
            }
            3 => {
                let swap = |old: Option<Value>| old.is_none().then(|| value.clone());
                assert_eq!(table.update(&key, swap).unwrap(), swap(model.get(&key).cloned()));
                if model.remove(&key).is_none() {
                    model.insert(key, value);
                }
            }
            4 => {
                let row = db.run(|txn| {
                    table.put_in(txn, &key, &value)?;
                    table.get_in(txn, &key)
                });
                assert_eq!(row.unwrap().as_ref(), Some(&value));
                model.insert(key, value);
            }
            _ => {
                table.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
    let all: Vec<_> = table.iter().map(Result::unwrap).collect();
    assert_eq!(all, model.clone().into_iter().collect::<Vec<_>>());
    let snapshot = db.snapshot().unwrap();
    for _ in 0..200 {
        let (a, b) = (key(&mut chance), key(&mut chance));
        let (from, to) = if a <= b { (a, b) } else { (b, a) };
        assert_eq!(table.get(&from).unwrap().as_ref(), model.get(&from));
        assert_eq!(table.contains_key(&to).unwrap(), model.contains_key(&to));
        let wanted: Vec<_> = model.range(from.clone()..to.clone()).rev().collect();
        let found = table.range_in(&snapshot, from.clone()..to).unwrap().rev();
        let found: Vec<_> = found.map(Result::unwrap).collect();
        assert_eq!(found.iter().map(|(k, v)| (k, v)).collect::<Vec<_>>(), wanted);
        let begins = |k: &&Key| k.0 == from.0 && k.1 == from.1;
        let prefix = table.prefix(&(from.0, from.1.clone())).map(|row| row.unwrap().0);
        let wanted: Vec<_> = model.keys().filter(begins).cloned().collect();
        assert_eq!(prefix.collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn bytes_of_other_types_are_errors_and_other_rows_follow() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let key: Key = (1, "a".into(), 0);
    table.put(&key, &Value::Nothing).unwrap();
    table.table().put("not a key", "x").unwrap();
    let other: TypedTable<Key, (u64, Vec<String>)> = db.typed("rows").unwrap();
    let error = other.get(&key).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    let told = error.to_string();
    assert!(told.contains("\"rows\"") && told.contains("Vec<"), "{told}");
    let rows: Vec<_> = table.iter().collect();
    assert_eq!(rows.len(), 2);
    assert!(rows[0].is_ok() && rows[1].is_err(), "{rows:?}");
    // A change that cannot read the row leaves it as it is.
    assert!(other.update(&key, |_| None).is_err());
    assert_eq!(table.get(&key).unwrap(), Some(Value::Nothing));
}

#[test]
fn a_transaction_sees_its_own_typed_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let key: Key = (1, "a".into(), 0);
    let txn = db.begin_with(TxnOptions::new().isolation(Isolation::Serializable)).unwrap();
    table.put_in(&txn, &key, &Value::Note("mine".into())).unwrap();
    assert_eq!(table.range_in(&txn, ..).unwrap().count(), 1);
    assert_eq!(table.get(&key).unwrap(), None);
    table.delete_in(&txn, &key).unwrap();
    assert_eq!(table.get_in(&txn, &key).unwrap(), None);
    txn.roll_back();
}
