//! The bells that wake the background, and who keeps zones ready: rung by writers now and then, and
//! by whoever waits.
//!
//! Thread safety: any thread rings, one waits. A ring that nobody waits for is kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes one thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
    written: AtomicU64,
}

/// Bytes written between two rings.
const RING_EVERY: u64 = 64 * 1024;

impl Bell {
    /// Wakes it now.
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    /// Counts written bytes; whether so many have come that it should be rung.
    pub(super) fn is_due(&self, bytes: u64) -> bool {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        before / RING_EVERY != (before + bytes) / RING_EVERY
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
