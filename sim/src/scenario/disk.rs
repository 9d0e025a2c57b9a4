//! Work that reaches what is on disk: range deletes, values apart, layers that sink.

use super::{Durable, MOST_JOBS, Relaxed, put_any, small, steps_until};
use crate::content::Effect;
use crate::cuts::Rig;
use crate::workload::Action;

/// Rows on disk, and more of them in level 0 than a column takes.
pub(super) fn rows_below(rig: &mut Rig, table: &str) {
    small(rig);
    for n in 0..90 {
        rig.put(table, &format!("row {n:02}"), 9000, Relaxed);
        rig.steps(3);
    }
    let drains = rig.db.stats().background.drains;
    steps_until(rig, |rig| rig.db.stats().background.drains > drains + 3);
}

/// A range delete over several columns, drained in part or as a whole; rows in it and beside it.
pub(super) fn ranges(rig: &mut Rig) {
    let (from, to) = (rig.chance.below(40), 50 + rig.chance.below(50));
    let row = |n: u64| format!("row {n:02}").into_bytes();
    let end = (to < 90).then(|| row(to));
    let range = Effect::DeleteRange("a".into(), row(from), end);
    let after = Effect::Put("a".into(), row(from + 3), rig.chance.bytes(200));
    rig.perform(&Action::Write(vec![range, after], Relaxed));
    let drains = rig.db.stats().background.drains + 1 + rig.chance.below(3);
    for n in 0..MOST_JOBS {
        if rig.db.stats().background.drains >= drains || !rig.goes_on() {
            break;
        }
        let key = match rig.chance.below(4) {
            0 => format!("row {:02}", from + n % (to - from)),
            _ => format!("row {:02}", if n % 2 == 0 { n % (from + 1) } else { to + n % 30 }),
        };
        rig.put("a", &key, 9000, Relaxed);
        rig.steps(2);
    }
    put_any(rig, Durable);
}

/// Operands of rows on disk, until they were drained over these.
pub(super) fn operands(rig: &mut Rig) {
    let drains = rig.db.stats().background.drains;
    for _ in 0..MOST_JOBS {
        if rig.db.stats().background.drains > drains + 1 || !rig.goes_on() {
            break;
        }
        let row = format!("row {:02}", rig.chance.below(90)).into_bytes();
        let operand = rig.chance.bytes(5000);
        rig.perform(&Action::Write(vec![Effect::Merge("a".into(), row, operand)], Relaxed));
        rig.steps(2);
    }
    put_any(rig, Durable);
}

/// Most rows of which the values lie apart are written again, until the others are written anew;
/// then all of them go.
pub(super) fn values(rig: &mut Rig) {
    let collections = rig.db.stats().background.collections;
    for n in 0..MOST_JOBS {
        if rig.db.stats().background.collections > collections || !rig.goes_on() {
            break;
        }
        // Every fourth stays.
        let row = n % 90;
        let row = if row % 4 == 0 { row + 1 } else { row };
        let len = 6000 + rig.chance.below(3000) as usize;
        rig.put("b", &format!("row {row:02}"), len, Relaxed);
        rig.steps(2);
    }
    // What takes the place of what was emptied.
    let drains = rig.db.stats().background.drains;
    rewrite_until(rig, |rig| rig.db.stats().background.drains > drains + 1);
    rig.perform(&Action::Table(Effect::Truncate("b".into())));
    rig.put("b", "row 00", 9000, Relaxed);
    rig.steps(6);
    put_any(rig, Durable);
}

/// The region is filled and drained until layers have sunk to where a stack was: drains that are
/// due all the time pass between two extents of a compaction.
pub(super) fn sink(rig: &mut Rig) {
    let sunk = rig.db.stats().background.trivially_moved_extents;
    for _ in 0..8 {
        for _ in 0..MOST_JOBS {
            if rig.db.stats().pm.zones_used >= 11 || !rig.goes_on() {
                break;
            }
            let row = rig.chance.below(90);
            rig.put("a", &format!("row {row:02}"), 9000, Relaxed);
        }
        while rig.db.stats().pm.zones_used > 7 && rig.step() {
            if rig.db.stats().background.trivially_moved_extents > sunk {
                return put_any(rig, Durable);
            }
        }
    }
}

/// Writes rows that no tombstone is for.
pub(super) fn rewrite_until(rig: &mut Rig, done: impl Fn(&Rig) -> bool) {
    for _ in 0..MOST_JOBS {
        if done(rig) || !rig.goes_on() {
            return;
        }
        let n = rig.chance.below(18) * 5 + 2 + rig.chance.below(3);
        rig.put("a", &format!("row {n}"), 9000, Relaxed);
        rig.steps(2);
    }
    if rig.disturbed().is_none() {
        panic!("{MOST_JOBS} writes did not do it: {:?}", rig.db.stats());
    }
}
