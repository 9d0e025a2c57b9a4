//! What optimistic locks and the nodes under them are made of. There are too many of these words
//! in a tree for loom, to which they are the standard ones; shuttle checks them. Epochs are opaque
//! to it: it explores the order of our own accesses, and takes reclamation as given.

#[cfg(any(test, feature = "testing"))]
use crate::os::schedule;

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use super::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Where the model checker may switch threads. Locks are of its own atomics; the words of a region
/// are not, so each access to a node there says that it comes. In production nothing.
#[inline(always)]
pub(crate) fn step() {
    #[cfg(all(test, feature = "shuttle"))]
    shuttle::thread::yield_now();
    #[cfg(any(test, feature = "testing"))]
    schedule::point(schedule::PointKind::Load);
}

/// Waiting for another thread: a few spins, then the processor is given away, because the holder
/// of a lock may have lost its own.
#[derive(Default)]
pub(crate) struct Patience {
    turns: u32,
}

impl Patience {
    /// Waits a little, and longer every time.
    pub(crate) fn wait(&mut self) {
        self.turns += 1;
        #[cfg(all(test, feature = "shuttle"))]
        shuttle::thread::yield_now();
        #[cfg(all(any(test, feature = "testing"), not(all(test, feature = "shuttle"))))]
        let may_spin = self.turns < 32 && !schedule::is_task();
        #[cfg(not(any(test, feature = "testing")))]
        let may_spin = self.turns < 32;
        #[cfg(not(all(test, feature = "shuttle")))]
        if may_spin {
            std::hint::spin_loop();
        } else {
            crate::os::thread::yield_now();
        }
    }
}
