//! Rules of the ring that take a whole database to be seen; those of commit alone are in
//! `commit/tests`.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::path::Path;

use crate::common::cuts::{KINDS, PATH, options};
use crate::common::{Chance, together};
use terrace::testing::{Machine, Survive};
use terrace::{Database, Durability, WriteBatch};

fn id(db: &Database, table: &str) -> Option<u32> {
    db.stats().tables.iter().find(|t| t.name == table).map(|t| t.id)
}

/// A table is made and dropped, with the power cut at each step of both: before the event is
/// durable, before the journal has it, after that. Whatever the cut left, the next table's number
/// is larger than that of every table that a caller was told of.
#[test]
fn table_ids_are_never_used_again_whatever_the_journal_had() {
    let _together = together();
    for kind in KINDS {
        let (mut cuts, mut dropped) = (0, 0);
        for step in 1.. {
            let fates = [Survive::Nothing, Survive::Everything, Survive::Seeded(step)];
            let mut is_over = false;
            for survive in fates {
                let machine = kind.machine();
                let db = options(&machine, None).open(PATH).unwrap();
                db.table("kept").unwrap().put("k", "v").unwrap();
                machine.cut_before(step, survive);
                let mut known = id(&db, "kept").unwrap();
                db.table("gone").unwrap();
                let mut found = machine.found();
                if found.is_none() {
                    known = id(&db, "gone").unwrap();
                }
                db.drop_table("gone").unwrap();
                found = found.or_else(|| machine.found());
                let was_told = found.is_none();
                db.truncate_table("kept").unwrap();
                let Some(after) = found.or_else(|| machine.found()) else {
                    is_over = true;
                    break;
                };
                cuts += 1;
                let db = options(&after, None).open(PATH).unwrap();
                if was_told {
                    assert_eq!(id(&db, "gone"), None, "step {step}: it was dropped");
                    dropped += 1;
                }
                let there = db.stats().tables.iter().map(|t| t.id).max().unwrap();
                db.table("new").unwrap();
                let new = id(&db, "new").unwrap();
                assert!(new > known && new > there, "{kind:?}, step {step}: {new} after {known}");
                assert_eq!(db.existing_table("new").unwrap().iter().count(), 0);
            }
            if is_over {
                break;
            }
        }
        assert!(
            cuts > 10 && dropped > 0,
            "{kind:?}: {cuts} cuts, {dropped} of them after the drop"
        );
    }
}

/// An opening ends before a commit that is not whole. Those behind it have numbers that somebody
/// may have seen: the next commit gets a greater one.
#[test]
fn lsns_that_were_seen_behind_a_gap_are_not_given_again() {
    let _together = together();
    let machine = Machine::with_files();
    let db = options(&machine, None).open(PATH).unwrap();
    let table = db.table("t").unwrap();
    table.put("a", "durable").unwrap();
    for value in ["torn value", "last value"] {
        table.durability(Durability::Relaxed).put(value, value).unwrap();
    }
    let seen = db.snapshot().unwrap().lsn();
    let found = machine.kill();
    let region = Path::new(PATH).join("region");
    let torn = |bytes: &[u8]| bytes.ends_with(b"torn value");
    let at = found.contents(&region).windows(20).position(torn).unwrap();
    found.corrupt(&region, at as u64 + 19, 1);
    let db = options(&found, None).open(PATH).unwrap();
    let table = db.existing_table("t").unwrap();
    assert_eq!(table.iter().map(|row| row.unwrap().0).collect::<Vec<_>>(), ["a"]);
    table.put("b", "next").unwrap();
    let next = db.snapshot().unwrap().lsn();
    assert!(next > seen, "{next} after {seen}");
}

/// Each commit writes to the first and to the last key of a table, and no commit waits for a sync.
/// Drains, which take one column after the other, and all other jobs run in between, so few that
/// there is always another one: the background settles when it finds none. When the power goes
/// after a drain, both keys say the same: had it taken along what the cut takes back, they would
/// not.
#[test]
fn nothing_above_the_floor_is_drained() {
    let _together = together();
    for kind in KINDS {
        let mut drained = 0;
        for seed in 0..5 {
            let (machine, mut chance) = (kind.machine(), Chance::new(seed));
            let db = options(&machine, None).open(PATH).unwrap();
            let table = db.table("t").unwrap();
            for n in 0..250u32 {
                let mut batch = WriteBatch::new();
                for end in ["a", "m", "z"] {
                    batch.put(&table, end, n.to_be_bytes());
                    batch.put(&table, format!("{end} {n}"), [n as u8; 3000]);
                }
                db.write_with(&batch, Durability::Relaxed).unwrap();
                let pm = db.stats().pm;
                let jobs = chance.below(3) + 3 * u64::from(pm.zones - pm.zones_used < 4);
                for _ in 0..jobs {
                    let before = db.stats().background.drains;
                    db.step().unwrap();
                    if db.stats().background.drains > before {
                        drained += 1;
                        ends_agree(&machine.crash(Survive::Nothing), &format!("{kind:?}, {seed}"));
                    }
                }
            }
        }
        assert!(drained > 20, "{kind:?}: {drained} drains");
    }
}

fn ends_agree(machine: &Machine, run: &str) {
    let db = options(machine, None).open(PATH).unwrap();
    let table = db.existing_table("t").unwrap();
    let agree = |keys: [String; 3]| {
        let found = keys.map(|key| table.get(key).unwrap());
        found[0] == found[2] && found[1] == found[2]
    };
    assert!(agree(["a", "m", "z"].map(String::from)), "{run}");
    for n in 0..250 {
        assert!(agree(["a", "m", "z"].map(|end| format!("{end} {n}"))), "{run}, commit {n}");
    }
}
