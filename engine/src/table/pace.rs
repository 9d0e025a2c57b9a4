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
    /// Why writers are slowed down.
    reason: &'static str,
}

impl Pace {
    /// Sets the delay of writers in nanoseconds a KiB, and says why.
    pub(crate) fn set_delay(&self, nanos_per_kib: u64, reason: &'static str) {
        if self.delay.swap(nanos_per_kib, Ordering::Relaxed) != nanos_per_kib {
            self.state.lock().reason = reason;
        }
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
    ///
    /// # Errors
    ///
    /// `Timeout`, at once and with the reason, when it would take longer than to the deadline.
    pub(crate) fn slow_down(&self, bytes: u64, deadline: Option<Instant>) -> Result<()> {
        let delay = self.delay();
        if delay == 0 {
            return Ok(());
        }
        let wait = Duration::from_nanos(delay.saturating_mul(bytes.div_ceil(1024)));
        let until = Instant::now() + wait.min(LONGEST_DELAY);
        let mut state = self.state.lock();
        if deadline.is_some_and(|deadline| deadline < until) {
            let wait = wait.min(LONGEST_DELAY).as_secs_f64() * 1e3;
            let why =
                format!("writers wait {wait:.1} ms for {bytes} bytes, since {}", state.reason);
            return Err(late(&why));
        }
        // Relief ends the wait early.
        while self.delay() != 0 && !self.changed.wait_until(&mut state, until).timed_out() {}
        self.waited.fetch_add(wait.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the background has made space since `rounds`.
    ///
    /// # Errors
    ///
    /// `Full` when it cannot, with the reason, or did not for a long time; `Timeout` when it did
    /// not by the deadline.
    pub(crate) fn wait_for_space(&self, rounds: u64, deadline: Option<Instant>) -> Result<()> {
        let from = Instant::now();
        let patience = from + PATIENCE;
        let until = deadline.map_or(patience, |deadline| deadline.min(patience));
        let mut state = self.state.lock();
        while state.rounds == rounds {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return Err(match until < patience {
                    true => late("the region is full, and drains have made no space yet"),
                    false => full("the drain has made no space for a minute"),
                });
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
    Error::new(
        ErrorKind::Full,
        format!("the region is full and cannot be drained: {reason}; {advice}"),
    )
}

fn late(reason: &str) -> Error {
    let message = format!("{reason}: the deadline comes first; nothing was written, try again");
    Error::new(ErrorKind::Timeout, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_would_wait_too_long_is_told_why_and_at_once() {
        let pace = Pace::default();
        let soon = Instant::now() + Duration::from_millis(1);
        pace.slow_down(1 << 20, Some(soon)).unwrap();
        pace.set_delay(1_000_000, "the region is filling");
        let error = pace.slow_down(1 << 20, Some(soon)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("the region is filling"), "{error}");
        assert_eq!(pace.waited(), 0, "it did not wait");
        let later = Instant::now() + Duration::from_secs(60);
        pace.slow_down(1024, Some(later)).unwrap();
        assert_eq!(pace.waited(), 1_000_000);
        pace.set_delay(0, "none");
        pace.slow_down(1 << 30, Some(soon)).unwrap();
    }

    #[test]
    fn space_that_does_not_come_by_the_deadline_is_a_timeout() {
        let pace = Pace::default();
        let soon = Some(Instant::now() + Duration::from_millis(1));
        let error = pace.wait_for_space(pace.rounds(), soon).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let before = pace.rounds();
        pace.report(None);
        pace.wait_for_space(before, soon).unwrap();
        pace.report(Some("the disk is full".into()));
        let error = pace.wait_for_space(before, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full);
        assert!(error.to_string().contains("the disk is full"), "{error}");
    }
}
