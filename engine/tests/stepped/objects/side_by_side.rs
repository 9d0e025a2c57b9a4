//! Requests to a store that is far away: many look-ups wait about as long as one, a range asks for
//! pieces ahead, and level 0 waits for none of them.

use std::time::{Duration, Instant};

use super::{
    COLD, Rows, extents, fill, key, made, objects, options, read_all, run_until_idle, stats, value,
    wait_until,
};
use crate::common::{alone, tiny};
use terrace::{Database, Durability, ObjectServer, Options, Table};

const LATENCY: Duration = Duration::from_millis(200);
const BANDWIDTH: u64 = 100_000_000;

/// Enough rows for more blocks than are asked for together.
const MANY: u64 = 6000;

/// Room for all of their blocks.
fn roomy(options: Options) -> Options {
    options.cache_size(64 << 20)
}

/// A closed database with many rows in objects.
fn made_with_many(path: &std::path::Path, server: &ObjectServer) -> Rows {
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

fn scattered() -> Vec<Vec<u8>> {
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
        let far = roomy(options(&server)).object_store_distance(LATENCY, BANDWIDTH);
        let db = far.open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        let (before, began) = (server.requests(), Instant::now());
        has_all(&table, &rows);
        let (asked, took) = (server.requests() - before, began.elapsed());
        assert!((20..=300).contains(&asked), "{asked} requests");
        let rounds = if ends_are_kept { 1 } else { 2 };
        assert!(took >= rounds * LATENCY && took < 10 * LATENCY, "{took:?}, {asked} requests");
        let before = server.requests();
        has_all(&table, &rows);
        assert_eq!(server.requests(), before, "all of it is cached");
        db.close().unwrap();
    }
}

#[test]
fn snapshots_and_transactions_ask_side_by_side_too() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    let open = || {
        let far = roomy(options(&server)).object_store_distance(LATENCY, BANDWIDTH);
        let db = far.open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        (db, table)
    };
    let expected: Vec<_> = scattered().iter().map(|key| Some(rows[key].clone().into())).collect();
    let (db, table) = open();
    let (snapshot, began) = (db.snapshot().unwrap(), Instant::now());
    assert_eq!(snapshot.multi_get(&table, scattered()).unwrap(), expected);
    assert!(began.elapsed() < 10 * LATENCY, "{:?}", began.elapsed());
    drop(snapshot);
    db.close().unwrap();
    drop(table);
    let (db, table) = open();
    let (txn, began) = (db.begin().unwrap(), Instant::now());
    assert_eq!(txn.multi_get(&table, scattered()).unwrap(), expected);
    assert!(began.elapsed() < 10 * LATENCY, "{:?}", began.elapsed());
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
        table.put_with(key(n), &newer, Durability::Relaxed).unwrap();
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
    let far = tiny().cache_size(64 << 20).object_store(server.url());
    let db = far.object_store_distance(LATENCY, BANDWIDTH).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let (before, began) = (server.requests(), Instant::now());
    assert_eq!(read_all(&table), rows);
    let (asked, took) = (server.requests() - before, began.elapsed());
    let whole: usize = rows.values().map(Vec::len).sum();
    let most = (whole / (512 << 10)) as u64 + 2 * extents(&server).len() as u64 + 4;
    assert!(asked <= most, "{asked} requests for {whole} bytes, where {most} would do");
    assert!(took < 12 * LATENCY, "{took:?}, {asked} requests");
    db.close().unwrap();
}

/// Bug: with a store of 200 KB/s a put waited for ten seconds.
/// Cause: a compaction with objects claimed its keys in all levels. Drains of these keys used up
/// the sublevels above it, and the region filled.
/// Fix: it claims the lower sublevels alone. The upper ones become one again and again meanwhile.
#[test]
fn level_0_stays_bounded_while_the_store_is_slow() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let slow = tiny().object_store(server.url());
    let db = slow.object_store_distance(LATENCY, 200_000).create(dir.path()).unwrap();
    let table = db.create_table("t", COLD).unwrap();
    let (mut rows, mut most, mut longest) = (Rows::new(), 0.0f64, Duration::ZERO);
    let (whole, mut n) = (Instant::now(), 0);
    while whole.elapsed() < Duration::from_secs(4) {
        n += 1;
        let (key, value) = (key(n * 7919 % 3000), value(n, 1));
        let began = Instant::now();
        table.put_with(&key, &value, Durability::Relaxed).unwrap();
        longest = longest.max(began.elapsed());
        rows.insert(key, value);
        if n % 100 == 0 {
            most = most.max(region_taken(&db));
        }
    }
    assert!(objects(&db).puts > 0, "objects are written meanwhile");
    assert!(most < 1.0, "the region was never full: {most}");
    assert!(longest < Duration::from_millis(750), "no writer waits for the store: {longest:?}");
    let taken = stats(&db);
    assert!(taken.level0_bytes < 2 << 20, "{} bytes in level 0", taken.level0_bytes);
    assert_eq!(read_all(&table), rows);
    wait_until(&db, |db| db.stats().background.drains > 0);
    db.close().unwrap();
}

/// The part of the region that is taken.
fn region_taken(db: &Database) -> f64 {
    let pm = db.stats().pm;
    f64::from(pm.zones_used) / f64::from(pm.zones)
}
