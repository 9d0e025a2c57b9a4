//! Runs the cases in `testdata/scheduler`. Cases are separated by an empty line; `#` begins a
//! comment. `state` has words for what is there, `running` the compactions under way, and `=>` the
//! jobs that are picked one after the other, where each finds nothing to do.

use std::path::Path;

use super::*;

fn state(words: &str) -> RegionState {
    let mut state = RegionState::default();
    for word in words.split_whitespace() {
        match word.split_once('=') {
            Some(("level1", level1)) => state.level1 = level1.parse().unwrap(),
            Some(other) => panic!("no such number: {other:?}"),
            None => match word {
                "nothing" => {}
                "due" => state.is_drain_due = true,
                "lacks-zone" => state.lacks_zone = true,
                "serves-freeing" => state.serves_freeing = true,
                "grows" => state.grows = true,
                "workers" => state.has_workers = true,
                "ttl" => state.has[Ttl as usize] = true,
                "aging" => state.has[Aged as usize] = true,
                "large" => state.has_large_memtable = true,
                "frozen" => state.has[Frozen as usize] = true,
                "runs" => state.has[Runs as usize] = true,
                "undrained" => state.has[Undrained as usize] = true,
                "kept" => state.has[Kept as usize] = true,
                "ranges" => state.has[Ranges as usize] = true,
                "requests" => state.has_requests = true,
                "deletes" => state.has[Deletes as usize] = true,
                other => panic!("no such word: {other}"),
            },
        }
    }
    state
}

fn running(words: &str) -> Vec<Running> {
    let one = |word| match word {
        "compaction" => Running::Compaction,
        "paused" => Running::PausedCompaction,
        other => panic!("no such job: {other}"),
    };
    words.split_whitespace().map(one).collect()
}

fn name(kind: JobKind) -> String {
    let batch = |batch| if batch == Batch::Large { "many" } else { "any" };
    match kind {
        JobKind::MarkTime => "mark".into(),
        JobKind::GrowRegion => "grow".into(),
        JobKind::PreallocateZones => "preallocate".into(),
        JobKind::AssignStreams => "streams".into(),
        JobKind::ReleaseZones(of) => format!("release-{}", batch(of)),
        JobKind::Freeze => "freeze".into(),
        JobKind::MergeMemtables => "merge".into(),
        JobKind::DeleteOnly => "delete-only".into(),
        JobKind::PlaceBulkLoad => "place".into(),
        JobKind::CleanZones(of) => format!("clean-{}", batch(of)),
        JobKind::Drain => "drain".into(),
        JobKind::DrainDeletes => "drain-deletes".into(),
        JobKind::Compact => "compact".into(),
        JobKind::CompactRange => "compact-range".into(),
        JobKind::PruneVersions => "prune".into(),
        JobKind::DrainRuns => "drain-runs".into(),
        JobKind::ReturnSpace => "return".into(),
        JobKind::SyncFloor => "sync".into(),
    }
}

/// All that is picked, in order.
fn order(state: &RegionState, running: &[Running]) -> String {
    let mut declined = Vec::new();
    while let Some(ScheduledJob { kind, .. }) = pick(state, running, &declined) {
        assert!(!declined.contains(kind), "{kind:?} was declined");
        declined.push(*kind);
    }
    declined.into_iter().map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn cases() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/scheduler");
    let mut count = 0;
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for case in text.split("\n\n") {
            let mut found = (RegionState::default(), Vec::new());
            for line in case.lines().filter(|line| !line.starts_with('#')) {
                match line.split_once(' ').unwrap_or((line, "")) {
                    ("state", words) => found.0 = state(words),
                    ("running", words) => found.1 = running(words),
                    ("=>", expected) => {
                        assert_eq!(
                            order(&found.0, &found.1),
                            expected,
                            "{}: {case}",
                            path.display()
                        );
                        count += 1;
                    }
                    other => panic!("{}: {other:?}", path.display()),
                }
            }
        }
    }
    assert!(count >= 12, "{count} cases");
}
