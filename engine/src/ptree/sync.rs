//! Where the model checker may switch threads. Locks are of its own atomics; the words of a region
//! are not, so each access to a node says that it comes.

/// Under the model checker another thread may run first; else nothing.
#[inline(always)]
pub(super) fn step() {
    #[cfg(all(test, feature = "shuttle"))]
    shuttle::thread::yield_now();
}
