//! The blob that the last commit with one left: a position in another system's log, for example.
//!
//! A blob is a record of the engine's own in the group of its commit. It counts as living in its
//! zone until a later commit with a blob is durable and visible, and yet another blob is noted. The
//! cleaner carries it along like any other record.
//!
//! A reader names a moment and takes the blob of that moment in one call ([`Blobs::as_of`]). What
//! it took stays readable while its thread is pinned. A snapshot keeps no blob: its owner takes it
//! with the snapshot.
//!
//! Thread safety: every method takes `&self`. The list never changes: it is replaced as a whole,
//! and a thread that finds another one was faster begins again. There is no lock: commits note
//! their blobs between ticket and finish. A thread that is stopped there must not hold up earlier
//! commits.
//!
//! Invariants:
//!
//! 1. `noted` ascends by LSN. It has the last one that is durable and visible, and all after it.
//! 2. Each of `noted` counts as one living record in the zone that it lies in, but for those that
//!    were just let go. Their zones stay until all pinned threads have left.

use std::sync::Arc;

use crate::alloc::ZonePool;
use crate::memtable::record_at;
use crate::mvcc::is_pinned;
use crate::options::Failpoint;
use crate::os::sync::shared::ArcSwap;
use crate::pm::Region;
use crate::record::Lsn;

/// A blob that was noted: the LSN of its commit, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    lsn: Lsn,
    at: u64,
}

/// A list with one more, short of those that one at or below `settled` supersedes; and these.
fn with(noted: &[Noted], new: Noted, settled: Lsn) -> (Vec<Noted>, Vec<Noted>) {
    let mut list = noted.to_vec();
    list.insert(list.partition_point(|other| other.lsn < new.lsn), new);
    debug_assert!(list.is_sorted_by(|a, b| a.lsn < b.lsn), "they ascend (invariant 1)");
    let superseded = list.partition_point(|noted| noted.lsn <= settled).saturating_sub(1);
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
    /// those go that one at or below `settled` supersedes, up to which all is durable and visible.
    pub(crate) fn note(&self, lsn: Lsn, at: u64, settled: Lsn) {
        let new = Noted { lsn, at };
        let before = self.noted.rcu(|noted| with(noted, new, settled).0);
        let (_, gone) = with(&before, new, settled);
        gone.into_iter().for_each(|gone| self.zones.sub_live(self.zones.zone_of(gone.at), 1));
    }

    /// The LSN that `moment` gives, up to which commits are seen, and the last blob at or below it.
    /// Takes no lock and allocates nothing. The caller is pinned while it uses the blob.
    ///
    /// `moment` may be asked several times. It never gives less than what was durable and visible
    /// before.
    pub(crate) fn as_of(&self, moment: impl Fn() -> Lsn) -> (Lsn, Option<Noted>) {
        loop {
            // First: what is seen was noted before.
            let lsn = moment();
            let noted = self.noted.load();
            let last = noted.iter().rev().find(|noted| noted.lsn <= lsn).copied();
            // One that was let go in between was superseded by one that the next moment has.
            let once = self.region.has(Failpoint::LookForBlobOnce);
            if last.is_some() || once || moment() == lsn {
                return (lsn, last);
            }
        }
    }

    /// A blob that was taken while this thread was pinned (invariant 2).
    pub(crate) fn read(&self, noted: Noted) -> Vec<u8> {
        debug_assert!(is_pinned(), "the zone of a blob stays while its reader is pinned");
        record_at(&self.region, noted.at).value.to_vec()
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

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::cell::Cell;

    use super::super::tests::Fixture;
    use super::*;

    /// A later commit with a blob becomes durable and visible between a reader's look at the
    /// watermark and at the list, and removes the one that the reader would have found.
    #[test]
    fn a_blob_that_was_removed_in_between_is_not_taken_for_none() {
        let fixture = Fixture::new(true);
        let (blobs, at) = (fixture.committer.blobs(), fixture.zones.geometry().zone(0) + 64);
        fixture.zones.add_live(0, 4);
        blobs.note(1, at, 0);
        let (asked, visible) = (Cell::new(0), Cell::new(1));
        let (lsn, last) = blobs.as_of(|| {
            let seen = visible.get();
            asked.set(asked.get() + 1);
            if asked.get() == 1 {
                blobs.note(2, at + 64, 0);
                visible.set(2);
                blobs.note(3, at + 128, 2);
            }
            seen
        });
        assert_eq!((lsn, last), (2, Some(Noted { lsn: 2, at: at + 64 })));
        assert_eq!(asked.get(), 3, "the first moment, once more, and the second");
        assert_eq!(fixture.zones.live(0), 3, "one was let go");
        // What is noted and not visible is not seen, and lets nothing go.
        blobs.note(4, at + 192, 2);
        assert_eq!(blobs.as_of(|| 2).1, last);
        assert_eq!(blobs.as_of(|| 3).1, Some(Noted { lsn: 3, at: at + 128 }));
        assert_eq!(fixture.zones.live(0), 3);
    }

    #[test]
    fn without_any_there_is_none() {
        let fixture = Fixture::new(true);
        let blobs = fixture.committer.blobs();
        assert_eq!(blobs.as_of(|| 7), (7, None));
        fixture.zones.add_live(0, 1);
        blobs.note(9, fixture.zones.geometry().zone(0) + 64, 7);
        assert_eq!(blobs.as_of(|| 8), (8, None));
    }
}
