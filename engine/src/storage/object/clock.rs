//! Time for requests: how long they took, and pauses between two attempts.

use std::fmt;
use std::time::{Duration, Instant};

use crate::os::sync::locks::{Condvar, Mutex};
use crate::os::time;

/// Where a client has its time from.
pub(crate) trait Timer: fmt::Debug + Send + Sync {
    /// Since some moment; it never goes back.
    fn now(&self) -> Duration;

    /// Waits; `false` at once if the timer was stopped, which also ends a wait.
    fn pause(&self, time: Duration) -> bool;

    /// Has no one wait any more: the database is closing.
    fn stop(&self);

    /// Whether it was stopped.
    fn is_stopped(&self) -> bool;
}

/// The machine's time.
#[derive(Debug)]
pub(crate) struct MachineTimer {
    began: Instant,
    is_stopped: Mutex<bool>,
    stopped: Condvar,
}

impl Default for MachineTimer {
    fn default() -> MachineTimer {
        let (is_stopped, stopped) = (Mutex::new(false), Condvar::new());
        MachineTimer { began: time::now(), is_stopped, stopped }
    }
}

impl Timer for MachineTimer {
    fn now(&self) -> Duration {
        time::since(self.began)
    }

    fn pause(&self, time: Duration) -> bool {
        let until = time::now() + time;
        let mut is_stopped = self.is_stopped.lock();
        while !*is_stopped {
            if self.stopped.wait_until(&mut is_stopped, until).timed_out() {
                return !*is_stopped;
            }
        }
        false
    }

    fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.stopped.notify_all();
    }

    fn is_stopped(&self) -> bool {
        *self.is_stopped.lock()
    }
}

/// Time that passes only in pauses: for tests, which do not wait.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Default)]
pub(crate) struct StepTimer {
    now: Mutex<Duration>,
    is_stopped: Mutex<bool>,
}

#[cfg(any(test, feature = "testing"))]
impl Timer for StepTimer {
    fn now(&self) -> Duration {
        *self.now.lock()
    }

    fn pause(&self, time: Duration) -> bool {
        *self.now.lock() += time;
        !*self.is_stopped.lock()
    }

    fn stop(&self) {
        *self.is_stopped.lock() = true;
    }

    fn is_stopped(&self) -> bool {
        *self.is_stopped.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn a_stop_ends_a_pause_and_all_later_ones() {
        let timer = Arc::new(MachineTimer::default());
        assert!(timer.pause(Duration::ZERO));
        let waiting = Arc::clone(&timer);
        let waiter = thread::spawn(move || waiting.pause(Duration::from_secs(3600)));
        timer.stop();
        assert!(!waiter.join().unwrap());
        assert!(!timer.pause(Duration::from_secs(3600)));
    }
}
