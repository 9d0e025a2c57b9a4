//! The atomics of the index: the standard ones, or those of the model checker.
//!
//! With the feature `shuttle`, unit tests run the very types of production under shuttle's
//! scheduler (`model.rs`). Epochs are opaque to it: it explores the order of our own accesses, and
//! takes reclamation as given.

#[cfg(all(test, feature = "shuttle"))]
pub(super) use shuttle::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(all(test, feature = "shuttle")))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

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
        #[cfg(not(all(test, feature = "shuttle")))]
        if self.turns < 32 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
