//! Work that reaches the object store: rows go down to objects, objects take the place of others,
//! a table changes its tier.

use super::{Durable, LITTLE_MEMORY, Relaxed, put_any, small};
use crate::content::Effect;
use crate::cuts::Rig;
use crate::workload::Action;

/// Rows of which most lie in objects.
pub(super) fn prepare(rig: &mut Rig) {
    small(rig);
    rig.close();
    rig.open_within(LITTLE_MEMORY);
    rows(rig, 40, 9000);
    rig.compact("a");
}

/// Rows of a table, some of them again.
fn rows(rig: &mut Rig, many: u64, len: u64) {
    for _ in 0..many {
        let (row, len) = (rig.chance.below(90), 1 + rig.chance.below(len));
        rig.put("a", &format!("row {row:02}"), len as usize, Relaxed);
        rig.steps(2);
    }
}

pub(super) fn act(rig: &mut Rig) {
    rows(rig, 20, 9000);
    rig.compact("a");
    // What was replaced is deleted now.
    rig.steps(20);
    if rig.chance.percent(50) {
        let row = format!("row {:02}", rig.chance.below(60)).into_bytes();
        let delete = Effect::DeleteRange("a".into(), row, None);
        rig.perform(&Action::Write(vec![delete], Relaxed));
    }
    rig.change_tier("a");
    let jobs = rig.chance.below(30);
    rig.steps(jobs);
    rows(rig, 5, 3000);
    rig.compact("a");
    rig.collect_objects();
    rig.change_tier("a");
    rig.steps(jobs);
    put_any(rig, Durable);
}
