//! The bell that wakes the background: rung by writers now and then, and by whoever waits.
//!
//! Thread safety: any thread rings, one waits. A ring that nobody waits for is kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes the background.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
    written: AtomicU64,
}

/// Bytes written between two rings.
const RING_EVERY: u64 = 64 * 1024;

impl Bell {
    /// Wakes the background now.
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    /// Counts written bytes, and rings now and then.
    pub(super) fn count(&self, bytes: u64) {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        if before / RING_EVERY != (before + bytes) / RING_EVERY {
            self.ring();
        }
    }

    /// Waits for a ring, or for `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.changed.wait_for(&mut rung, timeout);
        }
        *rung = false;
    }
}
