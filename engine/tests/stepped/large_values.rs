//! Large values apart from their keys: where they are read from, what moves them and what does not,
//! that their space comes back, and what is said of damage.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::cuts::PATH;
use crate::common::{Chance, alone, rounds, tiny, together};
use terrace::testing::{HandClock, Machine, Survive};
use terrace::{
    BackgroundTuning, Database, Durability, ErrorKind, Existing, Options, Table, TableOptions,
    TableStats,
};

const APART: TableOptions = TableOptions::new().large_values(1024);

/// A database with a table `t`.
fn make(options: Options) -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = options.stepped().create(dir.path()).unwrap();
    let table = db.create_table("t", APART).unwrap();
    (dir, db, table)
}

fn run_until_idle(db: &Database) {
    for _ in 0..10_000 {
        if !db.step().unwrap() {
            return;
        }
    }
    panic!("ten thousand jobs and no end: {:?}", db.stats());
}

/// Every third is not a large one.
fn value(n: u64, round: u64) -> Vec<u8> {
    let len = if n.is_multiple_of(3) { 200 } else { 3000 + n as usize % 1000 };
    Chance::new(n << 16 | round).bytes(len)
}

fn put(table: &Table, n: u64, round: u64) {
    table.durability(Durability::Relaxed).put(key(n), value(n, round)).unwrap();
}

fn key(n: u64) -> String {
    format!("{n:06}")
}

/// Puts rows, and does the jobs that they call for.
fn fill(db: &Database, table: &Table, rows: Range<u64>, round: u64) {
    for n in rows {
        put(table, n, round);
        if n % 20 == 0 {
            run_until_idle(db);
        }
    }
}

/// Writes to another table until nothing of `name` is above the levels; downwards, so that the turn
/// of drains comes to its end.
fn push_down(db: &Database, name: &str) {
    let filler = db.table("filler").unwrap();
    let from = 1_000_000_000 - db.stats().commit.visible * 10_000;
    for n in 0..5000u64 {
        filler.durability(Durability::Relaxed).put(format!("{:010}", from - n), [7; 4000]).unwrap();
        if n % 50 == 0 {
            run_until_idle(db);
            let stats = stats(db, name);
            if stats.memtable_records + stats.level0_records + stats.spilled_runs == 0 {
                return;
            }
        }
    }
    panic!("it is not drained: {:?}", db.stats());
}

fn stats(db: &Database, name: &str) -> TableStats {
    db.stats().tables.into_iter().find(|t| t.name == name).unwrap()
}

fn intact(db: &Database) {
    assert_eq!(db.verify().unwrap().damages, []);
}

/// Rows 0 to `to`, of which those of `newer` are of a later round.
fn check(table: &Table, to: u64, newer: &dyn Fn(u64) -> bool) {
    let want = |n: u64| value(n, u64::from(newer(n)));
    for n in 0..to {
        assert_eq!(table.get(key(n)).unwrap().unwrap(), want(n), "row {n}");
    }
    let rows: Vec<_> = table.iter().map(Result::unwrap).collect();
    assert_eq!(rows.len() as u64, to);
    for (n, (_, got)) in (0..).zip(&rows) {
        assert_eq!(*got, want(n), "row {n} of all");
    }
    let mut back: Vec<_> = table.iter().rev().map(Result::unwrap).collect();
    back.reverse();
    assert!(back == rows, "the same from behind");
}

#[test]
fn large_values_lie_apart_and_are_read_from_everywhere() {
    let _alone = alone();
    let (dir, db, table) = make(tiny());
    fill(&db, &table, 0..900, 0);
    push_down(&db, "t");
    let of = stats(&db, "t");
    let large: u64 = (0..900).map(|n| value(n, 0).len() as u64).filter(|len| *len >= 1024).sum();
    assert!(of.value_live_bytes >= large && of.value_live_bytes < large + 600 * 20, "{of:?}");
    let levels: u64 = of.levels.iter().map(|level| level.bytes).sum();
    assert!(levels < 900 * 300, "keys, short values, and references: {levels} bytes");
    check(&table, 900, &|_| false);
    let before = db.stats().disk.reads;
    assert_eq!(table.iter().map(Result::unwrap).count(), 900);
    let reads = db.stats().disk.reads - before;
    assert!(reads < 200, "{reads} reads of 600 large values");
    let snapshot = db.snapshot().unwrap();
    fill(&db, &table, 100..500, 1);
    push_down(&db, "t");
    let newer = |n: u64| (100..500).contains(&n);
    check(&table, 900, &newer);
    for n in (0..900).step_by(7) {
        assert_eq!(snapshot.get(&table, key(n)).unwrap().unwrap(), value(n, 0));
    }
    let some: Vec<_> = table.prefix("0004").map(Result::unwrap).collect();
    assert_eq!(some.len(), 100);
    drop(snapshot);
    intact(&db);
    drop(table);
    db.close().unwrap();

    let db = tiny().stepped().open(dir.path()).unwrap();
    check(&db.existing_table("t").unwrap(), 900, &newer);
    run_until_idle(&db);
    intact(&db);
}

#[test]
fn compactions_do_not_move_values() {
    let _alone = alone();
    let (_dir, db, table) = make(tiny().level1_size(16 << 10));
    // Odd keys, then those between them: everything below is merged again.
    for start in 0..2 {
        for n in (start..1200).step_by(2) {
            put(&table, n, 0);
            if n % 20 < 2 {
                run_until_idle(&db);
            }
        }
    }
    push_down(&db, "t");
    let stats = db.stats();
    let of = stats.tables.iter().find(|t| t.name == "t").unwrap();
    let jobs = stats.background.compactions + stats.background.moves;
    assert!(of.levels.len() >= 2 && jobs > 3, "{stats:?}");
    assert_eq!(stats.background.collections, 0, "nothing was replaced");
    assert_eq!(of.value_live_bytes, of.value_bytes - 64 * of.value_extents, "nothing is dead");
    check(&table, 1200, &|_| false);
}

#[test]
fn dead_values_are_collected_and_space_comes_back() {
    let _alone = alone();
    let (_dir, db, table) = make(tiny());
    fill(&db, &table, 0..900, 0);
    push_down(&db, "t");
    let before = stats(&db, "t");
    let mut chance = Chance::new(5);
    let held = db.snapshot().unwrap();
    let mut rounds_of = vec![0; 900];
    for round in 1..=4 {
        for _ in 0..500 {
            let n = chance.below(900);
            put(&table, n, round);
            rounds_of[n as usize] = round;
            if n.is_multiple_of(20) {
                run_until_idle(&db);
            }
        }
    }
    push_down(&db, "t");
    let kept = stats(&db, "t");
    assert!(kept.value_live_bytes > before.value_live_bytes * 5 / 4, "the snapshot keeps values");
    for n in (0..900).step_by(11) {
        assert_eq!(held.get(&table, key(n)).unwrap().unwrap(), value(n, 0));
    }
    drop(held);
    // Written once more, so that merges see that no reader reads the older versions.
    for n in (0..900).step_by(10) {
        put(&table, n, 5);
        rounds_of[n as usize] = 5;
    }
    push_down(&db, "t");
    run_until_idle(&db);
    let after = stats(&db, "t");
    assert!(db.stats().background.collections > 0);
    let ends = after.value_bytes - 64 * after.value_extents;
    assert!(2 * after.value_live_bytes >= ends, "half of it is live: {after:?}");
    let large: u64 = (0..900).map(|n| value(n, 0).len() as u64).filter(|len| *len >= 1024).sum();
    assert!(after.value_live_bytes < large * 5 / 4, "{after:?} of {large}");
    for n in 0..900 {
        let got = table.get(key(n)).unwrap().unwrap();
        assert_eq!(got, value(n, rounds_of[n as usize]), "row {n}");
    }
    intact(&db);
    table.delete_range(key(100)..key(800)).unwrap();
    push_down(&db, "t");
    let after = stats(&db, "t");
    assert!(after.value_live_bytes < large / 2, "deleted ranges let go of theirs: {after:?}");
    db.truncate_table("t").unwrap();
    assert_eq!(stats(&db, "t").value_extents, 0);
    // The last readers of it are these threads' own; others may be at work on their databases.
    for _ in 0..100 {
        db.table("filler").unwrap().put("again", "and again").unwrap();
        run_until_idle(&db);
    }
    let taken = db.stats().disk.extent_bytes;
    let left: u64 = ["t", "filler"]
        .iter()
        .flat_map(|name| stats(&db, name).levels)
        .map(|level| level.bytes + level.extents * 16 * 1024)
        .sum();
    assert!(taken <= left, "{taken} bytes taken, {left} by levels");
    intact(&db);
}

#[test]
fn loaded_values_stay_where_they_are() {
    let _alone = alone();
    let (dir, db, table) = make(tiny());
    let load = |rows: &mut dyn Iterator<Item = u64>, round| {
        let mut load = table.bulk_load(Existing::Replace).unwrap();
        rows.for_each(|n| load.put(key(n), value(n, round)).unwrap());
        load.finish().unwrap();
    };
    load(&mut (0..1500), 0);
    check(&table, 1500, &|_| false);
    let written = db.stats().disk.written_bytes;
    run_until_idle(&db);
    let of = stats(&db, "t");
    assert_eq!((of.spilled_runs, db.stats().disk.written_bytes), (0, written), "by names alone");
    assert!(of.value_extents > 1 && of.value_live_bytes > 1_000_000, "{of:?}");
    check(&table, 1500, &|_| false);
    // Between what is there: only keys are looked at.
    let read = db.stats().disk.read_bytes;
    let mut between = table.bulk_load(terrace::Existing::Refuse).unwrap();
    (0..1500).for_each(|n| between.put(key(n) + "x", "y").unwrap());
    between.finish().unwrap();
    let read = db.stats().disk.read_bytes - read;
    assert!(read < 1_000_000, "{read} bytes read, of values too");
    (0..1500).for_each(|n| table.delete(key(n) + "x").unwrap());
    // Over what is there: a run that is merged, in parts.
    load(&mut (0..1500).step_by(2), 1);
    let newer = |n: u64| n.is_multiple_of(2);
    check(&table, 1500, &newer);
    run_until_idle(&db);
    assert_eq!(stats(&db, "t").spilled_runs, 0);
    check(&table, 1500, &newer);
    intact(&db);
    drop(table);
    db.close().unwrap();
    let db = tiny().stepped().open(dir.path()).unwrap();
    check(&db.existing_table("t").unwrap(), 1500, &newer);
    intact(&db);
}

/// A large transaction keeps its values beside the keys until it is merged.
#[test]
fn large_commits_have_their_values_taken_out_by_the_drain() {
    let _alone = alone();
    let (_dir, db, table) = make(tiny());
    let txn = db.begin_with(terrace::TxnOptions::new().spill_at(10_000)).unwrap();
    for n in 0..300 {
        txn.put(&table, key(n), value(n, 0)).unwrap();
    }
    txn.commit().unwrap();
    assert_eq!((stats(&db, "t").spilled_runs, stats(&db, "t").value_extents), (1, 0));
    check(&table, 300, &|_| false);
    run_until_idle(&db);
    let of = stats(&db, "t");
    assert!(of.spilled_runs == 0 && of.value_extents > 0, "{of:?}");
    check(&table, 300, &|_| false);
    intact(&db);
}

#[test]
fn expired_values_go_unread_with_their_extents() {
    const HOUR: Duration = Duration::from_secs(3600);
    let _alone = alone();
    let (dir, clock) = (tempfile::tempdir().unwrap(), HandClock::default());
    let db = tiny().stepped().clock(&clock).create(dir.path()).unwrap();
    let table = db.create_table("t", APART.ttl(HOUR)).unwrap();
    fill(&db, &table, 0..300, 0);
    push_down(&db, "t");
    // A mark that dates all of it.
    clock.pass(Duration::from_secs(2));
    db.table("filler").unwrap().put("later", "").unwrap();
    run_until_idle(&db);
    assert!(stats(&db, "t").value_extents > 0);
    check(&table, 300, &|_| false);
    clock.pass(HOUR * 2);
    let read = db.stats().disk.read_bytes;
    assert_eq!(table.iter().count(), 0);
    run_until_idle(&db);
    let of = stats(&db, "t");
    assert_eq!((of.value_extents, of.levels.len()), (0, 0), "{of:?}");
    let read = db.stats().disk.read_bytes - read;
    assert!(read < 300_000, "{read} bytes read of what has expired");
    intact(&db);
}

#[test]
fn large_values_do_not_push_blocks_out_of_the_cache() {
    let _alone = alone();
    let (_dir, db, table) = make(tiny());
    fill(&db, &table, 0..900, 0);
    push_down(&db, "t");
    let before = db.stats().disk.read_bytes;
    (0..900).for_each(|n| assert!(table.get(key(n)).unwrap().is_some()));
    let read = db.stats().disk.read_bytes - before;
    let cached = db.stats().cache.used;
    assert!(read > 1_500_000, "{read} bytes read");
    assert!(cached < 400_000, "{cached} bytes of blocks in the cache");
}

/// Keys alone, in both directions, and whether a key is there.
#[test]
fn keys_alone_read_no_large_values() {
    let _alone = alone();
    let (_dir, db, table) = make(tiny());
    fill(&db, &table, 0..900, 0);
    push_down(&db, "t");
    let before = db.stats().disk.read_bytes;
    assert_eq!(table.range(..).keys().map(Result::unwrap).count(), 900);
    assert_eq!(table.range(..).rev().keys().map(Result::unwrap).count(), 900);
    (0..900).for_each(|n| assert!(table.contains_key(key(n)).unwrap()));
    let read = db.stats().disk.read_bytes - before;
    assert!(read < 800_000, "{read} bytes read of values of two million");
    let before = db.stats().disk.read_bytes;
    assert_eq!(table.range(..).values().map(Result::unwrap).count(), 900);
    let read = db.stats().disk.read_bytes - before;
    assert!(read > 1_500_000, "{read} bytes read: the values are not cached");
}

/// Jobs fail before they begin, and go on when there is room again.
#[test]
fn a_full_disk_stops_drains_and_nothing_is_lost() {
    let _alone = alone();
    let machine = Machine::with_files();
    let options = || tiny().stepped().machine(&machine);
    let db = options().create(PATH).unwrap();
    let table = db.create_table("t", APART).unwrap();
    fill(&db, &table, 0..300, 0);
    let used: u64 = machine.list(Path::new(PATH)).iter().map(|(_, len)| len).sum();
    machine.set_capacity(Some(used));
    let mut written = 300;
    let full = loop {
        let stopped =
            terrace::with_deadline(Instant::now(), || table.put(key(written), value(written, 0)));
        if let Err(e) = stopped {
            break e;
        }
        written += 1;
        for _ in 0..50 {
            match db.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => assert_eq!(e.kind(), ErrorKind::Full, "{e}"),
            }
        }
        assert!(written < 5000, "it is full some time: {:?}", db.stats());
    };
    assert!(matches!(full.kind(), ErrorKind::Full | ErrorKind::Timeout), "{full}");
    check(&table, written, &|_| false);
    machine.set_capacity(None);
    // The region is full too, and only this thread makes room in it.
    run_until_idle(&db);
    push_down(&db, "t");
    check(&table, written, &|_| false);
    intact(&db);
    let cut = machine.crash(Survive::Nothing);
    let db = tiny().stepped().machine(&cut).open(PATH).unwrap();
    assert!(db.existing_table("t").unwrap().iter().count() >= 300);
    intact(&db);
}

/// The value extents of a file: where they begin, and where their footers are.
fn value_extents(file: &Path) -> Vec<(u64, u64)> {
    let bytes = fs::read(file).unwrap();
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let footers = (0..bytes.len() - 64).filter(|at| bytes[*at..].starts_with(b"TVAL"));
    let start = |end: usize| {
        let leads_there = |start: &usize| {
            let mut at = *start;
            while at < end {
                at += 16 + half(at + 4);
            }
            at == end
        };
        (0..end + 1).step_by(16 * 1024).rev().find(leads_there)
    };
    footers.filter_map(|end| Some((start(end)? as u64, end as u64))).collect()
}

#[test]
fn a_damaged_value_is_named_never_served_and_lost_alone() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = tiny().stepped().create(&path).unwrap();
    let table = db.create_table("t", APART).unwrap();
    fill(&db, &table, 0..60, 0);
    push_down(&db, "t");
    let live = stats(&db, "t");
    drop(table);
    db.close().unwrap();
    let file = path.join("extents-00000001");
    let mut found = false;
    for (start, _) in value_extents(&file) {
        let open = fs::File::options().read(true).write(true).open(&file).unwrap();
        let mut byte = [0];
        open.read_exact_at(&mut byte, start + 100).unwrap();
        open.write_all_at(&[byte[0] ^ 0x20], start + 100).unwrap();
        let damages = terrace::Options::new().verify(&path).unwrap().damages;
        if damages.is_empty() {
            // Its space was given back.
            continue;
        }
        found = true;
        assert_eq!(damages.len(), 1, "{damages:?}");
        assert!(damages[0].file == file && damages[0].offset == start, "{:?}", damages[0]);
        assert!(damages[0].what.starts_with("value of value extent"), "{:?}", damages[0]);
        let db = tiny().stepped().open(&path).unwrap();
        let table = db.existing_table("t").unwrap();
        let mut bad = Vec::new();
        for n in 0..60 {
            match table.get(key(n)) {
                Ok(got) => assert_eq!(got.unwrap(), value(n, 0)),
                Err(e) => {
                    assert_eq!(e.damage(), Some(&damages[0]), "row {n}");
                    bad.push(n);
                }
            }
        }
        assert_eq!(bad.len(), 1, "{bad:?}");
        assert!(table.iter().any(|row| row.is_err_and(|e| e.kind() == ErrorKind::Corrupt)));
        assert_eq!(db.backup(dir.path().join("set")).unwrap_err().kind(), ErrorKind::Corrupt);
        drop(table);
        db.close().unwrap();
        let to = dir.path().join("salvaged");
        let report = terrace::Options::new().salvage(&path, &to).unwrap();
        assert_eq!(report.lost.len(), 1, "{:?}", report.lost);
        assert!(report.lost[0].what.contains(&key(bad[0])), "{:?}", report.lost[0]);
        let db = terrace::Options::new().open_read_only(&to).unwrap();
        let table = db.existing_table("t").unwrap();
        for n in 0..60 {
            let want = (n != bad[0]).then(|| value(n, 0));
            assert_eq!(table.get(key(n)).unwrap().as_deref(), want.as_deref(), "row {n}");
        }
        break;
    }
    assert!(found, "a live value extent was found: {live:?}");
}

#[test]
fn what_cannot_be_a_threshold_is_refused() {
    let _together = together();
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().stepped().create(dir.path()).unwrap();
    for wrong in [0, 511, (1 << 20) + 1] {
        let refused = db.create_table("t", TableOptions::new().large_values(wrong)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("512 to 1048576"), "{refused}");
    }
    let table = db.create_table("t", TableOptions::new().large_values(1 << 20)).unwrap();
    let largest = Chance::new(1).bytes(1 << 20);
    table.put("largest", &largest).unwrap();
    push_down(&db, "t");
    assert_eq!(stats(&db, "t").value_extents, 1);
    assert_eq!(table.get("largest").unwrap().unwrap(), largest);
    intact(&db);
}

/// Threads that write, read and compact at once.
#[test]
fn readers_go_on_while_values_are_collected() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().pm_size(4 << 20).level1_size(64 << 10);
    let tuning = BackgroundTuning::new().threads(2);
    let db = options.background_tuning(tuning).create(dir.path()).unwrap();
    let table = db.create_table("t", APART).unwrap();
    (0..600).for_each(|n| put(&table, n, 0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let table = &table;
            scope.spawn(move || {
                let mut chance = Chance::new(thread);
                for _ in 0..rounds(20_000, 200_000) {
                    let n = chance.below(600);
                    let got = table.get(key(n)).unwrap().unwrap();
                    assert!((0..9).any(|round| got == value(n, round)), "row {n}");
                }
            });
        }
        for round in 1..9 {
            (0..600).filter(|n| (n + round) % 4 > 0).for_each(|n| put(&table, n, round));
        }
    });
    intact(&db);
}
