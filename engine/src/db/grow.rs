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
use crate::options::{Failpoint, Options};

/// One part of so many of the region is what extents keep for jobs that make space, at most a
/// little more than the largest drain needs.
const EXTENT_RESERVE: u64 = 8;
const LEAST_EXTENT_RESERVE: u64 = 512 << 10;
const MOST_EXTENT_RESERVE: u64 = 9 << 19;

/// Sets what the region and the extents keep for what frees space
/// (`docs/internals/full-disk.md`).
pub(super) fn keep_reserves(engine: &Engine) {
    let zones = &engine.shared.zones;
    zones.keep_reserve(2 * zones.geometry().usual_units());
    let bytes = engine.shared.region.len() / EXTENT_RESERVE;
    let bytes = bytes.clamp(LEAST_EXTENT_RESERVE, MOST_EXTENT_RESERVE);
    engine.set.store().keep_reserve(bytes);
}

/// Grows the region to about `size` bytes, in whole units; the new length.
pub(super) fn grow_pm(engine: &Engine, size: u64) -> Result<u64> {
    engine.shared.check_writable()?;
    Options::new().pm_size(size.max(limits::MIN_PM_SIZE)).check()?;
    let mut superblock = engine.superblock.lock();
    let geometry = superblock.geometry.grown_to(size)?;
    if let Err(e) = engine.shared.region.grow(geometry.region_len()) {
        // A full disk refuses growth before anything was written that a commit rests on.
        if e.kind() != ErrorKind::Full && !engine.options.has(Failpoint::SwallowGrowthError) {
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
    keep_reserves(engine);
    // Writers that wait for a zone have one.
    engine.shared.pace.report(None);
    engine.shared.wakeup.wake();
    Ok(geometry.region_len())
}
