//! What a destination has of a database's extents.
//!
//! An extent is the same as another one if both have the same records: ids are given again by the
//! next opening, and by a directory that was put back to an earlier copy. So a destination's own
//! copy counts for an extent if the checksums of their contents agree ([`ExtentMeta::is_copy_of`]).
//!
//! Invariant: within one opening two extents that list the same value extent have copies that list
//! the same copy of it. A manifest that places a value extent twice cannot be read.

use std::sync::Arc;

use crate::base::error::Result;
use crate::os::HashMap;
use crate::sstable::{Extent, ExtentMeta, ValueMeta, ValueUse};
use crate::storage::Location;

/// Extents and value extents of a destination, by their ids: for the calls of one opening.
#[derive(Debug, Default)]
pub(crate) struct KnownExtents {
    extents: HashMap<u64, Vec<Arc<ExtentMeta>>>,
    values: HashMap<u64, Vec<ValueMeta>>,
}

/// An extent, or a value extent, that the destination lacks.
pub(crate) struct ToCopy<'a> {
    pub(crate) id: u64,
    /// Where the database has it.
    pub(crate) location: Location,
    read: &'a dyn Fn() -> Result<Vec<u8>>,
}

impl ToCopy<'_> {
    /// All bytes, checked.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        (self.read)()
    }
}

impl KnownExtents {
    /// Adds an extent of the destination, with the value extents that it lists.
    pub(crate) fn add(&mut self, extent: &Arc<ExtentMeta>) {
        let known = self.extents.entry(extent.id).or_default();
        if !known.contains(extent) {
            known.push(Arc::clone(extent));
        }
        for one in extent.values.iter() {
            let known = self.values.entry(one.of.id).or_default();
            if !known.contains(&one.of) {
                known.push(one.of);
            }
        }
    }

    /// Forgets what lies in such places, and extents with values there.
    pub(crate) fn forget(&mut self, lacks: impl Fn(&Location) -> bool) {
        for known in self.extents.values_mut() {
            known.retain(|own| !own.places().any(|place| lacks(&place)));
        }
        for known in self.values.values_mut() {
            known.retain(|own| !lacks(&own.location));
        }
    }

    /// The destination's own copy of an extent. What it lacks of extent and values `put` brings
    /// there, and says where it is.
    pub(crate) fn copy(
        &mut self,
        extent: &Extent,
        put: &mut dyn FnMut(ToCopy<'_>) -> Result<Location>,
    ) -> Result<Arc<ExtentMeta>> {
        let meta = extent.meta();
        if let Some(own) = self.own_of(meta) {
            return Ok(own);
        }
        let mut values = Vec::with_capacity(meta.values.len());
        for (source, one) in extent.values().iter().zip(&*meta.values) {
            let of = match self.own_values_of(&one.of) {
                Some(own) => own,
                None => {
                    let ValueMeta { id, location, .. } = one.of;
                    let location = put(ToCopy { id, location, read: &|| source.read_whole() })?;
                    let own = ValueMeta { location, ..one.of };
                    self.values.entry(id).or_default().push(own);
                    own
                }
            };
            values.push(ValueUse { of, ..*one });
        }
        let ExtentMeta { id, location, .. } = *meta;
        let location = put(ToCopy { id, location, read: &|| extent.read_whole() })?;
        let own = Arc::new(ExtentMeta { location, values: values.into(), ..meta.clone() });
        self.extents.entry(id).or_default().push(Arc::clone(&own));
        Ok(own)
    }

    /// Whether the destination has an extent with its values.
    pub(crate) fn has(&self, meta: &ExtentMeta) -> bool {
        self.own_of(meta).is_some()
    }

    /// Where the parts lie that the destination lacks of an extent that it has not.
    pub(crate) fn lacking(&self, meta: &ExtentMeta) -> Vec<Location> {
        let values = meta.values.iter().filter(|one| self.own_values_of(&one.of).is_none());
        values.map(|one| one.of.location).chain([meta.location]).collect()
    }

    /// The own copy of an extent, with the own copies of its values.
    fn own_of(&self, meta: &ExtentMeta) -> Option<Arc<ExtentMeta>> {
        let is_one = |own: &&Arc<ExtentMeta>| {
            let pairs = || own.values.iter().zip(&*meta.values);
            own.is_copy_of(meta)
                && pairs().all(|(own, one)| self.own_values_of(&one.of) == Some(own.of))
        };
        self.extents.get(&meta.id)?.iter().find(is_one).cloned()
    }

    /// The own copy of a value extent.
    fn own_values_of(&self, meta: &ValueMeta) -> Option<ValueMeta> {
        self.values.get(&meta.id)?.iter().find(|own| own.is_copy_of(meta)).copied()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
