//! The test of the tool: each bug that can be planted makes a run report a violation, and without
//! it the same runs pass. (A delete from a sorted array that flushes too early is with the
//! explorer itself, in the engine.)

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::sync::Mutex;
use std::time::Instant;

use terrace::testing::Planted;
use terrace_sim::cuts::Kind;
use terrace_sim::planted::{Found, Search, Trial};
use terrace_sim::scenario::Scenario;
use terrace_sim::violation::Class;

/// One database at work at a time: readers of one hold up what another one frees.
static TURN: Mutex<()> = Mutex::new(());

/// More seeds than any bug here needs.
const SEEDS: u64 = 40;

/// What a bug that loses commits, or keeps what is gone, may look like from outside: which of them
/// it is depends on what the lost bytes were.
const STORED: &[Class] = &[
    Class::Lost,
    Class::Refused,
    Class::NotAPrefix,
    Class::Changed,
    Class::Damaged,
    Class::Leaked,
];

/// The bug makes some run report a violation of these classes, and the same seeds are clean without
/// it.
fn is_caught(bug: Planted, trial: Trial, classes: &[Class]) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A bug may also break an assertion in other runs; to name all callers would take ten seconds.
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    let begin = Instant::now();
    let found = Search { bug: Some(bug), trial, seeds: SEEDS }.first(classes);
    let found = found.unwrap_or_else(|| panic!("{bug:?} passes {SEEDS} seeds: no {classes:?}"));
    let (took, Found { seed, violation }) = (begin.elapsed(), found);
    eprintln!("{bug:?}, {:.1} s, seed {seed}: {violation}", took.as_secs_f64());
    let sound = Search { bug: None, trial, seeds: seed + 1 }.first(classes);
    assert!(sound.is_none(), "without the bug: {sound:?}");
}

#[test]
fn a_flush_removed() {
    is_caught(
        Planted::SkipFlush,
        Trial::Cuts(Kind::Memory, Scenario::Commits),
        &[Class::NotAPrefix],
    );
}

#[test]
fn a_fence_removed() {
    is_caught(
        Planted::SkipFence,
        Trial::Cuts(Kind::Memory, Scenario::Commits),
        &[Class::NotAPrefix],
    );
}

#[test]
fn a_sync_removed() {
    is_caught(
        Planted::SkipRunSync,
        Trial::Cuts(Kind::Files, Scenario::Commits),
        &[Class::NotAPrefix],
    );
}

#[test]
fn torn_payloads_trusted() {
    is_caught(
        Planted::SkipPayloadChecksum,
        Trial::Cuts(Kind::Files, Scenario::Switch),
        &[Class::NotAPrefix],
    );
    is_caught(
        Planted::SkipPayloadChecksum,
        Trial::Cuts(Kind::Memory, Scenario::Commits),
        &[Class::Refused],
    );
}

#[test]
fn the_floor_written_early() {
    is_caught(Planted::EarlyFloor, Trial::Cuts(Kind::Files, Scenario::Commits), &[Class::Refused]);
}

#[test]
fn gidx_trusted_above_the_floor() {
    is_caught(Planted::EarlyGidx, Trial::Cuts(Kind::Files, Scenario::Commits), &[Class::Refused]);
}

#[test]
fn what_was_drained_forgotten() {
    is_caught(
        Planted::ForgetDrained,
        Trial::Cuts(Kind::Memory, Scenario::Free),
        &[Class::NotAPrefix],
    );
}

#[test]
fn a_tombstone_pruned() {
    is_caught(
        Planted::PruneTombstones,
        Trial::Cuts(Kind::Memory, Scenario::Buried),
        &[Class::Changed],
    );
}

#[test]
fn a_range_tombstone_let_go_with_d_of_a_part() {
    is_caught(
        Planted::RetireRangesEarly,
        Trial::Cuts(Kind::Memory, Scenario::Ranges),
        &[Class::Changed],
    );
}

#[test]
fn a_zone_reused_before_its_edit() {
    is_caught(
        Planted::ReuseBeforeEdit,
        Trial::Cuts(Kind::Memory, Scenario::Free),
        &[Class::Refused],
    );
}

#[test]
fn a_zone_reused_before_the_index_has_forgotten_it() {
    is_caught(Planted::RetireLater, Trial::Cuts(Kind::Index, Scenario::Free), &[Class::Damaged]);
}

#[test]
fn an_index_sealed_before_it_is_durable() {
    is_caught(Planted::SealEarly, Trial::Cuts(Kind::Index, Scenario::Closing), &[Class::Damaged]);
}

#[test]
fn an_index_changed_under_its_seal() {
    is_caught(Planted::KeepSeal, Trial::Cuts(Kind::Index, Scenario::Opening), STORED);
}

#[test]
fn a_cleaned_zone_freed_before_its_copies_are_durable() {
    is_caught(
        Planted::FreeBeforeCopy,
        Trial::Cuts(Kind::Files, Scenario::Clean),
        &[Class::NotAPrefix],
    );
}

#[test]
fn an_old_incarnation_accepted() {
    is_caught(
        Planted::AcceptOldIncarnation,
        Trial::Cuts(Kind::Files, Scenario::Switch),
        &[Class::Refused],
    );
}

#[test]
fn the_published_shift_rule_under_shared_runs() {
    is_caught(
        Planted::PublishedShift,
        Trial::Cuts(Kind::Memory, Scenario::Commits),
        &[Class::NotAPrefix],
    );
}

#[test]
fn a_run_committed_before_its_record() {
    // On persistent memory a group is fenced before its commit is waited for.
    is_caught(
        Planted::RunBeforeRecord,
        Trial::Cuts(Kind::Files, Scenario::Spill),
        &[Class::NotAPrefix],
    );
}

#[test]
fn a_pending_run_accepted_without_its_record() {
    is_caught(
        Planted::AcceptPendingRun,
        Trial::Cuts(Kind::Memory, Scenario::Spill),
        &[Class::NotAPrefix],
    );
}

#[test]
fn a_runs_extents_reused_before_the_edit_of_their_drain() {
    is_caught(
        Planted::ReuseBeforeEdit,
        Trial::Cuts(Kind::Files, Scenario::SpillDrain),
        &[Class::Refused],
    );
}

#[test]
fn a_load_placed_under_older_records() {
    is_caught(
        Planted::PlaceOverOlder,
        Trial::Cuts(Kind::Files, Scenario::Load),
        &[Class::NotAPrefix],
    );
}

#[test]
fn edits_that_an_opening_found_and_did_not_write_again() {
    is_caught(Planted::KeepFoundEdits, Trial::Faults(Kind::Files, Scenario::Tables), STORED);
}

#[test]
fn the_name_of_a_region_elsewhere_that_is_not_synced() {
    is_caught(Planted::SkipRegionName, Trial::Elsewhere, &[Class::Refused]);
}

#[test]
fn what_was_prepared_indexed() {
    is_caught(
        Planted::IndexPrepares,
        Trial::Cuts(Kind::Files, Scenario::Prepared),
        &[Class::NotAPrefix],
    );
}

#[test]
fn a_verdict_released_before_what_it_is_on() {
    is_caught(
        Planted::ReleaseVerdicts,
        Trial::Cuts(Kind::Files, Scenario::Prepared),
        &[Class::NotAPrefix],
    );
}

#[test]
fn a_backup_named_before_it_is_durable() {
    is_caught(
        Planted::BackupBeforeSync,
        Trial::Cuts(Kind::Files, Scenario::Backup),
        &[Class::Backup],
    );
    is_caught(
        Planted::BackupBeforeSync,
        Trial::Cuts(Kind::Memory, Scenario::Backup),
        &[Class::Backup],
    );
}

#[test]
fn values_that_earlier_backups_list_written_over_by_the_next() {
    is_caught(
        Planted::FreeListedValues,
        Trial::Cuts(Kind::Files, Scenario::Backup),
        &[Class::Backup],
    );
}

#[test]
fn an_extent_installed_before_its_values_are_durable() {
    is_caught(
        Planted::InstallBeforeSync,
        Trial::Cuts(Kind::Files, Scenario::Values),
        &[Class::Refused],
    );
    is_caught(
        Planted::InstallBeforeSync,
        Trial::Cuts(Kind::Memory, Scenario::Values),
        &[Class::Refused],
    );
}

#[test]
fn a_value_extent_given_back_while_the_journal_lists_it() {
    is_caught(
        Planted::CollectBeforeEdit,
        Trial::Cuts(Kind::Files, Scenario::Values),
        &[Class::Refused],
    );
}

#[test]
fn a_conflict_that_is_not_looked_for() {
    is_caught(Planted::SkipConflictCheck, Trial::Isolation, &[Class::Isolation]);
}

#[test]
fn rows_that_expire_early() {
    is_caught(Planted::ExpireEarly, Trial::Expiry, &[Class::EarlyExpiry]);
}

#[test]
fn a_database_without_a_lock() {
    is_caught(Planted::SkipLock, Trial::Writers, &[Class::TwoWriters]);
}
