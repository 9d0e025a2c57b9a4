//! When something was read, and which writes must be in it.

use terrace::Durability;

use super::{Outcome, Write};

/// When a state was read, and what must be in it.
#[derive(Clone, Copy, Debug)]
pub(in crate::schedules) enum Seen {
    /// By a call in the run, which lasted from one moment to the other.
    Read(u64, u64),
    /// The same after a failure that has stopped the database: it shows what is durable.
    Stopped(u64, u64),
    /// In what a cut has left, at this moment: durable writes must be there.
    AfterCut(u64),
    /// By a node until this moment: it goes on from what it has shown before.
    Behind(u64, u64),
    /// By a machine that took the store over by this moment: remote writes must be there.
    Taken(u64),
}

impl Seen {
    /// Whether the write was acknowledged early enough to be seen for certain.
    pub(in crate::schedules) fn must_have(self, write: &Write) -> bool {
        match self {
            Seen::Read(from, _) => {
                [write.acknowledged(), write.read].into_iter().flatten().any(|at| at < from)
            }
            Seen::Stopped(at, _) | Seen::AfterCut(at) => {
                write.durable.is_some_and(|durable| durable < at)
            }
            Seen::Behind(node, _) => write.shown_by.contains(&node),
            Seen::Taken(by) => {
                let is_remote = write.durability == Durability::Remote;
                is_remote && write.acknowledged().is_some_and(|at| at < by)
            }
        }
    }

    /// Whether the write was called early enough to be seen.
    pub(in crate::schedules) fn may_have(self, write: &Write) -> bool {
        let (Seen::Read(_, at)
        | Seen::Stopped(_, at)
        | Seen::AfterCut(at)
        | Seen::Behind(_, at)
        | Seen::Taken(at)) = self;
        write.called < at && write.outcome != Outcome::Refused && !write.outcome.is_hidden()
    }
}
