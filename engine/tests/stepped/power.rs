//! Power cuts on simulated machines: whatever was acknowledged as durable is there, commits are
//! whole, those that are lost are the newest, nothing returns from the dead, and a second cut,
//! wherever it falls, changes nothing about it.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use crate::common::cuts::{ALL_KINDS, End, KINDS, Rig, reopen};
use crate::common::lives::{Lives, Tally, dead_stay_dead};
use crate::common::workload::Taste;
use crate::common::{long, rounds, together};

fn all(seeds: std::ops::Range<u64>, taste: Taste, kills: bool) -> Tally {
    let mut tally = Tally::default();
    for kind in ALL_KINDS {
        // Other ends of what the machine with memory alone lives through too.
        let every = if kind.is_variant() && !long() { 6 } else { 1 };
        for seed in seeds.clone().step_by(every) {
            let lives = Lives { kind, seed, taste, kills, failpoint: None };
            lives.run(&mut tally).unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
    eprintln!("{tally:?}");
    tally
}

#[test]
fn acknowledged_commits_survive_cuts_and_what_is_lost_is_the_newest() {
    let tally = all(0..rounds(40, 2000), Taste::default(), false);
    assert!(tally.ends > 300, "{tally:?}");
}

#[test]
fn killed_processes_lose_nothing_and_a_cut_after_the_reopening_neither() {
    let seeds = 10_000..10_000 + rounds(40, 2000);
    let tally = all(seeds, Taste::default(), true);
    assert!(tally.ends > 300, "{tally:?}");
}

#[test]
fn small_relaxed_commits_in_many_tables_are_lost_from_the_end() {
    let taste =
        Taste { relaxed: 95, tables: 3, steps: 30, value: 6000, keys: 400, ranges: 0, syncs: 0 };
    let seeds = 20_000..20_000 + rounds(25, 1000);
    let tally = all(seeds, taste, true);
    assert!(tally.ends > 200, "{tally:?}");
}

#[test]
fn what_was_synced_survives_cuts() {
    let taste =
        Taste { relaxed: 98, tables: 1, steps: 15, value: 3000, keys: 300, ranges: 1, syncs: 20 };
    let tally = all(70_000..70_000 + rounds(25, 1000), taste, true);
    assert!(tally.ends > 200, "{tally:?}");
}

#[test]
fn a_deleted_key_stays_deleted_when_its_tombstone_is_gone_before_it() {
    // Of row tables the zones are gone before a column is drained.
    for kind in KINDS {
        dead_stay_dead(kind, None).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn large_values_that_drain_all_the_time_survive_cuts() {
    let taste =
        Taste { relaxed: 60, tables: 4, steps: 40, value: 25_000, keys: 250, ranges: 0, syncs: 0 };
    let seeds = 30_000..30_000 + rounds(15, 600);
    let tally = all(seeds, taste, true);
    assert!(tally.drains > 100 && tally.zones_released > 100, "{tally:?}");
}

#[test]
fn range_deletes_over_many_columns_survive_cuts() {
    let taste =
        Taste { relaxed: 60, tables: 2, steps: 40, value: 20_000, keys: 250, ranges: 12, syncs: 0 };
    let seeds = 60_000..60_000 + rounds(8, 500);
    let tally = all(seeds, taste, true);
    assert!(tally.drains > 20 && tally.compactions > 0, "{tally:?}");
}

#[test]
fn batches_that_take_zones_of_several_units_survive_cuts() {
    let taste =
        Taste { relaxed: 50, tables: 2, steps: 40, value: 230_000, keys: 30, ranges: 0, syncs: 0 };
    let seeds = 50_000..50_000 + rounds(10, 500);
    let tally = all(seeds, taste, true);
    assert!(tally.drains > 50 && tally.zones_released > 50, "{tally:?}");
}

/// The list of incarnations in the superblock has 160 places; 128 openings that all left records
/// in one zone are joined into one entry, and what was dead stays dead.
#[test]
fn hundreds_of_openings_with_a_commit_each_keep_what_they_should() {
    let _together = together();
    for kind in ALL_KINDS {
        let mut rig = Rig::new(kind, 40_000, None);
        let taste =
            Taste { relaxed: 50, tables: 0, steps: 0, value: 200, keys: 50, ranges: 0, syncs: 0 };
        let openings = if kind.is_variant() { rounds(40, 1000) } else { rounds(300, 1000) };
        for n in 0..openings {
            for _ in 0..1 + rig.chance.below(3) {
                rig.act(&taste);
            }
            let survive = rig.survive();
            let (end, account) = (End::Cut(survive), rig.account());
            let found = rig.machine.crash(survive);
            let (db, content) = reopen(&found, None, &account, end)
                .unwrap_or_else(|violation| panic!("{kind:?}, opening {n}: {violation}"));
            rig.go_on(found, db, content);
        }
    }
}
