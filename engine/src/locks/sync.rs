//! What lock tables share between threads. With the feature `shuttle`, unit tests run the very
//! types of production under shuttle's scheduler (`tests/model.rs`).

use std::time::Instant;

#[cfg(not(all(test, feature = "shuttle")))]
mod real {
    use super::Instant;

    pub(in crate::locks) use parking_lot::{Condvar, Mutex, MutexGuard};

    /// Waits to be notified, at most until `deadline`; whether that has passed.
    pub(in crate::locks) fn wait<'a, T>(
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
}

#[cfg(not(all(test, feature = "shuttle")))]
pub(super) use real::{Condvar, Mutex, MutexGuard, wait};

#[cfg(all(test, feature = "shuttle"))]
mod modelled {
    use super::Instant;

    pub(in crate::locks) use shuttle::sync::{Condvar, MutexGuard};

    /// `parking_lot`'s interface.
    #[derive(Debug, Default)]
    pub(in crate::locks) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in crate::locks) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    /// A deadline that is given has passed as soon as it is waited for.
    pub(in crate::locks) fn wait<'a, T>(
        woken: &Condvar,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, T>, bool) {
        if deadline.is_some() {
            return (guard, true);
        }
        (woken.wait(guard).unwrap(), false)
    }
}

#[cfg(all(test, feature = "shuttle"))]
pub(super) use modelled::{Condvar, Mutex, MutexGuard, wait};
