//! Whole databases under the deterministic scheduler: what holds, that a seed is one run, and that
//! planted bugs are found.

use std::process::Command;

use terrace::testing::Failpoint;
use terrace_sim::machines::Kind;
use terrace_sim::schedules::Schedule;

/// The tests of a process share its epochs: one has a database at work at a time.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn schedules_of_the_whole_database_find_nothing() {
    let _alone = alone();
    for seed in 0..60 {
        if let Err(failure) = Schedule::of(seed).run() {
            panic!("seed {seed}\n{failure}");
        }
    }
}

#[test]
fn a_seed_is_one_run_in_any_process() {
    let hash = |seed: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-sim"));
        let output = command
            .args(["--schedules", "--json", "--seed", &seed.to_string(), "--seeds", "1"])
            .output()
            .unwrap();
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        printed["hash"].clone()
    };
    for seed in [2, 5, 14] {
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
    }
    assert_ne!(hash(2), hash(5));
}

/// Whether one of some seeds finds the bug.
fn finds(bug: Failpoint, kind: Kind) -> bool {
    (0..200).any(|seed| {
        let schedule = Schedule { kind, bug: Some(bug), ..Schedule::of(seed) };
        schedule.run().is_err()
    })
}

#[test]
fn planted_bugs_are_found() {
    let _alone = alone();
    for (bug, kind) in [
        (Failpoint::SkipConflictCheck, Kind::Memory),
        (Failpoint::SkipRunSync, Kind::Files),
        (Failpoint::SkipFence, Kind::Memory),
    ] {
        assert!(finds(bug, kind), "{bug:?} is not found");
    }
}
