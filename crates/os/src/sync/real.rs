//! The primitives of production.

use std::time::Instant;

pub use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(any(test, feature = "testing")))]
pub use super::futex::Futex;
pub use super::locks::{Condvar, Mutex, MutexGuard};
#[cfg(any(test, feature = "testing"))]
pub use super::scheduled::futex::TaskFutex as Futex;

/// Waits for a few microseconds at most; whether it came true.
pub fn spin_until(mut is_true: impl FnMut() -> bool) -> bool {
    const SPINS: u32 = 64;
    #[cfg(any(test, feature = "testing"))]
    if crate::schedule::is_task() {
        crate::thread::yield_now();
        return is_true();
    }
    for _ in 0..SPINS {
        if is_true() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// Waits to be notified, at most until `deadline`; whether that has passed.
#[cfg_attr(any(test, feature = "testing"), track_caller)]
pub fn wait<'a, T>(
    woken: &Condvar,
    mut guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, T>, bool) {
    let Some(deadline) = deadline else {
        woken.wait(&mut guard);
        return (guard, false);
    };
    let late = woken.wait_until(&mut guard, deadline).timed_out();
    (guard, late)
}
