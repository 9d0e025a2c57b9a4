//! Rules of the ring that take a whole database to be seen; those of commit alone are in
//! `commit/tests`.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

mod common;

use common::cuts::{KINDS, PATH, options};
use terrace::testing::Survive;
use terrace::{Database, Durability, WriteBatch};

fn id(db: &Database, table: &str) -> Option<u32> {
    db.stats().tables.iter().find(|t| t.name == table).map(|t| t.id)
}

/// A table is made and dropped, with the power cut at each step of both: before the event is
/// durable, before the journal has it, after that. Whatever the cut left, the next table's number
/// is larger than that of every table that anybody was told of.
#[test]
fn table_ids_are_never_used_again_whatever_the_journal_had() {
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

/// Each commit writes to the first and to the last key of a table, and nobody waits for a sync.
/// Drains, which take one column after the other, and all other jobs run in between. Whenever the
/// power goes, both keys say the same: had a drain, or the cleaner, taken along what a cut takes
/// back, they would not.
#[test]
fn nothing_above_the_floor_is_drained() {
    // Where each entry of an index is a step, fewer of them are tried.
    for (kind, stride) in KINDS.into_iter().zip([7, 59, 599]) {
        let mut drained = 0;
        for cut in (1..).step_by(stride) {
            let machine = kind.machine();
            let db = options(&machine, None).open(PATH).unwrap();
            let table = db.table("t").unwrap();
            machine.cut_before(cut, Survive::Nothing);
            let mut found = None;
            for n in 0..250u32 {
                let mut batch = WriteBatch::new();
                for end in ["a", "m", "z"] {
                    batch.put(&table, end, n.to_be_bytes());
                    batch.put(&table, format!("{end} {n}"), [n as u8; 3000]);
                }
                db.write_with(batch, Durability::Relaxed).unwrap();
                // One job at a time: more is visible than what is below the floor.
                db.step().unwrap();
                db.step().unwrap();
                found = machine.found();
                if found.is_some() {
                    break;
                }
            }
            drained = drained.max(db.stats().background.drains);
            let Some(after) = found else { break };
            let db = options(&after, None).open(PATH).unwrap();
            let Ok(table) = db.existing_table("t") else { continue };
            let at = |key: &str| table.get(key).unwrap();
            assert!(at("a") == at("z") && at("m") == at("z"), "{kind:?}, cut {cut}");
            for n in 0..250 {
                let same = ["a", "m", "z"].map(|end| at(&format!("{end} {n}")));
                assert!(same[0] == same[2] && same[1] == same[2], "{kind:?}, cut {cut}, {n}");
            }
        }
        assert!(drained > 2, "{kind:?}: {drained} drains");
    }
}
