//! What the region holds: superseded versions go at the merge, zones that are mostly dead are
//! cleaned, writers are slowed down before it is full, and whatever the load, no more lies in it
//! than what was appended during the last turn of drains.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use crate::common::{Chance, alone, rounds};
use terrace::{Database, Durability, Options, PaceStats, Table};

/// A background that runs only when it is asked to, on a small region.
fn stepped() -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(4 << 20).stepped().create(dir.path().join("db")).unwrap();
    (dir, db)
}

fn run_until_idle(db: &Database) {
    for _ in 0..1000 {
        if !db.step().unwrap() {
            return;
        }
    }
    panic!("a thousand jobs and no end: {:?}", db.stats());
}

fn put(table: &Table, key: &str, value: &[u8]) {
    table.durability(Durability::Relaxed).put(key, value).unwrap();
}

/// Writes until so many more memtables were merged.
fn merge(db: &Database, table: &Table, key: impl Fn(u64) -> String, merges: u64) {
    let until = db.stats().background.merges + merges;
    let mut n = 0;
    while db.stats().background.merges < until {
        put(table, &key(n), &[7; 1000]);
        db.step().unwrap();
        n += 1;
    }
    run_until_idle(db);
}

#[test]
fn a_merge_prunes_what_is_superseded_and_keeps_what_a_snapshot_reads() {
    let _alone = alone();
    let (_dir, db) = stepped();
    let table = db.table("t").unwrap();
    for n in 0..10 {
        put(&table, &format!("key {n}"), b"first");
    }
    merge(&db, &table, |n| format!("filler {}", n % 5), 1);
    let snapshot = db.snapshot().unwrap();
    for n in 0..10 {
        put(&table, &format!("key {n}"), b"second");
    }
    put(&table, "key 0", b"third");
    table.durability(Durability::Relaxed).delete("key 1").unwrap();
    merge(&db, &table, |n| format!("filler {}", n % 5), 1);
    // Ten keys in two versions, two of them in three, one of which no reader sees; fillers
    // once, and the one that the snapshot sees.
    let records = db.stats().tables[0].level0_records;
    assert_eq!(records, 20 + 10, "{:?}", db.stats());
    for n in 0..10 {
        let key = format!("key {n}");
        assert_eq!(snapshot.get(&table, &key).unwrap().unwrap(), "first");
        let now = [Some("third"), None].get(n).copied().unwrap_or(Some("second"));
        assert_eq!(table.get(&key).unwrap().as_deref(), now.map(str::as_bytes), "{key}");
    }
    drop(snapshot);
    merge(&db, &table, |n| format!("filler {}", n % 5), 1);
    for n in 0..10 {
        put(&table, &format!("key {n}"), b"last");
    }
    merge(&db, &table, |n| format!("filler {}", n % 5), 1);
    let stats = db.stats();
    assert_eq!(stats.tables[0].level0_records, 15, "one version a key: {stats:?}");
    assert!(stats.background.pruned_records > 30, "{stats:?}");
    assert_eq!(stats.background.drains, 0, "{stats:?}");
}

#[test]
fn what_was_pruned_stays_away_after_an_opening() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().pm_size(4 << 20).stepped();
    let db = options().create(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    for round in 0..3 {
        for n in 0..50 {
            put(&table, &format!("key {n}"), format!("round {round}").as_bytes());
        }
        table.durability(Durability::Relaxed).delete("key 7").unwrap();
    }
    drop(table);
    db.close().unwrap();
    let db = options().open(dir.path().join("db")).unwrap();
    assert_eq!(db.stats().open.records_rebuilt, 50, "the newest version of each key");
    let table = db.existing_table("t").unwrap();
    assert_eq!(table.iter().map(Result::unwrap).count(), 49);
    assert_eq!(table.get("key 7").unwrap(), None);
    assert_eq!(table.get("key 8").unwrap().unwrap(), "round 2");
}

/// A record whose LSN is that up to which its key is drained is in level 1, and nowhere else: an
/// opening that finds it in a zone does not index it again.
#[test]
fn what_was_drained_last_is_not_indexed_again() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().pm_size(4 << 20).stepped();
    let db = options().create(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    table.put("a", "1").unwrap();
    table.put("b", "2").unwrap();
    db.compact_range(&table, ..).unwrap();
    drop(table);
    db.close().unwrap();
    let db = options().open(dir.path().join("db")).unwrap();
    assert_eq!(db.stats().open.records_rebuilt, 0, "both are in level 1");
    assert_eq!(db.stats().tables[0].level0_records, 0);
    let table = db.existing_table("t").unwrap();
    assert_eq!(table.get("b").unwrap().unwrap(), "2");
}

/// Nine writes of ten go to a hundred keys, and in each zone there is a cold one: without cleaning
/// each cold record keeps its zone, and the region fills with what no reader will ever read.
#[test]
fn one_cold_key_a_zone_cannot_fill_the_region() {
    let _alone = alone();
    let (_dir, db) = stepped();
    let table = db.table("t").unwrap();
    let zone = db.stats().pm.zone_size;
    let (mut most, mut cold, mut since) = (0, 0, 0);
    for n in 0..rounds(16_000, 400_000) {
        since += 3200;
        if since >= zone {
            since = 0;
            put(&table, &format!("cold {cold:06}"), &[1; 100]);
            cold += 1;
        }
        put(&table, &format!("hot {}", n % 100), &[2; 3000]);
        if n % 8 == 0 {
            while db.stats().pm.zones_used * 2 >= db.stats().pm.zones && db.step().unwrap() {}
            db.step().unwrap();
            most = most.max(db.stats().pm.zones_used);
        }
    }
    let stats = db.stats();
    eprintln!("at most {most} of {} zones, {:?}", stats.pm.zones, stats.background);
    assert!(stats.pm.appended_bytes > 10 * stats.pm.capacity, "{stats:?}");
    assert!(most <= stats.pm.zones * 3 / 4, "at most {most} zones were taken: {stats:?}");
    assert!(stats.background.zones_cleaned > cold / 4, "{stats:?}");
    for n in 0..cold {
        assert_eq!(table.get(format!("cold {n:06}")).unwrap().unwrap(), [1; 100].as_slice());
    }
    // Moved records are found again, and count once.
    assert_eq!(table.iter().map(Result::unwrap).count() as u64, cold + 100);
    assert!(db.verify().unwrap().damages.is_empty());
}

/// The statistics say why writers wait, for how many bytes that are behind, at which rate drains
/// go, and how long: nothing of it as long as there is room, all of it as the region fills.
#[test]
fn the_pace_and_its_reason_are_in_the_statistics() {
    let _alone = alone();
    let (_dir, db) = stepped();
    let table = db.table("t").unwrap();
    let mut chance = Chance::new(3);
    let mut fill = |percent: u32| {
        while db.stats().pm.zones_used * 100 < db.stats().pm.zones * percent {
            put(&table, &format!("{:016x}", chance.next()), &[7; 2500]);
            // Writers find zones by themselves: the background looks, and does no job.
        }
    };
    let free = |pace: PaceStats| (pace.reason, pace.debt, pace.delay_ns) == ("none", 0, 0);
    let pace = || db.stats().pace;
    fill(40);
    run_until_idle(&db);
    assert!(free(pace()) && pace().drain_rate == 0, "there is room: {:?}", pace());
    // A turn of drains begins, and is left where it is while the region fills on.
    fill(78);
    while db.stats().background.drains == 0 {
        assert!(db.step().unwrap());
    }
    let rate = pace().drain_rate;
    assert!(rate > 0, "a drain was measured: {:?}", pace());
    fill(90);
    assert!(db.step().unwrap());
    let full = pace();
    let reasons = ["the region is filling, and drains go on", "the region is filling"];
    assert!(reasons.contains(&full.reason), "{full:?}");
    assert!(full.debt > 0 && full.debt < db.stats().pm.capacity, "{full:?}");
    assert!(full.delay_ns > 0 && full.delay_ns <= 2_000_000_000, "{full:?}");
    run_until_idle(&db);
    assert!(free(pace()), "after all jobs: {:?}", pace());
    assert!(pace().drain_rate > 0);
}

/// Whatever the load: zones beside those that are open or kept by readers hold no more than what
/// was appended since the oldest record that is not drained.
#[test]
fn the_region_holds_what_the_last_turn_appended() {
    let _alone = alone();
    type Load = fn(&mut Chance, u64) -> (usize, String);
    let loads: [(&str, Load); 4] = [
        ("hot", |chance, n| match chance.percent(90) {
            true => (0, format!("hot {}", chance.below(100))),
            false => (0, format!("cold {n}")),
        }),
        ("uniform", |chance, _| (0, format!("{:016x}", chance.next()))),
        ("growing", |_, n| (0, format!("{n:016}"))),
        ("idle tables", |chance, n| match n < 200 {
            true => (1 + n as usize % 50, format!("{n}")),
            false => (0, format!("{:016x}", chance.next())),
        }),
    ];
    for (name, load) in loads {
        let (_dir, db) = stepped();
        let tables: Vec<Table> = (0..51).map(|n| db.table(&format!("t{n}")).unwrap()).collect();
        let mut chance = Chance::new(5);
        let mut worst = 0.0_f64;
        for n in 0..rounds(6_000, 100_000) {
            let (t, key) = load(&mut chance, n);
            put(&tables[t], &key, &[7; 2500]);
            if n % 8 == 0 {
                db.step().unwrap();
                let used = db.stats().pm.zones_used;
                for _ in 0..if used * 4 >= db.stats().pm.zones * 3 { 20 } else { 0 } {
                    db.step().unwrap();
                }
                let pm = db.stats().pm;
                // One zone more: the one that the oldest record lies in.
                let allowed =
                    pm.round_bytes / pm.zone_size + u64::from(pm.zones_open + pm.zones_pinned) + 1;
                worst = worst.max(f64::from(pm.zones_used) / allowed as f64);
                assert!(pm.zones_used <= pm.zones);
            }
        }
        let stats = db.stats();
        eprintln!("{name}: {worst:.3} of the bound, {:?}", stats.background);
        assert!(worst <= 1.1, "{name}: {worst} of the bound: {stats:?}");
        assert!(stats.pm.appended_bytes > 3 * stats.pm.capacity, "{name}: {stats:?}");
    }
}

#[test]
fn memory_comes_back_when_records_leave() {
    let _alone = alone();
    let (_dir, db) = stepped();
    let table = db.table("t").unwrap();
    let empty = db.stats().pm.index_memory;
    let mut n = 0;
    while db.stats().background.drains == 0 {
        put(&table, &format!("key {:08}", n * 7919 % 100_000), &[1; 100]);
        db.step().unwrap();
        n += 1;
    }
    let full = db.stats().pm.index_memory;
    while db.stats().tables[0].level0_records > n / 20 {
        put(&table, &format!("key {:08}", n * 7919 % 100_000), &[1; 2000]);
        db.step().unwrap();
        n += 1;
        assert!(n < 100_000, "{:?}", db.stats());
    }
    run_until_idle(&db);
    let left = db.stats().pm.index_memory;
    let records = db.stats().tables[0].level0_records + db.stats().tables[0].memtable_records;
    eprintln!("{empty} bytes empty, {full} full, {left} with {records} records");
    assert!(left < empty + records * 120 + full / 8, "{left} bytes for {records} records");
}

/// A turn over many tables with a row each takes a few jobs, not one or three a table.
#[test]
fn idle_tables_are_drained_many_at_a_time() {
    const TABLES: usize = 64;
    let _alone = alone();
    let (_dir, db) = stepped();
    let idle: Vec<Table> =
        (0..TABLES).map(|n| db.table(&format!("idle {n:03}")).unwrap()).collect();
    idle.iter().for_each(|table| put(table, "key", &[7; 100]));
    let busy = db.table("busy").unwrap();
    let in_region = |t: &terrace::TableStats| t.memtable_records + t.level0_records;
    let is_left = |t: &terrace::TableStats| t.name != "busy" && in_region(t) > 0;
    let (mut drains, mut jobs) = (0, 0);
    for n in 0.. {
        put(&busy, &format!("{}", n % 500), &[7; 3000]);
        db.step().unwrap();
        let stats = db.stats();
        jobs += u64::from(stats.background.drains > drains);
        drains = stats.background.drains;
        if !stats.tables.iter().any(is_left) {
            break;
        }
        assert!(n < 20_000, "{stats:?}");
    }
    let drained = drains as usize;
    assert!(drained >= TABLES && jobs * 8 < drains, "{drains} columns in {jobs} jobs");
    idle.iter().for_each(|table| assert_eq!(table.get("key").unwrap().unwrap(), [7; 100][..]));
}
