//! What a destination has of a database's extents.
//!
//! An extent is the same as another one if both have the same records: ids are given again by the
//! next opening, and by a directory that was put back to an earlier copy. So a destination's own
//! copy counts for an extent if the checksums of their contents agree ([`ExtentMeta::is_copy_of`]).

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Result;
use crate::extent::{Extent, ExtentMeta, ValueMeta, ValueUse};
use crate::tier::Location;

/// Extents and value extents of a destination, by their ids.
#[derive(Debug, Default)]
pub(in crate::db) struct KnownExtents {
    extents: HashMap<u64, Vec<Arc<ExtentMeta>>>,
    values: HashMap<u64, Vec<ValueMeta>>,
}

/// An extent, or a value extent, that the destination lacks.
pub(in crate::db) struct ToCopy<'a> {
    pub(in crate::db) id: u64,
    /// Where the database has it.
    pub(in crate::db) location: Location,
    read: &'a dyn Fn() -> Result<Vec<u8>>,
}

impl ToCopy<'_> {
    /// All bytes, checked.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is damaged; or an I/O error.
    pub(in crate::db) fn read(&self) -> Result<Vec<u8>> {
        (self.read)()
    }
}

impl KnownExtents {
    /// Adds an extent of the destination, with the value extents that it lists.
    pub(in crate::db) fn add(&mut self, extent: &Arc<ExtentMeta>) {
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
    pub(in crate::db) fn forget(&mut self, lacks: impl Fn(&Location) -> bool) {
        for known in self.extents.values_mut() {
            known.retain(|own| !own.places().any(|place| lacks(&place)));
        }
        self.values.values_mut().for_each(|known| known.retain(|own| !lacks(&own.location)));
    }

    /// The destination's own copy of an extent. What it lacks of extent and values `put` brings
    /// there, and says where it is.
    ///
    /// # Errors
    ///
    /// Those of `put`.
    pub(in crate::db) fn copy(
        &mut self,
        extent: &Extent,
        put: &mut dyn FnMut(ToCopy<'_>) -> Result<Location>,
    ) -> Result<Arc<ExtentMeta>> {
        let meta = extent.meta();
        let same = |own: &&Arc<ExtentMeta>| own.is_copy_of(meta);
        if let Some(own) = self.extents.get(&meta.id).and_then(|known| known.iter().find(same)) {
            return Ok(Arc::clone(own));
        }
        let mut values = Vec::with_capacity(meta.values.len());
        for (source, one) in extent.values().iter().zip(&*meta.values) {
            let known = self.values.entry(one.of.id).or_default();
            let of = match known.iter().find(|own| own.is_copy_of(&one.of)) {
                Some(own) => *own,
                None => {
                    let ValueMeta { id, location, .. } = one.of;
                    let location = put(ToCopy { id, location, read: &|| source.read_whole() })?;
                    let own = ValueMeta { location, ..one.of };
                    known.push(own);
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
}
