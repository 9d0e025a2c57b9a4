//! The test of the tool: each bug that can be planted makes a run report a violation, and without
//! it the same runs pass. (A delete from a sorted array that flushes too early is with the
//! explorer itself, in the engine.)

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::sync::Mutex;
use std::time::Instant;

use terrace::testing::Planted;
use terrace_sim::cuts::Kind;
use terrace_sim::planted::Search;
use terrace_sim::scenario::Scenario;

/// One database at work at a time: readers of one hold up what another one frees.
static TURN: Mutex<()> = Mutex::new(());

/// More seeds than any bug here needs.
const SEEDS: u64 = 40;

fn is_caught(bug: Planted, kind: Kind, scenario: Scenario) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A panic is found as other violations are; to name all its callers would take ten seconds.
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    let begin = Instant::now();
    let found = Search { bug: Some(bug), kind, scenario, seeds: SEEDS }.first();
    let violation = found.unwrap_or_else(|| panic!("{bug:?} passes {SEEDS} seeds"));
    eprintln!("{bug:?}, {:.1} s: {violation}", begin.elapsed().as_secs_f64());
    let sound = Search { bug: None, kind, scenario, seeds: 1 }.first();
    assert_eq!(sound, None, "without the bug");
}

#[test]
fn a_flush_removed() {
    is_caught(Planted::SkipFlush, Kind::Memory, Scenario::Commits);
}

#[test]
fn a_fence_removed() {
    is_caught(Planted::SkipFence, Kind::Memory, Scenario::Commits);
}

#[test]
fn a_sync_removed() {
    is_caught(Planted::SkipRunSync, Kind::Files, Scenario::Commits);
}

#[test]
fn torn_payloads_trusted() {
    is_caught(Planted::SkipPayloadChecksum, Kind::Files, Scenario::Switch);
    is_caught(Planted::SkipPayloadChecksum, Kind::Memory, Scenario::Commits);
}

#[test]
fn the_floor_written_early() {
    is_caught(Planted::EarlyFloor, Kind::Files, Scenario::Commits);
}

#[test]
fn gidx_trusted_above_the_floor() {
    is_caught(Planted::EarlyGidx, Kind::Files, Scenario::Commits);
}

#[test]
fn what_was_drained_forgotten() {
    is_caught(Planted::ForgetDrained, Kind::Memory, Scenario::Free);
}

#[test]
fn a_tombstone_pruned() {
    is_caught(Planted::PruneTombstones, Kind::Memory, Scenario::Buried);
}

#[test]
fn a_range_tombstone_let_go_with_d_of_a_part() {
    is_caught(Planted::RetireRangesEarly, Kind::Memory, Scenario::Ranges);
}

#[test]
fn a_zone_reused_before_its_edit() {
    is_caught(Planted::ReuseBeforeEdit, Kind::Memory, Scenario::Free);
}

#[test]
fn a_zone_reused_before_the_index_has_forgotten_it() {
    is_caught(Planted::RetireLater, Kind::Index, Scenario::Free);
}

#[test]
fn an_index_sealed_before_it_is_durable() {
    is_caught(Planted::SealEarly, Kind::Index, Scenario::Closing);
}

#[test]
fn an_index_changed_under_its_seal() {
    is_caught(Planted::KeepSeal, Kind::Index, Scenario::Opening);
}

#[test]
fn a_cleaned_zone_freed_before_its_copies_are_durable() {
    is_caught(Planted::FreeBeforeCopy, Kind::Files, Scenario::Clean);
}

#[test]
fn an_old_incarnation_accepted() {
    is_caught(Planted::AcceptOldIncarnation, Kind::Files, Scenario::Switch);
}

#[test]
fn the_published_shift_rule_under_shared_runs() {
    is_caught(Planted::PublishedShift, Kind::Memory, Scenario::Commits);
}

#[test]
fn a_run_committed_before_its_record() {
    // On persistent memory a group is fenced before its commit is waited for.
    is_caught(Planted::RunBeforeRecord, Kind::Files, Scenario::Spill);
}

#[test]
fn a_pending_run_accepted_without_its_record() {
    is_caught(Planted::AcceptPendingRun, Kind::Memory, Scenario::Spill);
}

#[test]
fn a_runs_extents_reused_before_the_edit_of_their_drain() {
    is_caught(Planted::ReuseBeforeEdit, Kind::Files, Scenario::SpillDrain);
}

#[test]
fn a_load_placed_under_older_records() {
    is_caught(Planted::PlaceOverOlder, Kind::Files, Scenario::Load);
}

#[test]
fn what_was_prepared_indexed() {
    is_caught(Planted::IndexPrepares, Kind::Files, Scenario::Prepared);
}

#[test]
fn a_verdict_released_before_what_it_is_on() {
    is_caught(Planted::ReleaseVerdicts, Kind::Files, Scenario::Prepared);
}

#[test]
fn a_backup_named_before_it_is_durable() {
    is_caught(Planted::BackupBeforeSync, Kind::Files, Scenario::Backup);
    is_caught(Planted::BackupBeforeSync, Kind::Memory, Scenario::Backup);
}

#[test]
fn values_that_earlier_backups_list_written_over_by_the_next() {
    is_caught(Planted::FreeListedValues, Kind::Files, Scenario::Backup);
}

#[test]
fn an_extent_installed_before_its_values_are_durable() {
    is_caught(Planted::InstallBeforeSync, Kind::Files, Scenario::Values);
    is_caught(Planted::InstallBeforeSync, Kind::Memory, Scenario::Values);
}

#[test]
fn a_value_extent_given_back_while_the_journal_lists_it() {
    is_caught(Planted::CollectBeforeEdit, Kind::Files, Scenario::Values);
}
