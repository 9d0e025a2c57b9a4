//! What the threads of the commit path share, in one place: atomics, locks, and lanes to wait in.
//!
//! With the feature `shuttle` or `loom`, unit tests run the very types of production under that
//! model checker (`tests/model.rs`, `tests/loom.rs`): all of these become the checker's, and
//! nothing else changes. Shuttle draws schedules of whole commits; loom tries every schedule, and
//! every value that an ordering of memory allows, of the smallest parts.

#[cfg(all(test, feature = "loom", not(feature = "shuttle")))]
use loom as checker;
#[cfg(all(test, feature = "shuttle"))]
use shuttle as checker;

#[cfg(not(all(test, any(feature = "loom", feature = "shuttle"))))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
pub(super) use checker::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(all(test, any(feature = "loom", feature = "shuttle"))))]
pub(super) use parking_lot::{Mutex, MutexGuard};

#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
pub(super) use modelled::{Mutex, MutexGuard};

/// Waits for a few microseconds at most; whether it came true.
#[cfg(not(all(test, any(feature = "loom", feature = "shuttle"))))]
pub(super) fn spin_until(mut is_true: impl FnMut() -> bool) -> bool {
    const SPINS: u32 = 64;
    for _ in 0..SPINS {
        if is_true() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
pub(super) fn spin_until(mut is_true: impl FnMut() -> bool) -> bool {
    is_true()
}

/// Where threads wait until it is rung.
///
/// Thread safety: any thread waits, any thread rings.
///
/// Invariants:
///
/// 1. A thread takes a seat, looks once more whether it has to wait, and then sleeps. Who rings
///    has changed what it looks at before, with a sequentially consistent fence in between on
///    both sides: either the sleeper sees the change, or the ringer sees the seat.
/// 2. Whoever sleeps saw `rings` before it looked: a ring after that does not let it sleep.
#[derive(Debug, Default)]
pub(super) struct Lane {
    rings: AtomicU32,
    seats: AtomicU32,
    /// Whoever wakes up next wakes all others (1), or does not (0).
    relay: AtomicU32,
    #[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
    queue: modelled::Queue,
}

/// A seat in a lane, given back by dropping it.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    lane: &'a Lane,
    seen: u32,
}

impl Lane {
    /// Takes a seat. Look once more before sleeping (invariant 1).
    pub(super) fn take_seat(&self) -> Seat<'_> {
        self.seats.fetch_add(1, Ordering::SeqCst);
        let seen = self.rings.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Seat { lane: self, seen }
    }

    /// Wakes everybody.
    pub(super) fn ring(&self) {
        if self.is_taken() {
            self.rings.fetch_add(1, Ordering::SeqCst);
            self.wake(u32::MAX >> 1);
        }
    }

    /// Wakes everybody through the first one who wakes up: that takes the ringer one wake-up,
    /// however many sleep.
    pub(super) fn ring_through_one(&self) {
        if self.is_taken() {
            self.relay.store(1, Ordering::SeqCst);
            self.rings.fetch_add(1, Ordering::SeqCst);
            self.wake(1);
        }
    }

    /// Wakes one sleeper; whether there was one. Who has a seat and does not sleep yet looks
    /// again instead.
    pub(super) fn ring_one(&self) -> bool {
        if !self.is_taken() {
            return false;
        }
        self.rings.fetch_add(1, Ordering::SeqCst);
        self.wake(1) > 0
    }

    fn is_taken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.seats.load(Ordering::SeqCst) > 0
    }

    #[cfg(not(all(test, any(feature = "loom", feature = "shuttle"))))]
    fn wake(&self, most: u32) -> usize {
        use rustix::thread::futex;
        // It fails only for a bad address, and this one is good.
        futex::wake(&self.rings, futex::Flags::PRIVATE, most).unwrap_or(0)
    }

    #[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
    fn wake(&self, most: u32) -> usize {
        self.queue.wake(most)
    }
}

impl Seat<'_> {
    /// Sleeps until the lane is rung; not at all if it was since the seat was taken. May also end
    /// for no reason.
    pub(super) fn sleep(self) {
        self.wait();
        let relay = &self.lane.relay;
        if relay.load(Ordering::SeqCst) == 1 && relay.swap(0, Ordering::SeqCst) == 1 {
            self.lane.ring();
        }
    }

    #[cfg(not(all(test, any(feature = "loom", feature = "shuttle"))))]
    fn wait(&self) {
        use rustix::thread::futex;
        let slept = futex::wait(&self.lane.rings, futex::Flags::PRIVATE, self.seen, None);
        debug_assert!(
            matches!(slept, Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)),
            "waiting at a good address fails only for a ring or a signal"
        );
    }

    #[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
    fn wait(&self) {
        self.lane.queue.sleep_while(|| self.lane.rings.load(Ordering::SeqCst) == self.seen);
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.lane.seats.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The same interfaces over a checker's primitives.
#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
mod modelled {
    use super::checker::sync::atomic::{AtomicUsize, Ordering};
    use super::checker::sync::{Condvar, Mutex as Inner, MutexGuard as InnerGuard};

    /// `parking_lot`'s interface.
    #[derive(Debug, Default)]
    pub(in crate::commit) struct Mutex<T> {
        inner: Inner<T>,
        holders: AtomicUsize,
    }

    pub(in crate::commit) struct MutexGuard<'a, T> {
        inner: Option<InnerGuard<'a, T>>,
        holders: &'a AtomicUsize,
    }

    impl<T> Mutex<T> {
        pub(in crate::commit) fn new(value: T) -> Mutex<T> {
            Mutex { inner: Inner::new(value), holders: AtomicUsize::new(0) }
        }

        pub(in crate::commit) fn lock(&self) -> MutexGuard<'_, T> {
            // It looks taken before it is: else somebody could try, fail and try again for ever.
            self.holders.fetch_add(1, Ordering::SeqCst);
            let inner = self.inner.lock().unwrap();
            MutexGuard { inner: Some(inner), holders: &self.holders }
        }

        pub(in crate::commit) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.holders.fetch_add(1, Ordering::SeqCst);
            let Ok(inner) = self.inner.try_lock() else {
                self.holders.fetch_sub(1, Ordering::SeqCst);
                return None;
            };
            Some(MutexGuard { inner: Some(inner), holders: &self.holders })
        }

        pub(in crate::commit) fn is_locked(&self) -> bool {
            self.holders.load(Ordering::SeqCst) > 0
        }
    }

    impl<T> std::ops::Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.inner.as_ref().unwrap()
        }
    }

    impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.inner.as_mut().unwrap()
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            // It may look taken for a moment longer than it is: whoever goes to sleep for that is
            // woken by this thread, which looks for work after it gave the lock back.
            self.inner = None;
            self.holders.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The kernel's queue of sleepers.
    #[derive(Debug, Default)]
    pub(super) struct Queue {
        sleeping: Inner<usize>,
        woken: Condvar,
    }

    impl Queue {
        pub(super) fn wake(&self, most: u32) -> usize {
            let sleeping = self.sleeping.lock().unwrap();
            let n = (*sleeping).min(most as usize);
            if most == 1 {
                self.woken.notify_one()
            } else {
                self.woken.notify_all()
            }
            n
        }

        pub(super) fn sleep_while(&self, unrung: impl Fn() -> bool) {
            let mut sleeping = self.sleeping.lock().unwrap();
            *sleeping += 1;
            if unrung() {
                sleeping = self.woken.wait(sleeping).unwrap();
            }
            *sleeping -= 1;
        }
    }
}
