//! The same interfaces over loom's primitives.

#![allow(missing_docs, reason = "the interfaces of the libraries that they stand for")]

use std::time::Instant;

pub use loom::sync::Condvar;
use loom::sync::atomic::AtomicUsize;
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Mutex as Inner, MutexGuard as InnerGuard};

/// Time does not pass under a checker: it is true now, or not in time.
pub fn spin_until(mut is_true: impl FnMut() -> bool) -> bool {
    is_true()
}

/// What a checker's lock gives.
fn sound<T, E: std::fmt::Debug>(locked: Result<T, E>) -> T {
    locked.expect("invariant: a panic ends the test, so no lock is poisoned")
}

pub use self::{ModelGuard as MutexGuard, ModelMutex as Mutex};

/// `parking_lot`'s interface.
#[derive(Debug, Default)]
pub struct ModelMutex<T> {
    inner: Inner<T>,
    holders: AtomicUsize,
}

pub struct ModelGuard<'a, T> {
    inner: Option<InnerGuard<'a, T>>,
    holders: &'a AtomicUsize,
}

impl<T> ModelMutex<T> {
    pub fn new(value: T) -> ModelMutex<T> {
        ModelMutex { inner: Inner::new(value), holders: AtomicUsize::new(0) }
    }

    pub fn lock(&self) -> ModelGuard<'_, T> {
        // It looks taken before it is: else a thread could try, fail and try again for ever.
        self.holders.fetch_add(1, Ordering::SeqCst);
        let inner = sound(self.inner.lock());
        ModelGuard { inner: Some(inner), holders: &self.holders }
    }

    pub fn try_lock(&self) -> Option<ModelGuard<'_, T>> {
        self.holders.fetch_add(1, Ordering::SeqCst);
        let Ok(inner) = self.inner.try_lock() else {
            self.holders.fetch_sub(1, Ordering::SeqCst);
            return None;
        };
        Some(ModelGuard { inner: Some(inner), holders: &self.holders })
    }

    pub fn is_locked(&self) -> bool {
        self.holders.load(Ordering::SeqCst) > 0
    }
}

impl<T> std::ops::Deref for ModelGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("invariant: it is held")
    }
}

impl<T> std::ops::DerefMut for ModelGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("invariant: it is held")
    }
}

impl<T> Drop for ModelGuard<'_, T> {
    fn drop(&mut self) {
        // It may look taken for a moment longer than it is. This thread wakes a thread that sleeps
        // for that, since it looks for work after it gave the lock back.
        self.inner = None;
        self.holders.fetch_sub(1, Ordering::SeqCst);
    }
}

/// As in production; a deadline that is given has passed as soon as it is waited for. A waiting
/// thread looks as if it held the lock.
pub fn wait<'a, T>(
    woken: &Condvar,
    mut guard: ModelGuard<'a, T>,
    deadline: Option<Instant>,
) -> (ModelGuard<'a, T>, bool) {
    if deadline.is_some() {
        return (guard, true);
    }
    guard.inner = guard.inner.take().map(|inner| sound(woken.wait(inner)));
    (guard, false)
}

/// As in production, with a queue in place of the kernel's.
#[derive(Debug, Default)]
pub struct Futex {
    count: AtomicU32,
    sleeping: Inner<usize>,
    woken: Condvar,
}

impl Futex {
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    pub fn move_on(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub fn wake(&self, most: u32) -> usize {
        let sleeping = sound(self.sleeping.lock());
        let n = (*sleeping).min(most as usize);
        if most == 1 {
            self.woken.notify_one();
        } else {
            self.woken.notify_all();
        }
        n
    }

    pub fn sleep_at(&self, seen: u32) {
        let mut sleeping = sound(self.sleeping.lock());
        *sleeping += 1;
        if self.count() == seen {
            sleeping = sound(self.woken.wait(sleeping));
        }
        *sleeping -= 1;
    }
}
