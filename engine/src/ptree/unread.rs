//! Records that an opening passed over, because the persistent index knows of them. Their checksums
//! are checked when the index first leads to one, a zone at a time.
//!
//! Thread safety: every method takes `&self`. A thread that finds a zone unread reads it, one
//! thread at a time. Others go on where no zone is unverified.
//!
//! Invariants:
//!
//! 1. The bytes of a record in an unverified zone, or damaged, are not given out. A caller
//!    that asks for its key gets an empty one, and learns from `check` that its result does not
//!    count.
//! 2. An unverified zone stays as it is on the media: no zone is released while one is unverified.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Damage, Error, Result};
use crate::memtable::Records;
use crate::os::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::OnceLock;
use crate::pm::{Geometry, Region};
use crate::record::Lsn;

/// Says what is wrong with the records of a zone that were passed over, if anything.
pub(crate) type Look = Box<dyn Fn(u32) -> Option<Damage> + Send + Sync>;

/// The records of a region, as an index sees them.
pub(crate) struct Unread {
    region: Arc<Region>,
    /// Whether any zone may be unverified.
    is_left: AtomicBool,
    unverified: OnceLock<Unverified>,
    damage: OnceLock<Damage>,
}

struct Unverified {
    geometry: Geometry,
    /// By unit: of which zone that is unverified it is, plus one; else 0.
    zones: Box<[AtomicU32]>,
    look: Look,
    turn: Mutex<()>,
}

impl Unread {
    /// Nothing is unverified at first.
    pub(crate) fn new(region: &Arc<Region>) -> Unread {
        Unread {
            region: Arc::clone(region),
            is_left: AtomicBool::new(false),
            unverified: OnceLock::new(),
            damage: OnceLock::new(),
        }
    }

    /// Marks zones as unverified, each with its number of units. Called once, before the first
    /// read.
    pub(crate) fn mark_unverified(&self, geometry: Geometry, of: &[(u32, u32)], look: Look) {
        let zones: Box<[AtomicU32]> = (0..geometry.units).map(|_| AtomicU32::new(0)).collect();
        for (zone, units) in of {
            let units = &zones[*zone as usize..(zone + units) as usize];
            units.iter().for_each(|unit| unit.store(zone + 1, Ordering::Relaxed));
        }
        let is_new =
            self.unverified.set(Unverified { geometry, zones, look, turn: Mutex::default() });
        debug_assert!(is_new.is_ok(), "an opening marks zones once");
        self.is_left.store(!of.is_empty(), Ordering::Release);
    }

    /// Everything that the index leads to was read.
    pub(crate) fn trust(&self) {
        self.is_left.store(self.damage.get().is_some(), Ordering::Release);
    }

    /// Whether the record at `at` may be looked at. Reads its zone if that was not read yet.
    #[cold]
    fn is_sound(&self, at: u64) -> bool {
        let Some(unverified) = self.unverified.get() else { return true };
        // Whatever came by growth since was never unverified.
        let unit = unverified.zones.get(unverified.geometry.unit_of(at) as usize);
        let Some(unit) = unit else { return true };
        if unit.load(Ordering::Acquire) == 0 {
            return true;
        }
        let _turn = unverified.turn.lock();
        let Some(zone) = unit.load(Ordering::Acquire).checked_sub(1) else { return true };
        if let Some(damage) = (unverified.look)(zone) {
            drop(self.damage.set(damage));
            return false;
        }
        let of_zone =
            unverified.zones.iter().filter(|unit| unit.load(Ordering::Relaxed) == zone + 1);
        of_zone.for_each(|unit| unit.store(0, Ordering::Release));
        true
    }

    /// The file's path, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.region.path()
    }
}

impl Records for Unread {
    #[inline]
    fn locate(&self, at: u64) -> (&[u8], Lsn) {
        if self.is_left.load(Ordering::Acquire) && !self.is_sound(at) {
            return (&[], 0);
        }
        self.region.locate(at)
    }

    fn check(&self, at: u64) -> Result<()> {
        if self.is_left.load(Ordering::Acquire) {
            self.is_sound(at);
        }
        self.sound()
    }

    fn sound(&self) -> Result<()> {
        match self.damage.get() {
            Some(damage) => Err(Error::corrupt(damage.clone())),
            None => Ok(()),
        }
    }

    #[inline]
    fn prefetch(&self, at: u64) {
        self.region.prefetch(at);
    }
}

impl std::fmt::Debug for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unread").field("region", &self.path()).finish_non_exhaustive()
    }
}
