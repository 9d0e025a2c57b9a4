//! Typed tables: the same rows as a sorted map of values, in tables, snapshots, transactions and
//! batches; bytes of other types are errors that name table, key and type.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;

use crate::common::{Chance, tiny};
use serde::{Deserialize, Serialize};
use terrace::typed::{TypeName, TypedKey, TypedTable};
use terrace::{
    Database, DumpOptions, Durability, ErrorKind, Isolation, TableOptions, TxnOptions, WriteBatch,
};

type Key = (u32, String, i16);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Value {
    Note(String),
    Point { x: f64, y: f64 },
    Nothing,
}

impl TypeName for Value {
    fn type_name() -> String {
        "Value".into()
    }
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
        match chance.below(9) {
            0 => {
                let taken = match chance.below(3) {
                    0 => db.run(|txn| table.take_in(txn, &key)).unwrap(),
                    1 => table.take(&key).unwrap(),
                    _ => table.delete(&key).map(|()| model.get(&key).cloned()).unwrap(),
                };
                assert_eq!(taken, model.remove(&key));
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
                let updated = match chance.below(2) {
                    0 => table.update(&key, swap).unwrap(),
                    _ => db.run(|txn| table.update_in(txn, &key, swap)).unwrap(),
                };
                assert_eq!(updated, swap(model.get(&key).cloned()));
                if model.remove(&key).is_none() {
                    model.insert(key, value);
                }
            }
            4 => {
                let row = db.run(|txn| {
                    let old = table.replace_in(txn, &key, &value)?;
                    assert_eq!(old.as_ref(), model.get(&key));
                    assert_eq!(table.multi_get_in(txn, [&key])?, [Some(value.clone())]);
                    table.get_in(txn, &key)
                });
                assert_eq!(row.unwrap().as_ref(), Some(&value));
                let old = model.insert(key.clone(), value.clone());
                assert_eq!(table.replace(&key, &value).unwrap(), Some(value), "{old:?}");
            }
            5 => {
                let (popped, expected) = match chance.below(4) {
                    0 => (table.pop_first().unwrap(), model.pop_first()),
                    1 => (table.pop_last().unwrap(), model.pop_last()),
                    2 => (db.run(|txn| table.pop_first_in(txn)).unwrap(), model.pop_first()),
                    _ => (db.run(|txn| table.pop_last_in(txn)).unwrap(), model.pop_last()),
                };
                assert_eq!(popped, expected);
            }
            6 => {
                let old = model.get(&key);
                let is_set = match chance.below(2) {
                    0 => table.compare_and_set(&key, old, Some(&value)),
                    _ => db.run(|txn| table.compare_and_set_in(txn, &key, old, Some(&value))),
                };
                assert!(is_set.unwrap());
                model.insert(key, value);
            }
            7 => {
                let end = (key.0, key.1.clone(), key.2 + 2);
                let goes = |_: &Key, row: &Value| *row == Value::Nothing;
                let rows = model.range(key.clone()..end.clone()).rev();
                let rows = rows.filter(|(key, row)| goes(key, row));
                let mut rows: Vec<_> = rows.map(|(key, row)| (key.clone(), row.clone())).collect();
                let range = || key.clone()..end.clone();
                match chance.below(3) {
                    0 => {
                        let gone = db.run(|txn| {
                            let found = table.extract_if_in(txn, range(), goes)?;
                            found.rev().collect::<terrace::Result<Vec<_>>>()
                        });
                        assert_eq!(gone.unwrap(), rows);
                    }
                    1 => {
                        rows.reverse();
                        assert_eq!(table.extract_if(range(), goes).unwrap(), rows);
                    }
                    _ => {
                        let count = table.retain(range(), |key, row| !goes(key, row)).unwrap();
                        assert_eq!(count, rows.len() as u64);
                    }
                }
                rows.iter().for_each(|(key, _)| drop(model.remove(key)));
            }
            _ => {
                table.durability(Durability::Relaxed).put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
    assert_eq!(
        table.first().unwrap(),
        model.first_key_value().map(|(k, v)| (k.clone(), v.clone()))
    );
    assert_eq!(table.last().unwrap(), model.last_key_value().map(|(k, v)| (k.clone(), v.clone())));
    let values: Vec<_> = model.values().cloned().map(Some).collect();
    assert_eq!(table.multi_get(model.keys()).unwrap(), values);
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
    let other: TypedTable<Key, (u64, Vec<String>)> = db.typed("others").unwrap();
    other.table().put(key.to_bytes(), [2]).unwrap();
    let error = other.get(&key).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    let told = error.to_string();
    assert!(told.contains("\"others\"") && told.contains("Vec<"), "{told}");
    let rows: Vec<_> = table.iter().collect();
    assert_eq!(rows.len(), 2);
    assert!(rows[0].is_ok() && rows[1].is_err(), "{rows:?}");
    // A change that cannot read the row leaves it as it is.
    assert!(other.update(&key, |_| None).is_err());
    assert_eq!(other.table().get(key.to_bytes()).unwrap().as_deref(), Some(&[2][..]));
    // Nor does a transaction that looks for rows to remove.
    let txn = db.begin().unwrap();
    let retained = other.retain_in(&txn, .., |_, _| false).unwrap_err();
    assert_eq!(retained.kind(), ErrorKind::WrongType);
    assert!(txn.contains_key(other.table(), key.to_bytes()).unwrap());
}

/// A table keeps the names of its types through all that changes it. Openings with other types
/// name both, and those without types go on.
#[test]
fn a_table_is_opened_with_its_own_types_alone() {
    type Other = TypedTable<u64, String>;
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    table.put(&(1, "a".into(), 0), &Value::Nothing).unwrap();
    let check = |db: &Database, name: &str| {
        let refused = db.typed::<u64, String>(name).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongType);
        let told = refused.to_string();
        let both = "keys (u32,String,i16) and values Value, and is opened with keys u64 and \
                    values String";
        assert!(told.contains(both) && told.contains("open it with the types"), "{told}");
        db.typed::<Key, Value>(name).unwrap();
        let names = db.table(name).unwrap().options();
        assert_eq!(names.type_names(), Some(("(u32,String,i16)", "Value")));
    };
    check(&db, "rows");
    assert!(db.typed::<u64, String>(table.table()).is_err(), "by a handle likewise");
    db.set_table_options("rows", TableOptions::new().block_size(4096)).unwrap();
    db.change_table_options("rows", |_| Ok(TableOptions::new().filter_bits(12))).unwrap();
    assert_eq!(db.table("rows").unwrap().options().filter_bits_per_key(), 12);
    check(&db, "rows");
    // Types are no option that `table_with` compares.
    db.table_with("rows", TableOptions::new().filter_bits(12)).unwrap();
    db.rename_table("rows", "named").unwrap();
    db.truncate_table("named").unwrap();
    check(&db, "named");

    // A table without types keeps the first that it is opened with; reading alone gives it none.
    db.table("bytes").unwrap().put(7_u64.to_be_bytes(), "\u{1}x").unwrap();
    db.close().unwrap();
    let reading = tiny().open_read_only(dir.path().join("db")).unwrap();
    let untyped: Other = reading.typed("bytes").unwrap();
    assert_eq!(untyped.get(&7).unwrap().as_deref(), Some("x"));
    assert_eq!(untyped.table().options().type_names(), None);
    check(&reading, "named");
    drop((reading, untyped));
    let db = tiny().open(dir.path().join("db")).unwrap();
    let typed: Other = db.typed("bytes").unwrap();
    assert_eq!(typed.get(&7).unwrap().as_deref(), Some("x"));
    assert!(db.typed::<u64, u64>("bytes").is_err());
    check(&db, "named");

    // A dump takes the types with it.
    let mut dump = Vec::new();
    db.dump(&DumpOptions::default(), &mut dump).unwrap();
    let copy = tiny().open(dir.path().join("copy")).unwrap();
    copy.load(&DumpOptions::default(), &dump[..]).unwrap();
    check(&copy, "named");

    // Names that are too long for a table are refused before there is one.
    let refused = db.typed::<(Key, Key), (Vec<Key>, Vec<Key>, Vec<Key>)>("long");
    assert!(refused.is_err_and(|e| e.kind() == ErrorKind::TooLarge));
    assert!(!db.table_names().contains(&"long".into()));
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
    let other: Key = (1, "b".into(), 0);
    assert!(table.compare_and_set_in(&txn, &other, None, Some(&Value::Nothing)).unwrap());
    assert_eq!(table.first_in(&txn).unwrap().unwrap().0, key);
    assert_eq!(table.last_in(&txn).unwrap().unwrap().0, other);
    assert!(table.contains_key_in(&txn, &other).unwrap());
    let locked = table.range_for_update_in(&txn, key.clone()..).unwrap();
    assert_eq!(locked.map(|row| row.unwrap().0).collect::<Vec<_>>(), [key.clone(), other]);
    table.delete_prefix_in(&txn, &(1, "b".to_string())).unwrap();
    assert_eq!(table.last_in(&txn).unwrap().unwrap().0, key);
    table.delete_in(&txn, &key).unwrap();
    assert_eq!(table.get_in(&txn, &key).unwrap(), None);
    assert_eq!(table.first_in(&db.snapshot().unwrap()).unwrap(), None);
    txn.roll_back();
}
