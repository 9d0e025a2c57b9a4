//! The allocator as the whole database uses it: many small tables in a small region, streams of
//! busy tables, and nothing that leaks when the power goes while zones change hands.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeSet;

use crate::common::cuts::{KINDS, PATH, options};
use crate::common::{tiny, together};
use terrace::Durability::Relaxed;
use terrace::testing::{Machine, Survive};
use terrace::{CommitTuning, Database, Durability, Options, WriteBatch};

#[test]
fn a_thousand_small_tables_share_a_region_of_256_mib() {
    let _together = together();
    let machine = Machine::with_files();
    let open = || Options::new().machine(&machine).pm_size(256 << 20).open(PATH).unwrap();
    let db = open();
    let tables: Vec<_> = (0..1000).map(|t| db.table(&format!("t{t}")).unwrap()).collect();
    for round in 0..3u32 {
        for (t, table) in tables.iter().enumerate() {
            let key = (round * 1000 + t as u32).to_be_bytes();
            table.durability(Durability::Relaxed).put(key, [t as u8; 50]).unwrap();
        }
    }
    let pm = db.stats().pm;
    let used = u64::from(pm.zones_used) * pm.zone_size;
    assert!(used <= 2 << 20, "3000 rows of 100 bytes in {used} bytes of zones");
    drop((tables, db));
    let db = open();
    assert_eq!(db.table_names().len(), 1000);
    for t in [0, 1, 500, 999] {
        let table = db.existing_table(&format!("t{t}")).unwrap();
        assert_eq!(table.iter().count(), 3, "table {t}");
    }
}

/// Two busy tables in turn, then neither.
fn write_in_turn(db: &Database, rounds: u32) {
    let tables = ["a", "b"].map(|name| db.table(name).unwrap());
    for n in 0..rounds {
        let table = &tables[(n / 40 % 2) as usize];
        table.put(n.to_be_bytes(), [n as u8; 3000]).unwrap();
        while db.step().unwrap() {}
    }
}

#[test]
fn no_zone_leaks_when_the_power_goes_while_streams_open_and_close() {
    let _together = together();
    let tuning = CommitTuning::new().own_streams(1);
    for kind in KINDS {
        let (mut cuts, mut streams_seen) = (0, BTreeSet::new());
        for step in (1..).step_by(7) {
            let machine = kind.machine();
            let db = tiny().machine(&machine).commit_tuning(tuning).stepped().open(PATH).unwrap();
            machine.cut_before(step, Survive::Seeded(step));
            write_in_turn(&db, 160);
            streams_seen.insert(db.stats().pm.streams_used);
            let Some(after) = machine.found() else { break };
            cuts += 1;
            let db = options(&after, None).stepped().open(PATH).unwrap();
            assert!(db.verify().unwrap().damages.is_empty(), "step {step}");
            while db.step().unwrap() {}
            let pm = db.stats().pm;
            // Each zone holds a record, but for the open one and the spare of each stream.
            assert!(pm.zones_empty <= 2 * pm.streams_used, "step {step}, {kind:?}: {pm:?}");
        }
        assert!(cuts > 20, "{cuts} cuts");
        assert!(streams_seen.contains(&2), "a busy table had a stream: {streams_seen:?}");
    }
}

/// Streams are given and taken while the database is open: two tables get one each, and lose them
/// again, and what they hold is found whatever stream it went to.
#[test]
fn streams_of_tables_come_and_go_with_the_tuning() {
    let _together = together();
    for kind in KINDS {
        let machine = kind.machine();
        let tuned = |streams| CommitTuning::new().own_streams(streams);
        let options =
            || tiny().pm_size(8 << 20).machine(&machine).commit_tuning(tuned(0)).stepped();
        let db = options().open(PATH).unwrap();
        let tables = ["a", "b"].map(|name| db.table(name).unwrap());
        let mut n = 0u32;
        // Streams are looked at after every sixteenth of the region.
        let mut streams_with = |streams: u32| {
            db.tune_commits(tuned(streams));
            for _ in 0..160 {
                tables[n as usize % 2].put(n.to_be_bytes(), [n as u8; 8000]).unwrap();
                while db.step().unwrap() {}
                n += 1;
            }
            db.stats().pm.streams_used
        };
        assert_eq!(streams_with(0), 1, "{kind:?}: the shared one");
        assert_eq!(streams_with(2), 3, "{kind:?}");
        assert_eq!(streams_with(2), 3, "{kind:?}: they keep them");
        assert_eq!(streams_with(1), 2, "{kind:?}");
        assert_eq!(streams_with(0), 1, "{kind:?}");
        assert!(db.verify().unwrap().damages.is_empty());
        drop((tables, db));
        let db = options().open(PATH).unwrap();
        for name in ["a", "b"] {
            let rows = db.existing_table(name).unwrap().iter().map(Result::unwrap).count();
            assert_eq!(rows as u32, n / 2);
        }
    }
}

/// Every second unit or so is taken by a small zone that lives; then comes a batch that needs eight
/// in one piece.
#[test]
fn a_large_batch_finds_its_zone_in_a_region_that_small_ones_have_divided() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    for (name, streams) in [("one stream", 0), ("own streams", 2)] {
        let tuning = CommitTuning::new().own_streams(streams);
        let options = || Options::new().pm_size(8 << 20).commit_tuning(tuning);
        let db = options().open(dir.path().join(name)).unwrap();
        let tables = ["a", "b"].map(|name| db.table(name).unwrap());
        let largest = db.stats().pm.largest_zone;
        assert_eq!(largest, 1 << 20, "an eighth of the region");
        for round in 0..6u64 {
            for n in 0..60u64 {
                let key = (round * 1000 + n).to_be_bytes();
                tables[(n % 2) as usize].durability(Relaxed).put(key, [n as u8; 30_000]).unwrap();
            }
            let mut batch = WriteBatch::new();
            for n in 0..30u64 {
                batch.put(&tables[0], (round * 1000 + 500 + n).to_be_bytes(), [7; 30_000]);
            }
            db.write(batch).unwrap();
        }
        assert_eq!(tables[0].iter().count(), 6 * 60);
        assert_eq!(tables[1].iter().count(), 6 * 30);
        assert!(db.verify().unwrap().damages.is_empty());
        drop(tables);
        db.close().unwrap();
        let db = options().open(dir.path().join(name)).unwrap();
        assert_eq!(db.existing_table("a").unwrap().iter().count(), 6 * 60);
    }
}

#[test]
fn a_batch_larger_than_the_largest_zone_is_one_commit_all_the_same() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(64 << 20).open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let batch = |values: u64| {
        let mut batch = WriteBatch::new();
        for n in 0..values {
            batch.put(&table, n.to_be_bytes(), vec![1; 1 << 20]);
        }
        batch
    };
    assert_eq!(db.stats().pm.largest_zone, 8 << 20);
    db.write(batch(7)).unwrap();
    assert_eq!(db.stats().commit.spilled_runs, 0);
    db.write(batch(9)).unwrap();
    assert_eq!(db.stats().commit.spilled_runs, 1);
    assert_eq!(table.iter().count(), 9);
}
