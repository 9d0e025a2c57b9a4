//! How many requests are under way at a time: ranges and compactions fill the bandwidth of many
//! connections.

use super::side_by_side::{MANY, far, made_with_many, roomy, scattered};
use super::{COLD, Held, Rows, extents, fill, key, made, objects, options, read_all};
use super::{made_and_closed, run_until_idle, stats, wait_until};
use crate::common::{Chance, alone, tiny};
use terrace::{Durability, ObjectServer, Options, Tier};

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
        let (found, rounds) = server.in_rounds(|| table.range(..).limit(limit).count());
        assert_eq!(found, rows.len());
        let least = if limit == usize::MAX { 6 } else { 8 };
        let asked = objects(&db).gets;
        assert!(rounds.gets >= least, "{rounds:?} of {asked} requests, limit {limit}");
        db.close().unwrap();
    }
}

/// Bug: 150 rows took 864 requests, and later twice as many as they have blocks. A look-up then
/// waited for the store with an epoch pinned, and writers waited with it. Cause: blocks that found
/// no room in the cache, or had left it, were asked for again. Fix: a look-up holds what came for
/// it until it has read it.
#[test]
fn what_finds_no_room_in_the_cache_is_asked_for_once() {
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
    assert!(asked <= 150 + 20, "{asked} requests for 150 rows");
    db.close().unwrap();
}

/// The same bug, in each call that looks up a key.
#[test]
fn each_look_up_asks_once_for_what_finds_no_room_in_the_cache() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_and_closed(dir.path(), &server);
    let db = options(&server).cache_size(0).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let (snapshot, cores) = (db.snapshot().unwrap(), db.per_core(1).unwrap());
    let sharded = cores.table(&table).unwrap();
    let (key, txn) = (key(300), db.begin().unwrap());
    let expected = Some(&rows[&key][..]);
    let per_core = || {
        let mut batch = cores.batch();
        batch.get(&sharded, &key);
        batch.run().unwrap().get(0).map(<[u8]>::to_vec)
    };
    type LookUp<'a> = (&'a str, &'a dyn Fn() -> Option<Vec<u8>>);
    let calls: [LookUp<'_>; 11] = [
        ("get", &|| table.get(&key).unwrap().map(Vec::from)),
        ("multi_get", &|| table.multi_get([&key]).unwrap().pop().flatten().map(Vec::from)),
        ("get_with", &|| table.get_with(&key, <[u8]>::to_vec).unwrap()),
        ("contains_key", &|| table.contains_key(&key).unwrap().then(|| rows[&key].clone())),
        ("of a snapshot", &|| snapshot.get(&table, &key).unwrap().map(Vec::from)),
        ("get_with of one", &|| snapshot.get_with(&table, &key, <[u8]>::to_vec).unwrap()),
        ("contains_key of one", &|| {
            snapshot.contains_key(&table, &key).unwrap().then(|| rows[&key].clone())
        }),
        ("per core", &per_core),
        ("of a transaction", &|| txn.get(&table, &key).unwrap().map(Vec::from)),
        ("for update", &|| txn.get_for_update(&table, &key).unwrap().map(Vec::from)),
        ("for share", &|| txn.get_for_share(&table, &key).unwrap().map(Vec::from)),
    ];
    for (what, call) in calls {
        let before = server.requests();
        assert_eq!(call().as_deref(), expected, "{what}");
        assert_eq!(server.requests(), before + 1, "{what}");
    }
    txn.roll_back();
    let before = server.requests();
    let swapped = table.compare_and_set(&key, expected, Some("new".as_bytes())).unwrap();
    assert_eq!((swapped, server.requests()), (true, before + 1));
    drop(snapshot);
    cores.close().unwrap();
    db.close().unwrap();
}

/// Bug: 150 rows waited three times with a small cache. Cause: no more look-ups asked at a time
/// than have room there for their blocks. Fix: what the next ones need is asked for too, as far as
/// it may be held.
#[test]
fn look_ups_ask_ahead_of_a_small_cache() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    let keys = scattered();
    for n in 0..3 {
        let db = options(&server).cache_size(2 << 20).open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        let (snapshot, txn) = (db.snapshot().unwrap(), db.begin().unwrap());
        let (found, rounds) = server.in_rounds(|| match n {
            0 => table.multi_get(&keys).unwrap(),
            1 => snapshot.multi_get(&table, &keys).unwrap(),
            _ => txn.multi_get(&table, &keys).unwrap(),
        });
        for (key, value) in keys.iter().zip(found) {
            assert_eq!(value.as_deref(), Some(rows[key].as_slice()));
        }
        // 32 blocks have room.
        assert!(rounds.gets > 40, "{rounds:?} of {} requests, {n}", objects(&db).gets);
        drop((snapshot, txn));
        db.close().unwrap();
    }
}

/// A closed database with rows in objects of levels 2 and 3: every seventh is in level 2.
fn made_with_levels(path: &std::path::Path, server: &ObjectServer) -> Rows {
    let db = options(server).level1_size(32 << 10).create(path).unwrap();
    let table = db.create_table("t", COLD).unwrap();
    let mut rows = Rows::new();
    for is_upper in [false, true] {
        for n in (0..MANY).filter(|n| (n % 7 == 0) == is_upper) {
            // Level 2 gets more than the region has room for.
            let value = Chance::new(n).bytes(if is_upper { 2500 } else { 500 });
            table.durability(Durability::Relaxed).put(key(n), &value).unwrap();
            rows.insert(key(n), value);
            if n % 500 < 7 {
                run_until_idle(&db);
            }
        }
        if !is_upper {
            db.compact_range(&table, ..).unwrap();
        }
        run_until_idle(&db);
    }
    let levels = stats(&db).levels;
    let has = |n: u8, least: u64| levels.iter().any(|l| l.level == n && l.records >= least);
    assert!(has(2, 50) && has(3, MANY / 2), "{levels:?}");
    assert!(read_all(&table) == rows);
    db.close().unwrap();
    rows
}

/// Several keys ask for the blocks of all levels that may have them at once. One key asks the upper
/// level alone, and goes on below only if its filter was wrong.
///
/// Bug: 150 rows waited twice where some filters were in memory. Cause: others came from ends that
/// are kept on this machine, in a round of their own. Fix: such an end is read at once.
#[test]
fn many_look_ups_ask_all_levels_in_one_round_and_one_asks_one() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_levels(dir.path(), &server);
    let db = roomy(options(&server)).level1_size(32 << 10).open(dir.path()).unwrap();
    let (table, keys) = (db.table("t").unwrap(), scattered());
    // Some filters are in memory then, and others are not.
    for n in [0, 1] {
        assert_eq!(table.get(key(n)).unwrap().as_deref(), Some(rows[&key(n)].as_slice()));
    }
    let before = server.requests();
    let (found, rounds) = server.in_rounds(|| table.multi_get(&keys).unwrap());
    for (key, value) in keys.iter().zip(found) {
        assert_eq!(value.as_deref(), Some(rows[key].as_slice()));
    }
    let asked = (server.requests() - before) as usize;
    assert!(asked > 50, "{asked} requests");
    assert_eq!((rounds.waits, rounds.gets), (1, asked), "all in one round");
    db.close().unwrap();
    drop(table);

    let db = roomy(options(&server)).level1_size(32 << 10).open(dir.path()).unwrap();
    let (table, mut wrong) = (db.table("t").unwrap(), 0);
    for key in &keys {
        let before = server.requests();
        assert_eq!(table.get(key).unwrap().as_deref(), Some(rows[key].as_slice()));
        wrong += u64::from(server.requests() - before > 1);
    }
    assert!(wrong <= 8, "{wrong} of 150 look-ups took more than a request");
    db.close().unwrap();
}

/// A merge neither waits for each piece that it reads nor for each object that it sends. With
/// little memory objects are small, so a merge has several.
#[test]
fn a_merge_has_many_requests_under_way() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let rows = made_with_many(dir.path(), &server);
    let moved = |tier, options: Options| {
        let db = options.object_store(server.url()).open(dir.path()).unwrap();
        let ((), rounds) = server.in_rounds(|| {
            db.set_cold_tier("t", tier).unwrap();
            wait_until(&db, |db| stats(db).misplaced_bytes == 0);
        });
        assert!(read_all(&db.table("t").unwrap()) == rows);
        db.close().unwrap();
        rounds
    };
    let read = moved(Tier::Ssd, tiny()).gets;
    let sent = moved(Tier::Object, tiny().memory(16 << 20)).puts;
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
    let db = tiny().object_store(server.url()).open(dir.path()).unwrap();
    let held = Held::behind(&server, 0);
    db.set_cold_tier("t", Tier::Object).unwrap();
    wait_until(&db, |db| objects(db).compacting == 2 && held.has_some());
    drop(held);
    db.close().unwrap();
}
