//! The primitives of production.

use std::time::Instant;

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::futex;

/// Waits for a few microseconds at most; whether it came true.
pub(crate) fn spin_until(mut is_true: impl FnMut() -> bool) -> bool {
    const SPINS: u32 = 64;
    for _ in 0..SPINS {
        if is_true() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// Waits to be notified, at most until `deadline`; whether that has passed.
pub(crate) fn wait<'a, T>(
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

/// A count to sleep at until it moves.
#[derive(Debug, Default)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    /// The count.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Moves it on; no sleeper wakes for that alone.
    pub(crate) fn move_on(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes so many sleepers; how many there were.
    pub(crate) fn wake(&self, most: u32) -> usize {
        // It fails only for a bad address, and this one is good.
        futex::wake(&self.0, futex::Flags::PRIVATE, most).unwrap_or(0)
    }

    /// Sleeps until it is woken; not at all if the count is not `seen` any more. May also end for
    /// no reason.
    pub(crate) fn sleep_at(&self, seen: u32) {
        let slept = futex::wait(&self.0, futex::Flags::PRIVATE, seen, None);
        debug_assert!(
            matches!(slept, Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)),
            "waiting at a good address fails only for a ring or a signal"
        );
    }
}
