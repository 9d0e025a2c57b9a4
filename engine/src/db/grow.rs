//! Growth of the region while the database is open.
//!
//! The file first, with its space on the device; then both copies of the superblock; then the zones
//! are there for everybody. A power cut before the superblock leaves a file that is longer than
//! the region, which nobody minds.

use super::inner::Engine;
use crate::error::Result;
use crate::limits;
use crate::options::Options;

impl Engine {
    /// Grows the region to about `size` bytes, in whole units; the new length.
    pub(super) fn grow_pm(&self, size: u64) -> Result<u64> {
        self.shared.check_writable()?;
        Options::new().pm_size(size.max(limits::MIN_PM_SIZE)).check()?;
        let mut superblock = self.superblock.lock();
        let geometry = superblock.geometry.grown_to(size)?;
        self.shared.region.grow(geometry.region_len())?;
        let mut grown = superblock.clone();
        grown.geometry = geometry;
        self.shared
            .committer
            .grow(geometry.units, || grown.write(&self.shared.region).map(|_| ()))?;
        *superblock = grown;
        // Writers that wait for a zone have one.
        self.shared.pace.report(None);
        self.shared.bell.ring();
        Ok(geometry.region_len())
    }
}
