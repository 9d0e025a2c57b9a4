//! Requests to a store that is far away: many look-ups wait about as often as one, a range asks for
//! pieces ahead, and level 0 waits for none of them.
//!
//! What waits is counted in rounds of answers (`ObjectServer::in_rounds`), and not by the clock.

use super::{
    COLD, Held, Rows, extents, fill, key, made, objects, options, read_all, run_until_idle, stats,
    value, wait_until,
};
use crate::common::{Chance, alone, tiny};
use bytes::Bytes;
use terrace::{Database, Durability, ObjectServer, Options, StoreFault, Table, TableStats};

/// Enough rows for more blocks than are asked for together.
pub(super) const MANY: u64 = 6000;

/// Room for all of their blocks.
pub(super) fn roomy(options: Options) -> Options {
    options.cache_size(64 << 20)
}

/// A closed database with many rows in objects.
pub(super) fn made_with_many(path: &std::path::Path, server: &ObjectServer) -> Rows {
    let (db, table, mut rows) = made(path, server);
    for first in (0..MANY).step_by(500) {
        rows.extend(fill(&table, first..first + 500, 1));
        run_until_idle(&db);
    }
    db.compact_range(&table, ..).unwrap();
    run_until_idle(&db);
    db.close().unwrap();
    rows
}

pub(super) fn scattered() -> Vec<Vec<u8>> {
    (0..150).map(|n| key(n * 7919 % MANY)).collect()
}

fn has_all(table: &Table, rows: &Rows) {
    let keys = scattered();
    let found = table.multi_get(&keys).unwrap();
    for (key, value) in keys.iter().zip(found) {
        assert_eq!(value.as_deref(), Some(rows[key].as_slice()), "{}", key.escape_ascii());
    }
}

/// Bug: 150 scattered rows took 150 times as long as one. Cause: `multi_get` looked for one key
/// after the other, and each asked for its block alone. Fix: what all of them need is asked for
/// first, side by side.
#[test]
fn many_look_ups_wait_about_as_long_as_one() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    for ends_are_kept in [true, false] {
        if !ends_are_kept {
            std::fs::remove_file(dir.path().join("object-tails")).unwrap();
        }
        let db = roomy(options(&server)).open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        let before = server.requests();
        let ((), rounds) = server.in_rounds(|| has_all(&table, &rows));
        let asked = server.requests() - before;
        assert!((20..=300).contains(&asked), "{asked} requests");
        let least = if ends_are_kept { 1 } else { 2 };
        assert!((least..10).contains(&rounds.waits), "{rounds:?}, {asked} requests");
        let before = server.requests();
        has_all(&table, &rows);
        assert_eq!(server.requests(), before, "all of it is cached");
        db.close().unwrap();
    }
}

/// Rows of which every second value lies apart, in objects, each far from the next one asked for.
pub(super) fn made_apart(path: &std::path::Path, server: &ObjectServer) -> Rows {
    let db = options(server).create(path).unwrap();
    let table = db.create_table("t", COLD.large_values(1024)).unwrap();
    let mut rows = Rows::new();
    for n in 0..APART {
        let len = if n % 2 == 0 { 12_000 } else { 200 };
        let value = Chance::new(n).bytes(len);
        table.durability(Durability::Relaxed).put(key(n), &value).unwrap();
        rows.insert(key(n), value);
        if n % 50 == 0 {
            run_until_idle(&db);
        }
    }
    db.compact_range(&table, ..).unwrap();
    run_until_idle(&db);
    let TableStats { misplaced_bytes, value_bytes, .. } = stats(&db);
    assert!(misplaced_bytes == 0 && value_bytes > APART * 5000, "{value_bytes}");
    db.close().unwrap();
    rows
}

pub(super) const APART: u64 = 900;

type MultiGet<'a> = &'a dyn Fn() -> terrace::Result<Vec<Option<Bytes>>>;

/// Bug: 150 values that lie apart in objects took 150 times as long as one. Cause: `multi_get` read
/// each value when it came to it, and a range those of one value extent after the other. Fix: all
/// of them are asked for, and then waited for.
#[test]
fn many_values_apart_wait_about_as_long_as_one() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_apart(dir.path(), &server);
    let open = || {
        let db = roomy(options(&server)).open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        (db, table)
    };
    let keys: Vec<Vec<u8>> = (0..150).map(|n| key(n * 6)).collect();
    let expected: Vec<_> = keys.iter().map(|key| Some(rows[key].clone().into())).collect();
    let (db, table) = open();
    let (snapshot, txn) = (db.snapshot().unwrap(), db.begin().unwrap());
    let all: [(&str, MultiGet<'_>); 3] = [
        ("a table", &|| table.multi_get(&keys)),
        ("a snapshot", &|| snapshot.multi_get(&table, &keys)),
        ("a transaction", &|| txn.multi_get(&table, &keys)),
    ];
    for (n, (what, multi_get)) in all.iter().enumerate() {
        let before = server.requests();
        let (found, rounds) = server.in_rounds(multi_get);
        assert!(found.unwrap() == expected, "{what}");
        let asked = server.requests() - before;
        assert!(asked >= 50, "{what}: values are in no cache: {asked} requests");
        // The first has to bring blocks too.
        let most = if n == 0 { 10 } else { 5 };
        assert!(rounds.waits < most, "{what}: {rounds:?}, {asked} requests");
    }
    drop((snapshot, txn));
    db.close().unwrap();
    drop(table);

    // A range asks for the values of a chunk together.
    let (db, table) = open();
    let (read, rounds) = server.in_rounds(|| read_all(&table));
    assert!(read == rows);
    let chunks = APART * 6100 / (256 << 10);
    assert!(rounds.waits < chunks + 15, "{rounds:?} for {chunks} chunks");
    db.close().unwrap();
}

#[test]
fn snapshots_and_transactions_ask_side_by_side_too() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    let open = || {
        let db = roomy(options(&server)).open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        (db, table)
    };
    let expected: Vec<_> = scattered().iter().map(|key| Some(rows[key].clone().into())).collect();
    let (db, table) = open();
    let snapshot = db.snapshot().unwrap();
    let (found, rounds) = server.in_rounds(|| snapshot.multi_get(&table, scattered()));
    assert_eq!(found.unwrap(), expected);
    assert!(rounds.waits < 10, "{rounds:?}");
    drop(snapshot);
    db.close().unwrap();
    drop(table);
    for locks in [false, true] {
        let (db, table) = open();
        let txn = db.begin().unwrap();
        let (found, rounds) = server.in_rounds(|| match locks {
            false => txn.multi_get(&table, scattered()),
            true => txn.multi_get_for_update(&table, scattered()),
        });
        assert_eq!(found.unwrap(), expected);
        assert!(rounds.waits < 10, "locks: {locks}, {rounds:?}");
        txn.roll_back();
        db.close().unwrap();
    }
}

#[test]
fn a_small_cache_has_fewer_look_ups_ask_at_a_time_and_all_are_right() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let mut rows = made_with_many(dir.path(), &server);
    let db = options(&server).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    // Some keys have newer versions in memory, in level 1 and as deletes.
    for n in (0..MANY).step_by(7) {
        let newer = value(n, 2);
        table.durability(Durability::Relaxed).put(key(n), &newer).unwrap();
        rows.insert(key(n), newer);
        if n % 70 == 0 {
            db.step().unwrap();
        }
    }
    has_all(&table, &rows);
    let absent: Vec<Vec<u8>> = (0..300).map(|n| format!("{n:06}x").into_bytes()).collect();
    assert!(table.multi_get(&absent).unwrap().iter().all(Option::is_none));
    for n in (0..MANY).step_by(11) {
        table.delete(key(n)).unwrap();
        rows.remove(&key(n));
    }
    let keys: Vec<Vec<u8>> = (0..MANY).map(key).collect();
    let found = table.multi_get(&keys).unwrap();
    for (key, value) in keys.iter().zip(found) {
        assert_eq!(value.as_deref(), rows.get(key).map(Vec::as_slice));
    }
}

#[test]
fn a_range_asks_for_long_pieces_ahead() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    let (db, table) = far(dir.path(), &server, 64 << 20);
    let before = server.requests();
    let (read, rounds) = server.in_rounds(|| read_all(&table));
    assert_eq!(read, rows);
    let asked = server.requests() - before;
    let whole: usize = rows.values().map(Vec::len).sum();
    let most = (whole / (512 << 10)) as u64 + 2 * extents(&server).len() as u64 + 4;
    assert!(asked <= most, "{asked} requests for {whole} bytes, where {most} would do");
    assert!(rounds.waits < 12, "{rounds:?}, {asked} requests");
    db.close().unwrap();
}

/// A database whose data lie in objects alone, with what reads ahead.
pub(super) fn far(path: &std::path::Path, server: &ObjectServer, cache: u64) -> (Database, Table) {
    let db = tiny().cache_size(cache).object_store(server.url()).open(path).unwrap();
    let table = db.table("t").unwrap();
    (db, table)
}

/// Bug: a range of 50 rows waited twice, and had 8 MiB sent for it. Cause: the first block was read
/// alone, and with the second one pieces of 2 MiB were begun. Fix: the first block brings 128 KiB.
/// A range that says how many rows it wants has pieces for so many on their way at once.
#[test]
fn a_short_range_takes_one_request_and_a_long_one_has_many_under_way() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    made_with_many(dir.path(), &server);
    let (db, table) = far(dir.path(), &server, 64 << 20);
    let levels = stats(&db).levels.iter().filter(|level| level.extents > 0).count() as u64;
    let read = |from: u64, rows: usize, backward: bool| {
        let before = objects(&db);
        let (found, rounds) = server.in_rounds(|| match backward {
            false => table.range(key(from)..).limit(rows).count(),
            true => table.range(..key(from)).limit(rows).rev().count(),
        });
        assert_eq!(found, rows);
        let after = objects(&db);
        let sent = after.received_bytes - before.received_bytes;
        (after.gets - before.gets, sent, rounds.waits)
    };
    for (from, backward) in [(1000, false), (2000, true)] {
        let (asked, sent, waits) = read(from, 50, backward);
        assert!(asked <= 2 * levels, "{asked} requests from {from} on, {backward}");
        assert!(sent <= 2 * levels * (192 << 10), "{sent} bytes");
        assert_eq!(waits, 1, "{asked} requests from {from} on, {backward}");
    }
    // About a MB, in pieces that go out together.
    let (asked, sent, waits) = read(3000, 2000, false);
    assert!((3..=8 * levels).contains(&asked), "{asked} requests");
    assert!(sent < levels * (2 << 20), "{sent} bytes");
    assert!(waits < 3, "{waits} rounds, {asked} requests");
    db.close().unwrap();
}

/// Bug: with a small cache a range had one request under way. Cause: one piece took all that may be
/// held of what is read ahead. Fix: pieces are short enough for several of them.
#[test]
fn a_range_has_several_requests_under_way_with_a_small_cache_too() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    let (db, table) = far(dir.path(), &server, 4 << 20);
    let (read, rounds) = server.in_rounds(|| read_all(&table));
    assert!(read == rows);
    assert!(rounds.waits < 12, "{rounds:?}, {} requests", objects(&db).gets);
    db.close().unwrap();
}

/// Bug: with the store away a transaction waited for it to read what it had written itself.
/// Cause: what the table has of the key was brought first. Fix: it is not, of keys that it wrote.
#[test]
fn a_transaction_reads_what_it_wrote_without_the_store() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let (db, table, _) = made(dir.path(), &server);
    db.close().unwrap();
    drop(table);
    let db = options(&server).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let txn = db.begin().unwrap();
    txn.put(&table, key(7), "own").unwrap();
    server.always(Some(StoreFault::LoseRequest));
    let before = server.requests();
    assert_eq!(txn.get(&table, key(7)).unwrap().unwrap(), "own");
    assert_eq!(txn.get_for_update(&table, key(7)).unwrap().unwrap(), "own");
    txn.commit().unwrap();
    assert_eq!(table.get(key(7)).unwrap().unwrap(), "own");
    assert_eq!(server.requests(), before);
    server.always(None);
    db.close().unwrap();
}

/// Bug: with a store of 200 KB/s a put waited for ten seconds.
/// Cause: a compaction with objects claimed its keys in all levels. Drains of these keys used up
/// the sublevels above it, and the region filled.
/// Fix: it claims the lower sublevels alone. The upper ones become one again and again meanwhile.
#[test]
fn level_0_is_drained_while_a_compaction_waits_for_the_store() {
    let _turn = alone();
    let server = ObjectServer::new();
    // The first compaction finds little in level 1, and the next ones find all sublevels in use.
    writes_beside(&server, 0, &[4, 24]);
    assert!(!extents(&server).is_empty(), "compactions go on once the store answers");
}

/// The same while a compaction asks again.
#[test]
fn level_0_is_drained_while_the_store_says_slow_down() {
    let _turn = alone();
    let server = ObjectServer::new();
    server.always(Some(StoreFault::Throttle));
    writes_beside(&server, 1, &[24]);
    assert_eq!(extents(&server), Vec::<String>::new());
    assert!(server.requests() > 0);
}

/// Fills the region that many `times` while a compaction waits for the store, from the request
/// behind the first `pass` on. Then the store answers, and a later compaction waits.
fn writes_beside(server: &ObjectServer, pass: u64, times: &[u64]) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().object_store(server.url()).create(dir.path()).unwrap();
    let table = db.create_table("t", COLD).unwrap();
    let (mut rows, mut n) = (Rows::new(), 0);
    for times in times {
        let held = Held::behind(server, pass);
        let mut put = || {
            n += 1;
            let (key, value) = (key(n * 7919 % 3000), value(n, 1));
            table.durability(Durability::Relaxed).put(&key, &value).unwrap();
            held.has_put();
            rows.insert(key, value);
        };
        wait_until(&db, |_| {
            (0..100).for_each(|_| put());
            held.has_some()
        });
        let before = db.stats();
        let capacity = before.pm.capacity;
        while db.stats().pm.appended_bytes < before.pm.appended_bytes + times * capacity {
            (0..100).for_each(|_| put());
        }
        assert!(objects(&db).compacting > 0 && held.has_some(), "a compaction waits all the time");
        let drained = db.stats().background.drained_level0_bytes;
        let drained = drained - before.background.drained_level0_bytes;
        assert!(drained >= times * capacity / 2, "{drained} bytes were drained beside it");
        let left = stats(&db).level0_bytes;
        assert!(left < capacity, "{left} bytes in level 0");
        held.release();
        assert_eq!(read_all(&table), rows);
    }
    db.close().unwrap();
}
