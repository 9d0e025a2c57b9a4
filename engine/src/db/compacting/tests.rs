use std::collections::BTreeMap;
use std::sync::Barrier;

use super::*;
use crate::db::Database;
use crate::levels::LAYERS;
use crate::mvcc::KeyInterval;
use crate::options::{BackgroundTuning, Durability, Options};
use crate::record::{Cursor, LSN_MAX};

fn settle(db: &Database) {
    while db.step().unwrap() {}
}

/// A row with a value that does not compress.
fn row(n: u64, round: u64) -> (Vec<u8>, Vec<u8>) {
    let words = (0..64u64).map(|i| (n << 16 | round << 8 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let value = words.flat_map(|word| (word ^ word >> 29).to_be_bytes()).collect();
    (n.to_be_bytes().to_vec(), value)
}

/// Two jobs of one table hold claims at the same moment, on keys that do not overlap, and run
/// beside each other; what neither has is free for a third.
#[test]
fn two_jobs_of_a_table_are_under_way_at_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().pm_size(2 << 20).stepped();
    let db = options().level1_size(64 << 20).create(dir.path()).unwrap();
    // Twice, so that there is something to merge; then others, which push it out of the region.
    for (name, round) in [("t", 0), ("t", 1), ("filler", 0)] {
        let table = db.table(name).unwrap();
        for n in 0..12_000 {
            let (key, value) = row(n, round);
            table.put_with(&key, &value, Durability::Relaxed).unwrap();
            if n % 20 == 0 {
                settle(&db);
            }
        }
    }
    let model: BTreeMap<_, _> = (0..12_000).map(|n| row(n, 1)).collect();
    db.close().unwrap();

    let db = options().level1_size(64 << 10).open(dir.path()).unwrap();
    let engine: &Engine = &db.inner;
    let background = &engine.background;
    // As on threads of their own, and none of them large.
    background.budget.set(BackgroundTuning::new().threads(3));
    background.smaller.store(5, Ordering::Relaxed);
    let table = engine.tables().into_iter().find(|table| table.name() == "t").unwrap();
    let jobs = [(); 2].map(|()| {
        let shape = engine.shape();
        engine.choose(&table).unwrap_or_else(|| panic!("{shape:?}: {:?}", background.claims))
    });
    let [first, second] = jobs.each_ref().map(|job| job.choice.interval());
    assert!(!first.overlaps(&second), "{first:?} and {second:?}");
    assert_eq!(background.claims.of(table.id()), [first.clone(), second.clone()]);
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        for job in &jobs {
            let (start, table) = (&start, &table);
            scope.spawn(move || {
                start.wait();
                assert!(engine.compact(table, job).unwrap());
            });
        }
    });
    assert_eq!(background.claims.of(table.id()).len(), 2, "as long as the jobs are there");
    let third = engine.choose(&table).unwrap();
    let interval = third.choice.interval();
    assert!(!interval.overlaps(&first) && !interval.overlaps(&second), "{interval:?}");
    drop((jobs, third));
    assert!(background.claims.is_empty());
    let done = [&background.metrics.compactions, &background.metrics.moves].map(|n| n.get());
    assert_eq!(done.iter().sum::<u64>(), 2, "{done:?}");
    let rows = db.table("t").unwrap().iter().map(Result::unwrap);
    let rows: BTreeMap<_, _> = rows.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert!(rows == model, "{} of {} rows", rows.len(), model.len());
    assert_eq!(db.verify().unwrap().damages.len(), 0);
}

/// Bug: a drain waited for a compaction to end, and writers for the drain.
/// Cause: where a column has little below it in level 1 it is merged with that, and the compaction
/// had claimed it.
/// Fix: over what is claimed a column is laid, however little there is.
#[test]
fn a_drain_does_not_wait_for_the_little_that_is_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(2 << 20).stepped().create(dir.path()).unwrap();
    let engine: &Engine = &db.inner;
    let rows = db.table("t").unwrap();
    let table = engine.tables().into_iter().find(|table| table.name() == "t").unwrap();
    // A few rows come to level 0.
    let bring = |round| {
        for n in 0..20 {
            let (key, value) = row(n, round);
            rows.put_with(&key, &value, Durability::Relaxed).unwrap();
        }
        assert!(engine.freeze(&table));
        while !table.view().frozen.is_empty() {
            assert!(db.step().unwrap());
        }
        // What was drained may still lie beside them: readers of other tests hold back what frees.
        let view = table.view();
        let mut cursor = view.level0.cursor(&view.version.drained);
        cursor.seek(b"", LSN_MAX).unwrap();
        let mut records = 0;
        while cursor.entry().is_some() {
            records += 1;
            cursor.next().unwrap();
        }
        assert_eq!(records, 20);
    };
    let ids = |layer| {
        let version = Arc::clone(&table.view().version);
        let extents = version.overlapping(layer, &KeyInterval::all()).iter();
        extents.map(|extent| extent.meta().id).collect::<Vec<_>>()
    };
    bring(0);
    assert!(engine.drain_oldest().unwrap());
    let below = ids(LAYERS);
    let bytes = table.view().version.level(LAYERS).unwrap().bytes();
    assert!(below.len() == 1 && (1..=engine.shape().little_bytes).contains(&bytes), "{bytes}");
    bring(1);
    let claims = &engine.background.claims;
    let claim = claims.claim(table.id(), KeyInterval::all()).unwrap();
    assert!(engine.drain_oldest().unwrap(), "it waits for what is claimed");
    assert_eq!(ids(LAYERS), below, "what is claimed is left alone");
    assert_eq!(ids(LAYERS - 1).len(), 1, "what was drained lies over it");
    for n in 0..20 {
        let (key, value) = row(n, 1);
        assert_eq!(rows.get(&key).unwrap().as_deref(), Some(&value[..]));
    }
    drop(claim);
    settle(&db);
    assert_eq!(db.verify().unwrap().damages.len(), 0);
}
