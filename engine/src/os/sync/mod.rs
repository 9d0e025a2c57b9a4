//! What threads share, in one place: atomics, locks, and ways to wait.
//!
//! With the feature `shuttle` or `loom`, unit tests run the very types of production under that
//! model checker: all of these become the checker's, and nothing else changes. Shuttle draws
//! schedules of whole calls; loom tries every schedule, and every value that an ordering of memory
//! allows, of the smallest parts. Whatever is to be model-checked takes its primitives from here.

pub(crate) mod atomic;
pub(crate) mod channel;
#[cfg(not(all(test, any(feature = "loom", feature = "shuttle"))))]
mod futex;
pub(crate) mod locks;
#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
mod modelled;
pub(crate) mod optimistic;
#[cfg(not(all(test, any(feature = "loom", feature = "shuttle"))))]
mod real;
#[cfg(any(test, feature = "testing"))]
mod scheduled;
pub(crate) mod shared;

#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
use modelled as chosen;
#[cfg(not(all(test, any(feature = "loom", feature = "shuttle"))))]
use real as chosen;

pub(crate) use chosen::{
    AtomicU32, AtomicU64, Condvar, Futex, Mutex, MutexGuard, Ordering, fence, spin_until, wait,
};

/// Whether a model checker runs the tests. What is counted in thousands is counted in ones then, so
/// that every bound is met in few steps.
pub(crate) const MODELLED: bool = cfg!(all(test, any(feature = "loom", feature = "shuttle")));
