//! Wake-ups of the background and of what keeps zones ready. Writers wake them now and then, and
//! so does each thread that waits for them.
//!
//! Thread safety: any thread wakes, one waits. A wake-up without a waiter is kept.

use std::time::Duration;

use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::{Condvar, Mutex};

/// Wakes one thread.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    woken: Mutex<bool>,
    changed: Condvar,
    written: AtomicU64,
}

/// Bytes written between two wake-ups.
const WAKE_EVERY: u64 = 64 * 1024;

impl Wakeup {
    /// Wakes it now.
    pub(crate) fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }

    /// Counts written bytes; whether so many have come that it should be woken.
    pub(super) fn is_due(&self, bytes: u64) -> bool {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        before / WAKE_EVERY != (before + bytes) / WAKE_EVERY
    }

    /// Waits for a wake-up, or for `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut woken = self.woken.lock();
        if !*woken {
            self.changed.wait_for(&mut woken, timeout);
        }
        *woken = false;
    }
}
