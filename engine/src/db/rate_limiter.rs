//! How many bytes a second compactions may write. May be changed while they run.
//!
//! Thread safety: every method may be called from any thread; the mutex is held for a few
//! instructions, or in a timed wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A job that has spent more than it may waits at most so long before it looks again whether the
/// rate was changed, or the database closed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The limiter.
#[derive(Debug, Default)]
pub(super) struct RateLimiter {
    /// 0 for no limit.
    bytes_per_second: AtomicU64,
    /// When what was spent so far is paid for, at the rate.
    paid_at: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl RateLimiter {
    /// Sets the rate; 0 for none. What was spent before counts no more.
    pub(super) fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Release);
        *self.paid_at.lock() = None;
        self.wake();
    }

    /// Has jobs that wait look again.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Counts bytes that a compaction writes, and waits until those before are paid for.
    pub(super) fn spend(&self, bytes: u64, stop: &AtomicBool) {
        loop {
            let rate = self.bytes_per_second.load(Ordering::Acquire);
            if rate == 0 || stop.load(Ordering::Acquire) {
                return;
            }
            let mut paid_at = self.paid_at.lock();
            let now = Instant::now();
            let paid = paid_at.unwrap_or(now);
            if paid <= now {
                *paid_at = Some(now + Duration::from_secs_f64(bytes as f64 / rate as f64));
                return;
            }
            self.changed.wait_for(&mut paid_at, (paid - now).min(LONGEST_WAIT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_has_to_be_paid_for() {
        let (limiter, stop) = (RateLimiter::default(), AtomicBool::new(false));
        limiter.set(1 << 20);
        let from = Instant::now();
        for _ in 0..3 {
            limiter.spend(32 << 10, &stop);
        }
        assert!(from.elapsed() >= Duration::from_millis(60), "two of three are paid for");
    }

    #[test]
    fn more_to_spend_or_the_end_wakes_a_job_that_waits() {
        for close in [false, true] {
            let (limiter, stop) = (RateLimiter::default(), AtomicBool::new(false));
            limiter.set(1);
            limiter.spend(1 << 40, &stop);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| limiter.spend(1, &stop));
                if close {
                    stop.store(true, Ordering::Release);
                } else {
                    limiter.set(0);
                }
                waits.join().unwrap();
            });
        }
    }
}
