//! Lays sorted records out in extents.

use std::sync::Arc;

use crate::error::Result;
use crate::extent::{Extent, ExtentBuilder};
use crate::levels::VersionSet;
use crate::options::Compression;
use crate::record::EntryRef;

/// Where extents are cut, at the next key.
const EXTENT_BYTES: usize = 2 * 1024 * 1024;

/// Writes extents that no edit names yet. Dropped, they give their space back.
pub(crate) struct ExtentWriter<'a> {
    set: &'a VersionSet,
    building: Option<ExtentBuilder>,
    extents: Vec<Arc<Extent>>,
}

impl<'a> ExtentWriter<'a> {
    /// A writer into the files of `set`.
    pub(crate) fn new(set: &'a VersionSet) -> ExtentWriter<'a> {
        ExtentWriter { set, building: None, extents: Vec::new() }
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
        let new = || ExtentBuilder::new(self.set.next_extent_id(), Compression::None);
        self.building.get_or_insert_with(new).add(entry);
        Ok(())
    }

    fn write(&mut self, done: ExtentBuilder) -> Result<()> {
        self.extents.push(done.finish().write_filling(self.set.store(), |_, _| {})?);
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
