//! What a destination has of a database's extents.
//!
//! An extent is the same as another one if both have the same records: ids are given again by the
//! next opening, and by a directory that was put back to an earlier copy. So a destination's own
//! copy counts for an extent if the checksums of their contents agree ([`ExtentMeta::is_copy_of`]).
//! Extents of formats before 5 have no such checksum. Within one opening an id and a place are one
//! extent, so a copy also counts that was made of the same one in the same opening. Else the bytes
//! of a copy are compared, where the destination can give them.
//!
//! Invariant: within one opening two extents that list the same value extent have copies that list
//! the same copy of it. A manifest that places a value extent twice cannot be read.

use std::sync::Arc;

use crate::error::Result;
use crate::extent::{Extent, ExtentMeta, ValueMeta, ValueUse};
use crate::os::HashMap;
use crate::tier::Location;

/// Extents and value extents of a destination, by their ids: for the calls of one opening.
#[derive(Debug, Default)]
pub(crate) struct KnownExtents {
    extents: HashMap<u64, Vec<KnownCopy<Arc<ExtentMeta>>>>,
    values: HashMap<u64, Vec<KnownCopy<ValueMeta>>>,
}

/// One of them.
#[derive(Debug)]
struct KnownCopy<M> {
    /// As the destination has it.
    own: M,
    /// What this opening made it of.
    source: Option<M>,
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
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is damaged; or an I/O error.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        (self.read)()
    }

    /// Which copy has its bytes, if one does.
    fn is_one_of(
        &self,
        copies: impl Iterator<Item = Location>,
        bytes: &dyn Fn(&Location) -> Option<Vec<u8>>,
    ) -> Result<Option<Location>> {
        let mut own = None;
        for at in copies {
            let Some(copy) = bytes(&at) else { continue };
            if own.is_none() {
                own = Some(self.read()?);
            }
            if own.as_ref() == Some(&copy) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

impl KnownExtents {
    /// Adds an extent of the destination, with the value extents that it lists.
    pub(crate) fn add(&mut self, extent: &Arc<ExtentMeta>) {
        let known = self.extents.entry(extent.id).or_default();
        if !known.iter().any(|one| one.own == *extent) {
            known.push(KnownCopy { own: Arc::clone(extent), source: None });
        }
        for one in extent.values.iter() {
            let known = self.values.entry(one.of.id).or_default();
            if !known.iter().any(|other| other.own == one.of) {
                known.push(KnownCopy { own: one.of, source: None });
            }
        }
    }

    /// Forgets what lies in such places, and extents with values there.
    pub(crate) fn forget(&mut self, lacks: impl Fn(&Location) -> bool) {
        for known in self.extents.values_mut() {
            known.retain(|one| !one.own.places().any(|place| lacks(&place)));
        }
        for known in self.values.values_mut() {
            known.retain(|one| !lacks(&one.own.location));
        }
    }

    /// The destination's own copy of an extent. What it lacks of extent and values `put` brings
    /// there, and says where it is. `bytes` gives those of a copy, if it can be read.
    ///
    /// # Errors
    ///
    /// Those of `put`.
    pub(crate) fn copy(
        &mut self,
        extent: &Extent,
        put: &mut dyn FnMut(ToCopy<'_>) -> Result<Location>,
        bytes: &dyn Fn(&Location) -> Option<Vec<u8>>,
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
                    let ValueMeta { id, location, has_content_sum, .. } = one.of;
                    let known = self.values.entry(id).or_default();
                    let alike = known.iter().filter(|it| it.own.is_like(&one.of));
                    let alike = alike.filter(|_| !has_content_sum).map(|it| it.own.location);
                    let lacking = ToCopy { id, location, read: &|| source.read_whole() };
                    let location = match lacking.is_one_of(alike, bytes)? {
                        Some(there) => there,
                        None => put(lacking)?,
                    };
                    let own = ValueMeta { location, ..one.of };
                    known.push(KnownCopy { own, source: Some(one.of) });
                    own
                }
            };
            values.push(ValueUse { of, ..*one });
        }
        let ExtentMeta { id, location, has_content_sum, .. } = *meta;
        let known = self.extents.entry(id).or_default();
        let is_like = |it: &&KnownCopy<Arc<ExtentMeta>>| {
            !has_content_sum && it.own.is_like(meta) && *it.own.values == *values
        };
        let alike = known.iter().filter(is_like).map(|it| it.own.location);
        let lacking = ToCopy { id, location, read: &|| extent.read_whole() };
        let location = match lacking.is_one_of(alike, bytes)? {
            Some(there) => there,
            None => put(lacking)?,
        };
        let own = Arc::new(ExtentMeta { location, values: values.into(), ..meta.clone() });
        let source = Some(Arc::new(meta.clone()));
        known.push(KnownCopy { own: Arc::clone(&own), source });
        Ok(own)
    }

    /// Whether the destination has an extent with its values.
    pub(crate) fn has(&self, meta: &ExtentMeta) -> bool {
        self.own_of(meta).is_some()
    }

    /// The own copy of an extent, with the own copies of its values.
    fn own_of(&self, meta: &ExtentMeta) -> Option<Arc<ExtentMeta>> {
        let is_one = |known: &&KnownCopy<Arc<ExtentMeta>>| {
            let is_source = known.source.as_ref().is_some_and(|source| **source == *meta);
            let pairs = || known.own.values.iter().zip(&*meta.values);
            (is_source || known.own.is_copy_of(meta))
                && pairs().all(|(own, one)| self.own_values_of(&one.of) == Some(own.of))
        };
        let known = self.extents.get(&meta.id)?.iter().find(is_one)?;
        Some(Arc::clone(&known.own))
    }

    /// The own copy of a value extent.
    fn own_values_of(&self, meta: &ValueMeta) -> Option<ValueMeta> {
        let is_one = |known: &&KnownCopy<ValueMeta>| {
            known.source.as_ref() == Some(meta) || known.own.is_copy_of(meta)
        };
        self.values.get(&meta.id)?.iter().find(is_one).map(|known| known.own)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
