//! The test of the tests: each bug that can be planted makes the power-cut suite report a
//! violation, and without it the same runs pass.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

mod common;

use common::cuts::{KINDS, Kind, Violation};
use common::lives::{Lives, Tally, dead_stay_dead};
use common::workload::Taste;
use terrace::testing::Planted;

/// More than any bug here needs; the first violation ends the search.
const SEEDS: u64 = 60;

fn taste() -> Taste {
    Taste { steps: 30, ..Taste::default() }
}

/// The first violation that the power-cut runs find.
fn search(kind: Kind, planted: Option<Planted>, seeds: u64) -> Result<(), Violation> {
    let mut tally = Tally::default();
    for seed in 0..seeds {
        let run = Lives { kind, seed, taste: taste(), kills: false, planted };
        run.run(&mut tally)?;
    }
    Ok(())
}

fn is_caught(kind: Kind, bug: Planted) {
    let violation = search(kind, Some(bug), SEEDS);
    let violation = violation.expect_err("the suite must turn red");
    eprintln!("{bug:?} on {kind:?}: {violation}");
}

#[test]
fn without_a_bug_the_same_runs_pass() {
    for kind in KINDS {
        search(kind, None, 20).unwrap();
    }
}

#[test]
fn a_publisher_that_does_not_sync_is_caught() {
    is_caught(Kind::Files, Planted::SkipRunSync);
}

#[test]
fn a_writer_that_does_not_fence_is_caught() {
    is_caught(Kind::Memory, Planted::SkipFence);
}

#[test]
fn a_recovery_that_trusts_torn_payloads_is_caught() {
    is_caught(Kind::Files, Planted::SkipPayloadChecksum);
    is_caught(Kind::Memory, Planted::SkipPayloadChecksum);
}

#[test]
fn a_drain_that_forgets_what_it_drained_is_caught() {
    for kind in KINDS {
        let violation = dead_stay_dead(kind, Some(Planted::ForgetDrained));
        eprintln!("{}", violation.expect_err("the suite must turn red"));
        dead_stay_dead(kind, None).unwrap();
    }
}
