//! A sync fails under a commit, whichever way it is asked for and whichever of its syncs it is.
//! Where that comes after the ticket the outcome is unknown and the error says so; before it
//! nothing was done. After an opening the transaction is whole, or it is not there.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;

use crate::common::cuts::{KINDS, Kind, PATH, options};
use crate::common::{NOTHING_TO_WRITE, has_read};
use terrace::testing::{Machine, Survive};
use terrace::{Database, Durability, Error, ErrorKind, Isolation, Transaction, TxnOptions};

const ROWS: u32 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Commit,
    Enqueue,
    CommitPrepared,
    CommitSpilled,
    EnqueueSpilled,
    CommitSpilledPrepared,
}

const WAYS: [Way; 6] = [
    Way::Commit,
    Way::Enqueue,
    Way::CommitPrepared,
    Way::CommitSpilled,
    Way::EnqueueSpilled,
    Way::CommitSpilledPrepared,
];

impl Way {
    fn spills(self) -> bool {
        matches!(self, Way::CommitSpilled | Way::EnqueueSpilled | Way::CommitSpilledPrepared)
    }

    fn is_prepared(self) -> bool {
        matches!(self, Way::CommitPrepared | Way::CommitSpilledPrepared)
    }

    /// Commits, and waits until that is durable.
    fn end(self, db: &Database, txn: Option<Transaction>) -> Result<(), Error> {
        match (self, txn) {
            (Way::Enqueue | Way::EnqueueSpilled, Some(txn)) => txn.enqueue()?.wait(),
            (_, Some(txn)) => txn.commit(),
            (_, None) => db.commit_prepared("large"),
        }
    }
}

/// Rows in two tables, all of them changed and as many again put by a transaction that is about to
/// be committed.
fn made(machine: &Machine, way: Way) -> (Database, Option<Transaction>) {
    let db = options(machine, None).open(PATH).unwrap();
    let tables = [db.table("a").unwrap(), db.table("b").unwrap()];
    for n in 0..ROWS {
        tables[n as usize % 2].put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    let spill_at = if way.spills() { 2000 } else { 1 << 20 };
    let txn = db.begin_with(TxnOptions::new().spill_at(spill_at)).unwrap();
    for n in 0..2 * ROWS {
        txn.put(&tables[n as usize % 2], n.to_be_bytes(), [2; 100]).unwrap();
    }
    assert_eq!(db.transactions()[0].spilled > 0, way.spills());
    if way.is_prepared() {
        txn.prepare("large").unwrap();
        return (db, None);
    }
    (db, Some(txn))
}

/// Whether all that the transaction wrote is there; a part of it never is.
fn is_whole(db: &Database) -> bool {
    let rows = |name: &str| {
        let rows = db.existing_table(name).unwrap().iter().map(|row| row.unwrap());
        rows.map(|(key, value)| (key.to_vec(), value[0])).collect::<BTreeMap<_, _>>()
    };
    let all = [rows("a"), rows("b")];
    let of = |count: u32, value: u8| {
        [0, 1].map(|table| {
            let mine = (0..count).filter(|n| n % 2 == table);
            mine.map(|n| (n.to_be_bytes().to_vec(), value)).collect::<BTreeMap<_, _>>()
        })
    };
    assert!(all == of(ROWS, 1) || all == of(2 * ROWS, 2), "a part of it is there");
    all == of(2 * ROWS, 2)
}

/// Has the n-th sync fail; how the commit ended.
fn fail_one(kind: Kind, way: Way, n: u64) -> Option<ErrorKind> {
    let machine = kind.machine();
    let (db, txn) = made(&machine, way);
    machine.fail_sync_after(n);
    let end = way.end(&db, txn).map_err(|e| {
        let is_told = e.to_string().contains("simulated I/O error");
        assert!(is_told, "{kind:?}, {way:?}, sync {n}: the cause is named: {e}");
        e.kind()
    });
    let ends = [machine.kill(), machine.crash(Survive::Nothing), machine.crash(Survive::Seeded(n))];
    drop(db);
    for (found, after) in ends.into_iter().zip(["a kill", "a cut", "another cut"]) {
        let what = format!("{kind:?}, {way:?}, sync {n}, after {after}: {end:?}");
        let db = options(&found, None).open(PATH).unwrap_or_else(|e| panic!("{what}: {e}"));
        let whole = is_whole(&db);
        match end {
            Ok(()) => assert!(whole, "{what}: what was acknowledged is missing"),
            Err(ErrorKind::UnknownOutcome) => {}
            Err(ErrorKind::Unavailable) => assert!(!whole, "{what}: it was done"),
            Err(kind) => panic!("{what}: {kind:?}"),
        }
        let open = db.list_prepared().len();
        assert_eq!(open, usize::from(way.is_prepared() && !whole), "{what}");
        if open > 0 {
            db.commit_prepared("large").unwrap();
            assert!(is_whole(&db), "{what}: the verdict can be given again");
        }
        while db.step().unwrap() {}
        assert_eq!(is_whole(&db), whole || open > 0, "{what}: and stays so");
        assert!(db.verify().unwrap().damages.is_empty());
        // Whatever the opening found is durable now: the power goes, and comes back.
        let cut = found.crash(Survive::Nothing);
        drop(db);
        let db = options(&cut, None).open(PATH).unwrap_or_else(|e| panic!("{what}, cut: {e}"));
        assert_eq!(is_whole(&db), whole || open > 0, "{what}, and a cut later");
        assert!(db.verify().unwrap().damages.is_empty());
    }
    end.err()
}

#[test]
fn a_failed_sync_is_an_unknown_outcome_and_the_commit_whole_or_not_there() {
    for (kind, way) in KINDS.into_iter().flat_map(|kind| WAYS.map(|way| (kind, way))) {
        let (mut unknown, mut refused) = (0, 0);
        let mut good = 0;
        for n in 1.. {
            match fail_one(kind, way, n) {
                Some(ErrorKind::UnknownOutcome) => unknown += 1,
                Some(_) => refused += 1,
                None => good += 1,
            }
            // Beyond the last one nothing fails; one after the commit is durable may come before.
            if good > 2 {
                break;
            }
            assert!(n < 60, "{kind:?}, {way:?}");
        }
        match (kind, way.spills()) {
            (Kind::Files, _) => assert!(unknown > 0, "{kind:?}, {way:?}: {unknown}, {refused}"),
            // A commit on persistent memory syncs no file; before its ticket it does if it has
            // spilled, unless that was prepared.
            (_, spills) => {
                let refuses = spills && !way.is_prepared();
                assert_eq!((unknown, refused > 0), (0, refuses), "{kind:?}, {way:?}");
            }
        }
    }
}

#[test]
fn a_sync_of_relaxed_commits_that_fails_is_told_and_stops_the_database() {
    let machine = Kind::Files.machine();
    let db = options(&machine, None).open(PATH).unwrap();
    let table = db.table("t").unwrap();
    table.put("durable", "1").unwrap();
    table.durability(Durability::Relaxed).put("relaxed", "1").unwrap();
    machine.fail_sync_after(0);
    for _ in 0..2 {
        let told = db.sync().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Unavailable);
        assert!(told.to_string().contains("simulated I/O error"), "{told}");
    }
    assert!(table.get("durable").unwrap().is_some());
    assert_eq!(table.get("relaxed").unwrap(), None, "nothing unsynced is served");
    let cut = machine.crash(Survive::Nothing);
    let found = options(&cut, None).open(PATH).unwrap();
    assert!(found.existing_table("t").unwrap().get("durable").unwrap().is_some());
}

/// Bug: after a commit with an unknown outcome the cursors of the transaction said that it was
/// rolled back. Cause: each error of a commit ended the transaction as rolled back. Fix: an unknown
/// outcome is an end of its own.
#[test]
fn a_transaction_with_an_unknown_outcome_does_not_say_that_it_was_rolled_back() {
    for prepares in [false, true] {
        let machine = Kind::Files.machine();
        let (db, txn) = made(&machine, Way::Commit);
        let txn = txn.unwrap();
        let table = db.existing_table("a").unwrap();
        let mut range = txn.range(&table, ..).unwrap();
        machine.fail_sync_after(1);
        let ended = if prepares { txn.prepare("one") } else { txn.commit() };
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::UnknownOutcome);
        let told = range.next().unwrap().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Closed);
        assert!(told.to_string().contains("has an unknown outcome"), "{told}");
        assert!(!told.to_string().contains("rolled back"), "{told}");
    }
}

/// Bug: after a drop or a truncation with an unknown outcome the table was listed, and each call
/// on it said that it was dropped. Cause: the ticket of the event marks the table, and the mark
/// stayed. Fix: reads show what is durable, so the table is as it was. Where the event is durable,
/// and the journal cannot take it, the table is as the event leaves it.
#[test]
fn a_table_is_listed_as_its_calls_find_it_after_an_event_with_an_unknown_outcome() {
    type Change = fn(&Database) -> Result<(), Error>;
    let changes: [(&str, Change); 3] = [
        ("drop", |db| db.drop_table("a")),
        ("truncate", |db| db.truncate_table("a")),
        ("rename", |db| db.rename_table("a", "c")),
    ];
    let rows = |table: &terrace::Table| {
        let rows = table.iter().collect::<Result<Vec<_>, Error>>();
        rows.map(|rows| rows.len()).map_err(|error| error.kind())
    };
    for ((name, change), kind) in changes.iter().flat_map(|change| KINDS.map(|kind| (change, kind)))
    {
        let (mut before, mut after, mut n) = (0, 0, 1);
        loop {
            let machine = kind.machine();
            let (db, txn) = made(&machine, Way::Commit);
            drop(txn);
            let table = db.existing_table("a").unwrap();
            machine.fail_sync_after(n);
            let what = format!("{name}, {kind:?}, sync {n}");
            match change(&db) {
                Ok(()) => break,
                Err(e) => assert_eq!(e.kind(), ErrorKind::UnknownOutcome, "{what}: {e}"),
            }
            let names = db.table_names();
            let listed: Vec<String> = db.stats().tables.into_iter().map(|it| it.name).collect();
            assert_eq!(names, listed, "{what}");
            let found = names.iter().find(|name| ["a", "c"].contains(&name.as_str()));
            let expected = match found {
                Some(found) => rows(&db.existing_table(found).unwrap()),
                None => Err(ErrorKind::MissingTable),
            };
            assert_eq!(rows(&table), expected, "{what}: a handle from before");
            let as_before = expected == Ok(30) && found.is_some_and(|name| name == "a");
            let as_after = match *name {
                "drop" => found.is_none(),
                "truncate" => expected == Ok(0),
                _ => expected == Ok(30) && found.is_some_and(|name| name == "c"),
            };
            assert!(as_before || as_after, "{what}: {found:?} {expected:?}");
            let refused = table.put("more", "rows").unwrap_err().kind();
            assert!(refused == ErrorKind::Unavailable || expected.is_err(), "{what}: {refused:?}");
            for cut in [machine.kill(), machine.crash(Survive::Nothing)] {
                let again = options(&cut, None).open(PATH).unwrap();
                let there = again.existing_table("a").map_err(|error| error.kind());
                let there = there.and_then(|table| rows(&table));
                assert!(as_before || there != Ok(30), "{what}: what was shown is durable");
            }
            (before, after) = (before + u32::from(as_before), after + u32::from(as_after));
            n += 1;
        }
        assert!(kind != Kind::Files || before > 0 && after > 0, "{name}: {before} and {after}");
    }
}

/// Bug: a call that found nothing to write said "durably" of what a power cut took. Cause: it
/// returned what it read without the wait that its durability asks for. Fix: it waits until what it
/// read is as durable.
#[test]
fn what_a_call_without_a_write_answers_for_survives_a_cut() {
    let is_kept = |call: &dyn Fn(&Database, &terrace::Table)| {
        let machine = Kind::Files.machine();
        let db = options(&machine, None).open(PATH).unwrap();
        let (table, _) = (db.table("t").unwrap(), db.table("empty").unwrap());
        // The first lock of a database waits by itself for what was committed before.
        table.take("none").unwrap();
        table.durability(Durability::Relaxed).put("k", "1").unwrap();
        call(&db, &table);
        let found = options(&machine.crash(Survive::Nothing), None).open(PATH).unwrap();
        found.existing_table("t").unwrap().get("k").unwrap().is_some()
    };
    for (n, call) in NOTHING_TO_WRITE.into_iter().enumerate() {
        assert!(is_kept(&|db, table| call(db, table, Durability::Durable).unwrap()), "call {n}");
        let relaxed = |db: &Database, table: &terrace::Table| {
            call(db, &table.durability(Durability::Relaxed), Durability::Relaxed).unwrap();
        };
        assert!(!is_kept(&relaxed), "call {n} waits for more than it is asked for");
    }
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let plain = (isolation, Durability::Durable);
        assert!(!is_kept(&|db, table| has_read(db, table, plain).unwrap().commit().unwrap()));
    }
    let snapshot = (Isolation::Snapshot, Durability::Durable);
    assert!(!is_kept(&|db, table| has_read(db, table, snapshot).unwrap().roll_back()));
}
