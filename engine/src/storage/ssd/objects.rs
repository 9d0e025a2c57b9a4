//! Extents that are objects: the store hands them to the tier that knows them.
//!
//! Thread safety: the tier is set once, before the store has users; it has locks of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ExtentStore;
use crate::base::error::{Damage, Error, ErrorKind, Findings, Result};
use crate::os::Files;
use crate::storage::location::Location;
use crate::storage::object::{ObjectId, ObjectTier, Uploads};

impl ExtentStore {
    /// Extents that are objects alone, to read.
    pub(crate) fn of_objects(files: Arc<dyn Files>, tier: ObjectTier) -> Arc<ExtentStore> {
        let store = ExtentStore::without_files(files, Path::new(""), true);
        store.attach_objects(tier);
        Arc::new(store)
    }

    /// Says where extents are that are objects. Once, before any of them is read.
    pub(crate) fn attach_objects(&self, tier: ObjectTier) {
        let is_first = self.objects.set(Arc::new(tier)).is_ok();
        debug_assert!(is_first, "an opening has one object store");
    }

    /// The objects, where the opening has an object store.
    pub(crate) fn objects(&self) -> Option<&Arc<ObjectTier>> {
        self.objects.get()
    }

    /// What bytes of an extent `made`. Of an object it is made once more before it is damage, of
    /// what the store says now: the answer, or what this machine keeps of one, may be wrong.
    pub(crate) fn or_again<T>(
        &self,
        at: &Location,
        made: Result<T>,
        again: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match made {
            Err(error) if error.kind() == ErrorKind::Corrupt && self.forget_end(at) => again(),
            made => made,
        }
    }

    /// The same of a verification: how many structures it has checked, and what it has found.
    pub(crate) fn verified(
        &self,
        at: &Location,
        report: &mut Findings,
        verify: impl Fn(&mut Findings) -> u64,
    ) -> u64 {
        let mut found = Findings::default();
        let mut checked = verify(&mut found);
        if !found.damages.is_empty() && self.forget_end(at) {
            found = Findings::default();
            checked = verify(&mut found);
        }
        report.append(found);
        checked
    }

    /// Forgets what this machine keeps of the end of an object; whether it is one.
    pub(crate) fn forget_end(&self, at: &Location) -> bool {
        let tier = at.object().zip(self.objects());
        tier.map(|(id, tier)| tier.forget_tail(id)).is_some()
    }

    /// The error of damage to an extent. What reads it again later finds an object that was put
    /// back, so nothing stops for one.
    pub(crate) fn damaged(&self, at: &Location, damage: Damage) -> Error {
        let error = Error::corrupt(damage);
        if at.is_object() { error.of_store() } else { error }
    }

    /// The tier that has an object.
    pub(super) fn tier(&self, id: ObjectId) -> Result<&Arc<ObjectTier>> {
        self.objects().ok_or_else(|| {
            let ObjectId { epoch, extent } = id;
            Error::invalid(format!(
                "extent {extent} is an object (epoch {epoch}), and no object store was named; open \
                 the database with object_store, or give the command --object-store"
            ))
            .of_store()
        })
    }

    /// Whether the end of an object is kept on this machine.
    pub(crate) fn keeps_end_of(&self, at: &Location) -> bool {
        let tier = self.objects();
        at.object().zip(tier).is_some_and(|(id, tier)| tier.keeps_tail_of(id))
    }

    /// What a job sends its objects with.
    ///
    /// # Errors
    ///
    /// `Invalid` if no object store was named.
    pub(crate) fn uploads(&self) -> Result<Uploads> {
        let tier = self.objects().ok_or_else(|| {
            Error::invalid(
                "extents are to become objects, and no object store was named; open the database \
                 with object_store, or give the command --object-store",
            )
            .of_store()
        })?;
        Ok(tier.uploads(self.memory().job_sends()))
    }

    pub(super) fn release_object(&self, id: ObjectId) {
        // Without a store nothing is written there, and an opening that only reads deletes nothing.
        if let Some(tier) = self.objects().filter(|_| !self.read_only) {
            tier.release(id);
        }
    }

    pub(super) fn object_path(&self, id: ObjectId) -> PathBuf {
        let named = |tier: &Arc<ObjectTier>| tier.path(id);
        self.objects().map_or_else(|| format!("object {}", id.extent).into(), named)
    }
}
