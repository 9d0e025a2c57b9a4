//! Row tables over each other, of which one in the middle goes first; and a container that changes.

use terrace::Durability::{Durable, Relaxed};
use terrace::{Database, Level0Container};

use super::steps_until_with;
use crate::cuts::Rig;

/// Three merged memtables: one of keys in the middle, one of the smallest keys, and one of keys on
/// both sides of the middle. As a row table the second is empty before the first and the third are,
/// and what the third says of it is wrong of the first.
pub(super) fn overlay(rig: &mut Rig) {
    rig.create("c");
    for memtable in 0..3 {
        let merges = rig.db.stats().background.merges;
        for n in 0..300 {
            if rig.db.stats().background.merges > merges || !rig.goes_on() {
                break;
            }
            let key = match memtable {
                0 => format!("t {}", rig.chance.below(90)),
                1 => format!("a {}", n % 2),
                _ => around(n),
            };
            let len = 3000 + rig.chance.below(3000) as usize;
            rig.put("c", &key, len, Relaxed);
            // What is frozen is merged before the next put.
            rig.steps(4);
        }
    }
}

/// A key above those in the middle, or below them, as most are: so that drains take a few columns
/// from the smallest keys to those in the middle.
fn around(n: u64) -> String {
    format!("{} {}", if n.is_multiple_of(8) { 'u' } else { 's' }, n % 90)
}

/// Drains the first two columns, and gives the table another container after the next merge. The
/// edit of the second one removes the row table that the first has emptied.
pub(super) fn drain_overlaid(rig: &mut Rig) {
    let drains = rig.db.stats().background.drains;
    let more = |n| ("c", around(n));
    steps_until_with(rig, more, |rig| rig.db.stats().background.drains > drains + 1);
    let merges = rig.db.stats().background.merges;
    steps_until_with(rig, more, |rig| rig.db.stats().background.merges > merges);
    change_level0(rig, "c");
    rig.put("c", "last", 100, Durable);
}

/// Gives a table another container of level 0: its rows stay what they are.
fn change_level0(rig: &mut Rig, table: &str) {
    let all = [Level0Container::GlobalIndex, Level0Container::Matrix, Level0Container::Triangle];
    let container = *rig.chance.pick(&all);
    let change = |db: &Database| {
        let options = db.existing_table(table)?.options().level0(container);
        db.set_table_options(table, options)
    };
    let changed = change(&rig.db);
    rig.tolerate("set_table_options", changed);
}
