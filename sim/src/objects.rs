//! Object stores that two openings use: one after the other, while a request of the first is late,
//! or side by side.

use terrace::ObjectServer;
use terrace::testing::{Failpoint, Machine, Survive};
use terrace::{Database, Durability, ErrorKind, Result, StoreFault, Table, TableOptions, Tier};

use crate::account::verified;
use crate::chance::Chance;
use crate::cuts::{Kind, PATH, Violation, options};
use crate::violation::Class;

const ROWS: u64 = 60;

fn refused(error: terrace::Error) -> Violation {
    Class::Refused.violation(error)
}

fn value(n: u64, round: u64) -> Vec<u8> {
    Chance::new(n << 8 | round).bytes(2000)
}

/// Rows of a round, brought down to objects.
fn write(db: &Database, table: &Table, round: u64) -> Result<()> {
    for n in 0..ROWS {
        table.durability(Durability::Durable).put(format!("{n:02}"), value(n, round))?;
    }
    db.compact_range(table, ..).map(drop)
}

fn has_all(table: &Table, round: u64) -> Result<bool> {
    let rows = table.range(..).collect::<Result<Vec<_>>>()?;
    let expected = (0..ROWS).map(|n| value(n, round));
    Ok(rows.into_iter().map(|(_, value)| value.to_vec()).eq(expected))
}

fn made(bug: Option<Failpoint>) -> Result<(Machine, Database, Table)> {
    let machine = Kind::Objects.machine();
    let db = options(&machine, bug).create(PATH)?;
    let table = db.create_table("t", TableOptions::new().cold(Tier::Object))?;
    Ok((machine, db, table))
}

/// A copy of a machine takes the object store over. The first one must make no edit after that.
///
/// # Errors
///
/// It makes one, or the second one lacks something.
pub fn takeover(bug: Option<Failpoint>) -> std::result::Result<(), Violation> {
    let (machine, db, table) = made(bug).map_err(refused)?;
    write(&db, &table, 0).map_err(refused)?;
    // Of what it has no object is replaced by the second one, so no read tells of that.
    let own = db.create_table("own", TableOptions::new().cold(Tier::Object)).map_err(refused)?;
    // The copy has the store itself in reach, and not a copy of it.
    let store = ObjectServer::of_machine(&machine)
        .ok_or_else(|| Class::Refused.violation("there is no store"))?;
    let copy = machine.crash(Survive::Everything).with_store(&store);
    let second = options(&copy, None).open(PATH).map_err(refused)?;
    let other = second.table("t").map_err(refused)?;
    write(&second, &other, 1).map_err(refused)?;
    match write(&db, &own, 2) {
        Err(error) if error.kind() == ErrorKind::Fenced => {}
        other => return Err(Class::TwoWriters.violation(format!("it went on: {other:?}"))),
    }
    match has_all(&other, 1) {
        Ok(true) => Ok(()),
        other => Err(Class::TwoWriters.violation(format!("the second one has all: {other:?}"))),
    }
}

/// The power is cut after an object was written and before an edit names it. The next opening
/// deletes it, and the deletion is late: it arrives when other objects were written.
///
/// # Errors
///
/// The last opening lacks something.
pub fn late_deletion(seed: u64, bug: Option<Failpoint>) -> std::result::Result<(), Violation> {
    let (machine, db, table) = made(bug).map_err(refused)?;
    let store = ObjectServer::of_machine(&machine)
        .ok_or_else(|| Class::Refused.violation("there is no store"))?;
    let (cut, late) = (2 + seed % 3, 1 + seed / 3 % 12);
    store.plan(store.requests() + cut, StoreFault::CutAfter);
    // It has no way to the store any more.
    drop(write(&db, &table, 0));
    let machine = machine.crash(Survive::Nothing);
    let db = options(&machine, bug).open(PATH).map_err(refused)?;
    let table = db.table("t").map_err(refused)?;
    let store = ObjectServer::of_machine(&machine)
        .ok_or_else(|| Class::Refused.violation("there is no store"))?;
    for request in 1..10 {
        store.plan(store.requests() + request, StoreFault::Repeat(late));
    }
    db.collect_objects().map_err(refused)?;
    store.forget_plans();
    // An extent id that no edit named is given again.
    db.compact_range(&table, ..).map_err(refused)?;
    store.deliver();
    verified(&db)?;
    match has_all(&table, 0) {
        Ok(true) => Ok(()),
        other => Err(Class::Changed.violation(format!("it has all: {other:?}"))),
    }
}
