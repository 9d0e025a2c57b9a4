//! Copies extents as they are, from one store to another.

use std::sync::Arc;

use super::{Extent, ExtentMeta, ValueExtent, ValueMeta, ValueUse};
use crate::error::Result;
use crate::tier::ExtentStore;

impl Extent {
    /// Checks all of it, and reads it.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is damaged; or an I/O error.
    pub(crate) fn read_whole(&self) -> Result<Vec<u8>> {
        self.check_whole()?;
        self.load_bytes(0, self.meta().location.len)
    }

    /// Checks all of it and copies it to `to`, where the space is the caller's; not synced. Returns
    /// the description of the copy. `copy_values` says where its value extents are there, and
    /// copies those that are missing.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is damaged; `Full` when there is no room; or an I/O error; those of
    /// `copy_values`.
    pub(crate) fn copy_to(
        &self,
        to: &Arc<ExtentStore>,
        copy_values: &mut dyn FnMut(&ValueExtent) -> Result<ValueMeta>,
    ) -> Result<ExtentMeta> {
        self.check_whole()?;
        let listed = self.values().iter().zip(&*self.meta().values);
        let copied = listed.map(|(values, one)| Ok(ValueUse { of: copy_values(values)?, ..*one }));
        let values = copied.collect::<Result<Arc<[ValueUse]>>>()?;
        let _held = self.held().jobs.hold(u64::from(self.meta().location.len));
        let bytes = self.load_bytes(0, self.meta().location.len)?;
        let reserved = to.reserve(self.meta().location.len)?;
        to.write(&reserved.location(), &bytes)?;
        let location = reserved.keep();
        Ok(ExtentMeta { location, values, ..self.meta().clone() })
    }
}
