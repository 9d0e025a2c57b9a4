//! What handles do while other threads change the table below them.

#![cfg(not(feature = "loom"))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread::Scope;
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::{Options, TableOptions};
use crate::commit::{Step, stop_at};
use crate::engine::Database;
use crate::mvcc::HandClock;
use crate::table::{Range, Table};
use terrace_testkit::Machine;

/// How long something that must not happen is given to happen.
const A_WHILE: Duration = Duration::from_millis(50);

type Rows = Vec<Result<(bytes::Bytes, bytes::Bytes)>>;

fn database(machine: &Machine) -> (Database, Table) {
    let db = Options::new().pm_size(4 << 20).stepped().machine(machine).create("/db").unwrap();
    let table = db.table("t").unwrap();
    (0..100u8).for_each(|n| table.put([n], [n]).unwrap());
    (db, table)
}

/// Runs `read` on a thread of its own while the table is truncated and the truncation waits for a
/// sync: what it returns, and that it waited.
fn read_while_truncated<T: Send>(read: impl FnOnce(&Table) -> T + Send) -> T {
    let machine = Machine::with_files();
    let (db, table) = database(&machine);
    std::thread::scope(|scope: &Scope<'_, '_>| {
        let held = machine.hold_syncs("region");
        let truncates = scope.spawn(|| db.truncate_table("t"));
        assert!(held.wait(), "the truncation is under way");
        let (done, result) = mpsc::channel();
        let table = &table;
        scope.spawn(move || done.send(read(table)).unwrap());
        let early = result.recv_timeout(A_WHILE);
        drop(held);
        truncates.join().unwrap().unwrap();
        assert!(early.is_err(), "it waits for the table that comes next");
        result.recv().unwrap()
    })
}

/// Bug: `Table::get` said that the table was dropped while it was truncated. Cause: it read the
/// table of one moment, and did not look for the next one. Fix: it goes the way of `multi_get`.
#[test]
fn a_get_during_a_truncation_goes_to_the_next_table() {
    assert_eq!(read_while_truncated(|table| table.get([1])).unwrap(), None);
    let values = read_while_truncated(|table| table.multi_get([[1], [2]])).unwrap();
    assert_eq!(values, [None, None]);
}

/// Bug and cause as above, of a new range. Fix: a range of which nothing was read goes on with the
/// next table.
#[test]
fn a_new_range_during_a_truncation_goes_to_the_next_table() {
    let rows: Rows = read_while_truncated(|table| table.iter().collect());
    assert!(rows.is_empty(), "{rows:?}");
    let rows: Rows = read_while_truncated(|table| table.range([3]..).rev().collect());
    assert!(rows.is_empty(), "{rows:?}");
}

/// A range that has begun is of one moment, which is gone: it says so.
#[test]
fn a_range_that_has_begun_says_that_the_table_was_truncated() {
    let (db, table) = database(&Machine::with_files());
    let snapshot = db.snapshot().unwrap();
    let mut begun = [table.iter(), snapshot.range(&table, ..)];
    let mut at_end = table.iter();
    begun.iter_mut().for_each(|range| drop(range.next().unwrap().unwrap()));
    at_end.next_back().unwrap().unwrap();
    let unused = snapshot.range(&table, ..);
    db.truncate_table("t").unwrap();
    let fails = |range: Range| {
        let error = range.filter_map(Result::err).next().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("truncated since"), "{error}");
    };
    begun.into_iter().chain([at_end, unused]).for_each(fails);
}

#[test]
fn a_dropped_table_stays_dropped() {
    let (db, table) = database(&Machine::with_files());
    let mut range = table.iter();
    db.drop_table("t").unwrap();
    for error in [table.get([1]).unwrap_err(), range.next().unwrap().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::MissingTable);
        assert!(error.to_string().contains("was dropped"), "{error}");
    }
}

/// Bug: a range of which nothing was read showed rows that were written after a truncation, and
/// later ones than its moment. Cause: until its first read it followed its handle to whatever
/// table stood there. Fix: it does so only where the truncation was under way when it was made.
#[test]
fn a_range_from_before_a_truncation_fails_whether_or_not_it_has_begun() {
    let (db, table) = database(&Machine::with_files());
    let ranges = || [table.iter(), table.range([3]..).rev(), table.range(..=[9]).limit(2)];
    let (by_rows, lent, moved) = (ranges(), ranges(), ranges());
    let truncate = || {
        db.truncate_table("t").unwrap();
        table.put([5], "later").unwrap();
    };
    truncate();
    let fails = |error: crate::base::error::Error| {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("truncated since"), "{error}");
    };
    for mut range in by_rows {
        fails(range.next().unwrap().unwrap_err());
        assert!(range.next().is_none() && range.next_back().is_none(), "it has ended");
    }
    for mut range in lent {
        fails(range.next_with(|_, _| ()).unwrap().unwrap_err());
    }
    for mut range in moved {
        range.seek([5]);
        fails(range.next_back_with(|_, _| ()).unwrap().unwrap_err());
    }
    assert_eq!(table.iter().count(), 1, "one that is made afterwards shows what is there");
}

/// Bug: an emptying by name through the handle of a dropped table reached the table that had its
/// name by then. Cause: handles had no such calls of their own. Fix: each call that takes a table
/// takes a handle, which means its own table.
#[test]
fn a_handle_means_its_own_table_whatever_has_its_name() {
    let (db, old) = database(&Machine::with_files());
    db.drop_table(&old).unwrap();
    let new = db.table("t").unwrap();
    new.put([1], [1]).unwrap();
    let ttl = Some(Duration::from_secs(1));
    for gone in [
        db.truncate_table(&old),
        db.drop_table(&old),
        db.rename_table(&old, "other"),
        db.set_ttl(&old, ttl),
        db.table_stats(&old).map(drop),
    ] {
        assert!(gone.unwrap_err().to_string().contains("was dropped"));
    }
    db.rename_table(&new, "renamed").unwrap();
    db.table("t").unwrap().put([2], [2]).unwrap();
    db.truncate_table(&new).unwrap();
    assert_eq!((new.iter().count(), db.table("t").unwrap().iter().count()), (0, 1));
    let (other, _) = database(&Machine::with_files());
    assert_eq!(other.drop_table(&new).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.table_names(), ["renamed", "t"]);
}

/// Bug: of two changes of a table's options at once one was undone. Cause: each read all options,
/// changed some and wrote all. Fix: a change is made again if another one came between.
#[test]
fn a_change_of_options_keeps_one_that_came_between() {
    let (db, table) = database(&Machine::with_files());
    let mut calls = 0;
    let changed = db.change_table_options("t", |options| {
        calls += 1;
        if calls == 1 {
            db.change_table_options(&table, |options| Ok(options.filter_bits(12)))?;
        }
        Ok(options.block_size(64 << 10))
    });
    changed.unwrap();
    let options = table.options();
    assert_eq!((options.block_bytes(), options.filter_bits_per_key(), calls), (64 << 10, 12, 2));
    let refused = db.change_table_options(&table, |_| Err(Error::invalid("no")));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(table.options(), options);
}

/// Bug: options that a program asked for were dropped in silence where the table had others.
/// Cause: they counted for the creation alone. Fix: they are compared, and the error lists both.
#[test]
fn a_table_with_other_options_than_are_asked_for_is_refused_with_both() {
    let (db, table) = database(&Machine::with_files());
    let asked = TableOptions::new().block_size(64 << 10).filter_bits(12);
    let error = db.table_with("t", asked).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let told = error.to_string();
    assert!(told.contains("block_size is 16384, not 65536; filter_bits is 10, not 12;"), "{told}");
    assert!(!told.contains("ttl") && told.contains("set_table_options"), "{told}");
    db.set_table_options(&table, asked).unwrap();
    assert_eq!(db.table_with("t", asked).unwrap().options(), asked);
    assert_eq!(db.table("t").unwrap().options(), asked, "whatever they are");
}

/// Of callers that open or create a table at once, one creates it, and all get it.
#[test]
fn a_table_is_opened_or_created_in_one_step() {
    let (db, _) = database(&Machine::with_files());
    let (options, start) = (TableOptions::new().block_size(64 << 10), Barrier::new(4));
    for round in 0..20 {
        let name = format!("round {round}");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    assert_eq!(db.table_with(&name, options).unwrap().options(), options);
                });
            }
        });
    }
    assert_eq!(db.table_names().len(), 21);
}

/// Bug: a row that was deleted was there again after a kill in `set_ttl`. Cause: up to the edit,
/// jobs went by the clock and the time to live of before, and dropped the delete as expired, while
/// the event's record said that less had. Fix: the call is a reader meanwhile.
#[test]
fn jobs_drop_nothing_that_expires_while_a_time_to_live_is_changed() {
    let (machine, clock) = (Machine::with_files(), HandClock::default());
    let options = Options::new().pm_size(4 << 20).stepped().clock(&clock).machine(&machine);
    let db = options.create("/db").unwrap();
    db.create_table("t", TableOptions::new().ttl(Duration::from_mins(1))).unwrap();
    let (shared, found) = (Arc::clone(&db.inner.shared), Arc::new(AtomicU64::new(0)));
    let oldest = move || shared.snapshots.horizon().oldest_time();
    let (at_begin, told) = (oldest(), Arc::clone(&found));
    stop_at(Step::Finishing, move || {
        clock.pass(Duration::from_hours(1));
        told.store(oldest(), Ordering::Relaxed);
    });
    db.set_ttl("t", None).unwrap();
    assert_eq!(found.load(Ordering::Relaxed), at_begin);
}
