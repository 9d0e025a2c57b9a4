//! How the floor comes to the media: in a run, with a group's fence, or by itself.
//!
//! From its store until it is on the media a floor is *pending*, and no lock is held. So the thread
//! that stored it may be stopped, and holds up no other thread. A thread that needs the floor on
//! the media flushes and fences what was stored, or writes and syncs it.
//!
//! Thread safety and invariants: those of the publisher and the floor writer.

use super::floor::{FloorWriter, StoredFloor, Tails};
use super::group::Few;
use super::publisher::{Publisher, Writer};
use super::ring::{is_modelled, ring_len};
use super::sequencer::{Step, reached};
use crate::base::error::{ErrorKind, Result};
use crate::base::record::Lsn;
use crate::os::sync::{MutexGuard, Ordering};
use crate::pm::{Dirty, Flushed};

/// The floor goes with a run, or a group's fence, when it is this many LSNs behind; and when it is
/// quiet it is written by itself. Its page is half of what a small run writes, and its lines cost a
/// small group as much as its own. What lies above the floor is no less durable; damage there is
/// taken for the end of what was written, and not reported.
fn floor_every() -> u64 {
    if is_modelled() { 2 } else { 16 }
}

/// The most LSNs that F on the media is behind what is durable. A floor goes with a run and says
/// what was durable before it. So a run of very many groups would leave it as far behind. Then the
/// publisher writes the floor by itself, which costs it a sync for so many groups.
pub(super) fn most_lag() -> u64 {
    ring_len()
}

/// A floor that goes with the holder's next fence.
pub(super) struct PendingFloor {
    pub(super) dirty: Few<Dirty>,
    pub(super) stored: StoredFloor,
}

impl Publisher {
    /// In `file` mode: stores the floor, if it is far behind, so that it becomes durable with the
    /// run (invariant 2).
    pub(super) fn take_floor_with_run(&self, writer: &mut Writer) {
        let mut floor_writer = self.informed_floor_writer();
        if !floor_writer.lags_by(floor_every()) {
            return;
        }
        let dirty = floor_writer.store(&self.region);
        writer.floor = floor_writer.last_stored();
        drop(floor_writer);
        reached(Step::FloorInRun);
        let flushed: Few<Flushed> = dirty.into_iter().map(|d| self.region.flush(d)).collect();
        writer.spans.extend_from_slice(self.region.fence(flushed).spans());
    }

    /// On persistent memory: stores the floor, if it moved and none is on its way, so that the
    /// caller's next fence makes it durable; then [`Publisher::mark_floor_durable`].
    pub(super) fn take_floor_with_fence(&self) -> Option<PendingFloor> {
        if !self.region.is_persistent_memory() {
            return None;
        }
        let mut floor_writer = self.floor_writer.try_lock()?;
        if !floor_writer.lags_by(floor_every()) || self.is_pending(&floor_writer) {
            return None;
        }
        floor_writer.mark_durable(self.durable_number.load(Ordering::Acquire));
        let dirty = floor_writer.store(&self.region);
        Some(PendingFloor { dirty, stored: floor_writer.last_stored() })
    }

    /// Notes that a floor is on the media.
    pub(super) fn mark_floor_durable(&self, floor: StoredFloor) {
        self.durable_number.fetch_max(floor.number, Ordering::AcqRel);
        self.durable_floor.fetch_max(floor.lsn, Ordering::AcqRel);
    }

    /// Whether F on the media is at most [`most_lag`] behind what is durable.
    pub(super) fn is_floor_near(&self) -> bool {
        // Durable first: F on the media only rises meanwhile.
        let durable = self.durable();
        durable.saturating_sub(self.durable_floor.load(Ordering::Acquire)) <= most_lag()
    }

    /// Before `durable` counts as durable, which it is with the streams ending at `tails`: writes
    /// the floor if it would be too far behind. Whether it is near; if not, the database is
    /// poisoned.
    pub(super) fn keep_floor_near(&self, durable: Lsn, tails: &Tails) -> bool {
        let floor = self.durable_floor.load(Ordering::Acquire);
        if durable.saturating_sub(floor) <= most_lag() {
            return true;
        }
        self.floor_writer.lock().note_durable(durable, tails);
        self.write_floor().is_ok()
    }

    /// Whether the floor that was stored last may not be on the media yet.
    pub(super) fn is_pending(&self, floor_writer: &FloorWriter) -> bool {
        self.durable_number.load(Ordering::Acquire) < floor_writer.number()
    }

    /// Flushes the floor that was stored last, whichever thread stored it.
    fn flush_stored(&self, floor_writer: &FloorWriter) -> Few<Flushed> {
        floor_writer.stored().iter().map(|span| self.region.flush_again(*span)).collect()
    }

    /// On persistent memory: tells the floor writer what is durable. Runs that found it taken have
    /// not told it.
    pub(super) fn tell_floor_writer(&self) {
        // While this is held no tail is forgotten that is known here.
        let _syncer = self.syncer.lock();
        let (durable, tails) = {
            let writer = self.writer.lock();
            (self.durable(), writer.tails.clone())
        };
        self.floor_writer.lock().note_durable(durable, &tails);
    }

    /// The floor writer, which knows what is on the media.
    fn informed_floor_writer(&self) -> MutexGuard<'_, FloorWriter> {
        let mut floor_writer = self.floor_writer.lock();
        floor_writer.mark_durable(self.durable_number.load(Ordering::Acquire));
        floor_writer
    }

    /// F on the media, as far as is known.
    pub(super) fn floor_on_media(&self) -> Lsn {
        self.informed_floor_writer().floor_on_media()
    }

    /// Has the floor on the media, with its words, let go of zones whose greatest LSN is
    /// `greatest`; as a rule it has.
    pub(super) fn release(&self, zones: &[u32], greatest: Lsn) -> Result<()> {
        if !self.informed_floor_writer().lets_go(zones, greatest) {
            let floor = self.write_floor()?;
            debug_assert!(floor >= greatest, "zones above the floor stay");
        }
        Ok(())
    }

    /// Writes the floor durably, if it moved or is pending; returns F, which is on the media then.
    /// Commits go on meanwhile, and no thread that has stored a floor is waited for.
    pub(super) fn write_floor(&self) -> Result<Lsn> {
        let (flushed, stored) = {
            let mut floor_writer = self.informed_floor_writer();
            let is_pending = self.is_pending(&floor_writer);
            if is_pending && floor_writer.lags() && self.region.is_persistent_memory() {
                // Before the other slot is overwritten (invariant 3 of the floor writer).
                drop(self.region.fence(self.flush_stored(&floor_writer)));
            }
            let dirty = floor_writer.store(&self.region);
            let flushed: Few<Flushed> = match dirty.is_empty() {
                true if is_pending => self.flush_stored(&floor_writer),
                _ => dirty.into_iter().map(|d| self.region.flush(d)).collect(),
            };
            (flushed, floor_writer.last_stored())
        };
        if !flushed.is_empty() {
            let floor = self.region.fence(flushed);
            let synced = self.region.sync(&floor).inspect_err(|e| self.stop(e));
            // `Full` says that nothing has changed.
            synced.map_err(|e| e.of_kind(ErrorKind::Unavailable))?;
            self.mark_floor_durable(stored);
        }
        Ok(stored.lsn)
    }
}
