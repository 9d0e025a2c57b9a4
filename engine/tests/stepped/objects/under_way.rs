//! How many requests are under way at a time: ranges and compactions fill the bandwidth of many
//! connections.

use std::time::Duration;

use super::side_by_side::{BANDWIDTH, LATENCY, MANY, far, made_with_many, scattered};
use super::{extents, fill, made, objects, options, read_all, run_until_idle, stats, wait_until};
use crate::common::{alone, tiny};
use terrace::{ObjectServer, Options, Tier};

/// Bug: a range of 50,000 rows had one request under way. Cause: each level asked for all of the
/// rows ahead, so the smaller one held most of what may be held; and pieces were long and few.
/// Fix: a level asks for its share, in more and shorter pieces.
#[test]
fn a_range_has_many_requests_under_way() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    for limit in [rows.len(), usize::MAX] {
        let (db, table) = far(dir.path(), &server, 64 << 20);
        let before = server.requests();
        assert_eq!(table.range(..).limit(limit).count(), rows.len());
        let most = server.most_under_way("get", before, LATENCY);
        let least = if limit == usize::MAX { 6 } else { 8 };
        assert!(most >= least, "{most} of {} requests, limit {limit}", objects(&db).gets);
        db.close().unwrap();
    }
}

/// Bug: 150 rows took 864 requests. Cause: blocks that found no room in the cache were asked for
/// again in each round. Fix: a round asks for nothing that an earlier one asked for.
#[test]
fn what_finds_no_room_in_the_cache_is_not_asked_for_in_each_round() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    let db = options(&server).cache_size(0).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let keys = scattered();
    let before = server.requests();
    let found = table.multi_get(&keys).unwrap();
    for (key, value) in keys.iter().zip(found) {
        assert_eq!(value.as_deref(), Some(rows[key].as_slice()));
    }
    let asked = server.requests() - before;
    assert!(asked <= 2 * 150 + 20, "{asked} requests for 150 rows");
    db.close().unwrap();
}

/// A merge neither waits for each piece that it reads nor for each object that it sends. With
/// little memory objects are small, so a merge has several.
#[test]
fn a_merge_has_many_requests_under_way() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    let most_of = |tier, kind: &str, options: Options| {
        let far = options.object_store(server.url()).object_store_distance(LATENCY, BANDWIDTH);
        let db = far.open(dir.path()).unwrap();
        let before = server.requests();
        db.set_cold_tier("t", tier).unwrap();
        wait_until(&db, |db| stats(db).misplaced_bytes == 0);
        let most = server.most_under_way(kind, before, LATENCY);
        assert!(read_all(&db.table("t").unwrap()) == rows);
        db.close().unwrap();
        most
    };
    let read = most_of(Tier::Ssd, "get", tiny());
    let sent = most_of(Tier::Object, "put", tiny().memory(16 << 20));
    assert!(read >= 6 && sent >= 2, "{read} reads, {sent} writes");
}

/// A merge waits for its last acknowledgement and for the fence. Another one goes on meanwhile.
#[test]
fn one_merge_goes_on_while_another_waits_for_the_store() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let (db, table, _) = made(dir.path(), &server);
    for first in (0..MANY).step_by(500) {
        fill(&table, first..first + 500, 1);
        run_until_idle(&db);
    }
    db.set_cold_tier("t", Tier::Ssd).unwrap();
    run_until_idle(&db);
    assert_eq!(extents(&server), Vec::<String>::new());
    db.close().unwrap();
    drop(table);
    let latency = Duration::from_millis(500);
    let options = tiny().object_store(server.url()).object_store_distance(latency, BANDWIDTH);
    let db = options.open(dir.path()).unwrap();
    db.set_cold_tier("t", Tier::Object).unwrap();
    wait_until(&db, |db| objects(db).compacting == 2);
    db.close().unwrap();
}
