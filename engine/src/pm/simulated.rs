//! A region on the persistent memory of a simulated machine.

use std::path::Path;
use std::sync::Arc;

use super::region::{Media, Region};
use crate::error::{Error, Result};
use crate::os::sim::Machine;

impl Region {
    /// The memory of `machine` as a region, all of it loaded; `len` bytes of zeros where there is
    /// none yet.
    ///
    /// # Errors
    ///
    /// `Invalid` when the machine has no persistent memory.
    pub(crate) fn of_machine(machine: &Machine, len: u64) -> Result<Arc<Region>> {
        let missing = || Error::invalid("the simulated machine has no persistent memory");
        let pm = machine.make_memory(len).ok_or_else(missing)?;
        let len = pm.len();
        let region = Region::new(Media::Simulated(pm), Path::new("simulated"), len)?;
        region.load(super::Span { at: 0, len })?;
        Ok(Arc::new(region))
    }
}
