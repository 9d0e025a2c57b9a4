//! The kernel's own.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

/// A count to sleep at until it moves.
#[derive(Debug, Default)]
pub struct Futex(AtomicU32);

impl Futex {
    /// The count.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Moves it on; no sleeper wakes for that alone.
    pub fn move_on(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes so many sleepers; how many there were.
    pub fn wake(&self, most: u32) -> usize {
        // It fails only for a bad address, and this one is good.
        futex::wake(&self.0, futex::Flags::PRIVATE, most).unwrap_or(0)
    }

    /// Sleeps until it is woken; not at all if the count is not `seen` any more. May also end for
    /// no reason.
    pub fn sleep_at(&self, seen: u32) {
        let slept = futex::wait(&self.0, futex::Flags::PRIVATE, seen, None);
        debug_assert!(
            matches!(slept, Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)),
            "waiting at a good address fails only for a ring or a signal"
        );
    }
}
