//! Copies extents as they are, from one store to another.

use std::sync::Arc;

use super::{Extent, ExtentMeta};
use crate::error::{Error, Result};
use crate::tier::ExtentStore;

impl Extent {
    /// Checks all of it, and copies it to `to`, where the space is the caller's; not synced. The
    /// description of the copy.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is damaged; `Full` when there is no room; or an I/O error.
    pub(crate) fn copy_to(&self, to: &Arc<ExtentStore>) -> Result<ExtentMeta> {
        let mut damages = Vec::new();
        self.verify(&mut damages);
        if let Some(damage) = damages.into_iter().next() {
            return Err(Error::corrupt(damage));
        }
        let bytes = self.load_bytes(0, self.meta().location.len)?;
        let reserved = to.reserve(self.meta().location.len)?;
        to.write(&reserved.location(), &bytes)?;
        Ok(self.meta().at(reserved.keep()))
    }
}
