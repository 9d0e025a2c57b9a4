//! The blob that the last commit with one left: a position in somebody else's log, for example.
//!
//! A blob is a record of the engine's own in the group of its commit. It counts as living in its
//! zone until a later commit with a blob is durable; the cleaner carries it along like any other
//! record.
//!
//! Thread safety: every method takes `&self`; the mutex is held for a few instructions.
//!
//! Invariants:
//!
//! 1. `noted` ascends by LSN, and has the last durable one and all after it.
//! 2. Each of `noted` counts as one living record in the zone that it lies in.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::alloc::ZonePool;
use crate::memtable::record_at;
use crate::pm::Region;
use crate::record::Lsn;

#[derive(Clone, Copy, Debug)]
struct Noted {
    lsn: Lsn,
    at: u64,
}

/// The last blobs of one database.
#[derive(Debug)]
pub(crate) struct Blobs {
    region: Arc<Region>,
    zones: Arc<ZonePool>,
    noted: Mutex<VecDeque<Noted>>,
}

impl Blobs {
    pub(super) fn new(region: Arc<Region>, zones: Arc<ZonePool>) -> Blobs {
        Blobs { region, zones, noted: Mutex::default() }
    }

    /// Takes note of the blob of commit `lsn`, which lies at `at` and counts in its zone; lets
    /// those go that one at or below `durable` supersedes.
    pub(crate) fn note(&self, lsn: Lsn, at: u64, durable: Lsn) {
        let mut noted = self.noted.lock();
        let place = noted.partition_point(|other| other.lsn < lsn);
        noted.insert(place, Noted { lsn, at });
        debug_assert!(noted.iter().is_sorted_by(|a, b| a.lsn < b.lsn), "they ascend (invariant 1)");
        while noted.get(1).is_some_and(|next| next.lsn <= durable) {
            let gone = noted.pop_front();
            gone.into_iter().for_each(|gone| self.count_out(gone.at));
        }
    }

    /// The blob of the last commit at or below `visible` that has one.
    pub(crate) fn last(&self, visible: Lsn) -> Option<Vec<u8>> {
        let noted = self.noted.lock();
        let last = noted.iter().rev().find(|noted| noted.lsn <= visible)?;
        // Its zone stays while it is noted (invariant 2).
        Some(record_at(&self.region, last.at).value.to_vec())
    }

    /// Whether the blob of commit `lsn` at `at` is noted.
    pub(crate) fn holds(&self, lsn: Lsn, at: u64) -> bool {
        self.noted.lock().iter().any(|noted| noted.lsn == lsn && noted.at == at)
    }

    /// Has the blob of commit `lsn` be found at `to`, where it was copied to, instead of `from`;
    /// whether it was there.
    pub(crate) fn relocate(&self, lsn: Lsn, from: u64, to: u64) -> bool {
        let mut noted = self.noted.lock();
        let found = noted.iter_mut().find(|noted| noted.lsn == lsn && noted.at == from);
        found.map(|noted| noted.at = to).is_some()
    }

    fn count_out(&self, at: u64) {
        self.zones.sub_live(self.zones.zone_of(at), 1);
    }
}
