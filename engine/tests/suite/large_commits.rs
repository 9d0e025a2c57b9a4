//! The power is cut in the middle of a large commit, at each sync and fence of it, and after it.
//! The opening reads a record for each run, not for each row; what is not committed keeps no space.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use crate::common::cuts::{KINDS, Kind, PATH, options};
use terrace::testing::{Machine, Survive};
use terrace::{Database, Transaction, TxnOptions};

const BEFORE: u32 = 10;
const ROWS: u32 = 500;

/// Records of the rows before, of tables, of the commit itself: few beside the rows of it.
const FEW: u64 = 40;

/// A database with some rows and a transaction that has spilled most of many.
fn made(machine: &Machine) -> (Database, Transaction) {
    let db = options(machine, None).open(PATH).unwrap();
    let tables = [db.table("a").unwrap(), db.table("b").unwrap()];
    for n in 0..BEFORE {
        tables[0].put([&[0xff][..], &n.to_be_bytes()].concat(), "before").unwrap();
    }
    let txn = db.begin_with(TxnOptions::new().spill_at(8000)).unwrap();
    for n in 0..ROWS {
        let key = n.wrapping_mul(0x9E37_79B9).to_be_bytes();
        txn.put(&tables[n as usize % 2], key, [n as u8; 100]).unwrap();
    }
    (db, txn)
}

/// What an opening finds: whether the commit is there, with few records read, and no space taken if
/// it is not.
fn is_there(found: &Machine, what: &str) -> bool {
    let db = options(found, None).open(PATH).unwrap_or_else(|e| panic!("{what}: {e}"));
    let stats = db.stats();
    let open = &stats.open;
    assert!(open.records_rebuilt <= FEW && open.records_read <= FEW, "{what}: {open:?}");
    let rows = ["a", "b"].map(|name| db.existing_table(name).unwrap().iter().count() as u32);
    let there = rows == [BEFORE + ROWS / 2, ROWS / 2];
    assert!(there || rows == [BEFORE, 0], "{what}: {rows:?} rows");
    assert_eq!(stats.disk.extent_bytes > 0, there, "{what}: {:?}", stats.disk);
    let runs = stats.tables.iter().map(|table| table.spilled_runs).sum::<u64>();
    assert_eq!(runs, if there { 2 } else { 0 }, "{what}");
    // It goes on: what is not there is not in the way, what is gets to its place.
    while db.step().unwrap() {}
    let runs = db.stats().tables.iter().map(|table| table.spilled_runs).sum::<u64>();
    assert_eq!(runs, 0, "{what}");
    let after = ["a", "b"].map(|name| db.existing_table(name).unwrap().iter().count() as u32);
    assert_eq!(after, rows, "{what}");
    assert!(db.verify().unwrap().damages.is_empty(), "{what}");
    there
}

fn cut_everywhere(kind: Kind, survive: impl Fn(u64) -> Survive) -> (u32, u32) {
    let (mut there, mut not_there) = (0, 0);
    for n in 1.. {
        let machine = kind.machine();
        let (db, txn) = made(&machine);
        machine.cut_before(n, survive(n));
        txn.commit().unwrap();
        let found = machine.found();
        let after = machine.crash(Survive::Nothing);
        drop(db);
        assert!(is_there(&after, &format!("{kind:?}, after the commit")), "it was acknowledged");
        let Some(found) = found else { return (there, not_there) };
        match is_there(&found, &format!("{kind:?}, before sync or fence {n}")) {
            true => there += 1,
            false => not_there += 1,
        }
    }
    unreachable!("a commit has an end")
}

#[test]
fn an_opening_after_a_cut_in_a_large_commit_reads_little_and_gives_all_space_back() {
    for kind in KINDS {
        let (there, not_there) = cut_everywhere(kind, |_| Survive::Nothing);
        assert!(there > 0 && not_there > 2, "{kind:?}: {there} and {not_there}");
        cut_everywhere(kind, Survive::Seeded);
    }
}

/// So it does after a transaction that had not come to its commit.
#[test]
fn a_cut_before_the_commit_leaves_nothing() {
    for kind in KINDS {
        let machine = kind.machine();
        let (db, txn) = made(&machine);
        let found = [machine.crash(Survive::Nothing), machine.kill()];
        drop((txn, db));
        for found in &found {
            assert!(!is_there(found, &format!("{kind:?}, before the commit")));
        }
    }
}
