//! What the directory of a writer that was taken over has, and the shared store lacks.

use std::collections::BTreeMap;

use super::{
    WORK, content, key, make_tables, of_machine, settle, taken_over, value, work, writer,
    writer_options,
};
use crate::common::cuts::PATH;
use crate::common::{Chance, alone, rounds};
use terrace::testing::{Machine, Survive};
use terrace::{
    Database, Durability, Error, ErrorKind, ObjectServer, Result, TableOptions, TxnOptions,
    UnshippedChange, UnshippedReport, WriteBatch,
};

/// What a directory has alone, by its tables' changes, carried out on another database.
fn carry_out(old: &Database, url: &str, to: &Database) -> UnshippedReport {
    let mut last = 0;
    old.unshipped(url, |lsn, change| {
        assert!(lsn >= last, "commits come in their order");
        last = lsn;
        carry_out_one(change, to).unwrap();
        Ok(())
    })
    .unwrap()
}

fn carry_out_one(change: UnshippedChange<'_>, to: &Database) -> Result<()> {
    let mut batch = WriteBatch::new();
    match change {
        UnshippedChange::Put { table, key, value } => return to.table(table)?.put(key, value),
        UnshippedChange::Delete { table, key } => return to.table(table)?.delete(key),
        UnshippedChange::DeleteRange { table, from, end: Some(end) } => {
            batch.delete_range(&to.table(table)?, from..end);
        }
        UnshippedChange::DeleteRange { table, from, end: None } => {
            batch.delete_range(&to.table(table)?, from..);
        }
        UnshippedChange::Merge { table, key, operands } => {
            let table = to.table(table)?;
            return operands.into_iter().try_for_each(|operand| table.merge(key, operand));
        }
        UnshippedChange::Blob(blob) => drop(batch.set_blob(blob)),
        UnshippedChange::Table { name, options } => {
            return to.create_table(name, options).map(drop);
        }
        UnshippedChange::Rename { from, to: name } => return to.rename_table(from, name),
        UnshippedChange::Drop(name) => return to.drop_table(name),
        UnshippedChange::Truncate(name) => return to.truncate_table(name),
        other => panic!("{other:?}"),
    }
    to.write(batch)
}

/// Tables by name, without options, prepared ones, and tables that went here.
fn rows(db: &Database, names: &[String]) -> BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut content = content(db).unwrap();
    content.retain(|name, _| name == "(blob)" || names.contains(name));
    content
}

/// A writer is taken over while it has commits of every kind that the store lacks. Its directory
/// tells them, and with them the other one has the same rows. Every other time by streams of
/// tables, where a commit has parts in several. Bug: of a large commit with parts in two streams
/// the rows were left out. Cause: each part was asked by itself whether it has rows in extents.
/// Fix: the group is.
#[test]
fn a_fenced_directory_tells_what_the_store_lacks() {
    let _turn = alone();
    for seed in 0..rounds(40, 400) {
        let (mut chance, server) = (Chance::new(seed), ObjectServer::new());
        let machine = if seed % 2 == 0 { Machine::with_files() } else { Machine::with_memory() };
        let db = writer(&machine, &server);
        make_tables(&db, &|| ());
        work(&db, 1);
        settle(|| db.step());
        let taken = taken_over(&server);
        let shipped = db.stats().share.unwrap().shipped;
        for n in 0..6 {
            let step = WORK[chance.below(WORK.len() as u64) as usize];
            drop(step(&db, 30 + seed * 10 + n, &|| ()));
        }
        large(&db, seed);
        db.existing_table("t").unwrap().put("last", value(seed, 9)).unwrap();
        drop(db);
        let cut = machine.crash(Survive::Everything);
        let error = writer_options(&cut, &server, None).open(PATH).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        let old = of_machine(&cut, None).open_read_only(PATH).unwrap();
        let report = carry_out(&old, server.url(), &taken);
        assert_eq!((report.shipped, report.has_let_go), (shipped, false), "{report:?}");
        assert!(report.commits > 0, "{report:?}");
        let names = old.table_names();
        assert_eq!(rows(&taken, &names), rows(&old, &names), "seed {seed}: {report:?}");
    }
}

/// A transaction that fits in no zone, with a range delete beside its rows.
fn large(db: &Database, seed: u64) {
    let table = db.existing_table("both").unwrap();
    let txn = db.begin_with(TxnOptions::new().spill_at(2 << 10)).unwrap();
    txn.delete_range(&table, key(0)..key(500)).unwrap();
    (0..40).for_each(|n| txn.put(&table, key(n * 3), value(n, seed)).unwrap());
    txn.commit().unwrap();
}

/// Bug: a directory that took over, and was taken over itself before its first entry, told commits
/// that it had from the store. Cause: a reader gives commits numbers of its own, ahead of the
/// log's. Fix: the directory knows from which number on its commits are its own.
#[test]
fn what_a_takeover_had_from_the_store_is_not_told() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer(&machine, &server);
    make_tables(&db, &|| ());
    settle(|| db.step());
    let table = db.existing_table("t").unwrap();
    (0..20).for_each(|n| table.durability(Durability::Remote).put(key(n), "remote").unwrap());
    let second = Machine::with_files();
    let taken = of_machine(&second, None).open_shared(server.url(), PATH).unwrap();
    taken.existing_table("t").unwrap().put("own", "row").unwrap();
    drop(taken_over(&server));
    drop(taken);
    let old = of_machine(&second, None).open_read_only(PATH).unwrap();
    let mut told = Vec::new();
    old.unshipped(server.url(), |_, change| {
        told.push(format!("{change:?}"));
        Ok(())
    })
    .unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("Put { table: \"t\""), "{told:?}");
}

/// Bug: who put back what a directory tells dropped tables of the store, or lacked some. Causes: a
/// rename was told without the name before, a drop not at all, a table that was truncated behind
/// its making not as made, and rows with the last name of their table. Fix: events have the names
/// before, and all is told by the names of its commit.
#[test]
fn what_became_of_tables_is_told_in_order() {
    let _turn = alone();
    for seed in 0..rounds(60, 600) {
        let (mut chance, server) = (Chance::new(seed), ObjectServer::new());
        let machine = Machine::with_files();
        let db = writer(&machine, &server);
        for name in ["a", "b", "c"] {
            db.table(name).unwrap().put(name, "shipped").unwrap();
        }
        settle(|| db.step());
        let taken = taken_over(&server);
        for n in 0..8 {
            let names = db.table_names();
            let name = &names[chance.below(names.len() as u64) as usize];
            let other = ["a", "b", "c", "d"][chance.below(4) as usize];
            let done = match chance.below(5) {
                0 => db.rename_table(name, other),
                1 if names.len() > 1 => db.drop_table(name),
                2 => db.truncate_table(name),
                3 => db.create_table(other, TableOptions::new()).map(drop),
                _ => db.table(name).unwrap().put(key(n), value(n, seed)),
            };
            let is_there = |error: &Error| error.kind() == ErrorKind::Exists;
            assert!(done.as_ref().err().is_none_or(is_there), "seed {seed}: {done:?}");
        }
        drop(db);
        let cut = machine.crash(Survive::Everything);
        let old = of_machine(&cut, None).open_read_only(PATH).unwrap();
        carry_out(&old, server.url(), &taken);
        assert_eq!(content(&taken).unwrap(), content(&old).unwrap(), "seed {seed}");
    }
}

/// A directory that the store has all of, and one that never shared, have nothing to tell.
#[test]
fn a_directory_that_lacks_nothing_tells_nothing() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer(&machine, &server);
    db.table("t").unwrap().durability(Durability::Remote).put(key(1), "shipped").unwrap();
    db.close().unwrap();
    let old = of_machine(&machine, None).open_read_only(PATH).unwrap();
    let report = old.unshipped(server.url(), |_, change| panic!("{change:?}")).unwrap();
    assert_eq!((report.commits, report.changes, report.has_let_go), (0, 0, false), "{report:?}");
    assert_eq!(report.shipped, report.last, "{report:?}");
    // Of a store that it never wrote to.
    let other = ObjectServer::new();
    // Claims on simulated stores are numbered, and this takes the first number.
    assert!(of_machine(&machine, None).shared_status(other.url()).is_err());
    drop(writer(&Machine::with_files(), &other));
    let error = old.unshipped(other.url(), |_, _| Ok(())).unwrap_err();
    assert!(error.to_string().contains("no claim of the directory"), "{error}");
    drop(old);
    let open = of_machine(&machine, None).open(PATH).unwrap();
    let error = open.unshipped(server.url(), |_, _| Ok(())).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}
