//! What threads share, in one place: atomics, locks, channels, and ways to wait. All of the engine
//! takes them from `atomic`, `locks`, `channel` and `shared`: in production these are libraries',
//! in tests each access is a point of a scheduler (`os/schedule`).
//!
//! What is to be model-checked takes the types of this file instead, which are the same ones but
//! for that: with the feature `loom`, unit tests run the very types of production under that model
//! checker. All of these become the checker's, and nothing else changes. The scheduler draws
//! schedules of whole calls; loom tries every schedule, and every value that an ordering of memory
//! allows, of the smallest parts.

pub mod atomic;
pub mod channel;
#[cfg(not(feature = "loom"))]
mod futex;
pub mod locks;
#[cfg(feature = "loom")]
mod modelled;
pub mod optimistic;
#[cfg(not(feature = "loom"))]
mod real;
#[cfg(any(test, feature = "testing"))]
mod scheduled;
pub mod shared;

#[cfg(feature = "loom")]
use modelled as chosen;
#[cfg(not(feature = "loom"))]
use real as chosen;

pub use chosen::{
    AtomicU32, AtomicU64, Condvar, Futex, Mutex, MutexGuard, Ordering, fence, spin_until, wait,
};
