//! What the background does never stops writers.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Chance, tiny};
use terrace::{BackgroundTuning, Table};

/// Writes many times what the region has room for. Each put has a minute.
fn write(table: &Table, seed: u64) {
    let mut chance = Chance::new(seed);
    for n in 0..20_000u64 {
        let deadline = Instant::now() + Duration::from_secs(60);
        let (key, byte) = (chance.below(10_000).to_be_bytes(), n as u8);
        terrace::with_deadline(deadline, || table.put(key, [byte; 1024])).unwrap();
    }
}

/// Bug: under a rate for compactions a put took 15 seconds, and with a low rate writes ended in
/// `Full` on an empty disk. Cause: drains wait for compactions, which waited for their rate. Now
/// the rate gives way where writers would wait, and drains go on while a compaction rests.
#[test]
fn a_rate_of_compactions_does_not_stop_writers() {
    for (threads, by_hand) in [(1, true), (2, false)] {
        let dir = tempfile::tempdir().unwrap();
        let db = tiny().open(dir.path().join("db")).unwrap();
        let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
        write(&table, 1);
        let tuning = BackgroundTuning::new().threads(threads);
        // An extent is paid for in weeks.
        db.tune_background(tuning.bytes_per_second(1)).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let hand = by_hand.then(|| {
                scope.spawn(|| {
                    db.compact_range_with(&table, .., |_| match is_over.load(Ordering::Relaxed) {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    })
                })
            });
            write(&other, 2);
            write(&table, 3);
            is_over.store(true, Ordering::Relaxed);
            db.tune_background(tuning).unwrap();
            hand.map(|hand| hand.join().unwrap().unwrap());
        });
        assert!(db.stats().background.drains > 0);
        db.close().unwrap();
    }
}
