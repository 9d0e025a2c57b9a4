//! How often an extent is read: a count that halves as time passes, where time is reads of the
//! whole database. It is volatile and not exact, so that it is cheap.
//!
//! Thread safety: every method may be called from any thread. Counts of threads that read the same
//! extent in the same instant may be lost.

use crate::cache::{LOT, completes_a_lot};
use crate::os::sync::atomic::{AtomicU64, Ordering};

/// Reads of the whole database after which counts are halved.
const HALF_LIFE: u64 = 64 * 1024;

/// An extent counts this many reads before it tells the clock, so that readers of different extents
/// do not contend for it.
const TOLD: u32 = 64;

/// Above so many, reads are counted by lots, so that readers of one extent do not contend for it.
const MANY: u32 = 1024;

/// Half-lives so far, by the reads that extents have told of.
fn epoch(clock: &AtomicU64) -> u32 {
    (clock.load(Ordering::Relaxed) / HALF_LIFE) as u32
}

/// Of one extent: the half-life of the last read in the upper half, the count then in the lower.
#[derive(Debug, Default)]
pub(super) struct ReadFrequency(AtomicU64);

impl ReadFrequency {
    /// Counts a read.
    #[inline]
    pub(super) fn read(&self, clock: &AtomicU64) {
        let now = epoch(clock);
        let before = self.at(now);
        let read = if before < MANY { 1 } else { LOT };
        if before >= MANY && !completes_a_lot() {
            return;
        }
        let count = before.saturating_add(read);
        self.0.store(u64::from(now) << 32 | u64::from(count), Ordering::Relaxed);
        if count / TOLD > before / TOLD {
            // Where threads meet, what one tells is lost.
            let told = clock.load(Ordering::Relaxed) + u64::from(TOLD);
            clock.store(told, Ordering::Relaxed);
        }
    }

    /// The count of this moment.
    pub(super) fn now(&self, clock: &AtomicU64) -> u32 {
        self.at(epoch(clock))
    }

    /// Starts from the count of the extents that it replaces.
    pub(super) fn begin(&self, count: u32, clock: &AtomicU64) {
        self.0.store(u64::from(epoch(clock)) << 32 | u64::from(count), Ordering::Relaxed);
    }

    fn at(&self, epoch: u32) -> u32 {
        let word = self.0.load(Ordering::Relaxed);
        let halvings = epoch.wrapping_sub((word >> 32) as u32);
        (word as u32).checked_shr(halvings).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_cools_down() {
        let (clock, hot, other) =
            (AtomicU64::new(0), ReadFrequency::default(), ReadFrequency::default());
        for _ in 0..1000 {
            hot.read(&clock);
        }
        assert_eq!((hot.now(&clock), other.now(&clock)), (1000, 0));
        for _ in 0..HALF_LIFE {
            other.read(&clock);
        }
        assert_eq!(hot.now(&clock), 500, "halved");
        assert!(other.now(&clock) > 30_000, "{}", other.now(&clock));
        clock.fetch_add(40 * HALF_LIFE, Ordering::Relaxed);
        assert_eq!((hot.now(&clock), other.now(&clock)), (0, 0));
    }
}
