//! Wait queues: threads sleep in one until another thread wakes them.

use crate::os::sync::{AtomicU32, Futex, Ordering, fence};

/// A queue of waiting threads.
///
/// Thread safety: any thread waits, any thread wakes.
///
/// Invariants:
///
/// 1. A thread enters, looks once more whether it has to wait, and then sleeps. A waking thread
///    has changed what the waiter looks at before. Both put a sequentially consistent fence in
///    between: either the waiter sees the change, or the waking thread sees the waiter.
/// 2. A sleeper read `wakes` before it looked: a wake-up after that does not let it sleep.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    wakes: Futex,
    waiters: AtomicU32,
    /// Whether the thread that wakes up next wakes all others (1) or not (0).
    relay: AtomicU32,
}

/// A thread that has entered a queue. It leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    queue: &'a WaitQueue,
    seen: u32,
}

impl WaitQueue {
    /// Enters. The caller looks once more before it sleeps (invariant 1).
    pub(super) fn enter(&self) -> Waiter<'_> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let seen = self.wakes.count();
        fence(Ordering::SeqCst);
        Waiter { queue: self, seen }
    }

    /// Wakes all.
    pub(super) fn wake_all(&self) {
        if self.has_waiters() {
            self.wakes.move_on();
            self.wakes.wake(u32::MAX >> 1);
        }
    }

    /// Wakes one, which wakes all others: it costs this thread one wake-up, however many sleep.
    pub(super) fn wake_through_one(&self) {
        if self.has_waiters() {
            self.relay.store(1, Ordering::SeqCst);
            self.wakes.move_on();
            self.wakes.wake(1);
        }
    }

    /// Wakes one; whether one slept. A waiter that does not sleep yet looks again instead.
    pub(super) fn wake_one(&self) -> bool {
        if !self.has_waiters() {
            return false;
        }
        self.wakes.move_on();
        self.wakes.wake(1) > 0
    }

    /// How many threads have entered.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn waiters(&self) -> u32 {
        self.waiters.load(Ordering::SeqCst)
    }

    fn has_waiters(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waiters.load(Ordering::SeqCst) > 0
    }
}

impl Waiter<'_> {
    /// Sleeps until it is woken; not at all if that happened since it entered. May also end for no
    /// reason.
    pub(super) fn sleep(self) {
        self.queue.wakes.sleep_at(self.seen);
        let relay = &self.queue.relay;
        if relay.load(Ordering::SeqCst) == 1 && relay.swap(0, Ordering::SeqCst) == 1 {
            self.queue.wake_all();
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let before = self.queue.waiters.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a waiter that leaves has entered");
    }
}
