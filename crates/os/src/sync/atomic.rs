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
