//! The blob that the last commit with one left: a position in another system's log, for example.
//!
//! A blob is a record of the engine's own in the group of its commit. It counts as living in its
//! zone until a later commit with a blob is durable; the cleaner carries it along like any other
//! record.
//!
//! Thread safety: every method takes `&self`. The list never changes: it is replaced as a whole,
//! and a thread that finds another one was faster begins again. There is no lock: commits note
//! their blobs between ticket and finish. A thread that is stopped there must not hold up earlier
//! commits.
//!
//! Invariants:
//!
//! 1. `noted` ascends by LSN, and has the last durable one and all after it.
//! 2. Each of `noted` counts as one living record in the zone that it lies in, but for those that
//!    were just let go. Their zones stay until all pinned threads have left.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::alloc::ZonePool;
use crate::memtable::record_at;
use crate::mvcc::pin;
use crate::pm::Region;
use crate::record::Lsn;

#[derive(Clone, Copy, Debug)]
struct Noted {
    lsn: Lsn,
    at: u64,
}

/// A list with one more, short of those that one at or below `durable` supersedes; and these.
fn with(noted: &[Noted], new: Noted, durable: Lsn) -> (Vec<Noted>, Vec<Noted>) {
    let mut list = noted.to_vec();
    list.insert(list.partition_point(|other| other.lsn < new.lsn), new);
    debug_assert!(list.is_sorted_by(|a, b| a.lsn < b.lsn), "they ascend (invariant 1)");
    let superseded = list.partition_point(|noted| noted.lsn <= durable).saturating_sub(1);
    let kept = list.split_off(superseded);
    (kept, list)
}

/// The last blobs of one database.
#[derive(Debug)]
pub(crate) struct Blobs {
    region: Arc<Region>,
    zones: Arc<ZonePool>,
    noted: ArcSwap<Vec<Noted>>,
}

impl Blobs {
    pub(super) fn new(region: Arc<Region>, zones: Arc<ZonePool>) -> Blobs {
        Blobs { region, zones, noted: ArcSwap::default() }
    }

    /// Takes note of the blob of commit `lsn`, which lies at `at` and counts in its zone; lets
    /// those go that one at or below `durable` supersedes.
    pub(crate) fn note(&self, lsn: Lsn, at: u64, durable: Lsn) {
        let new = Noted { lsn, at };
        let before = self.noted.rcu(|noted| with(noted, new, durable).0);
        let (_, gone) = with(&before, new, durable);
        gone.into_iter().for_each(|gone| self.zones.sub_live(self.zones.zone_of(gone.at), 1));
    }

    /// The blob of the last commit at or below `visible` that has one.
    pub(crate) fn last(&self, visible: Lsn) -> Option<Vec<u8>> {
        // Before the look: its zone stays while this lives (invariant 2).
        let _guard = pin();
        let noted = self.noted.load();
        let last = noted.iter().rev().find(|noted| noted.lsn <= visible)?;
        Some(record_at(&self.region, last.at).value.to_vec())
    }

    /// Whether the blob of commit `lsn` at `at` is noted.
    pub(crate) fn holds(&self, lsn: Lsn, at: u64) -> bool {
        self.noted.load().iter().any(|noted| noted.lsn == lsn && noted.at == at)
    }

    /// Has the blob of commit `lsn` be found at `to`, where it was copied to, instead of `from`;
    /// whether it was there.
    pub(crate) fn relocate(&self, lsn: Lsn, from: u64, to: u64) -> bool {
        let is_it = |noted: &Noted| noted.lsn == lsn && noted.at == from;
        let moved =
            |noted: &Noted| Noted { at: if is_it(noted) { to } else { noted.at }, ..*noted };
        let before = self.noted.rcu(|noted| noted.iter().map(moved).collect::<Vec<_>>());
        before.iter().any(is_it)
    }
}
