//! Cold extents that are read often lie on this machine.

use super::{made, objects, options, read_all, run_until_idle, stats};
use crate::common::alone;
use terrace::{ObjectServer, Table};

/// Reads one key more often than an object needs to come back.
fn read_often(table: &Table, key: &[u8], times: u32) {
    (0..times).for_each(|_| assert!(table.get(key).unwrap().is_some()));
}

#[test]
fn what_is_read_often_comes_back_and_is_there_after_a_restart() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let (db, table, rows) = made(dir.path(), &server);
    let all = stats(&db).object_bytes;
    let (first, last) = (rows.keys().next().unwrap(), rows.keys().last().unwrap());
    db.close().unwrap();
    drop(table);

    let open = |cache: u64| options(&server).object_cache(cache).open(dir.path()).unwrap();
    let db = open(all);
    let table = db.table("t").unwrap();
    read_often(&table, first, 100);
    run_until_idle(&db);
    let object_bytes = stats(&db).object_bytes;
    assert!(object_bytes < all, "the extent of the first key is here: {object_bytes} of {all}");
    assert!(object_bytes > 0, "the others are not");
    assert_eq!(objects(&db).deleting, 0);
    assert_eq!(stats(&db).misplaced_bytes, 0);
    assert_eq!(read_all(&table), rows);
    db.close().unwrap();
    drop(table);

    let db = open(all);
    let table = db.table("t").unwrap();
    run_until_idle(&db);
    assert_eq!(stats(&db).object_bytes, object_bytes, "nothing goes down since counts are gone");
    let before = server.requests();
    read_often(&table, first, 1);
    assert_eq!(server.requests(), before, "it is here");
    db.close().unwrap();
    drop(table);

    // There is room for one: what is read more takes its place.
    let db = open(all - object_bytes + 10_000);
    let table = db.table("t").unwrap();
    read_often(&table, last, 100);
    run_until_idle(&db);
    let before = server.requests();
    read_often(&table, last, 1);
    assert_eq!(server.requests(), before, "the extent of the last key is here");
    assert!(stats(&db).object_bytes >= object_bytes - 10_000);
    db.close().unwrap();
    drop(table);

    // Without a place on this machine all of it goes down.
    let db = open(0);
    let table = db.table("t").unwrap();
    run_until_idle(&db);
    assert_eq!(stats(&db).object_bytes, all);
    assert_eq!(read_all(&table), rows);
    assert_eq!(db.verify().unwrap().damages, []);
    let found = db.collect_objects().unwrap();
    assert_eq!((found.lost.len(), found.left.len()), (0, 0));
}
