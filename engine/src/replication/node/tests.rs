//! Nodes over a store that fails, and what the tests of each part begin with.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

mod directories;
mod follows;
mod inside;
mod logs;
mod promotions;
mod starts;

use std::thread::yield_now;
use std::time::Instant;

use super::super::api::Follower;
use super::*;
use crate::base::options::{Durability, Mode, TableOptions, Tier};
use crate::os::Files;
use crate::replication::log::{Entry, entry_name};
use crate::storage::object_testing::{ObjectServer, StoreFault};
use crate::txn::{Isolation, TxnOptions};
use terrace_testkit::SimFiles;

const PIECES: &str = "shared/extents/";

/// A database with many tables and a checkpoint of them, and one more behind that, which leaps.
fn filled(server: &ObjectServer, dir: &Path) -> Database {
    let options = small().object_store(server.url()).share(true);
    let db = options.open(dir.join("writer")).unwrap();
    replace_all(&db);
    db
}

fn small() -> Options {
    Options::new().pm_size(4 << 20).stepped()
}

/// A node that has come to the end of the log.
fn caught_up(server: &ObjectServer, path: &Path, kind: (&Options, NodeKind)) -> Arc<Node> {
    let node = Node::open(server.url(), path, kind).unwrap();
    while node.step().unwrap() {}
    node
}

/// A standby in `node`, as [`caught_up`].
fn standby(server: &ObjectServer, dir: &Path) -> Arc<Node> {
    caught_up(server, &dir.join("node"), (&small(), NodeKind::Standby))
}

fn replace_all(db: &Database) {
    for n in 0..40 {
        let name = format!("table {n}");
        let table = db.table(&name).unwrap();
        db.truncate_table(&name).unwrap();
        let mut load = table.bulk_load(crate::table::Existing::Refuse).unwrap();
        (0..20).for_each(|row| load.put(format!("{row:03}"), vec![n; 500]).unwrap());
        load.finish().unwrap();
    }
    db.forget_unshipped();
    db.table("last").unwrap().put("a", "b").unwrap();
    while db.step().unwrap() {}
}
