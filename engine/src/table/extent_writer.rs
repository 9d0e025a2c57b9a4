//! Lays sorted records out in extents.
//!
//! The memory that the writes of all transactions take together.
//!
//! Thread safety: counters. A transaction reports what it takes after each call.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::memory::Gauge;
use crate::base::options::{Compression, TableOptions};
use crate::base::record::{EntryRef, Kind};
use crate::os::sync::atomic::{AtomicUsize, Ordering};
use crate::sstable::{
    BlockCache, Extent, ExtentBuffer, ExtentBuilder, Filling, Format, Layout, ValueExtents,
    ValueWriter,
};
use crate::storage::{EXTENT_BYTES, ExtentSink, ExtentStore, Location, SpaceReservation};
use crate::version::VersionSet;

/// Writes extents that no edit names yet. If it is dropped, their space is given back.
///
/// What users ask for writes by it. Between two extents a closing goes on; the next one fails with
/// `Closed`.
pub(crate) struct ExtentWriter {
    into: Place,
    building: Option<ExtentBuilder>,
    buffer: ExtentBuffer,
    values: ValueWriter,
    extents: Vec<Arc<Extent>>,
}

/// Where and how they are written.
struct Place {
    set: Arc<VersionSet>,
    /// The space for everything to come; `None` if the amount is not known.
    reservation: Option<SpaceReservation>,
    format: Format,
    gauge: Arc<Gauge>,
}

impl Layout for Place {
    fn store(&self) -> &Arc<ExtentStore> {
        self.set.store()
    }

    fn gauge(&self) -> &Arc<Gauge> {
        &self.gauge
    }

    fn format(&self) -> Format {
        self.format
    }

    fn extent_bytes(&self) -> usize {
        match self.reservation {
            Some(_) => self.store().memory().extent_bytes(),
            // They stay as they are.
            None => EXTENT_BYTES,
        }
    }

    fn next_id(&self) -> u64 {
        self.set.next_extent_id()
    }

    fn collects(&self, _: u64) -> bool {
        false
    }

    fn write_values(&self, id: u64, bytes: &[u8]) -> Result<Location> {
        (&mut &*self).put(id, bytes)
    }
}

impl ExtentSink for &Place {
    fn put(&mut self, _id: u64, bytes: &[u8]) -> Result<Location> {
        match &self.reservation {
            Some(reservation) => reservation.write_new(bytes),
            None => self.store().reserve_space(bytes.len() as u64, false)?.write_new(bytes),
        }
    }
}

impl ExtentWriter {
    /// A writer into the files of `set`, for about `bytes` bytes. `makes_space` says that as much
    /// is given back afterwards.
    pub(crate) fn new(
        set: &Arc<VersionSet>,
        bytes: u64,
        makes_space: bool,
    ) -> Result<ExtentWriter> {
        let reservation = Some(set.store().reserve_space(bytes, makes_space)?);
        let (gauge, format) = (Arc::clone(&set.store().memory().jobs), short_lived());
        Ok(ExtentWriter::into(Place { set: Arc::clone(set), reservation, format, gauge }))
    }

    /// A writer of any number of extents that stay as they are and have no reader yet. It reserves
    /// space as it needs it. Its owner counts the memory that it takes.
    pub(crate) fn lasting(set: &Arc<VersionSet>, format: Format) -> ExtentWriter {
        let gauge = Arc::default();
        ExtentWriter::into(Place { set: Arc::clone(set), reservation: None, format, gauge })
    }

    fn into(into: Place) -> ExtentWriter {
        // Nothing that comes has references.
        let values = ValueWriter::new(ValueExtents::new());
        let all = into.reservation.as_ref().map_or(u64::MAX, SpaceReservation::left);
        let buffer = ExtentBuffer::new(&into.gauge, into.extent_bytes(), all);
        ExtentWriter { into, building: None, buffer, values, extents: Vec::new() }
    }

    /// Appends a record, which sorts after all earlier ones.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let most = self.into.extent_bytes();
        let is_full = |building: &mut ExtentBuilder| {
            building.size() >= most && building.last_key() != Some(entry.key)
        };
        if let Some(done) = self.building.take_if(is_full) {
            self.write(done)?;
        }
        let reference = self.values.place(&entry, &self.into)?;
        let (into, buffer) = (&self.into, &mut self.buffer);
        let new = || ExtentBuilder::in_buffer(into.next_id(), into.format, buffer.take());
        let building = self.building.get_or_insert_with(new);
        match &reference {
            None => building.add(entry),
            Some(value) => building.add(EntryRef { kind: Kind::Reference, value, ..entry }),
        }
        Ok(())
    }

    fn write(&mut self, done: ExtentBuilder) -> Result<()> {
        let _inside = self.into.store().gate().enter_call().map_err(Error::not_open)?;
        let mut built = done.finish();
        self.buffer.filled(&built);
        self.values.describe(&mut built, &self.into)?;
        let mut sink = &self.into;
        let to = (self.into.store(), &mut sink as &mut dyn ExtentSink);
        let none = &mut |_: &[u8], _: &[u8], _| None;
        let filling: Option<Filling<'_>> = match &self.into.reservation {
            Some(_) => Some((&BlockCache::new(0), none)),
            None => None,
        };
        let (extent, bytes) = built.write_into(to, filling)?;
        self.buffer.put_back(bytes);
        self.extents.push(extent);
        Ok(())
    }

    /// The extents, by key; not synced.
    pub(crate) fn finish(mut self) -> Result<Vec<Arc<Extent>>> {
        if let Some(last) = self.building.take() {
            self.write(last)?;
        }
        Ok(self.extents)
    }
}

/// The same for all tables. Such an extent is read a few times at most, and soon merged into a
/// level. That merge moves large values to value extents.
fn short_lived() -> Format {
    Format::of(TableOptions::new(), Compression::None)
}

/// What is taken, and the most that may be.
#[derive(Debug)]
pub(crate) struct WriteMemory {
    taken: AtomicUsize,
    most: usize,
}

impl WriteMemory {
    /// Transactions are asked to spill once they take more than `most` bytes.
    pub(crate) fn new(most: usize) -> WriteMemory {
        WriteMemory { taken: AtomicUsize::new(0), most }
    }

    /// A transaction takes `now` bytes, and took `before`.
    pub(crate) fn changed(&self, before: usize, now: usize) {
        if now >= before {
            self.taken.fetch_add(now - before, Ordering::Relaxed);
        } else {
            let taken = self.taken.fetch_sub(before - now, Ordering::Relaxed);
            debug_assert!(taken >= before - now, "a transaction gives back what it had reported");
        }
    }

    /// Bytes that all of them take.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether they take more than they should.
    pub(crate) fn is_short(&self) -> bool {
        self.taken() > self.most
    }
}
