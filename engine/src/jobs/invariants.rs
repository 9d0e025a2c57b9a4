//! What holds of jobs whenever they change a table, each under its name. Jobs assert it before the
//! change is on the media, or right after readers see it.

use std::sync::Arc;

use super::context::{JobContext, Outcome};
use crate::compaction::ClaimedKeys;
use crate::extent::Extent;
use crate::levels::{Edit, Op};
use crate::mvcc::KeyInterval;
use crate::record::{Lsn, RowTable, TableId};

/// A job that did nothing moved nothing.
pub(crate) fn outcome_is_sound(outcome: &Outcome) -> bool {
    let has_moved =
        outcome.pruned > 0 || outcome.drained.is_some() || outcome.left_level1.is_some();
    outcome.did || !has_moved
}

/// No compaction works on keys of these extents in their levels (invariant 2 of `claims.rs`).
pub(super) fn are_unclaimed(busy: &[ClaimedKeys], gone: &[(u8, Arc<Extent>)]) -> bool {
    let is_free = |n: u8, keys: &KeyInterval| !busy.iter().any(|claim| claim.has(n, keys));
    gone.iter().all(|(n, extent)| is_free(*n, &extent.meta().interval()))
}

/// Each operation is on extents or on D of one table.
pub(super) fn edit_is_of(edit: &Edit, id: TableId) -> bool {
    edit.ops.iter().all(|op| match op {
        Op::AddExtent { table, .. }
        | Op::RemoveExtent { table, .. }
        | Op::MoveExtent { table, .. }
        | Op::RemoveFromRun { table, .. }
        | Op::MoveFromRun { table, .. }
        | Op::Drained { table, .. }
        | Op::DrainedMap { table, .. } => *table == id,
        _ => false,
    })
}

/// A zone that is about to be released has no record that counts.
pub(super) fn zones_are_dead(ctx: &JobContext, zones: &[u32]) -> bool {
    zones.iter().all(|zone| ctx.shared.zones.live(*zone) == 0)
}

/// A row table holds what lies between two merges, and its oldest record is one of these.
pub(super) fn row_is_sound(row: &RowTable, boundary: Lsn) -> bool {
    row.after < row.oldest && row.oldest <= row.upto && row.upto == boundary
}
