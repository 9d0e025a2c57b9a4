//! What threads share, in one place: atomics, locks, channels, and ways to wait. All of the engine
//! takes them from `atomic`, `locks`, `channel` and `shared`: in production these are libraries',
//! in tests each access is a point of a scheduler (`os/schedule`).
//!
//! What is to be model-checked takes the types of this file instead, which are the same ones but
//! for that: with the feature `shuttle` or `loom`, unit tests run the very types of production
//! under that model checker. All of these become the checker's, and nothing else changes. Shuttle
//! draws schedules of whole calls; loom tries every schedule, and every value that an ordering of
//! memory allows, of the smallest parts.

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
