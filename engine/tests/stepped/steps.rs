//! Every job cut before each of its syncs and fences: commits, zone switches, freezes and merges,
//! drains, compactions, the release of zones, changes of tables, the change of the journal's
//! epoch. Each time the next opening finds a prefix with everything acknowledged in it, and goes
//! on working.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use crate::common::content::{Content, Effect, Rows, read_all};
use crate::common::cuts::{ALL_KINDS, End, Kind, PATH, Rig, options, reopen};
use crate::common::workload::{Action, Taste};
use crate::common::{long, rounds, together, wait_until};
use terrace::Durability::{Durable, Relaxed};
use terrace::testing::Survive;
use terrace_sim::scenario::{again, journal, long_journal};

fn ends() -> Vec<End> {
    let seeded = (0..rounds(4, 60)).map(|seed| End::Cut(Survive::Seeded(seed)));
    let plain = [End::Cut(Survive::Nothing), End::Cut(Survive::Everything), End::Kill];
    plain.into_iter().chain(seeded).collect()
}

/// Cuts `act` before each of its steps, on databases that `make` makes; about how many steps there
/// are. Each entry of a persistent index is a step or two, so of these each end takes its share.
fn cut_everywhere(kind: Kind, make: impl Fn(Kind) -> Rig, act: impl Fn(&mut Rig)) -> u64 {
    let mut steps = 0;
    let stride = if kind.is_variant() && !long() { 7 } else { 1 };
    for (first, end) in ends().into_iter().enumerate() {
        for n in (1 + first as u64 % stride..).step_by(stride as usize) {
            let mut rig = make(kind);
            let account = rig.account();
            match end {
                End::Cut(survive) => rig.machine.cut_before(n, survive),
                End::Kill => rig.machine.kill_before(n),
            }
            act(&mut rig);
            let Some(found) = rig.machine.found() else { break };
            steps = steps.max(n);
            let account = account.with_last(&rig);
            let checked = reopen(&found, None, &account, end).and_then(|(db, content)| {
                rig.go_on(found, db, content);
                work_on(&mut rig)
            });
            checked.unwrap_or_else(|what| panic!("{kind:?}, step {n}: {what}"));
        }
    }
    steps
}

/// What was found is a database like any other: the background runs, commits work, and a cut
/// afterwards takes nothing.
fn work_on(rig: &mut Rig) -> Result<(), String> {
    rig.steps(40);
    let taste = Taste { tables: 0, ..Taste::default() };
    for _ in 0..5 {
        rig.act(&taste);
    }
    rig.steps(40);
    let cut = rig.machine.crash(Survive::Nothing);
    reopen(&cut, None, &rig.account(), End::Cut(Survive::Nothing)).map(|_| ())
}

/// Two tables with a few rows.
fn small(kind: Kind) -> Rig {
    let mut rig = Rig::new(kind, 3, None);
    rig.create("a");
    rig.create("b");
    rig.put("a", "one", 100, Durable);
    rig.put("b", "two", 2000, Relaxed);
    rig
}

/// Rows of table `a` on disk.
fn drained(kind: Kind) -> Rig {
    let mut rig = half_full(kind);
    let extents = |rig: &Rig| {
        let tables = rig.db.stats().tables;
        let of_a = tables.iter().find(|table| table.name == "a").unwrap();
        of_a.levels.iter().map(|level| level.extents).sum::<u64>()
    };
    let mut n = 0;
    while extents(&rig) == 0 {
        rig.put("b", &format!("row {}", n % 90), 9000, Relaxed);
        rig.steps(2);
        n += 1;
        assert!(n < 2000, "{:?}", rig.db.stats());
    }
    rig
}

/// What a range delete in the region hides goes by an edit. The range delete is relaxed: whatever a
/// cut takes, it never takes the range delete alone.
#[test]
fn delete_only_compactions() {
    let _together = together();
    for kind in ALL_KINDS {
        let steps = cut_everywhere(kind, drained, |rig| {
            let all = Effect::DeleteRange("a".into(), Vec::new(), None);
            rig.perform(&Action::Write(vec![all], Relaxed));
            rig.steps(40);
            assert!(rig.db.stats().background.delete_only_extents > 0, "{:?}", rig.db.stats());
        });
        assert!(steps >= 2, "{steps}");
    }
}

/// Bug: with a persistent index an operand was lost when the power was cut while level 0 took a
/// memtable over. Cause: of the versions of a key the newest went into the index first, and the
/// next opening took older ones, which it goes on with, for superseded. Fix: the oldest goes first.
#[test]
fn merges_of_memtables_with_operands() {
    let _together = together();
    for kind in [Kind::Index, Kind::Memory, Kind::Matrix] {
        let steps = cut_everywhere(kind, small, |rig| {
            let merges = rig.db.stats().background.merges;
            for n in 0..400 {
                if rig.db.stats().background.merges > merges || !rig.goes_on() {
                    break;
                }
                let key = format!("row {}", n % 6).into_bytes();
                let operand = rig.chance.bytes(2000);
                let merge = Effect::Merge("a".into(), key, operand);
                rig.perform(&Action::Write(vec![merge], Relaxed));
                rig.steps(1);
            }
        });
        assert!(steps >= 2, "{steps}");
    }
}

/// A region that is half full of relaxed commits.
fn half_full(kind: Kind) -> Rig {
    let mut rig = small(kind);
    let mut n = 0;
    while rig.db.stats().pm.zones_used < 7 {
        rig.put(["a", "b"][n % 2], &format!("row {}", n % 90), 9000, Relaxed);
        n += 1;
    }
    rig
}

#[test]
fn commits() {
    let _together = together();
    for kind in ALL_KINDS {
        let steps = cut_everywhere(kind, small, |rig| {
            rig.put("a", "three", 3000, Durable);
            rig.put("b", "four", 10, Relaxed);
            rig.put("b", "five", 5000, Durable);
        });
        assert!(steps >= 2, "{steps}");
    }
}

#[test]
fn zone_switches() {
    let _together = together();
    for kind in ALL_KINDS {
        cut_everywhere(kind, small, |rig| {
            for n in 0..5 {
                rig.put("a", &format!("fill {n}"), 60_000, Relaxed);
            }
            rig.put("b", "last", 10, Durable);
        });
    }
}

/// Zones of two units come and go between those of one: each of its steps is cut.
#[test]
fn zones_of_several_sizes() {
    let _together = together();
    let taste = Taste { tables: 0, ..Taste::default() };
    for kind in ALL_KINDS {
        let steps = cut_everywhere(kind, small, |rig| {
            rig.put("a", "large", 200_000, Relaxed);
            rig.act(&taste);
            rig.put("b", "larger", 230_000, Durable);
            rig.put("a", "row", 60_000, Relaxed);
            rig.put("a", "large again", 150_000, Durable);
            assert!(rig.db.stats().pm.zones_linked < rig.db.stats().pm.zones_used);
        });
        assert!(steps > 5, "{steps}");
    }
}

#[test]
fn drains_compactions_and_the_release_of_zones() {
    let _together = together();
    for kind in ALL_KINDS {
        let steps = cut_everywhere(kind, half_full, |rig| {
            rig.put("a", "row 1", 100_000, Relaxed);
            rig.put("b", "row 2", 100_000, Durable);
            rig.steps(60);
            // Readers in other tests may hold the release up for a while.
            wait_until("a zone is released", || {
                rig.steps(1);
                rig.db.stats().background.zones_released > 0
            });
            assert!(rig.db.stats().background.drains > 0);
        });
        assert!(steps > 10, "{steps}");
    }
}

/// A region close to half full in which each zone has one cold record, the others of which are
/// superseded.
fn mostly_dead(kind: Kind) -> Rig {
    let mut rig = Rig::new(kind, 4, None);
    rig.create("a");
    rig.create("b");
    let mut n = 0;
    while rig.db.stats().pm.zones_used < 7 {
        if n % 18 == 0 {
            rig.put("b", &format!("cold {n}"), 50, Relaxed);
        }
        rig.put("a", &format!("hot {}", n % 4), 6500, Relaxed);
        // Nothing calls for cleaning yet: freezes and merges.
        rig.steps(1);
        n += 1;
    }
    assert_eq!(rig.db.stats().background.zones_cleaned, 0);
    rig
}

#[test]
fn cleaning() {
    let _together = together();
    for kind in ALL_KINDS {
        let prepared = mostly_dead(kind);
        prepared.db.clone().close().unwrap();
        let steps = cut_everywhere(
            kind,
            |kind| again(&prepared, kind, 6, None),
            |rig| {
                let mut n = 0;
                while rig.db.stats().background.zones_cleaned == 0 {
                    rig.put("a", &format!("hot {}", n % 4), 16_000, Relaxed);
                    rig.steps(1);
                    n += 1;
                    assert!(n < 200, "{:?}", rig.db.stats());
                }
                let released = rig.db.stats().background.zones_released;
                wait_until("the cleaned zone is released", || {
                    rig.steps(1);
                    rig.db.stats().background.zones_released > released
                });
            },
        );
        assert!(steps > 5, "{steps}");
    }
}

#[test]
fn spilled_transactions_their_drain_and_a_table_dropped_with_its_run() {
    let _together = together();
    let rows = |table: &str, from: u64, value: u8| {
        let row = |n| Effect::Put(table.into(), format!("row {n:02}").into(), vec![value; 2500]);
        (from..from + 4).map(row).collect::<Vec<_>>()
    };
    for kind in ALL_KINDS {
        let steps = cut_everywhere(kind, small, |rig| {
            rig.put("a", "row 01", 100, Relaxed);
            rig.transact([rows("a", 0, 1), rows("b", 2, 2), rows("a", 2, 3)].concat());
            rig.put("a", "row 03", 200, Relaxed);
            rig.steps(200);
            assert!(rig.db.stats().tables.iter().all(|t| t.spilled_runs == 0), "drained");
            assert!(rig.db.stats().background.spilled_extents > 1);
            rig.transact([rows("a", 1, 4), rows("b", 1, 5)].concat());
            rig.perform(&Action::Table(Effect::Drop("b".into())));
        });
        assert!(steps > 10, "{steps}");
    }
}

#[test]
fn bulk_loads_and_their_places() {
    let _together = together();
    let rows = |keys: std::ops::Range<u64>, value: u8| {
        keys.map(|n| (format!("row {n:02}").into_bytes(), vec![value; 2500])).collect::<Rows>()
    };
    for kind in ALL_KINDS {
        let steps = cut_everywhere(kind, small, |rig| {
            rig.load("a", rows(0..6, 1));
            rig.steps(20);
            assert_eq!(rig.db.stats().background.moves, 1, "it overlapped nothing");
            rig.put("a", "row 03", 200, Relaxed);
            rig.load("a", rows(4..9, 2));
            rig.put("b", "row 03", 200, Relaxed);
            rig.load("b", rows(2..4, 3));
            rig.steps(200);
            assert!(rig.db.stats().tables.iter().all(|t| t.spilled_runs == 0), "drained");
            rig.load("b", rows(1..5, 4));
            rig.perform(&Action::Table(Effect::Drop("b".into())));
        });
        assert!(steps > 10, "{steps}");
    }
}

/// A closing seals the persistent index, the opening takes the seal away, and both are cut.
#[test]
fn closing_and_opening_again() {
    let _together = together();
    for kind in ALL_KINDS {
        let steps = cut_everywhere(kind, small, |rig| {
            for n in 0..5 {
                rig.put("a", &format!("row {n}"), [60_000, 100][n % 2], Relaxed);
            }
            rig.steps(6);
            assert!(rig.db.stats().background.merges > 0);
            rig.put("b", "row 1", 100, Relaxed);
            rig.close();
            rig.open();
            rig.put("b", "row 2", 100, Durable);
        });
        assert!(steps > 8, "{steps}");
    }
}

/// A backup is there once its call has returned, whatever comes then, and is what there was.
#[test]
fn backups_beside_cuts() {
    let _together = together();
    for kind in ALL_KINDS {
        let steps = cut_everywhere(kind, small, |rig| {
            rig.put("a", "row 1", 9000, Relaxed);
            rig.back_up();
            rig.put("b", "row 1", 100, Relaxed);
            rig.steps(10);
            rig.back_up();
            rig.put("a", "row 1", 300, Durable);
        });
        assert!(steps > 8, "{steps}");
    }
}

#[test]
fn prepares_and_their_verdicts() {
    let _together = together();
    for kind in ALL_KINDS {
        let steps = cut_everywhere(kind, small, |rig| {
            rig.put("a", "doomed 1", 100, Relaxed);
            for n in 1..=4 {
                rig.perform(&Action::Table(Effect::Prepare(n)));
            }
            rig.put("a", "one", 100, Relaxed);
            rig.perform(&Action::Table(Effect::Commit(1)));
            for n in 0..3 {
                rig.put("a", &format!("fill {n}"), 60_000, Relaxed);
            }
            rig.perform(&Action::Table(Effect::RollBack(2)));
            rig.perform(&Action::Table(Effect::Commit(4)));
        });
        assert!(steps >= 5, "{steps}");
    }
}

#[test]
fn tables_created_renamed_truncated_and_dropped() {
    let _together = together();
    for kind in ALL_KINDS {
        cut_everywhere(kind, half_full, |rig| {
            rig.create("c");
            rig.put("c", "in c", 100, Relaxed);
            rig.perform(&Action::Table(Effect::Truncate("a".into())));
            rig.put("a", "after", 100, Relaxed);
            rig.perform(&Action::Table(Effect::Rename("a".into(), "z".into())));
            rig.perform(&Action::Table(Effect::Drop("b".into())));
            rig.put("c", "last", 100, Relaxed);
            rig.steps(30);
        });
    }
}

#[test]
fn the_change_of_the_journals_epoch() {
    let _together = together();
    for kind in ALL_KINDS {
        let prepared = long_journal(kind);
        let steps = cut_everywhere(
            kind,
            |kind| again(&prepared, kind, 6, None),
            |rig| {
                let epoch = journal(&rig.machine).0;
                for n in 0..30 {
                    rig.create(&format!("{n:0>240}"));
                }
                assert_ne!(journal(&rig.machine).0, epoch, "it changed");
            },
        );
        assert!(steps > 60, "two syncs a table and those of the change: {steps}");
    }
}

#[test]
fn creation() {
    let _together = together();
    for kind in ALL_KINDS {
        for end in ends() {
            for n in 1.. {
                let machine = kind.machine();
                match end {
                    End::Cut(survive) => machine.cut_before(n, survive),
                    End::Kill => machine.kill_before(n),
                }
                options(&machine, None).create(PATH).unwrap();
                let Some(found) = machine.found() else { break };
                let db = options(&found, None).open(PATH).unwrap_or_else(|e| {
                    panic!("{kind:?}, creation ended before step {n} by {end:?}: {e}")
                });
                assert_eq!(read_all(&db).unwrap(), Content::default());
                db.table("t").unwrap().put("k", "v").unwrap();
                let cut = found.crash(Survive::Nothing);
                let db = options(&cut, None).open(PATH).unwrap();
                assert_eq!(db.existing_table("t").unwrap().get("k").unwrap().unwrap(), "v");
            }
        }
    }
}
