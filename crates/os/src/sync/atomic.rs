//! Atomics. In tests each access is a point of a scheduler.

pub use std::sync::atomic::Ordering;
#[cfg(not(any(test, feature = "testing")))]
pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
};

#[cfg(any(test, feature = "testing"))]
pub use super::scheduled::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
};

/// Runs `f`, in which no access is a point of a scheduler: many that mean one thing, or one that
/// nothing depends on.
#[inline(always)]
pub fn at_once<T>(f: impl FnOnce() -> T) -> T {
    #[cfg(any(test, feature = "testing"))]
    return crate::schedule::without_switch(f);
    #[cfg(not(any(test, feature = "testing")))]
    f()
}
