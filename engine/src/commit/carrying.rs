//! How the floor comes to the media: in a run, with a group's fence, or by itself.
//!
//! From its store until it has arrived a floor is on its way, and no lock is held. So whoever
//! carries it may be stopped, and holds up nobody: who needs it on the media flushes and fences
//! what was stored, or writes and syncs it, whoever stored it.
//!
//! Thread safety and invariants: those of the publisher and the keeper.

use super::group::Few;
use super::keeper::{Keeper, StoredFloor, Tails};
use super::publisher::{Publisher, Writer};
use super::ring::RING;
use super::steps::{Step, reached};
use crate::error::Result;
use crate::os::sync::{MODELLED, MutexGuard, Ordering};
use crate::pm::{Dirty, Flushed};
use crate::record::Lsn;

/// The floor goes with a run, or a group's fence, when it is this many LSNs behind; and when it is
/// quiet it is written by itself. Its page is half of what a small run writes, and its lines cost a
/// small group as much as its own. What lies above the floor is no less durable; damage there is
/// taken for the end of what was written, and not reported.
const FLOOR_EVERY: u64 = if MODELLED { 2 } else { 16 };

/// The most LSNs that F on the media is behind what is durable. A floor goes with a run and says
/// what was durable before it, so a run of very many groups would leave it as far behind: then the
/// publisher writes the floor by itself, which costs it a sync for so many groups.
pub(super) const MOST_LAG: u64 = RING;

/// A floor that goes with the holder's next fence.
pub(super) struct Riding {
    pub(super) dirty: Few<Dirty>,
    pub(super) stored: StoredFloor,
}

impl Publisher {
    /// In `file` mode: stores the floor, if it is far behind, so that it becomes durable with the
    /// run (invariant 2).
    pub(super) fn take_floor_along(&self, writer: &mut Writer) {
        let mut keeper = self.informed_keeper();
        if !keeper.lags_by(FLOOR_EVERY) {
            return;
        }
        let dirty = keeper.store(&self.region);
        writer.floor = keeper.last_stored();
        drop(keeper);
        reached(Step::FloorInRun);
        let flushed: Few<Flushed> = dirty.into_iter().map(|d| self.region.flush(d)).collect();
        writer.spans.extend_from_slice(self.region.fence(flushed).spans());
    }

    /// On persistent memory: stores the floor, if it moved and none is on its way, so that the
    /// caller's next fence makes it durable; then [`Publisher::arrive`].
    pub(super) fn ride_along(&self) -> Option<Riding> {
        if !self.region.is_persistent_memory() {
            return None;
        }
        let mut keeper = self.keeper.try_lock()?;
        if !keeper.lags_by(FLOOR_EVERY) || self.is_on_its_way(&keeper) {
            return None;
        }
        keeper.note_arrived(self.arrived.load(Ordering::Acquire));
        let dirty = keeper.store(&self.region);
        Some(Riding { dirty, stored: keeper.last_stored() })
    }

    /// Notes that a floor is on the media.
    pub(super) fn arrive(&self, floor: StoredFloor) {
        self.arrived.fetch_max(floor.number, Ordering::AcqRel);
        self.arrived_lsn.fetch_max(floor.lsn, Ordering::AcqRel);
    }

    /// Whether F on the media is at most [`MOST_LAG`] behind what is durable.
    pub(super) fn is_floor_near(&self) -> bool {
        // Durable first: F on the media only rises meanwhile.
        let durable = self.durable();
        durable.saturating_sub(self.arrived_lsn.load(Ordering::Acquire)) <= MOST_LAG
    }

    /// Before `durable` counts as durable, which it is with the streams ending at `tails`: writes
    /// the floor if it would be too far behind. Whether it is near; if not, the database is
    /// poisoned.
    pub(super) fn keep_floor_near(&self, durable: Lsn, tails: &Tails) -> bool {
        let arrived = self.arrived_lsn.load(Ordering::Acquire);
        if durable.saturating_sub(arrived) <= MOST_LAG {
            return true;
        }
        self.keeper.lock().note_durable(durable, tails);
        self.write_floor().is_ok()
    }

    /// Whether the floor that was stored last may not be on the media yet.
    pub(super) fn is_on_its_way(&self, keeper: &Keeper) -> bool {
        self.arrived.load(Ordering::Acquire) < keeper.number()
    }

    /// Flushes the floor that was stored last, for whoever carries it.
    fn flush_stored(&self, keeper: &Keeper) -> Few<Flushed> {
        keeper.stored().iter().map(|span| self.region.flush_again(*span)).collect()
    }

    /// On persistent memory: has the keeper know what is durable, as runs that found it taken have
    /// not told it.
    pub(super) fn tell_keeper(&self) {
        // While this is held no tail is forgotten that is known here.
        let _syncer = self.syncer.lock();
        let (durable, tails) = {
            let writer = self.writer.lock();
            (self.durable(), writer.tails.clone())
        };
        self.keeper.lock().note_durable(durable, &tails);
    }

    /// The keeper, who knows what has arrived.
    fn informed_keeper(&self) -> MutexGuard<'_, Keeper> {
        let mut keeper = self.keeper.lock();
        keeper.note_arrived(self.arrived.load(Ordering::Acquire));
        keeper
    }

    /// F on the media, as far as is known.
    pub(super) fn floor_there(&self) -> Lsn {
        self.informed_keeper().floor_there()
    }

    /// Has the floor on the media, with its words, let go of zones whose greatest LSN is
    /// `greatest`; as a rule it has.
    ///
    /// # Errors
    ///
    /// As [`Publisher::settle`].
    pub(super) fn let_go(&self, zones: &[u32], greatest: Lsn) -> Result<()> {
        if !self.informed_keeper().lets_go(zones, greatest) {
            let floor = self.write_floor()?;
            debug_assert!(floor >= greatest, "zones above the floor stay");
        }
        Ok(())
    }

    /// Writes the floor durably, if it moved or is on its way; returns F, which is on the media
    /// then. Commits go on meanwhile, and nobody is waited for who carries a floor.
    ///
    /// # Errors
    ///
    /// As [`Publisher::settle`].
    pub(super) fn write_floor(&self) -> Result<Lsn> {
        let (flushed, stored) = {
            let mut keeper = self.informed_keeper();
            let is_on_its_way = self.is_on_its_way(&keeper);
            if is_on_its_way && keeper.lags() && self.region.is_persistent_memory() {
                // Before the other slot is overwritten (invariant 3 of the keeper).
                drop(self.region.fence(self.flush_stored(&keeper)));
            }
            let dirty = keeper.store(&self.region);
            let flushed: Few<Flushed> = match dirty.is_empty() {
                true if is_on_its_way => self.flush_stored(&keeper),
                _ => dirty.into_iter().map(|d| self.region.flush(d)).collect(),
            };
            (flushed, keeper.last_stored())
        };
        if !flushed.is_empty() {
            let floor = self.region.fence(flushed);
            self.region.sync(&floor).inspect_err(|e| self.stop(e))?;
            self.arrive(stored);
        }
        Ok(stored.lsn)
    }
}
