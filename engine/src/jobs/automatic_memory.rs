//! The memory limit of a database whose options name none: half of what the process may use, shared
//! by all such databases of the process, and less while the machine is short of memory.
//!
//! The limit bounds what the database may take. It takes nothing before it needs it.
//!
//! Thread safety: every method may be called from any thread.
//!
//! Invariants:
//!
//! 1. `SHARING` is the number of these limits that exist.
//! 2. The limit is never above the share, and falls below an eighth of it only where more databases
//!    share.
//!
//! Sources: WiredTiger's default cache (half of the memory) and `innodb_dedicated_server`, for the
//! share; the kernel's pressure stall information, for when to give back.

use std::time::{Duration, Instant};

use crate::os::sync::atomic::Ordering::Relaxed;
use crate::os::sync::atomic::{AtomicU64, AtomicUsize};
use crate::os::sync::locks::Mutex;
use crate::os::time;
use crate::os::{Pressure, memory_pressure};

/// The limits of this kind that exist in the process.
static SHARING: AtomicUsize = AtomicUsize::new(0);

/// Pressure is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Under pressure the limit falls by one part of so many at each look,
const FALL: u64 = 16;

/// to no less than one of so many,
const LEAST: u64 = 8;

/// and where there is enough it rises by one of so many.
const RISE: u64 = 64;

/// A limit that follows the machine.
#[derive(Debug)]
pub(crate) struct AutomaticLimit {
    /// All such databases together, where memory is not short.
    share: u64,
    /// All such databases together, now.
    now: AtomicU64,
    looked: Mutex<Instant>,
}

impl AutomaticLimit {
    /// A limit of at most `share` bytes.
    pub(crate) fn new(share: u64) -> AutomaticLimit {
        SHARING.fetch_add(1, Relaxed);
        AutomaticLimit { share, now: AtomicU64::new(share), looked: Mutex::new(time::now()) }
    }

    /// The limit of one database, now.
    pub(crate) fn bytes(&self) -> u64 {
        self.now.load(Relaxed) / SHARING.load(Relaxed).max(1) as u64
    }

    /// Looks at the machine, if it is time; whether memory is to be given back.
    pub(crate) fn follow_machine(&self) -> bool {
        let Some(mut looked) = self.looked.try_lock() else { return false };
        let now = time::now();
        if !is_due(*looked, now) {
            return false;
        }
        *looked = now;
        self.follow(memory_pressure())
    }

    fn follow(&self, pressure: Pressure) -> bool {
        let now = self.now.load(Relaxed);
        let next = match pressure {
            Pressure::Short => (now - now / FALL).max(self.share / LEAST),
            Pressure::Tight => now,
            Pressure::Enough => (now + self.share / RISE).min(self.share),
        };
        debug_assert!(next <= self.share && next >= self.share / LEAST, "invariant 2");
        self.now.store(next, Relaxed);
        pressure == Pressure::Short
    }
}

/// Whether it is time to look at the machine, at `now`, after a look at `last`.
fn is_due(last: Instant, now: Instant) -> bool {
    now.duration_since(last) >= LOOK_EVERY
}

impl Drop for AutomaticLimit {
    fn drop(&mut self) {
        let before = SHARING.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "each limit was counted (invariant 1)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_under_pressure_and_rises_again() {
        let limit = AutomaticLimit::new(1 << 30);
        assert!(!limit.follow(Pressure::Enough), "nothing is given back");
        assert_eq!(limit.now.load(Relaxed), 1 << 30, "never above the share");
        for _ in 0..100 {
            assert!(limit.follow(Pressure::Short), "memory is given back");
        }
        assert_eq!(limit.now.load(Relaxed), 1 << 27, "never below an eighth");
        limit.follow(Pressure::Tight);
        assert_eq!(limit.now.load(Relaxed), 1 << 27, "it stays while memory is tight");
        for _ in 0..100 {
            limit.follow(Pressure::Enough);
        }
        assert_eq!(limit.now.load(Relaxed), 1 << 30);
    }

    #[test]
    fn the_machine_is_looked_at_once_a_second() {
        let last = Instant::now();
        let after = |millis| is_due(last, last + Duration::from_millis(millis));
        assert_eq!([0, 999, 1000, 5000].map(after), [false, false, true, true]);
        let limit = AutomaticLimit::new(1 << 30);
        let long_ago = last.checked_sub(2 * LOOK_EVERY).unwrap();
        *limit.looked.lock() = long_ago;
        limit.follow_machine();
        assert!(*limit.looked.lock() > long_ago, "it looked, and notes when");
    }
}
