use std::collections::BTreeMap;
use std::sync::Barrier;

use super::*;
use crate::db::Database;
use crate::options::{BackgroundTuning, Durability, Options};

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
    let done = [&background.compactions, &background.moves].map(|n| n.load(Ordering::Relaxed));
    assert_eq!(done.iter().sum::<u64>(), 2, "{done:?}");
    let rows = db.table("t").unwrap().iter().map(Result::unwrap);
    let rows: BTreeMap<_, _> = rows.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert!(rows == model, "{} of {} rows", rows.len(), model.len());
    assert_eq!(db.verify().unwrap().damages.len(), 0);
}
