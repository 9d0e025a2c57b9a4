//! Pacing: how fast writers may go, as a plain value that the background writes and commit reads.
//!
//! As the region fills beyond the drain's mark, every write waits a little, in proportion to its
//! bytes and to how full the region is, at the measured speed of the drain: writers slow down
//! smoothly instead of stopping. At the very end they wait for a zone.
//!
//! Thread safety: one background writes, any number of writers read and park.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, ErrorKind, Result};

/// Longest that one write is slowed down on purpose.
const LONGEST_DELAY: Duration = Duration::from_millis(100);

/// How long a writer waits for a zone before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pace of writers.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Nanoseconds that a writer waits for each KiB it writes.
    delay: AtomicU64,
    /// Nanoseconds waited by all writers.
    waited: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Rises whenever the background has made space, or has failed to.
    rounds: u64,
    /// Why no space can be made at present.
    stuck: Option<String>,
}

impl Pace {
    /// Sets the delay of writers in nanoseconds a KiB.
    pub(crate) fn set_delay(&self, nanos_per_kib: u64) {
        self.delay.store(nanos_per_kib, Ordering::Relaxed);
    }

    /// The delay of writers in nanoseconds a KiB.
    pub(crate) fn delay(&self) -> u64 {
        self.delay.load(Ordering::Relaxed)
    }

    /// Nanoseconds that writers have been slowed down since the database was opened.
    pub(crate) fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// Tells waiting writers that something changed: space was made, or cannot be.
    pub(crate) fn report(&self, stuck: Option<String>) {
        let mut state = self.state.lock();
        state.rounds += 1;
        state.stuck = stuck;
        self.changed.notify_all();
    }

    /// Slows a write of `bytes` down as far as is called for.
    pub(crate) fn slow_down(&self, bytes: u64) {
        let delay = self.delay();
        if delay == 0 {
            return;
        }
        let wait = Duration::from_nanos(delay.saturating_mul(bytes.div_ceil(1024)));
        let until = Instant::now() + wait.min(LONGEST_DELAY);
        let mut state = self.state.lock();
        // Relief ends the wait early.
        while self.delay() != 0 && !self.changed.wait_until(&mut state, until).timed_out() {}
        self.waited.fetch_add(wait.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Waits until the background has made space since `rounds`.
    ///
    /// # Errors
    ///
    /// `Full` when it cannot, with the reason, or did not for a long time.
    pub(crate) fn wait_for_space(&self, rounds: u64) -> Result<()> {
        let from = Instant::now();
        let mut state = self.state.lock();
        while state.rounds == rounds {
            if self.changed.wait_for(&mut state, PATIENCE).timed_out() {
                return Err(full("the drain has made no space for a minute"));
            }
        }
        self.waited.fetch_add(from.elapsed().as_nanos() as u64, Ordering::Relaxed);
        match &state.stuck {
            Some(reason) => Err(full(reason)),
            None => Ok(()),
        }
    }

    /// How many rounds the background has reported.
    pub(crate) fn rounds(&self) -> u64 {
        self.state.lock().rounds
    }
}

fn full(reason: &str) -> Error {
    let advice = "nothing was written; reads go on, and so do writes once there is space";
    Error::new(ErrorKind::Full, format!("the region is full and cannot be drained: {reason}; {advice}"))
}
