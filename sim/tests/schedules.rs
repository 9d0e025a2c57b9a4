//! Whole databases under the deterministic scheduler: what holds, that a seed is one run, and that
//! planted bugs are found.

use std::process::Command;

use terrace::testing::Failpoint;
use terrace_sim::machines::Kind;
use terrace_sim::schedules::Schedule;
use terrace_sim::violation::Class;

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

/// Bug: a batch was told that its table was dropped, where two truncations came one after the
/// other. Cause: it waited for the first one to end, and looked at the table when the second one
/// had marked it and not replaced it yet. Fix: it looks while no change of tables is under way.
#[test]
fn a_batch_beside_two_truncations_follows_its_table() {
    let _alone = alone();
    if let Err(failure) = Schedule::of(400_944).run() {
        panic!("{failure}");
    }
}

#[test]
fn a_seed_is_one_run_alone_and_after_others_in_any_process() {
    let _alone = alone();
    let hash = |seed: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-sim"));
        let output = command
            .args(["--schedules", "--json", "--seed", &seed.to_string(), "--seeds", "1"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        printed["hash"].as_str().unwrap().to_string()
    };
    for seed in 0..24 {
        let here = Schedule::of(seed).run().unwrap().hash;
        assert_eq!(hash(seed), format!("{here:016x}"), "seed {seed}");
    }
}

/// Whether one of some seeds finds the bug, says what is expected of it, and finds nothing without.
fn finds(bug: Failpoint, kind: Kind, class: Class) -> bool {
    (0..200).any(|seed| {
        let schedule = Schedule { kind, bug: Some(bug), ..Schedule::of(seed) };
        let Err(failure) = schedule.run() else { return false };
        assert!(!failure.is_stuck, "seed {seed}\n{failure}");
        let is_it = failure.violations.iter().any(|what| Class::of(what) == Some(class));
        if is_it && let Err(failure) = (Schedule { bug: None, ..schedule }).run() {
            panic!("seed {seed} without a bug\n{failure}");
        }
        is_it
    })
}

#[test]
fn planted_bugs_are_found() {
    let _alone = alone();
    for (bug, kind, class) in [
        (Failpoint::SkipConflictCheck, Kind::Memory, Class::Isolation),
        (Failpoint::SkipRunSync, Kind::Files, Class::Lost),
        (Failpoint::SkipFence, Kind::Memory, Class::Lost),
    ] {
        assert!(finds(bug, kind, class), "{bug:?} is not found");
    }
}
