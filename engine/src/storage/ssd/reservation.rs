//! Space for extents: reserved, taken and written. A job that will write several extents is
//! reserved room for all of them before it begins, so that it waits for space rather than fails
//! half-way.
//!
//! A merge needs room for what it writes while what it replaces is still there. So beside what it
//! holds the store needs at most what is reserved to the jobs under way, the **headroom**. Its
//! bound is the number of jobs at a time times the most that one may ask for, nine eighths of what
//! it reads. That is 72 MiB, since a compaction that has a choice reads no more than 64 MiB.
//!
//! A sixteenth of what the store holds, and a least amount that its owner sets, is the **reserve**:
//! for jobs that make space. A full file system stops drains and leaves these something to work
//! with. The reserve has its space on the device from the first reservation on that leaves it. The
//! least amount is not given back, so other files and a quota cannot take it. It stays in the
//! longest ranges. On a full file system short ranges are joined to ones that extents fit in.

use std::sync::Arc;

use super::{Allocation, ExtentStore, Location, UNIT};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Failpoint;
use crate::mvcc::about_to_wait;
use crate::os::Inside;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::storage::object::ExtentSink;

/// Room for an extent of any usual size, in units: a little over 2.25 MiB.
pub(super) const PIECE: u64 = 152;

/// One part of so many is the reserve.
const RESERVE: u64 = 16;

/// Room that a job may take; what it does not take is free for others when this is dropped.
#[derive(Debug)]
pub(crate) struct SpaceReservation {
    store: Arc<ExtentStore>,
    units_left: AtomicU64,
}

impl SpaceReservation {
    /// Bytes that it has left.
    pub(crate) fn left(&self) -> u64 {
        self.units_left.load(Ordering::Relaxed) * UNIT
    }

    /// As [`ExtentStore::write_new`], in its room first.
    ///
    /// # Errors
    ///
    /// As [`ExtentStore::write_new`].
    pub(crate) fn write_new(&self, bytes: &[u8]) -> Result<Location> {
        self.store.write_into(bytes, Some(self))
    }

    /// Gives up at most `units` of it, since the holder of the lock takes them: how many.
    pub(super) fn spend(&self, allocation: &mut Allocation, units: u64) -> u64 {
        let units = units.min(self.units_left.load(Ordering::Relaxed));
        self.units_left.fetch_sub(units, Ordering::Relaxed);
        allocation.reserved_units -= units;
        units
    }

    /// They were not taken.
    pub(super) fn take_back(&self, allocation: &mut Allocation, units: u64) {
        self.units_left.fetch_add(units, Ordering::Relaxed);
        allocation.reserved_units += units;
    }
}

impl ExtentSink for &SpaceReservation {
    fn put(&mut self, _extent: u64, bytes: &[u8]) -> Result<Location> {
        self.write_new(bytes)
    }
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        let keeps = self.store.has(Failpoint::KeepReservation);
        let left = if keeps { 0 } else { *self.units_left.get_mut() };
        self.store.allocation.lock().reserved_units -= left;
    }
}

impl ExtentStore {
    /// Reserves room for extents of `bytes` together. `makes_space` says that the job will hold
    /// less in the end than what it replaces, and may go into the reserve. Nothing is asked for 0
    /// bytes: what the job writes then is taken as it comes.
    ///
    /// # Errors
    ///
    /// `Full` when the file system has no room; nothing has changed then.
    pub(crate) fn reserve_space(
        self: &Arc<Self>,
        bytes: u64,
        makes_space: bool,
    ) -> Result<SpaceReservation> {
        if self.read_only || bytes == 0 {
            // Nothing is written to its files read-only: objects take no space there.
            return Ok(SpaceReservation { store: Arc::clone(self), units_left: AtomicU64::new(0) });
        }
        // As much is lost at most where an extent's last unit is not filled.
        self.find_units((bytes + bytes / 8).div_ceil(UNIT), makes_space)
    }

    fn find_units(self: &Arc<Self>, units: u64, makes_space: bool) -> Result<SpaceReservation> {
        let _inside = self.gate.enter_step().map_err(Error::not_open)?;
        let mut allocation = self.allocation.lock();
        let reserve = if makes_space { 0 } else { self.reserve_units(&allocation) };
        let wanted = allocation.reserved_units + units + reserve;
        let mut least = PIECE;
        while let Some(more) = missing(&allocation, wanted) {
            let is_short = allocation.free_units() < wanted;
            let grown = match is_short {
                true => self.grow(&mut allocation, more.min(least), more),
                false => self.grow_or_join(&mut allocation, more.min(PIECE), more),
            };
            match grown {
                // Shorter ranges that have space are joined once there are enough of them.
                Err(e) if e.kind() == ErrorKind::Full && is_short && least > 1 => least /= 4,
                grown => grown.map_err(|e| full(e, &allocation, units, reserve))?,
            }
            least = least.max(1);
        }
        allocation.reserved_units += units;
        let store = Arc::clone(self);
        Ok(SpaceReservation { store, units_left: AtomicU64::new(units) })
    }

    /// Takes space for `len` bytes, of a reservation first, and grows the files when nothing fits.
    /// What is given up of the reservation is taken under one lock, so no other thread takes it.
    /// The caller owes the store a [`release`](ExtentStore::release). No user code runs between
    /// this and the write: a closing waits until what is inside is dropped.
    ///
    /// # Errors
    ///
    /// `Full` when the file system has no room; nothing has changed then.
    pub(super) fn take_space(
        &self,
        len: u32,
        reservation: Option<&SpaceReservation>,
    ) -> Result<(Location, Option<Inside>)> {
        if self.read_only {
            return Err(Error::invalid("the database is open read-only; open it for writing"));
        }
        let inside = self.gate.enter_step().map_err(Error::not_open)?;
        let inside = (!self.has(Failpoint::LoadOutside)).then_some(inside);
        let units = u64::from(len).div_ceil(UNIT).max(1);
        let mut allocation = self.allocation.lock();
        let spent = reservation.map_or(0, |own| own.spend(&mut allocation, units));
        let place = self.allocate(&mut allocation, units).inspect_err(|_| {
            reservation.inspect(|own| own.take_back(&mut allocation, spent));
        });
        drop(allocation);
        let Some((file, unit)) = place? else {
            debug_assert!(false, "a store that grew has room");
            return Err(Error::new(
                ErrorKind::Full,
                format!("no room for an extent of {len} bytes"),
            ));
        };
        Ok((Location { file, offset: unit * UNIT, len }, inside))
    }

    /// Takes units beside those that are reserved, growing the files when nothing fits.
    fn allocate(&self, allocation: &mut Allocation, units: u64) -> Result<Option<(u32, u64)>> {
        if allocation.free_units() < allocation.reserved_units + units {
            self.grow(allocation, units, units)?;
        }
        if let Some(place) = allocation.allocate(units) {
            return Ok(Some(place));
        }
        self.grow_or_join(allocation, units, units)?;
        Ok(allocation.allocate(units))
    }

    /// Writes a new extent: where it lies, which the caller owes the store a
    /// [`release`](ExtentStore::release) of. Durable after the next [`sync`](Self::sync).
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; `Closed`; or on an I/O error. The space is given back then.
    pub(crate) fn write_new(&self, bytes: &[u8]) -> Result<Location> {
        self.write_into(bytes, None)
    }

    /// As [`write_new`](Self::write_new), in what is reserved first.
    fn write_into(&self, bytes: &[u8], reservation: Option<&SpaceReservation>) -> Result<Location> {
        let (at, _inside) = self.take_space(Location::len_of(bytes)?, reservation)?;
        self.write(&at, bytes).inspect_err(|_| self.release(&at))?;
        Ok(at)
    }

    /// Writes an extent's bytes to their place in a file. Durable after the next
    /// [`sync`](Self::sync).
    pub(crate) fn write(&self, at: &Location, bytes: &[u8]) -> Result<()> {
        about_to_wait();
        debug_assert_eq!(bytes.len(), at.len as usize, "an extent is written whole");
        debug_assert!(!at.is_object(), "a job sends its objects itself");
        let path = self.path(at.file);
        let file = self.file(at.file, &path)?;
        // The rest of its last unit is free. A caller that meets an error gives up the extent.
        file.handle
            .try_write_last_at(bytes, at.offset)
            .map_err(|e| Error::io(&format!("write {} bytes to", bytes.len()), &path, e))?;
        file.dirty.store(true, Ordering::Release);
        self.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the least reserve, in bytes.
    pub(crate) fn keep_reserve(&self, bytes: u64) {
        self.least_reserve.store(bytes.div_ceil(UNIT), Ordering::Relaxed);
    }

    /// Makes the reserve whole again.
    ///
    /// # Errors
    ///
    /// `Full` when the file system has no room; or another I/O error.
    pub(crate) fn refill_reserve(self: &Arc<Self>) -> Result<()> {
        self.find_units(0, false).map(drop)
    }

    /// Whether less is free than is kept in any case.
    pub(crate) fn lacks_least_reserve(&self) -> bool {
        self.allocation.lock().free_units() < self.least_reserve()
    }

    /// Units that only jobs that make space may take.
    pub(super) fn reserve_units(&self, allocation: &Allocation) -> u64 {
        (allocation.taken_units / RESERVE).max(self.least_reserve())
    }

    /// Units of it that are never given back.
    pub(super) fn least_reserve(&self) -> u64 {
        self.least_reserve.load(Ordering::Relaxed)
    }
}

/// The error of a reservation, with what there is, if it is one of space.
fn full(error: Error, allocation: &Allocation, units: u64, reserve: u64) -> Error {
    if error.kind() != ErrorKind::Full {
        return error;
    }
    let message = format!(
        "a job needs {} KiB for extents, and of {} KiB that are free in extent files {} KiB are \
         reserved to other jobs and {} KiB are kept for jobs that make space: {error}",
        (units * UNIT) >> 10,
        (allocation.free_units() * UNIT) >> 10,
        (allocation.reserved_units * UNIT) >> 10,
        (reserve * UNIT) >> 10,
    );
    Error::new(ErrorKind::Full, message)
}

/// Units that are missing to have so many free, in pieces that an extent fits in. Less than a piece
/// may be in smaller ones.
fn missing(allocation: &Allocation, wanted: u64) -> Option<u64> {
    let in_pieces = (wanted / PIECE).saturating_sub(allocation.pieces(PIECE)) * PIECE;
    let missing = wanted.saturating_sub(allocation.free_units()).max(in_pieces);
    (missing > 0).then_some(missing)
}
