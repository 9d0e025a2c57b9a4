//! Views of read-committed transactions: plain reads of one moment, locking reads of now.

use terrace::{
    Database, Durability, ErrorKind, Isolation, LockWait, Options, Table, TxnOptions, TxnRange,
    WriteBatch,
};

fn database() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Options::new().pm_size(4 << 20).open(dir.path().join("db")).expect("opens");
    let table = db.table("rows").expect("a table");
    (dir, db, table)
}

fn read_committed() -> TxnOptions {
    TxnOptions::new().isolation(Isolation::ReadCommitted).lock_wait(LockWait::NoWait)
}

#[test]
fn plain_reads_see_the_view_and_own_writes_and_locking_reads_the_newest() {
    let (_dir, db, table) = database();
    table.put("a", "1").expect("puts");
    let txn = db.begin_with(read_committed()).expect("begins");
    txn.take_view(None).expect("a view");
    table.put("a", "2").expect("puts");
    table.put("b", "2").expect("puts");
    txn.put(&table, "c", "own").expect("puts");
    let keys = |rows: TxnRange| -> Vec<String> {
        rows.map(|row| row.expect("a row"))
            .map(|(key, value)| format!("{}={}", key.escape_ascii(), value.escape_ascii()))
            .collect()
    };
    assert_eq!(keys(txn.range(&table, ..).expect("a range")), ["a=1", "c=own"]);
    let newest = txn.range_unlocked(&table, ..).expect("a range");
    assert_eq!(keys(newest), ["a=2", "b=2", "c=own"]);
    assert_eq!(txn.get(&table, "b").expect("reads"), None);
    assert_eq!(txn.get_for_update(&table, "a").expect("locks").as_deref(), Some(&b"2"[..]));
    txn.put(&table, "a", "3").expect("no conflict with what came after the view");
    txn.take_view(None).expect("another view");
    assert_eq!(keys(txn.range(&table, ..).expect("a range")), ["a=3", "b=2", "c=own"]);
    txn.commit().expect("commits");
    assert_eq!(table.get("a").expect("reads").as_deref(), Some(&b"3"[..]));
}

/// A server's snapshot of a position of its log lacked commits of that position: a view had what is
/// visible, and a commit that is enqueued gets visible later. A view with a commit waits for it.
#[test]
fn a_view_with_an_enqueued_commit_has_it_and_none_behind_it() {
    for durability in [Durability::Durable, Durability::Relaxed] {
        let (_dir, db, table) = database();
        table.put("a", "0").expect("puts");
        let put = |value: &str| {
            let mut batch = WriteBatch::new();
            batch.put(&table, "a", value);
            db.enqueue(batch, durability).expect("a place in the order")
        };
        let first = put("1");
        let by_get = db.begin_with(read_committed()).expect("begins");
        by_get.take_view(Some(first.number())).expect("a view");
        let by_range = db.begin_with(read_committed()).expect("begins");
        by_range.take_view(Some(first.number())).expect("a view");
        let early = db.begin_with(read_committed()).expect("begins");
        early.take_view(Some(0)).expect("a view of what is visible");
        // Two commits of one key at a time would wait for each other's lock.
        let mut batch = WriteBatch::new();
        batch.put(&table, "b", "2");
        let second = db.enqueue(batch, durability).expect("a place in the order");
        assert!(first.number() < second.number());
        let of_get = by_get.get(&table, "a").expect("reads");
        assert_eq!(of_get.as_deref(), Some(&b"1"[..]), "the commit was not waited for");
        let rows = by_range.range(&table, ..).expect("a range");
        let rows: Vec<_> = rows.map(|row| row.expect("a row").1).collect();
        assert_eq!(rows, [&b"1"[..]], "the second commit has a later place");
        second.wait().expect("waits");
        first.wait().expect("waits");
        assert_eq!(by_get.get(&table, "b").expect("reads"), None);
        let refused = by_get.take_view(Some(u64::MAX >> 8)).expect_err("there is no such commit");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_shared_lock_lets_others_share_and_not_write() {
    let (_dir, db, table) = database();
    table.put("a", "1").expect("puts");
    let one = db.begin_with(read_committed()).expect("begins");
    let two = db.begin_with(read_committed()).expect("begins");
    assert!(one.get_for_share(&table, "a").expect("shares").is_some());
    assert!(two.get_for_share(&table, "a").expect("shares").is_some());
    let refused = two.put(&table, "a", "2").expect_err("it is shared");
    assert_eq!(refused.kind(), ErrorKind::Timeout);
    one.roll_back();
    two.put(&table, "a", "2").expect("it is alone");
}

#[test]
fn a_table_that_was_emptied_after_the_view_is_an_error() {
    let (_dir, db, table) = database();
    table.put("a", "1").expect("puts");
    let txn = db.begin_with(read_committed()).expect("begins");
    txn.take_view(None).expect("a view");
    db.truncate_table("rows").expect("truncates");
    assert!(txn.get(&table, "a").is_err());
}

#[test]
fn other_levels_take_no_view() {
    let (_dir, db, _table) = database();
    let txn = db.begin().expect("begins");
    assert_eq!(txn.take_view(None).expect_err("it has a snapshot").kind(), ErrorKind::Invalid);
}
