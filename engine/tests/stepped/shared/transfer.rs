//! Data of checkpoints on its way to the store and back: requests that fail, stores that are far.

use super::nodes::again;
use super::{Content, content, key, settle, taken_over, writer_options};
use crate::common::alone;
use crate::common::cuts::PATH;
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
