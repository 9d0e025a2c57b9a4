//! The publisher: consecutive finished groups become durable with one sync, then visible.
//!
//! Thread safety: whoever holds the publisher's mutex is the publisher. It publishes one run and
//! hands over; waiters take it in turn.
//!
//! Invariants:
//!
//! 1. The floor is written only after the sync that made it true, so it rides in the next run.
//! 2. The run's bytes are durable (or, for relaxed runs, in the operating system's hands) before
//!    the visible watermark moves.

use std::collections::BTreeMap;

use super::committer::{Committer, Turn};
use super::floor::{Floor, Gidx};
use crate::error::Result;
use crate::pm::{Durable, Fenced};
use crate::record::Lsn;

/// Most groups in a run.
const MAX_RUN: u64 = 1024;

/// What only the publisher touches.
#[derive(Debug)]
pub(super) struct Publisher {
    floor: Floor,
    /// Tails of the streams after the last published run.
    tails: BTreeMap<u32, Gidx>,
    /// The same after the last sync.
    durable_tails: BTreeMap<u32, Gidx>,
    /// GIDX words as of the floor.
    written: BTreeMap<u32, Gidx>,
}

impl Publisher {
    pub(super) fn new(floor: Floor, tails: BTreeMap<u32, Gidx>) -> Publisher {
        Publisher { floor, durable_tails: tails.clone(), written: tails.clone(), tails }
    }
}

impl Committer {
    /// Publishes one run; whether there was one.
    pub(super) fn run(&self, publisher: &mut Turn<'_>, force_sync: bool) -> bool {
        if self.poison.is_set() {
            return false;
        }
        let first = self.visible.get() + 1;
        if !force_sync && !self.ring.is_finished(first) {
            return false;
        }
        #[cfg(any(test, feature = "testing"))]
        let _phase = crate::testing::InPhase::enter(crate::testing::Phase::Commit);
        let mut last = first - 1;
        let mut fenced = self.ride_floor(publisher);
        let mut sync = force_sync;
        while last + 1 < first + MAX_RUN && self.ring.is_finished(last + 1) {
            last += 1;
            let finished = self.ring.take(last);
            fenced.absorb(finished.fenced);
            publisher.tails.extend(finished.tails);
            sync |= finished.durable;
        }
        let published = if sync {
            self.region.sync(&fenced).map(Some)
        } else {
            self.region.write_back(&fenced).map(|()| None)
        };
        match published {
            Ok(durable) => {
                self.published(publisher, last, durable);
                (first..=last).for_each(|lsn| self.ring.dismiss(lsn, &mut publisher.woken));
            }
            Err(e) => self.poison.set(&e),
        }
        self.count_run();
        last >= first
    }

    fn published(&self, publisher: &mut Publisher, last: Lsn, durable: Option<Durable>) {
        if durable.is_some() {
            self.durable.raise(last);
            publisher.durable_tails.clone_from(&publisher.tails);
        }
        self.visible.raise(last);
    }

    /// Stores the floor that the last sync made true, if it moved (invariant 1).
    fn ride_floor(&self, publisher: &mut Publisher) -> Fenced {
        let journal = *self.journal.lock();
        let lsn = self.durable.get();
        if lsn == publisher.floor.lsn && journal == publisher.floor.journal {
            return Fenced::default();
        }
        debug_assert!(lsn >= publisher.floor.lsn, "the floor never falls");
        let number = publisher.floor.number + 1;
        publisher.floor = Floor { number, lsn, incarnation: self.incarnation, journal };
        let mut flushed = vec![self.region.flush(publisher.floor.store(&self.region))];
        for (stream, gidx) in &publisher.durable_tails {
            if publisher.written.get(stream) != Some(gidx) {
                flushed.push(self.region.flush(gidx.store(&self.region, *stream)));
            }
        }
        publisher.written.clone_from(&publisher.durable_tails);
        self.region.fence(flushed)
    }

    /// Publishes all that is finished, makes it durable and writes the floor; returns F. Called
    /// before background work that needs the floor, when idle, and at close.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the database is, or becomes, poisoned.
    pub(crate) fn settle(&self) -> Result<Lsn> {
        let mut publisher = self.publish();
        while self.run(&mut publisher, false) {}
        if self.durable.get() < self.visible.get() {
            self.run(&mut publisher, true);
        }
        self.poison.check()?;
        let floor = self.ride_floor(&mut publisher);
        if floor.is_empty() {
            return Ok(publisher.floor.lsn);
        }
        if let Err(e) = self.region.sync(&floor) {
            self.poison.set(&e);
            return Err(e);
        }
        Ok(publisher.floor.lsn)
    }

    /// Whether everything committed is durable and the floor says so.
    pub(crate) fn is_settled(&self) -> bool {
        let publisher = self.publish();
        let (visible, durable) = (self.visible.get(), self.durable.get());
        visible == durable
            && publisher.floor.lsn == durable
            && publisher.floor.journal == *self.journal.lock()
    }

    /// Those of `zones` that no GIDX word names or will come to name.
    pub(crate) fn releasable(&self, zones: Vec<u32>) -> Vec<u32> {
        if zones.is_empty() {
            return zones;
        }
        let publisher = self.publish();
        let tails = [&publisher.written, &publisher.durable_tails, &publisher.tails];
        let named = |zone: u32| tails.iter().any(|t| t.values().any(|gidx| gidx.zone == zone));
        zones.into_iter().filter(|zone| !named(*zone)).collect()
    }

    /// Releases zones that are [`releasable`](Committer::releasable); how many. The caller has
    /// made sure that no reader is left that could hold an offset into them. The floor goes first:
    /// recovery walks upward from the one on the media and must miss no LSN, and the GIDX word on
    /// the media must not name a zone that is gone.
    ///
    /// # Errors
    ///
    /// As [`Committer::settle`].
    pub(crate) fn release(&self, zones: &[u32]) -> Result<usize> {
        if zones.is_empty() {
            return Ok(0);
        }
        // Nobody verifies the region meanwhile.
        let mut turn = self.publish();
        let floor = self.ride_floor(&mut turn);
        let released = self.region.sync(&floor).and_then(|_| self.zones.release(zones));
        released.inspect_err(|e| self.poison.set(e))?;
        Ok(zones.len())
    }
}
