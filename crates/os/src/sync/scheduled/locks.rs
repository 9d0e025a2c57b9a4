//! Locks and conditions.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{acquire, acquire_at_last, key};
use crate::schedule::{PointKind, block, is_task, point, run, wake};
use crate::time;

/// A lock for one holder. Where tests run side by side, a lock of the process may be held by a
/// thread that is no task of this run: it is waited for outside of the scheduler.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    /// The run whose task holds it; 0 for no task.
    run: AtomicUsize,
    inner: parking_lot::Mutex<T>,
}

/// The lock while it is held.
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    /// None while a condition is waited for.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

#[allow(dead_code, reason = "the interface of parking_lot's")]
impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { run: AtomicUsize::new(0), inner: parking_lot::Mutex::new(value) }
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

#[allow(dead_code, reason = "the interface of parking_lot's")]
impl<T: ?Sized> Mutex<T> {
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !is_task() {
            return MutexGuard { lock: self, inner: Some(self.inner.lock()) };
        }
        point(PointKind::Lock);
        self.lock_without_point()
    }

    /// For a task: it is one step with what comes before it, if no other has the lock.
    #[track_caller]
    pub(super) fn lock_without_point(&self) -> MutexGuard<'_, T> {
        let inner = acquire_at_last(key(self), || self.try_take());
        MutexGuard { lock: self, inner: Some(inner) }
    }

    /// For a task: nothing if a task of its run has it.
    fn try_take(&self) -> Option<parking_lot::MutexGuard<'_, T>> {
        loop {
            if let Some(taken) = self.inner.try_lock() {
                self.run.store(run(), Ordering::Relaxed);
                return Some(taken);
            }
            if self.run.load(Ordering::Relaxed) == run() {
                return None;
            }
            std::thread::yield_now();
        }
    }

    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if !is_task() {
            return Some(MutexGuard { lock: self, inner: Some(self.inner.try_lock()?) });
        }
        point(PointKind::Lock);
        Some(MutexGuard { lock: self, inner: Some(self.try_take()?) })
    }

    #[track_caller]
    pub fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        if !is_task() {
            let inner = self.inner.try_lock_for(time)?;
            return Some(MutexGuard { lock: self, inner: Some(inner) });
        }
        point(PointKind::Lock);
        let until = Some(time::since_start() + time);
        let inner = acquire(key(self), until, || self.try_take())?;
        Some(MutexGuard { lock: self, inner: Some(inner) })
    }

    #[track_caller]
    pub fn is_locked(&self) -> bool {
        point(PointKind::Load);
        self.inner.is_locked()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("invariant: it is held")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("invariant: it is held")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    fn release(&mut self) {
        if !is_task() {
            self.inner = None;
            return;
        }
        // While it is held: who finds the run of a task there waits for that task.
        self.lock.run.store(0, Ordering::Relaxed);
        self.inner = None;
        wake(key(self.lock), usize::MAX);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Whether a wait was ended by its deadline.
#[derive(Clone, Copy, Debug)]
pub struct Waited(bool);

impl Waited {
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// What threads wait for, with a lock that they give back meanwhile.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

#[allow(dead_code, reason = "the interface of parking_lot's")]
impl Condvar {
    pub const fn new() -> Condvar {
        Condvar { inner: parking_lot::Condvar::new() }
    }

    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        if is_task() {
            self.block(guard, None);
        } else {
            self.inner.wait(guard.inner.as_mut().expect("invariant: it is held"));
        }
    }

    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> Waited {
        if is_task() {
            return Waited(self.block(guard, Some(time::since_start() + time)));
        }
        let inner = guard.inner.as_mut().expect("invariant: it is held");
        Waited(self.inner.wait_for(inner, time).timed_out())
    }

    #[track_caller]
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> Waited {
        if is_task() {
            return Waited(self.block(guard, Some(time::moment_of(until))));
        }
        let inner = guard.inner.as_mut().expect("invariant: it is held");
        Waited(self.inner.wait_until(inner, until).timed_out())
    }

    /// No point lies between the return of the lock and the sleep: who waits misses no wake-up.
    #[track_caller]
    fn block<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, until: Option<Duration>) -> bool {
        point(PointKind::Wait);
        guard.release();
        let is_late = block(key(self), until);
        guard.inner = Some(acquire_at_last(key(guard.lock), || guard.lock.try_take()));
        is_late
    }

    #[track_caller]
    pub fn notify_one(&self) -> bool {
        if is_task() {
            point(PointKind::Wake);
            return wake(key(self), 1) > 0;
        }
        self.inner.notify_one()
    }

    #[track_caller]
    pub fn notify_all(&self) -> usize {
        if is_task() {
            point(PointKind::Wake);
            return wake(key(self), usize::MAX);
        }
        self.inner.notify_all()
    }
}

/// A lock for one writer, or for many readers. As a [`Mutex`] it may be held by threads that are no
/// tasks of this run.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized> {
    /// The runs whose tasks hold it, as often as they do.
    runs: parking_lot::Mutex<Vec<usize>>,
    inner: parking_lot::RwLock<T>,
}

/// The lock while it is held.
pub struct RwGuard<'a, G, T: ?Sized> {
    lock: &'a RwLock<T>,
    inner: Option<G>,
}

pub type RwLockReadGuard<'a, T> = RwGuard<'a, parking_lot::RwLockReadGuard<'a, T>, T>;
pub type RwLockWriteGuard<'a, T> = RwGuard<'a, parking_lot::RwLockWriteGuard<'a, T>, T>;

#[allow(dead_code, reason = "the interface of parking_lot's")]
impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { runs: parking_lot::Mutex::new(Vec::new()), inner: parking_lot::RwLock::new(value) }
    }
}

#[allow(dead_code, reason = "the interface of parking_lot's")]
impl<T: ?Sized> RwLock<T> {
    #[track_caller]
    fn take<'a, G>(
        &'a self,
        take: impl Fn() -> G,
        try_take: impl Fn() -> Option<G>,
    ) -> RwGuard<'a, G, T> {
        if !is_task() {
            return RwGuard { lock: self, inner: Some(take()) };
        }
        point(PointKind::Lock);
        RwGuard { lock: self, inner: Some(acquire_at_last(key(self), || self.try_take(&try_take))) }
    }

    /// For a task: nothing if a task of its run has it.
    fn try_take<G>(&self, try_take: impl Fn() -> Option<G>) -> Option<G> {
        loop {
            if let Some(taken) = try_take() {
                self.runs.lock().push(run());
                return Some(taken);
            }
            if self.runs.lock().contains(&run()) {
                return None;
            }
            std::thread::yield_now();
        }
    }

    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.take(|| self.inner.read(), || self.inner.try_read())
    }

    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.take(|| self.inner.write(), || self.inner.try_write())
    }

    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        point(PointKind::Lock);
        let inner = match is_task() {
            true => self.try_take(|| self.inner.try_write()),
            false => self.inner.try_write(),
        };
        Some(RwGuard { lock: self, inner: Some(inner?) })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized, G: Deref<Target = T>> Deref for RwGuard<'_, G, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("invariant: it is held")
    }
}

impl<T: ?Sized, G: DerefMut<Target = T>> DerefMut for RwGuard<'_, G, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("invariant: it is held")
    }
}

impl<G, T: ?Sized> Drop for RwGuard<'_, G, T> {
    fn drop(&mut self) {
        if !is_task() {
            self.inner = None;
            return;
        }
        let mut runs = self.lock.runs.lock();
        let own = runs.iter().position(|of| *of == run());
        own.map(|own| runs.swap_remove(own));
        drop(runs);
        self.inner = None;
        wake(key(self.lock), usize::MAX);
    }
}
