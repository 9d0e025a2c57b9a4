//! Values that are made once, and pointers that are swapped.

use std::sync::{self, Arc};

use super::locks::{Mutex, MutexGuard};
use crate::schedule::{PointKind, is_task, point};

/// A value that is set once.
#[derive(Debug)]
pub struct OnceLock<T> {
    inner: sync::OnceLock<T>,
    /// Held by the task that makes the value, which may be of another run.
    making: Mutex<()>,
}

#[allow(dead_code, reason = "the interface of the standard library's")]
impl<T> OnceLock<T> {
    pub const fn new() -> OnceLock<T> {
        OnceLock { inner: sync::OnceLock::new(), making: Mutex::new(()) }
    }

    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        point(PointKind::Load);
        self.inner.get()
    }

    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        point(PointKind::Update);
        let _making = if is_task() { Some(self.making()) } else { None };
        self.inner.set(value)
    }

    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        point(PointKind::Update);
        if let Some(value) = self.inner.get() {
            return value;
        }
        let _making = if is_task() { Some(self.making()) } else { None };
        self.inner.get_or_init(make)
    }

    /// Waits for the task that makes the value. Without a point, so that a value that an earlier
    /// run has made changes no run.
    #[track_caller]
    fn making(&self) -> MutexGuard<'_, ()> {
        self.making.lock_without_point()
    }

    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.inner.get_mut()
    }

    pub fn take(&mut self) -> Option<T> {
        self.inner.take()
    }

    pub fn into_inner(self) -> Option<T> {
        self.inner.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        OnceLock { inner: value.into(), making: Mutex::new(()) }
    }
}

/// A pointer to what readers share, which a writer swaps.
#[derive(Debug, Default)]
pub struct ArcSwap<T>(arc_swap::ArcSwap<T>);

#[allow(dead_code, reason = "the interface of arc_swap's")]
impl<T> ArcSwap<T> {
    pub fn new(value: Arc<T>) -> ArcSwap<T> {
        ArcSwap(arc_swap::ArcSwap::new(value))
    }

    pub fn from_pointee(value: T) -> ArcSwap<T> {
        ArcSwap(arc_swap::ArcSwap::from_pointee(value))
    }

    #[track_caller]
    pub fn load(&self) -> arc_swap::Guard<Arc<T>> {
        point(PointKind::Load);
        self.0.load()
    }

    #[track_caller]
    pub fn load_full(&self) -> Arc<T> {
        point(PointKind::Load);
        self.0.load_full()
    }

    #[track_caller]
    pub fn store(&self, value: Arc<T>) {
        point(PointKind::Store);
        self.0.store(value);
    }

    #[track_caller]
    pub fn swap(&self, value: Arc<T>) -> Arc<T> {
        point(PointKind::Update);
        self.0.swap(value)
    }

    #[track_caller]
    pub fn rcu<R: Into<Arc<T>>>(&self, f: impl FnMut(&Arc<T>) -> R) -> Arc<T> {
        point(PointKind::Update);
        self.0.rcu(f)
    }
}
