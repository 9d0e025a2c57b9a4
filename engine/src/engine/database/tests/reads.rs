//! What long reads hold, and what they read.

#![cfg(not(feature = "loom"))]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::base::error::Result;
use crate::base::options::Options;
use crate::engine::Database;
use crate::table::{ReadTables, Table};
use terrace_testkit::Machine;

/// A key that runs code when a call looks at it.
struct Watched<'a> {
    key: [u8; 4],
    seen: &'a dyn Fn(u32),
}

impl AsRef<[u8]> for Watched<'_> {
    fn as_ref(&self) -> &[u8] {
        (self.seen)(u32::from_be_bytes(self.key));
        &self.key
    }
}

const KEYS: u32 = 10_000;

fn database(options: Options) -> (Database, Table) {
    let db = options.stepped().machine(&Machine::with_files()).create("/db").unwrap();
    let table = db.table("t").unwrap();
    (0..KEYS).step_by(7).for_each(|n| table.put(n.to_be_bytes(), "old").unwrap());
    (db, table)
}

/// Reads all keys in one call. At the first key the table changes, and work is deferred. Whether
/// that work ran before the call had seen the last key.
fn goes_on_beside<F>(db: &Database, table: &Table, get: F) -> bool
where
    F: for<'a> Fn(Vec<Watched<'a>>) -> Result<Vec<Option<Bytes>>>,
{
    let queue = &db.inner.shared.queue;
    let (ran, at_end, begun) =
        (Arc::new(AtomicBool::new(false)), Cell::new(false), Cell::new(false));
    let seen = |n: u32| {
        if n == 0 && !begun.replace(true) {
            let ran = Arc::clone(&ran);
            queue.defer(move || ran.store(true, Ordering::Relaxed));
            let put = || table.put((KEYS - 1).to_be_bytes(), "new").unwrap();
            std::thread::scope(|scope| drop(scope.spawn(put)));
        }
        if n.is_multiple_of(100) {
            queue.drive();
        }
        if n == KEYS - 1 {
            at_end.set(ran.load(Ordering::Relaxed));
        }
    };
    let watched = |n: u32| Watched { key: n.to_be_bytes(), seen: &seen };
    let values = get((0..KEYS).map(watched).collect()).unwrap();
    for (n, value) in (0..KEYS - 1).zip(&values) {
        assert_eq!(value.as_deref(), (n % 7 == 0).then_some(&b"old"[..]), "{n}");
    }
    let last = values.last().unwrap().as_deref();
    assert_eq!(last, None, "all keys are read as of one moment, before the change");
    table.delete((KEYS - 1).to_be_bytes()).unwrap();
    at_end.get()
}

/// Bug: one `multi_get` of many keys held back space in every database of the process until it had
/// read the last one. Cause: it pinned one epoch over all of them. Fix: it registers a snapshot,
/// and pins anew each few keys; what it reads is of one moment as before.
#[test]
fn a_long_multi_get_pins_anew_each_few_keys_and_reads_one_moment() {
    for options in [Options::new(), Options::new().cache_size(1 << 20)] {
        let (db, table) = database(options.pm_size(4 << 20));
        // Other tests of the process may have an epoch pinned for a while.
        let now = || goes_on_beside(&db, &table, |keys| table.multi_get(keys));
        assert!((0..50).any(|_| now()), "Table::multi_get");
        let database = || goes_on_beside(&db, &table, |keys| db.multi_get(&table, keys));
        assert!((0..50).any(|_| database()), "Database::multi_get");
        let of_snapshot = || {
            let snapshot = db.snapshot().unwrap();
            goes_on_beside(&db, &table, |keys| snapshot.multi_get(&table, keys))
        };
        assert!((0..50).any(|_| of_snapshot()), "Snapshot::multi_get");
        let of_transaction = || {
            let txn = db.begin().unwrap();
            goes_on_beside(&db, &table, |keys| txn.multi_get(&table, keys))
        };
        assert!((0..50).any(|_| of_transaction()), "Transaction::multi_get");
    }
}
