//! Which groups go into the next segment, and which none can have.

use super::log::{GroupKind, SegmentGroups};
use crate::commit::{Content, FULL_SEGMENT, FedGroup, FedGroups};
use crate::record::Lsn;

/// The groups of the next segment.
#[derive(Debug, Default)]
pub(super) struct SegmentCut {
    pub(super) groups: SegmentGroups,
    pub(super) bytes: u64,
    /// The last LSN, if there is something to ship.
    pub(super) last: Option<Lsn>,
    /// The last LSN that was looked at: behind `last` there is no news.
    pub(super) seen: Lsn,
    /// The first group, if it has rows in extents of this machine.
    pub(super) large: Option<Lsn>,
}

/// Takes groups from `first` to `durable`, until a segment is full or a group cannot go in one.
pub(super) fn cut(waiting: &FedGroups, (first, durable): (Lsn, Lsn)) -> SegmentCut {
    let mut cut = SegmentCut { seen: first - 1, ..SegmentCut::default() };
    let mut next = first;
    let from = waiting.iter().skip_while(|(group, _)| group.lsn < first);
    for (group, parts) in from {
        if group.lsn != next || group.lsn > durable {
            break;
        }
        if group.has_runs {
            cut.large = cut.last.is_none().then_some(group.lsn);
            break;
        }
        if let Some(kind) = kind(&group) {
            cut.groups.push((group.lsn, kind), group.parts, parts);
            cut.bytes += group.bytes();
            cut.last = Some(group.lsn);
        }
        (cut.seen, next) = (group.lsn, group.lsn + 1);
        if cut.bytes >= FULL_SEGMENT {
            break;
        }
    }
    cut
}

/// How the group is shipped; `None` if it is no news.
fn kind(group: &FedGroup) -> Option<GroupKind> {
    match group.content {
        Content::Commit => Some(GroupKind::Commit),
        Content::Prepared => Some(GroupKind::Prepared),
        Content::Moved => None,
    }
}
