//! What the directory of a writer that was taken over has, and the shared store lacks.

use std::collections::BTreeMap;

use super::{
    WORK, content, key, make_tables, of_machine, settle, taken_over, value, work, writer,
    writer_options,
};
use crate::common::cuts::PATH;
use crate::common::{Chance, alone};
use terrace::testing::{Machine, Survive};
use terrace::{
    Database, Durability, ErrorKind, ObjectServer, Result, UnshippedChange, UnshippedReport,
    WriteBatch,
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
        UnshippedChange::Put(table, key, value) => return to.table(table)?.put(key, value),
        UnshippedChange::Delete(table, key) => return to.table(table)?.delete(key),
        UnshippedChange::DeleteRange(table, from, Some(end)) => {
            batch.delete_range(&to.table(table)?, from..end);
        }
        UnshippedChange::DeleteRange(table, from, None) => {
            batch.delete_range(&to.table(table)?, from..);
        }
        UnshippedChange::Merge(table, key, operands) => {
            let table = to.table(table)?;
            return operands.into_iter().try_for_each(|operand| table.merge(key, operand));
        }
        UnshippedChange::Blob(blob) => drop(batch.set_blob(blob)),
        UnshippedChange::Table(name) => return to.table(name).map(drop),
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
/// tells them, and with them the other one has the same rows.
#[test]
fn a_fenced_directory_tells_what_the_store_lacks() {
    let _turn = alone();
    for seed in 0..40 {
        let (mut chance, server) = (Chance::new(seed), ObjectServer::new());
        let machine = Machine::with_files();
        let db = writer(&machine, &server);
        make_tables(&db, &|| ());
        work(&db, 1);
        settle(|| db.step());
        let taken = taken_over(&server);
        let shipped = db.stats().share.unwrap().shipped;
        // A drop would leave a table there that is none here.
        for n in 0..6 {
            let step = WORK[chance.below(WORK.len() as u64) as usize];
            drop(step(&db, 30 + seed * 10 + n, &|| ()));
        }
        db.existing_table("t").unwrap().put("last", value(seed, 9)).unwrap();
        drop(db);
        let cut = machine.crash(Survive::Everything);
        let error = writer_options(&cut, &server, None).open(PATH).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        let old = of_machine(&cut, None).open_read_only(PATH).unwrap();
        let report = carry_out(&old, server.url(), &taken);
        assert_eq!((report.shipped, report.commits > 0), (shipped, true), "{report:?}");
        let names = old.table_names();
        assert_eq!(rows(&taken, &names), rows(&old, &names), "seed {seed}: {report:?}");
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
    assert_eq!((report.commits, report.partial, report.changes), (0, 0, 0), "{report:?}");
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
