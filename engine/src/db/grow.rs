//! Growth of the region while the database is open.
//!
//! Growth makes the file longer first, by zeros that are durable. Then it writes both copies of the
//! superblock. Then the zones are there for all tables. A power cut before the superblock leaves a
//! file that is longer than the region; the next growth writes those zeros again.
//!
//! Growth syncs the file that commits rest on. A failed sync of it may have lost bytes of any
//! commit, so it stops the database, as a failed sync of the publisher does.

use super::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::limits;
use crate::options::{Options, Planted};

/// Grows the region to about `size` bytes, in whole units; the new length.
pub(super) fn grow_pm(engine: &Engine, size: u64) -> Result<u64> {
    engine.shared.check_writable()?;
    Options::new().pm_size(size.max(limits::MIN_PM_SIZE)).check()?;
    let mut superblock = engine.superblock.lock();
    let geometry = superblock.geometry.grown_to(size)?;
    if let Err(e) = engine.shared.region.grow(geometry.region_len()) {
        // A full disk refuses growth before anything was written that a commit rests on.
        if e.kind() != ErrorKind::Full && !engine.options.has(Planted::SwallowGrowthError) {
            engine.shared.stop_because(&e.to_string());
        }
        return Err(e);
    }
    let mut grown = superblock.clone();
    grown.geometry = geometry;
    engine
        .shared
        .committer
        .grow(geometry.units, || grown.write(&engine.shared.region).map(|_| ()))?;
    *superblock = grown;
    // Writers that wait for a zone have one.
    engine.shared.pace.report(None);
    engine.shared.bell.ring();
    Ok(geometry.region_len())
}
