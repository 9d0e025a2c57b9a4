//! Transactions look for changes since their snapshot, and read nothing that is older.

use super::*;

/// Bug: a range delete of a transaction read all rows of its range, from the store too, with an
/// epoch pinned: writers of all databases waited. Cause: the look for changes since its snapshot
/// walked every extent. Fix: it passes extents that have nothing above the snapshot.
#[test]
fn a_transaction_reads_nothing_of_the_store_to_see_that_nothing_has_changed() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let mut rows = made_and_closed(dir.path(), &server);
    let db = options(&server).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let before = server.requests();
    server.always(Some(StoreFault::Refuse));
    let txn = db.begin().unwrap();
    txn.put(&table, key(1), "new").unwrap();
    txn.delete(&table, key(2)).unwrap();
    txn.delete_range(&table, key(100)..key(400)).unwrap();
    txn.commit().unwrap();
    assert_eq!(server.requests(), before);
    server.always(None);
    rows.insert(key(1), b"new".to_vec());
    rows.remove(&key(2));
    rows.retain(|name, _| !(key(100)..key(400)).contains(name));
    assert_eq!(read_all(&table), rows);
}

/// What has changed since is found wherever it lies by then: in memory, or in an extent.
#[test]
fn a_transaction_finds_what_has_changed_since_its_snapshot() {
    let _turn = alone();
    type Change = fn(&Table);
    let changes: [Change; 3] = [
        |table| table.put(key(7), "other").unwrap(),
        |table| table.delete(key(7)).unwrap(),
        |table| table.delete_range(key(5)..key(9)).unwrap(),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        for has_moved in [false, true] {
            let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
            let (db, table, _) = made(dir.path(), &server);
            let [of_key, of_range] = [(); 2].map(|()| db.begin().unwrap());
            for txn in [&of_key, &of_range] {
                assert!(txn.get(&table, key(7)).unwrap().is_some());
            }
            change(&table);
            if has_moved {
                db.compact_range(&table, ..).unwrap();
            }
            let conflicts =
                [of_key.put(&table, key(7), "own"), of_range.delete_range(&table, key(6)..key(8))];
            for conflict in conflicts {
                let conflict = conflict.unwrap_err();
                assert_eq!(conflict.kind(), ErrorKind::Conflict, "{n} {has_moved}: {conflict}");
            }
        }
    }
}
