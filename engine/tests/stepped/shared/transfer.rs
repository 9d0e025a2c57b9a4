//! Data of checkpoints on its way to the store and back: requests that fail, stores that are far.

use super::nodes::again;
use super::{Content, content, key, settle, taken_over, writer_options};
use crate::common::cuts::PATH;
use crate::common::{Chance, alone};
use terrace::testing::Machine;
use terrace::{Database, Durability, Existing, ObjectServer, StoreFault, TableOptions};

/// Rows in several extents, some with values apart, and a transaction whose rows are spilled.
fn fill(db: &Database) {
    let apart = TableOptions::new().large_values(1 << 10);
    for name in ["a", "b", "c"] {
        let table = match db.existing_table(name) {
            Ok(table) => table,
            Err(_) => db.create_table(name, apart).unwrap(),
        };
        let mut load = table.bulk_load_with(Existing::Replace).unwrap();
        for n in 0..60 {
            let len = if n % 3 == 0 { 3000 } else { 90 };
            load.put(key(n), vec![n as u8; len]).unwrap();
        }
        load.finish().unwrap();
    }
    db.table("prepared").unwrap();
    super::prepare(db, "open", 1, Durability::Durable).unwrap();
}

/// A request of a checkpoint fails for good. The next checkpoint sends again what the store may
/// lack, with the extents that refer to it. A takeover finds all data.
#[test]
fn a_checkpoint_that_failed_is_sent_again_with_all_that_the_store_lacks() {
    let _turn = alone();
    let mut failed = 0;
    for at in 1.. {
        let server = ObjectServer::new();
        let db = writer_options(&Machine::with_files(), &server, None).open(PATH).unwrap();
        settle(|| db.step());
        fill(&db);
        super::force_checkpoint(&db);
        let before = server.requests();
        server.plan(before + at, StoreFault::Refuse);
        settle(|| again(|| db.step()).map_err(|error| panic!("{error}")));
        let took = server.requests() - before;
        if took < at {
            break;
        }
        failed += u64::from(server.asked("").puts > 0);
        server.forget_plans();
        let second = taken_over(&server);
        let expected: Content = content(&db).unwrap();
        assert_eq!(content(&second).unwrap(), expected, "request {at} failed");
        assert_eq!(second.verify().unwrap().damages, [], "request {at} failed");
    }
    assert!(failed > 8, "{failed} requests");
}

/// Bug: commits waited for the shared store until all data of a checkpoint was sent. Cause: the
/// shipper sent all of it in one step, after the checkpoint had its LSN. Fix: the extents of levels
/// go out before, a few at a time, with segments between.
#[test]
fn segments_go_on_while_the_extents_of_a_checkpoint_are_sent() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer_options(&Machine::with_files(), &server, None).open(PATH).unwrap();
    let small = db.table("small").unwrap();
    settle(|| db.step());
    for n in 0..20 {
        let mut load = db.table(&format!("many {n}")).unwrap().bulk_load().unwrap();
        let value = |row| Chance::new(n << 8 | row).bytes(1000);
        (0..20).for_each(|row| load.put(key(row), value(row)).unwrap());
        load.finish().unwrap();
    }
    let checkpoints = || db.stats().share.unwrap().checkpoints;
    let count = |prefix: &str| server.names().iter().filter(|it| it.starts_with(prefix)).count();
    let (first, mut between) = (checkpoints(), 0);
    for n in 0..1000 {
        if checkpoints() > first {
            break;
        }
        small.put(key(n), key(n)).unwrap();
        let (pieces, entries) = (count("shared/extents/"), count("shared/log/"));
        db.step().unwrap();
        if count("shared/extents/") > pieces && count("shared/log/") > entries {
            between += 1;
        }
    }
    assert!(checkpoints() > first, "the checkpoint was made");
    assert!(between > 8, "{between} segments between pieces");
    settle(|| db.step());
    let second = taken_over(&server);
    assert_eq!(content(&second).unwrap(), content(&db).unwrap());
    assert_eq!(second.verify().unwrap().damages, []);
}
