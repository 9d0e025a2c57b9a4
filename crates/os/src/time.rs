//! The clock that deadlines and pauses are of. In a run of the scheduler it is the scheduler's.

use std::time::{Duration, Instant};

#[cfg(any(test, feature = "testing"))]
use super::schedule;
use crate::sync::locks::{Condvar, Mutex};

/// The moment it is.
#[inline]
pub fn now() -> Instant {
    #[cfg(any(test, feature = "testing"))]
    if schedule::is_task() {
        return start() + schedule::now();
    }
    Instant::now()
}

/// How long ago `moment` was.
pub fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// What the moments of runs count from: far enough from the beginning of all moments.
#[cfg(any(test, feature = "testing"))]
fn start() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// How long this run has lasted.
#[cfg(any(test, feature = "testing"))]
pub fn since_start() -> Duration {
    schedule::now()
}

/// The moment in a run.
#[cfg(any(test, feature = "testing"))]
pub fn moment_of(moment: Instant) -> Duration {
    moment.saturating_duration_since(start())
}

/// Waits for so long. No thread notifies: the wait is for the time alone.
pub fn wait_out(time: Duration) {
    Condvar::new().wait_for(&mut Mutex::new(()).lock(), time);
}

/// Pauses this task.
///
/// # Panics
///
/// On a thread that is no task.
#[cfg(any(test, feature = "testing"))]
#[track_caller]
pub fn pause(time: Duration) {
    assert!(schedule::is_task(), "a thread that is no task waits for an event");
    schedule::block(0, Some(schedule::now() + time));
}
