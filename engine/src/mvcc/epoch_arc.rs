//! A value that is replaced as a whole. Readers use it while their epoch is pinned: they load its
//! address, write nothing, and count no reference.
//!
//! Thread safety: any thread calls any method.
//!
//! Invariants:
//!
//! 1. The address is that of an `Arc`, of which it owns one reference.
//! 2. That reference is given up only after another address has taken its place, and after every
//!    epoch that was pinned then is gone.

use std::sync::Arc;

use super::{DeferQueue, EpochGuard};
use crate::os::sync::atomic::{AtomicPtr, Ordering};

/// A value that readers see while their epoch is pinned.
pub(crate) struct EpochArc<T: Send + Sync + 'static> {
    address: AtomicPtr<T>,
    queue: Arc<DeferQueue>,
}

/// What was replaced. Its reference is given up after this is dropped, when the epochs that readers
/// have pinned by then are gone: by the background of its database.
pub(crate) struct Replaced<T: Send + Sync + 'static> {
    value: Option<Arc<T>>,
    queue: Arc<DeferQueue>,
}

impl<T: Send + Sync + 'static> EpochArc<T> {
    /// Begins with a value of the database that `queue` is of.
    pub(crate) fn new(value: Arc<T>, queue: &Arc<DeferQueue>) -> EpochArc<T> {
        let address = AtomicPtr::new(Arc::into_raw(value).cast_mut());
        EpochArc { address, queue: Arc::clone(queue) }
    }

    /// The value of this moment, for as long as the epoch is pinned.
    #[inline]
    pub(crate) fn get<'g>(&self, _pinned: &'g EpochGuard) -> &'g T {
        // Pairs with the release in `replace`: what the value is made of is seen with its address.
        let address = self.address.load(Ordering::Acquire);
        // SAFETY: the address owns a reference of the value (invariant 1). The guard was pinned
        // before the load, so the reference outlives it (invariant 2). Values are only ever shared.
        unsafe { &*address }
    }

    /// Puts another value into its place. Allocates nothing before the old one is dropped.
    pub(crate) fn replace(&self, value: Arc<T>) -> Replaced<T> {
        let before = self.address.swap(Arc::into_raw(value).cast_mut(), Ordering::AcqRel);
        // SAFETY: the address owned a reference (invariant 1), and the exchange took it out. So
        // this is the only call that takes it. `Replaced` gives it up as invariant 2 asks.
        let value = Some(unsafe { Arc::from_raw(before) });
        Replaced { value, queue: Arc::clone(&self.queue) }
    }
}

impl<T: Send + Sync + 'static> Drop for EpochArc<T> {
    fn drop(&mut self) {
        // SAFETY: as in `replace`; this is the last call.
        let value = Some(unsafe { Arc::from_raw(*self.address.get_mut()) });
        drop(Replaced { value, queue: Arc::clone(&self.queue) });
    }
}

impl<T: Send + Sync + 'static> Drop for Replaced<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.queue.defer(move || drop(value));
        }
    }
}

impl<T: Send + Sync + std::fmt::Debug + 'static> std::fmt::Debug for EpochArc<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EpochArc({:?})", self.get(&super::pin()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{drive_until, pin};
    use super::*;

    #[test]
    fn a_reader_keeps_what_it_sees() {
        let values = [1u64, 2].map(Arc::new);
        let current = EpochArc::new(Arc::clone(&values[0]), &Arc::default());
        let guard = pin();
        let seen = current.get(&guard);
        drop(current.replace(Arc::clone(&values[1])));
        assert_eq!((*seen, *current.get(&guard)), (1, 2));
        assert_eq!(Arc::strong_count(&values[0]), 2, "the guard keeps it");
        drop((guard, current));
        assert!(drive_until(|| values.iter().all(|value| Arc::strong_count(value) == 1)));
    }

    /// Threads replace it while others look: each sees a whole value, and all are given up.
    #[test]
    fn readers_see_whole_values_while_others_replace_them() {
        let alive = Arc::new(());
        let value = |n: u64| Arc::new((n, n * 7, Arc::clone(&alive)));
        let current = EpochArc::new(value(0), &Arc::default());
        std::thread::scope(|scope| {
            scope.spawn(|| (1..5000).for_each(|n| drop(current.replace(value(n)))));
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 4999 {
                        let guard = pin();
                        let (n, seven, _) = current.get(&guard);
                        assert!(*n >= last && *seven == n * 7);
                        last = *n;
                    }
                });
            }
        });
        drop(current);
        assert!(drive_until(|| Arc::strong_count(&alive) == 1));
    }
}
