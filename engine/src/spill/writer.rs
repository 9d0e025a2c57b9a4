//! Lays sorted records out in extents.

use std::sync::Arc;

use crate::error::Result;
use crate::extent::{BlockCache, Extent, ExtentBuilder, Format};
use crate::levels::VersionSet;
use crate::options::{Compression, TableOptions};
use crate::record::EntryRef;
use crate::tier::Promise;

/// Where extents are cut, at the next key.
pub(crate) const EXTENT_BYTES: usize = 2 * 1024 * 1024;

/// Writes extents that no edit names yet. Dropped, they give their space back.
pub(crate) struct ExtentWriter {
    set: Arc<VersionSet>,
    /// For all that comes; `None` if nobody knows how much that is.
    promise: Option<Promise>,
    format: Format,
    building: Option<ExtentBuilder>,
    extents: Vec<Arc<Extent>>,
}

impl ExtentWriter {
    /// A writer into the files of `set`, for about so many bytes. `makes_space` says that as much
    /// is given back afterwards.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room for them.
    pub(crate) fn new(
        set: &Arc<VersionSet>,
        bytes: u64,
        makes_space: bool,
    ) -> Result<ExtentWriter> {
        let (promise, set) = (set.store().promise(bytes, makes_space)?, Arc::clone(set));
        let (format, building, extents) = (short_lived(), None, Vec::new());
        Ok(ExtentWriter { set, promise: Some(promise), format, building, extents })
    }

    /// A writer of extents that stay as they are, however many, and that nobody reads yet. Space is
    /// asked for as they come.
    pub(crate) fn lasting(set: &Arc<VersionSet>, format: Format) -> ExtentWriter {
        let (set, building, extents) = (Arc::clone(set), None, Vec::new());
        ExtentWriter { set, promise: None, format, building, extents }
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
        let new = || ExtentBuilder::new(self.set.next_extent_id(), self.format);
        self.building.get_or_insert_with(new).add(entry);
        Ok(())
    }

    fn write(&mut self, done: ExtentBuilder) -> Result<()> {
        let (built, store) = (done.finish(), self.set.store());
        let len = built.bytes.len() as u64;
        self.extents.push(match &self.promise {
            Some(promise) => {
                promise.spend(len);
                built.write_filling(store, &BlockCache::new(0), |_, _| false)?
            }
            None => {
                store.promise(len, false)?.spend(len);
                built.write_unread(store)?
            }
        });
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

/// Whatever the tables have: it is read a few times at most, and soon merged into a level.
fn short_lived() -> Format {
    let TableOptions { block_size, filter_bits, .. } = TableOptions::new();
    Format { compression: Compression::None, block_bytes: block_size as usize, filter_bits }
}
