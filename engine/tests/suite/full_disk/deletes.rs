//! Rows that are deleted on a full disk come back as space, wherever they lie.

use super::{Rows, SOON, Tables, check, goes_on, put, row, work};
use crate::common::cuts::{Kind, PATH, options};
use crate::common::wait_until;
use std::path::Path;
use std::time::Instant;
use terrace::testing::{Machine, Survive};
use terrace::{Database, Durability, ErrorKind, WriteBatch};

/// Where the rows lie that are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Region,
    Level1,
    Level2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Singly,
    Range,
}

/// Rows of `t` when they do not lie in the region alone.
const MANY: u32 = 700;

/// Puts rows until there is no space, or `most` of them; how many.
fn fill(db: &Database, tables: &mut Tables, name: &str, rows: std::ops::Range<u32>) -> u32 {
    let from = rows.start;
    for n in rows {
        if !put(db, name, &row(n)) {
            work(db);
            if !put(db, name, &row(n)) {
                return n - from;
            }
        }
        tables.get_mut(name).unwrap().extend([row(n)]);
        if n % 8 == 0 {
            work(db);
        }
    }
    panic!("{name} fills no disk");
}

/// A full disk, with the rows of `t` in one place and another table's puts in all others.
fn filled(machine: &Machine, place: Place) -> (Database, Tables) {
    let db = options(machine, None).create(PATH).unwrap();
    let mut tables = Tables::new();
    for name in ["t", "u"] {
        db.table(name).unwrap();
        tables.insert(name.into(), Rows::new());
    }
    let first = if place == Place::Region { "u" } else { "t" };
    for n in 0..MANY {
        // Readers of other tests may keep zones for a while.
        let mut is_late = false;
        wait_until("a row finds space", || {
            if std::mem::replace(&mut is_late, true) {
                work(&db);
            }
            put(&db, first, &row(n))
        });
        tables.get_mut(first).unwrap().extend([row(n)]);
        if n % 8 == 0 {
            work(&db);
        }
    }
    work(&db);
    let table = db.table(first).unwrap();
    match place {
        Place::Level2 => drop(db.compact_range(&table, ..).unwrap()),
        Place::Region | Place::Level1 => {}
    }
    let taken = machine.list(Path::new(PATH)).into_iter().map(|(_, len)| len).sum();
    machine.set_capacity(Some(taken));
    fill(&db, &mut tables, if place == Place::Region { "t" } else { "u" }, 10_000..20_000);
    (db, tables)
}

/// Deletes all rows of `t`. Batches that find no zone yet are made again after some work.
fn delete(db: &Database, tables: &mut Tables, how: How, what: &str) {
    let table = db.existing_table("t").unwrap();
    let rows = std::mem::take(tables.get_mut("t").unwrap());
    if how == How::Range {
        return table.delete_range(..).unwrap();
    }
    let keys: Vec<_> = rows.into_keys().collect();
    for keys in keys.chunks(50) {
        let mut batch = WriteBatch::new();
        for key in keys {
            batch.delete(&table, key);
        }
        let done = (0..20).any(|_| {
            match terrace::with_deadline(Instant::now() + SOON, || {
                db.write_with(&batch, Durability::Durable)
            }) {
                Ok(()) => true,
                Err(e) => {
                    assert!(
                        matches!(e.kind(), ErrorKind::Full | ErrorKind::Timeout),
                        "{what}: {e}"
                    );
                    work(db);
                    false
                }
            }
        });
        assert!(done, "{what}: deletes find no space");
    }
}

/// Bug: on a full disk deletes were made, and no space came of them. Cause: drains took the
/// reserve of the extents only once the region's was touched, took ordinary rows first, and were
/// never made smaller. Compactions asked for room for all that their deletes hide. Fix: drains take
/// the reserve when something that frees was committed, for deletes alone, as much as has room.
/// Compactions count on what their deletes hide.
#[test]
fn rows_deleted_on_a_full_disk_come_back_as_space() {
    for place in [Place::Region, Place::Level1, Place::Level2] {
        for how in [How::Range, How::Singly] {
            for has_snapshot in [false, true] {
                let what = format!("{place:?}, {how:?}, snapshot {has_snapshot}");
                let machine = Kind::Files.machine();
                let (db, mut tables) = filled(&machine, place);
                let snapshot = has_snapshot.then(|| db.snapshot());
                delete(&db, &mut tables, how, &what);
                check(&db, &tables, &what);
                work(&db);
                drop(snapshot);
                // Readers of other tests may keep zones for a while.
                let mut went_on = 0;
                wait_until(&format!("{what}: 40 puts go on"), || {
                    work(&db);
                    went_on += u32::from(goes_on(&db, &mut tables, went_on));
                    went_on == 40
                });
                check(&db, &tables, &what);
                assert!(db.verify().unwrap().damages.is_empty(), "{what}");
            }
        }
    }
}

/// A row of about 80 bytes, which does not compress.
fn small(n: u32) -> (Vec<u8>, Vec<u8>) {
    let (key, mut value) = row(n);
    value.truncate(76);
    (key, value)
}

/// Tries a call, again after some work; whether it went on.
fn tried(db: &Database, call: impl Fn() -> terrace::Result<()>) -> bool {
    (0..3).any(|_| match terrace::with_deadline(Instant::now() + SOON, &call) {
        Ok(()) => true,
        Err(e) => {
            assert!(matches!(e.kind(), ErrorKind::Full | ErrorKind::Timeout), "{e}");
            work(db);
            false
        }
    })
}

/// Fills the disk with small rows of `t`, and deletes some far apart until that is refused.
fn use_up_deletes(db: &Database, machine: &Machine, tables: &mut Tables) {
    let table = db.table("t").unwrap();
    tables.insert("t".into(), Rows::new());
    let mut n = 0;
    loop {
        let rows: Vec<_> = (n..n + 50).map(small).collect();
        let mut batch = WriteBatch::new();
        for (key, value) in &rows {
            batch.put(&table, key, value);
        }
        let put = || tried(db, || db.write_with(&batch, Durability::Durable));
        // Readers of other tests may keep zones for a while.
        if n < 20_000 {
            wait_until("rows find space", put);
        } else if !put() {
            break;
        }
        tables.get_mut("t").unwrap().extend(rows);
        n += 50;
        if n % 1000 == 0 {
            work(db);
        }
        if n == 20_000 {
            let taken = machine.list(Path::new(PATH)).into_iter().map(|(_, len)| len).sum();
            machine.set_capacity(Some(taken));
        }
    }
    let keys: Vec<_> = tables["t"].keys().step_by(5).cloned().collect();
    let deleted = keys.iter().take_while(|key| tried(db, || table.delete(*key))).count();
    assert!(deleted < keys.len(), "all deletes found space");
    keys[..deleted].iter().for_each(|key| drop(tables.get_mut("t").unwrap().remove(key)));
    check(db, tables, "deleted singly");
}

/// Bug: deletes of single keys, far apart among rows that stay, used up the region's reserve. A
/// range delete was refused from then on, and no space could be made. Cause: all commits that free
/// space had the same right to the reserve. Fix: deletes of single keys leave half of it.
#[test]
fn a_range_delete_goes_on_behind_deletes_that_have_used_their_reserve() {
    let machine = Kind::Files.machine();
    let db = options(&machine, None).create(PATH).unwrap();
    let mut tables = Tables::new();
    use_up_deletes(&db, &machine, &mut tables);
    let table = db.table("t").unwrap();
    assert!(tried(&db, || table.delete_range(..)), "a range delete finds no space");
    tables.get_mut("t").unwrap().clear();
    check(&db, &tables, "deleted all");
    let mut went_on = 0;
    wait_until("40 puts go on", || {
        work(&db);
        went_on += u32::from(goes_on(&db, &mut tables, went_on));
        went_on == 40
    });
    check(&db, &tables, "puts went on");
    assert!(db.verify().unwrap().damages.is_empty());
}

/// Verdicts go on where single deletes do not any more: locks of prepared transactions must end.
#[test]
fn verdicts_go_on_behind_deletes_that_have_used_their_reserve() {
    let machine = Kind::Files.machine();
    let db = options(&machine, None).create(PATH).unwrap();
    let prepared = db.table("prepared").unwrap();
    for name in ["commits", "rolls back"] {
        let txn = db.begin().unwrap();
        (0..20).for_each(|n| txn.put(&prepared, format!("{name} {n}"), name).unwrap());
        txn.prepare(name).unwrap();
    }
    let mut tables = Tables::from([("prepared".to_string(), Rows::new())]);
    use_up_deletes(&db, &machine, &mut tables);
    let rolls_back = || db.roll_back_prepared("rolls back", Durability::Durable);
    assert!(tried(&db, rolls_back), "a rollback finds no space");
    assert!(tried(&db, || db.commit_prepared("commits")), "a commit finds no space");
    let row = |n| (format!("commits {n}").into_bytes(), b"commits".to_vec());
    tables.get_mut("prepared").unwrap().extend((0..20).map(row));
    check(&db, &tables, "verdicts");
    let after = machine.crash(Survive::Nothing);
    let db = options(&after, None).open(PATH).unwrap();
    check(&db, &tables, "opened again");
    assert!(db.list_prepared().is_empty() && db.verify().unwrap().damages.is_empty());
}
