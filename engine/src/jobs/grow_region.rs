//! Growth of the region while the database is open, and free space that extent files give back.
//!
//! A database begins with a small region. This job makes it longer ahead of need, step by step, up
//! to the size that the options named. `Database::grow_pm` takes the same way.
//!
//! Growth makes the file longer first, by zeros that are durable. Then it writes both copies of the
//! superblock. Then the zones are there for all tables. A power cut before the superblock leaves a
//! file that is longer than the region; the next growth writes those zeros again.
//!
//! Growth syncs the file that commits rest on. A failed sync of it may have lost bytes of any
//! commit, so it stops the database, as a failed sync of the publisher does.
//!
//! A closing does not wait for all of it: a growth under way ends after the piece of zeros that it
//! writes. What it wrote lies behind the end of the region.
//!
//! Thread safety: growths of two threads take turns at the superblock.

use std::time::{Duration, Instant};

use super::context::{JobContext, Outcome};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::events::GrowthInfo;
use crate::base::options::Failpoint;
use crate::os::sync::locks::Mutex;
use crate::os::time;
use crate::pm::Geometry;

/// One part of so many of the region is what extents keep for jobs that make space, at most a
/// little more than a drain needs that merges with no extent.
const EXTENT_RESERVE: u64 = 8;
const LEAST_EXTENT_RESERVE: u64 = 512 << 10;
const MOST_EXTENT_RESERVE: u64 = 9 << 19;

/// After so long a full disk is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The job.
#[derive(Debug, Default)]
pub(crate) struct GrowRegion {
    /// When the disk was full.
    refused: Mutex<Option<Instant>>,
}

impl GrowRegion {
    /// Grows the region, where half of the units are taken, or no free piece is large enough, or a
    /// takeover is about to fill it. On a full disk, or without memory for it, it stays as it is,
    /// and drains make space from then on.
    pub(crate) fn step(&self, ctx: &JobContext) -> Result<Outcome> {
        let zones = &ctx.shared.zones;
        let geometry = zones.geometry();
        let is_needed =
            zones.free() <= geometry.units / 2 || zones.is_asked_for() || ctx.takes_over();
        let may_ask = ctx.options.stepped
            || self.refused.lock().is_none_or(|refused| time::since(refused) >= ASK_AGAIN);
        let Some(to) = geometry.next_step().filter(|_| is_needed && may_ask) else {
            return Ok(Outcome::NOTHING);
        };
        match grow(ctx, |geometry| Ok(Some(to).filter(|to| to.units > geometry.units))) {
            Ok(grown) => {
                *self.refused.lock() = None;
                Ok(Outcome::did(grown))
            }
            Err(e) if e.kind() == ErrorKind::Closed => Ok(Outcome::NOTHING),
            Err(e) if e.may_pass() => {
                let is_first = self.refused.lock().replace(time::now()).is_none();
                if is_first {
                    let bytes = [geometry, to].map(|geometry| geometry.region_len());
                    tell(ctx, bytes, Some(e.to_string()));
                }
                Ok(Outcome::NOTHING)
            }
            Err(e) => Err(e),
        }
    }
}

fn tell(ctx: &JobContext, [from_bytes, to_bytes]: [u64; 2], refused: Option<String>) {
    ctx.options.events.send(|| GrowthInfo { from_bytes, to_bytes, refused, ..<_>::default() });
}

/// Grows the region to what `next` makes of its geometry, if anything; whether it did.
///
/// # Errors
///
/// - that of `next`;
/// - `Full`: the device has no space, and nothing was changed;
/// - `Closed`, and nothing was changed;
/// - any other error poisons the database.
pub(crate) fn grow(
    ctx: &JobContext,
    next: impl FnOnce(Geometry) -> Result<Option<Geometry>>,
) -> Result<bool> {
    let shared = &ctx.shared;
    let inside = shared.gate.enter_step().map_err(Error::not_open)?;
    let _inside = (!ctx.options.has(Failpoint::GrowOutside)).then_some(inside);
    let mut superblock = ctx.superblock.lock();
    let before = superblock.geometry;
    let Some(geometry) = next(before)? else { return Ok(false) };
    debug_assert!(geometry.units > before.units, "a region only grows");
    debug_assert_eq!(geometry.unit, before.unit, "units keep their size");
    debug_assert_eq!(shared.zones.geometry().units, before.units, "zones are those on the media");
    debug_assert!(geometry.check().is_ok(), "an opening accepts what growth writes");
    if let Err(e) = shared.region.grow(geometry.region_len(), &|| !ctx.is_stopping()) {
        shared.zones.set_stuck(e.may_pass());
        // A full disk refuses growth before anything was written that a commit rests on. So does a
        // want of memory for the image.
        if e.kind() != ErrorKind::Closed
            && !e.may_pass()
            && !ctx.options.has(Failpoint::SwallowGrowthError)
        {
            shared.stop_because(&e.to_string());
        }
        return Err(e);
    }
    let mut grown = superblock.clone();
    grown.geometry = geometry;
    shared.committer.grow(geometry.units, || grown.write(&shared.region).map(|_| ()))?;
    *superblock = grown;
    shared.zones.set_stuck(false);
    keep_reserves(ctx);
    tell(ctx, [before, geometry].map(|geometry| geometry.region_len()), None);
    // Writers that wait for a zone have one.
    shared.pace.report(None);
    shared.wakeup.wake();
    Ok(true)
}

/// Finds the space of the extents' reserve again, which an opening knows nothing of, before another
/// file or job may take it. On a full disk it is what the last opening left, or less. If it is less
/// than its least amount, deletes have used it: only commits that free space go on.
pub(crate) fn find_reserve(ctx: &JobContext) -> Result<()> {
    let store = ctx.set.store();
    if store.space().taken_bytes == 0 {
        return Ok(());
    }
    // A unit beyond it, for the first drain.
    match store.reserve_space(1, false) {
        Err(e) if !e.may_pass() => return Err(e),
        Err(_) if store.lacks_least_reserve() => ctx.shared.zones.set_freeing_only(true),
        _ => false,
    };
    Ok(())
}

/// Sets what the region and the extents keep for what frees space
/// (`docs/internals/full-disk.md`).
pub(crate) fn keep_reserves(ctx: &JobContext) {
    let zones = &ctx.shared.zones;
    zones.keep_reserve(2 * zones.geometry().usual_units());
    let bytes = zones.region_len() / EXTENT_RESERVE;
    let bytes = bytes.clamp(LEAST_EXTENT_RESERVE, MOST_EXTENT_RESERVE);
    ctx.set.store().keep_reserve(bytes);
}

/// Gives it back; at rest from the middle of files too. What the file system refuses to take stays
/// with the files: nothing is lost by it, and the next idle time tries again.
pub(crate) fn return_space(ctx: &JobContext) -> Result<Outcome> {
    let (store, all) = (ctx.set.store(), ctx.is_idle() && ctx.claims.is_empty());
    let given = if all { store.give_back_all() } else { store.give_back() };
    given.map(|bytes| Outcome::did(bytes > 0)).or_else(|error| {
        ctx.count_failure(&error);
        Ok(Outcome::NOTHING)
    })
}
