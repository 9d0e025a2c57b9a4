//! The test of the tool: each bug that can be planted makes a run report a violation, and without
//! it the same runs pass. (A delete from a sorted array that flushes too early is with the
//! explorer itself, in the engine.)

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::sync::Mutex;
use std::time::Instant;

use terrace::testing::Failpoint;
use terrace_sim::cuts::Kind;
use terrace_sim::failpoint::{Found, Search, Trial};
use terrace_sim::run::BEFORE_CUTS;
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

/// As [`is_caught_as`], of one class.
fn is_caught(bug: Failpoint, trial: Trial, class: Class) {
    is_caught_as(bug, trial, &[class]);
}

/// The bug makes some run report a violation of these classes, and the same seeds report none of
/// any class without it.
fn is_caught_as(bug: Failpoint, trial: Trial, classes: &[Class]) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A bug may also break an assertion in other runs; to name all callers would take ten seconds.
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    let begin = Instant::now();
    let found = Search { bug: Some(bug), trial, seeds: SEEDS }.first(classes);
    let found = found.unwrap_or_else(|others| {
        let others: Vec<String> =
            others.iter().map(|what| what.chars().take(300).collect()).collect();
        panic!("{bug:?} passes {SEEDS} seeds, none is of {classes:?}: {others:#?}")
    });
    let (took, Found { seed, violation }) = (begin.elapsed(), found);
    eprintln!("{bug:?}, {:.1} s, seed {seed}: {violation}", took.as_secs_f64());
    let sound = Search { bug: None, trial, seeds: seed + 1 }.first(&[]);
    assert!(sound.is_err(), "without the bug: {sound:?}");
}

#[test]
fn a_flush_removed() {
    // The journal knows what was durable, so an opening refuses what is lost.
    is_caught(Failpoint::SkipFlush, Trial::Cuts(Kind::Memory, Scenario::Commits), Class::Refused);
}

#[test]
fn a_fence_removed() {
    // The journal knows what was durable, so an opening refuses what is lost.
    is_caught(Failpoint::SkipFence, Trial::Cuts(Kind::Memory, Scenario::Commits), Class::Refused);
}

#[test]
fn a_sync_removed() {
    is_caught(
        Failpoint::SkipRunSync,
        Trial::Cuts(Kind::Files, Scenario::Commits),
        Class::NotAPrefix,
    );
}

#[test]
fn torn_payloads_trusted() {
    is_caught(
        Failpoint::SkipPayloadChecksum,
        Trial::Cuts(Kind::Files, Scenario::Switch),
        Class::NotAPrefix,
    );
    is_caught(
        Failpoint::SkipPayloadChecksum,
        Trial::Cuts(Kind::Memory, Scenario::Commits),
        Class::Refused,
    );
}

#[test]
fn the_floor_written_early() {
    is_caught(Failpoint::EarlyFloor, Trial::Cuts(Kind::Files, Scenario::Commits), Class::Refused);
}

#[test]
fn gidx_trusted_above_the_floor() {
    is_caught(Failpoint::EarlyGidx, Trial::Cuts(Kind::Files, Scenario::Commits), Class::Refused);
}

#[test]
fn what_was_drained_forgotten() {
    is_caught(
        Failpoint::ForgetDrained,
        Trial::Cuts(Kind::Memory, Scenario::Free),
        Class::NotAPrefix,
    );
}

#[test]
fn a_tombstone_pruned() {
    is_caught(
        Failpoint::PruneTombstones,
        Trial::Cuts(Kind::Memory, Scenario::Buried),
        Class::Changed,
    );
}

#[test]
fn operands_drained_without_what_lies_below_them() {
    for kind in [Kind::Files, Kind::Memory] {
        let trial = Trial::Cuts(kind, Scenario::Operands);
        is_caught(Failpoint::ForgetBelow, trial, Class::Changed);
    }
}

#[test]
fn a_range_tombstone_let_go_with_d_of_a_part() {
    is_caught(
        Failpoint::RetireRangesEarly,
        Trial::Cuts(Kind::Memory, Scenario::Ranges),
        Class::Changed,
    );
}

#[test]
fn a_zone_reused_before_its_edit() {
    is_caught(
        Failpoint::ReuseBeforeEdit,
        Trial::Cuts(Kind::Memory, Scenario::Free),
        Class::Refused,
    );
}

#[test]
fn a_zone_reused_before_the_index_has_forgotten_it() {
    is_caught(Failpoint::RetireLater, Trial::Cuts(Kind::Index, Scenario::Free), Class::Damaged);
}

#[test]
fn an_index_sealed_before_it_is_durable() {
    is_caught(Failpoint::SealEarly, Trial::Cuts(Kind::Index, Scenario::Closing), Class::Damaged);
}

#[test]
fn an_index_changed_under_its_seal() {
    is_caught_as(Failpoint::KeepSeal, Trial::Cuts(Kind::Index, Scenario::Opening), STORED);
}

#[test]
fn a_cleaned_zone_freed_before_its_copies_are_durable() {
    is_caught(
        Failpoint::FreeBeforeCopy,
        Trial::Cuts(Kind::Files, Scenario::Clean),
        Class::NotAPrefix,
    );
}

#[test]
fn an_old_incarnation_accepted() {
    is_caught(
        Failpoint::AcceptOldIncarnation,
        Trial::Cuts(Kind::Files, Scenario::Switch),
        Class::Refused,
    );
}

#[test]
fn the_published_shift_rule_under_shared_runs() {
    is_caught(
        Failpoint::PublishedShift,
        Trial::Cuts(Kind::Memory, Scenario::Commits),
        Class::NotAPrefix,
    );
}

#[test]
fn a_run_committed_before_its_record() {
    // On persistent memory a group is fenced before its commit is waited for.
    is_caught(
        Failpoint::RunBeforeRecord,
        Trial::Cuts(Kind::Files, Scenario::Spill),
        Class::Changed,
    );
}

#[test]
fn a_pending_run_accepted_without_its_record() {
    is_caught(
        Failpoint::AcceptPendingRun,
        Trial::Cuts(Kind::Memory, Scenario::Spill),
        Class::NotAPrefix,
    );
}

#[test]
fn a_runs_extents_reused_before_the_edit_of_their_drain() {
    is_caught(
        Failpoint::ReuseBeforeEdit,
        Trial::Cuts(Kind::Files, Scenario::SpillDrain),
        Class::Refused,
    );
}

#[test]
fn a_load_placed_under_older_records() {
    is_caught(Failpoint::PlaceOverOlder, Trial::Cuts(Kind::Files, Scenario::Load), Class::Changed);
}

#[test]
fn edits_that_an_opening_found_and_did_not_write_again() {
    is_caught_as(Failpoint::KeepFoundEdits, Trial::Faults(Kind::Files, Scenario::Tables), STORED);
}

#[test]
fn the_name_of_a_region_elsewhere_that_is_not_synced() {
    is_caught(Failpoint::SkipRegionName, Trial::Elsewhere, Class::Refused);
}

#[test]
fn a_growth_that_keeps_the_error_of_its_sync() {
    is_caught(Failpoint::SwallowGrowthError, Trial::Growth, Class::Lost);
}

#[test]
fn what_was_prepared_indexed() {
    is_caught(
        Failpoint::IndexPrepares,
        Trial::Cuts(Kind::Files, Scenario::Prepared),
        Class::NotAPrefix,
    );
}

#[test]
fn a_verdict_released_before_what_it_is_on() {
    is_caught(
        Failpoint::ReleaseVerdicts,
        Trial::Cuts(Kind::Files, Scenario::Prepared),
        Class::NotAPrefix,
    );
}

#[test]
fn a_backup_named_before_it_is_durable() {
    is_caught(
        Failpoint::BackupBeforeSync,
        Trial::Cuts(Kind::Files, Scenario::Backup),
        Class::Backup,
    );
    is_caught(
        Failpoint::BackupBeforeSync,
        Trial::Cuts(Kind::Memory, Scenario::Backup),
        Class::Backup,
    );
}

#[test]
fn values_that_earlier_backups_list_written_over_by_the_next() {
    is_caught(
        Failpoint::FreeListedValues,
        Trial::Cuts(Kind::Files, Scenario::Backup),
        Class::Backup,
    );
}

#[test]
fn an_extent_installed_before_its_values_are_durable() {
    is_caught(
        Failpoint::InstallBeforeSync,
        Trial::Cuts(Kind::Files, Scenario::Values),
        Class::Refused,
    );
    is_caught(
        Failpoint::InstallBeforeSync,
        Trial::Cuts(Kind::Memory, Scenario::Values),
        Class::Refused,
    );
}

#[test]
fn a_value_extent_given_back_while_the_journal_lists_it() {
    is_caught(
        Failpoint::CollectBeforeEdit,
        Trial::Cuts(Kind::Files, Scenario::Values),
        Class::Refused,
    );
}

#[test]
fn a_conflict_that_is_not_looked_for() {
    is_caught(Failpoint::SkipConflictCheck, Trial::Isolation, Class::Isolation);
}

#[test]
fn rows_that_expire_early() {
    is_caught(Failpoint::ExpireEarly, Trial::Expiry, Class::EarlyExpiry);
}

#[test]
fn rows_that_never_expire() {
    is_caught(Failpoint::NeverExpire, Trial::Expiry, Class::LateExpiry);
}

#[test]
fn a_database_without_a_lock() {
    is_caught(Failpoint::SkipLock, Trial::Writers, Class::TwoWriters);
}

#[test]
fn a_row_table_published_before_its_pages_are_durable() {
    for kind in [Kind::Matrix, Kind::Triangle] {
        let trial = Trial::Cuts(kind, Scenario::Merge);
        is_caught(Failpoint::SkipRowPersist, trial, Class::Refused);
    }
}

#[test]
fn records_let_go_of_whose_copies_no_edit_names() {
    is_caught_as(Failpoint::UnjournaledRow, Trial::Cuts(Kind::Matrix, Scenario::Free), STORED);
}

#[test]
fn pages_of_row_tables_used_again_before_the_edit_of_a_drain() {
    is_caught_as(Failpoint::ReuseBeforeEdit, Trial::Cuts(Kind::Matrix, Scenario::Free), STORED);
}

#[test]
fn entries_of_row_tables_live_that_were_drained() {
    let trial = Trial::Cuts(Kind::Matrix, Scenario::Free);
    is_caught_as(Failpoint::IgnoreDrainedRows, trial, STORED);
}

#[test]
fn an_edit_before_the_store_has_acknowledged_its_objects() {
    let trial = Trial::Faults(Kind::Objects, Scenario::Cold);
    // A read tells that the object is not there.
    is_caught(Failpoint::EditBeforeAcknowledgement, trial, Class::WrongError);
}

#[test]
fn objects_deleted_before_the_edit_that_removes_them() {
    let trial = Trial::Cuts(Kind::Objects, Scenario::Cold);
    is_caught_as(Failpoint::DeleteBeforeEdit, trial, STORED);
}

#[test]
fn an_edit_of_a_writer_that_has_lost_its_object_store() {
    is_caught(Failpoint::SkipFenceCheck, Trial::Takeover, Class::TwoWriters);
}

#[test]
fn names_of_objects_that_two_openings_give() {
    is_caught(Failpoint::ReuseOfName, Trial::LateDeletion, Class::Damaged);
}

#[test]
fn a_durable_commit_acknowledged_before_its_sync() {
    let trial = Trial::Cuts(Kind::Files, Scenario::Commits);
    is_caught(Failpoint::RelaxAll, trial, Class::Lost);
}

#[test]
fn dead_zones_that_are_kept() {
    let trial = Trial::Cuts(Kind::Memory, Scenario::Drain);
    is_caught(Failpoint::KeepDeadZones, trial, Class::Leaked);
}

#[test]
fn records_that_count_after_their_drain() {
    let trial = Trial::Cuts(Kind::Memory, Scenario::Drain);
    is_caught(Failpoint::CountDrained, trial, Class::Leaked);
}

#[test]
fn a_removed_extent_that_is_kept() {
    let trial = Trial::Cuts(Kind::Files, Scenario::Ranges);
    is_caught(Failpoint::KeepObsoleteExtents, trial, Class::Leaked);
}

#[test]
fn objects_that_a_collection_leaves() {
    let trial = Trial::Cuts(Kind::Objects, Scenario::Cold);
    is_caught(Failpoint::KeepUnneededObjects, trial, Class::Leaked);
}

#[test]
fn what_was_prepared_without_its_locks_after_an_opening() {
    let trial = Trial::Cuts(Kind::Files, Scenario::Prepared);
    is_caught(Failpoint::UnlockPrepares, trial, Class::Changed);
}

#[test]
fn an_edit_visible_before_it_is_in_the_journal() {
    let trial = Trial::Faults(Kind::Files, Scenario::Drain);
    // The next edit does not fit to what the journal refused.
    is_caught(Failpoint::PublishBeforeEdit, trial, Class::WrongError);
}

#[test]
fn tombstones_pruned_by_jobs_after_an_opening() {
    let trial = Trial::Afterwards(Kind::Memory, Scenario::Buried);
    is_caught(Failpoint::PruneTombstones, trial, Class::Changed);
}

#[test]
fn an_opening_that_does_not_flush_what_it_writes() {
    let trial = Trial::Afterwards(Kind::Memory, Scenario::Commits);
    is_caught(Failpoint::SkipFlush, trial, Class::NotAPrefix);
}

/// The bug makes some run report a violation by this oracle, which says so first.
fn is_caught_by(bug: Failpoint, trial: Trial, oracle: &str) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    let search = Search { bug: Some(bug), trial, seeds: SEEDS };
    let Found { seed, violation } = search
        .first_that(|violation| violation.contains(oracle))
        .unwrap_or_else(|others| panic!("{bug:?} passes {oracle:?}: {:#?}", others.first()));
    eprintln!("{bug:?}, seed {seed}: {violation}");
    let sound = Search { bug: None, trial, seeds: seed + 1 }.first(&[]);
    assert!(sound.is_err(), "without the bug: {sound:?}");
}

#[test]
fn a_live_read_sees_rows_that_a_pruned_tombstone_gives_back() {
    let trial = Trial::Cuts(Kind::Memory, Scenario::Buried);
    is_caught_by(Failpoint::PruneTombstones, trial, BEFORE_CUTS);
}
