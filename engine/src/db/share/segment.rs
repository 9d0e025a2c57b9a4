//! Which groups go into the next segment, and which none can have.

use std::collections::BTreeMap;

use crate::commit::{Content, FULL_SEGMENT, FedGroup};
use crate::record::{Kind, Lsn};
use crate::replica::{GroupKind, ShippedGroup, records_of};

/// The groups of the next segment.
#[derive(Debug, Default)]
pub(super) struct SegmentCut {
    pub(super) groups: Vec<ShippedGroup>,
    pub(super) bytes: u64,
    /// The last LSN, if there is something to ship.
    pub(super) last: Option<Lsn>,
    /// The last LSN that was looked at: behind `last` there is no news.
    pub(super) seen: Lsn,
    /// The next group has rows in extents of this machine: a checkpoint ships it.
    pub(super) needs_checkpoint: bool,
}

/// Takes groups from `first` to `durable`, until a segment is full or a group cannot go in one.
pub(super) fn cut(waiting: &BTreeMap<Lsn, FedGroup>, (first, durable): (Lsn, Lsn)) -> SegmentCut {
    let mut cut = SegmentCut { seen: first - 1, ..SegmentCut::default() };
    let mut next = first;
    for (lsn, group) in waiting.range(first..=durable.max(first)) {
        if *lsn != next || *lsn > durable {
            break;
        }
        if has_runs(group) {
            cut.needs_checkpoint = cut.last.is_none();
            break;
        }
        if let Some(shipped) = shipped(group) {
            cut.groups.push(shipped);
            cut.bytes += group.bytes();
            cut.last = Some(*lsn);
        }
        (cut.seen, next) = (*lsn, lsn + 1);
        if cut.bytes >= FULL_SEGMENT {
            break;
        }
    }
    cut
}

/// The group as it is shipped; `None` if it is no news.
fn shipped(group: &FedGroup) -> Option<ShippedGroup> {
    let kind = match group.content {
        Content::Commit => GroupKind::Commit,
        Content::Prepared => GroupKind::Prepared,
        Content::Moved => return None,
    };
    let parts = group.payloads().map(<[u8]>::to_vec).collect();
    Some(ShippedGroup { lsn: group.lsn, kind, parts })
}

/// Whether a group has rows that lie in extents. The verdict that commits such a prepare has them
/// again.
fn has_runs(group: &FedGroup) -> bool {
    let mut records = group.payloads().flat_map(records_of);
    records.any(|record| record.kind == Kind::SpilledRun)
}
