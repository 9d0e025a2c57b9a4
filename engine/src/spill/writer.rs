//! Lays sorted records out in extents.

use std::sync::Arc;

use crate::error::Result;
use crate::extent::{BlockCache, Extent, ExtentBuilder, Format};
use crate::levels::VersionSet;
use crate::options::{Compression, TableOptions};
use crate::record::EntryRef;
use crate::tier::Promise;

/// Where extents are cut, at the next key.
const EXTENT_BYTES: usize = 2 * 1024 * 1024;

/// Writes extents that no edit names yet. Dropped, they give their space back.
pub(crate) struct ExtentWriter<'a> {
    set: &'a VersionSet,
    promise: Promise,
    building: Option<ExtentBuilder>,
    extents: Vec<Arc<Extent>>,
}

impl<'a> ExtentWriter<'a> {
    /// A writer into the files of `set`, for about so many bytes. `makes_space` says that as much
    /// is given back afterwards.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room for them.
    pub(crate) fn new(
        set: &'a VersionSet,
        bytes: u64,
        makes_space: bool,
    ) -> Result<ExtentWriter<'a>> {
        let promise = set.store().promise(bytes, makes_space)?;
        Ok(ExtentWriter { set, promise, building: None, extents: Vec::new() })
    }

    /// Appends a record, which sorts after all before it.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; or on an I/O error.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let is_full = |building: &mut ExtentBuilder| {
            building.size() >= EXTENT_BYTES && building.last_key() != Some(entry.key)
        };
        if let Some(done) = self.building.take_if(is_full) {
            self.write(done)?;
        }
        // They are read a few times at most, and soon merged into a level.
        let new = || ExtentBuilder::new(self.set.next_extent_id(), format());
        self.building.get_or_insert_with(new).add(entry);
        Ok(())
    }

    fn write(&mut self, done: ExtentBuilder) -> Result<()> {
        let built = done.finish();
        self.promise.spend(built.bytes.len() as u64);
        let extent = built.write_filling(self.set.store(), &BlockCache::new(0), |_, _| false)?;
        self.extents.push(extent);
        Ok(())
    }

    /// The extents, by key; not synced.
    ///
    /// # Errors
    ///
    /// As [`ExtentWriter::add`].
    pub(crate) fn finish(mut self) -> Result<Vec<Arc<Extent>>> {
        if let Some(last) = self.building.take() {
            self.write(last)?;
        }
        Ok(self.extents)
    }
}

/// Whatever the tables have: it does not stay.
fn format() -> Format {
    let TableOptions { block_size, filter_bits, .. } = TableOptions::new();
    Format { compression: Compression::None, block_bytes: block_size as usize, filter_bits }
}
