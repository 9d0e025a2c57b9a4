//! Machines that lose their power before and after each request to the object store, while requests
//! are lost, late, made twice or refused, and lists are old. Each machine comes up again with the
//! store as it was at that moment, and has everything that was acknowledged. Planted bugs show that
//! each rule is needed.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{COLD, Rows, extents, fill_with, read_all};
use crate::common::cuts::{PATH, options as of_machine};
use crate::common::{alone, rounds};
use terrace::testing::{Failpoint, Machine, Survive};
use terrace::{Database, Durability, ErrorKind, ObjectServer, Options, Result, StoreFault, Table};

/// A limit of memory under which a compaction writes several objects.
const LITTLE_MEMORY: u64 = 4 << 20;

fn options(machine: &Machine, server: &ObjectServer, bug: Option<Failpoint>) -> Options {
    of_machine(machine, bug).object_store(server.url()).memory(LITTLE_MEMORY)
}

/// A database with a cold table, opened again under the limit.
fn made(machine: &Machine, server: &ObjectServer, bug: Option<Failpoint>) -> (Database, Table) {
    let db = of_machine(machine, bug).object_store(server.url()).create(PATH).unwrap();
    // Some values lie apart.
    db.create_table("t", COLD.large_values(550)).unwrap();
    db.close().unwrap();
    let db = options(machine, server, bug).open(PATH).unwrap();
    let table = db.table("t").unwrap();
    (db, table)
}

/// A machine that lost its power, the store at that moment, and what must be there.
struct Image {
    moment: String,
    machine: Machine,
    server: ObjectServer,
    rows: Rows,
}

/// Takes an image at each request of a machine.
fn watch(
    machine: &Machine,
    server: &ObjectServer,
    rows: &Arc<Mutex<Rows>>,
) -> Arc<Mutex<Vec<Image>>> {
    let images = Arc::new(Mutex::new(Vec::new()));
    let (into, machine, of, rows) =
        (Arc::clone(&images), machine.clone(), server.clone(), Arc::clone(rows));
    server.watch(Some(Box::new(move |request, after| {
        for survive in [Survive::Nothing, Survive::Everything] {
            let when = if after { "after" } else { "before" };
            into.lock().push(Image {
                moment: format!("{when} request {request}, {survive:?}"),
                machine: machine.crash(survive),
                server: of.copy(),
                rows: rows.lock().clone(),
            });
        }
    })));
    images
}

/// Two rounds of rows, each brought down to objects, and what is replaced deleted.
fn work(db: &Database, table: &Table, rows: &Mutex<Rows>, first: u64) {
    for round in first..first + 2 {
        let newer = fill_with(table, 0..400, round, Durability::Durable);
        rows.lock().extend(newer);
        // It fails where the store does; the background tries again.
        drop(db.compact_range(table, ..));
        steps(db, 60);
    }
}

fn steps(db: &Database, most: u64) {
    for _ in 0..most {
        if !matches!(db.step(), Ok(true)) {
            return;
        }
    }
}

/// What is wrong with an image: it must open, have all rows, lose no object, keep none that it does
/// not need, and go on.
fn check(image: &Image, bug: Option<Failpoint>) -> Option<String> {
    let Image { moment, machine, server, rows } = image;
    let wrong = |what: String| Some(format!("{moment}: {what}"));
    let db = match options(machine, server, bug).open(PATH) {
        Ok(db) => db,
        Err(error) => return wrong(error.to_string()),
    };
    let table = db.table("t").unwrap();
    let damages = db.verify().unwrap().damages;
    if !damages.is_empty() {
        return wrong(format!("{damages:?}"));
    }
    let differ = |expected: &Rows| match table.range(..).collect::<Result<Vec<_>>>() {
        Ok(found) => {
            let found = found.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
            (found.collect::<Rows>() != *expected).then(|| "other rows".to_string())
        }
        Err(error) => Some(error.to_string()),
    };
    if let Some(what) = differ(rows) {
        return wrong(what);
    }
    let newer = fill_with(&table, 0..40, 77, Durability::Durable);
    if let Err(error) = db.compact_range(&table, ..) {
        return wrong(format!("it does not go on: {error}"));
    }
    steps(&db, 200);
    let mut expected = rows.clone();
    expected.extend(newer);
    if let Some(what) = differ(&expected) {
        return wrong(format!("after a compaction: {what}"));
    }
    let found = db.collect_objects().unwrap();
    let named = db.stats().objects.unwrap().objects;
    if !found.lost.is_empty() || extents(server).len() as u64 != named {
        return wrong(format!("{named} objects are named, there are {:?}", extents(server)));
    }
    None
}

/// The course of one machine, with faults on some requests: its requests, and what is wrong with an
/// image of it or with what it has in the end. `each` says which images are looked at.
fn course(
    bug: Option<Failpoint>,
    faults: &[(u64, StoreFault)],
    each: usize,
) -> (u64, Option<String>) {
    let (machine, server) = (Machine::with_files(), ObjectServer::new());
    let rows = Arc::new(Mutex::new(Rows::new()));
    faults.iter().for_each(|(at, fault)| server.plan(*at, *fault));
    let (db, table) = made(&machine, &server, bug);
    let images = watch(&machine, &server, &rows);
    work(&db, &table, &rows, 0);
    server.watch(None);
    let requests = server.requests();
    server.forget_plans();
    server.deliver();
    let (machine, last) = (machine.crash(Survive::Nothing), server.copy());
    let rows = rows.lock().clone();
    let end = Image { moment: "at the end".to_string(), machine, server: last, rows };
    let images = std::mem::take(&mut *images.lock());
    let looked_at = images.iter().step_by(each).chain([&end]);
    let wrong = looked_at.into_iter().find_map(|image| check(image, bug));
    (requests, wrong.map(|wrong| format!("{bug:?}, {faults:?}: {wrong}")))
}

const FAULTS: [StoreFault; 9] = [
    StoreFault::LoseRequest,
    StoreFault::LoseAnswer,
    StoreFault::Delay(1),
    StoreFault::Delay(5),
    StoreFault::Repeat(2),
    StoreFault::Throttle,
    StoreFault::Refuse,
    StoreFault::Shorten,
    StoreFault::Stale(4),
];

#[test]
fn nothing_is_lost_or_left_by_a_cut_before_and_after_each_request() {
    let _turn = alone();
    let (requests, wrong) = course(None, &[], 1);
    assert_eq!(wrong, None);
    assert!(requests > 10, "{requests}");
}

#[test]
fn nothing_is_lost_or_left_whatever_becomes_of_a_request() {
    let _turn = alone();
    let (requests, _) = course(None, &[], usize::MAX);
    let step = rounds(5, 1) as usize;
    for at in (1..=requests).step_by(step) {
        for (n, fault) in FAULTS.into_iter().enumerate() {
            let (_, wrong) = course(None, &[(at, fault)], 7 + n);
            assert_eq!(wrong, None);
        }
    }
}

/// Uploads, deletions and the fence fail one after the other, and some of them arrive late. The
/// power is cut meanwhile. The next opening collects what is left.
#[test]
fn nothing_is_lost_or_left_by_a_cut_while_the_store_is_away() {
    let _turn = alone();
    let (requests, _) = course(None, &[], usize::MAX);
    let step = rounds(11, 2) as usize;
    for at in (1..=requests).step_by(step) {
        for fault in [StoreFault::LoseRequest, StoreFault::LoseAnswer, StoreFault::Delay(4)] {
            let away = [(at, fault), (at + 1, fault), (at + 2, fault)];
            assert_eq!(course(None, &away, 5).1, None);
        }
    }
}

#[test]
fn planted_bugs_are_found() {
    let _turn = alone();
    let tried = std::cell::Cell::new(0);
    let try_with = |bug, faults: &[(u64, StoreFault)]| {
        tried.set(tried.get() + 1);
        course(Some(bug), faults, 1)
    };
    let find = |bug: Failpoint| {
        let (requests, wrong) = try_with(bug, &[]);
        let with = |fault| (1..=requests).find_map(|at| try_with(bug, &[(at, fault)]).1);
        wrong.or_else(|| with(StoreFault::LoseRequest)).or_else(|| with(StoreFault::Delay(3)))
    };
    for bug in [Failpoint::EditBeforeAcknowledgement, Failpoint::DeleteBeforeEdit] {
        tried.set(0);
        assert!(find(bug).is_some(), "{bug:?} was not found");
        assert!(tried.get() <= 5, "{bug:?} took {} courses", tried.get());
    }
}

/// A copy of a machine takes the store over; what the first one does then.
fn takeover(bug: Option<Failpoint>) -> Option<String> {
    let (machine, server) = (Machine::with_files(), ObjectServer::new());
    let rows = Mutex::new(Rows::new());
    let (db, table) = made(&machine, &server, bug);
    work(&db, &table, &rows, 0);
    // Of what it has no object is replaced by the second one, so no read tells of that.
    let own = db.create_table("own", COLD).unwrap();
    let copy = machine.crash(Survive::Everything);
    let second = options(&copy, &server, None).open(PATH).unwrap();
    let other = second.table("t").unwrap();
    work(&second, &other, &rows, 2);
    fill_with(&own, 0..120, 4, Durability::Durable);
    let outcome = db.compact_range(&own, ..);
    match outcome {
        Err(error) if error.kind() == ErrorKind::Fenced => {}
        other => return Some(format!("the first one went on: {other:?}")),
    }
    drop((db, table));
    (read_all(&other) != *rows.lock()).then(|| "other rows".to_string())
}

#[test]
fn a_machine_that_was_taken_over_makes_no_edit() {
    let _turn = alone();
    assert_eq!(takeover(None), None);
    assert!(takeover(Some(Failpoint::SkipFenceCheck)).is_some(), "the planted bug was not found");
}
