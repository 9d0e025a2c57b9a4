//! Locks and conditions. In tests each call is a point of a scheduler.

#[cfg(not(any(test, feature = "testing")))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

#[cfg(any(test, feature = "testing"))]
pub use super::scheduled::locks::{Condvar, Mutex, MutexGuard, RwLock};
