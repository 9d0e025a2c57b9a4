//! What optimistic locks and the nodes under them are made of. There are too many of these words
//! in a tree for loom, to which they are the standard ones.

#[cfg(any(test, feature = "testing"))]
use crate::schedule;

pub use super::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Where the model checker may switch threads. Locks are of its own atomics; the words of a region
/// are not, so each access to a node there says that it comes. In production nothing.
#[inline(always)]
pub fn step() {
    #[cfg(any(test, feature = "testing"))]
    schedule::point(schedule::PointKind::Load);
}

/// Waiting for another thread: a few spins, then the processor is given away, because the holder
/// of a lock may have lost its own.
#[derive(Default)]
pub struct Patience {
    turns: u32,
}

impl Patience {
    /// Waits a little, and longer every time.
    pub fn wait(&mut self) {
        self.turns += 1;
        #[cfg(any(test, feature = "testing"))]
        let may_spin = self.turns < 32 && !schedule::is_task();
        #[cfg(not(any(test, feature = "testing")))]
        let may_spin = self.turns < 32;
        if may_spin {
            std::hint::spin_loop();
        } else {
            crate::thread::yield_now();
        }
    }
}
