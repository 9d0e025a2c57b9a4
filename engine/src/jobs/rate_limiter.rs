//! How many bytes a second compactions may write. May be changed while they run. The rate gives way
//! where writers would wait for compactions: then these go as fast as they can.
//!
//! Source: RocksDB's rate limiter puts flushes before compactions; here drains pay nothing at all.
//!
//! Thread safety: every method may be called from any thread; the mutex is held for a few
//! instructions, or in a timed wait.

use std::time::{Duration, Instant};

use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::locks::{Condvar, Mutex};
use crate::os::time;

/// The longest that a job waits before it looks for something more urgent.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The limiter.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter {
    /// 0 for no limit.
    bytes_per_second: AtomicU64,
    /// Whether writers would wait for compactions.
    gives_way: AtomicBool,
    /// When what was spent so far is paid for, at the rate.
    paid_at: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl RateLimiter {
    /// Sets the rate; 0 for none. What was spent before counts no more.
    pub(crate) fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Release);
        *self.paid_at.lock() = None;
        self.wake();
    }

    /// Suspends the rate, or holds jobs to it again. Bytes are free meanwhile; those from before
    /// are still to be paid for, or a rate that is suspended often would be none.
    pub(crate) fn give_way(&self, gives_way: bool) {
        if self.gives_way.load(Ordering::Relaxed) == gives_way {
            return;
        }
        // Under the mutex, so that no job that is about to wait misses it.
        let paid_at = self.paid_at.lock();
        self.gives_way.store(gives_way, Ordering::Release);
        drop(paid_at);
        self.wake();
    }

    /// Has jobs that wait look again.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Counts bytes that a compaction writes, once those before are paid for; whether they are. A
    /// call waits for that a moment; the caller looks for more urgent work then, and calls again.
    pub(crate) fn spend(&self, bytes: u64, is_stopping: bool) -> bool {
        let mut paid_at = self.paid_at.lock();
        let rate = self.bytes_per_second.load(Ordering::Acquire);
        let is_free = self.gives_way.load(Ordering::Acquire) || is_stopping;
        if rate == 0 || is_free {
            return true;
        }
        let now = time::now();
        let paid = paid_at.unwrap_or(now);
        if paid <= now {
            // At a byte a second even a large extent is paid for in less than a century.
            *paid_at = Some(now + Duration::from_secs_f64(bytes as f64 / rate as f64));
            return true;
        }
        self.changed.wait_for(&mut paid_at, (paid - now).min(LONGEST_WAIT));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pay(limiter: &RateLimiter, bytes: u64, stop: &AtomicBool) {
        while !limiter.spend(bytes, stop.load(Ordering::Acquire)) {}
    }

    #[test]
    fn what_was_spent_has_to_be_paid_for() {
        let (limiter, stop) = (RateLimiter::default(), AtomicBool::new(false));
        limiter.set(1 << 20);
        let from = Instant::now();
        for _ in 0..3 {
            pay(&limiter, 32 << 10, &stop);
        }
        assert!(from.elapsed() >= Duration::from_millis(60), "two of three are paid for");
    }

    #[test]
    fn a_job_that_waits_goes_on_without_a_rate_at_the_end_and_where_writers_would_wait() {
        let ends: [fn(&RateLimiter, &AtomicBool); 3] = [
            |limiter, _| limiter.set(0),
            |_, stop| stop.store(true, Ordering::Release),
            |limiter, _| limiter.give_way(true),
        ];
        for end in ends {
            let (limiter, stop) = (RateLimiter::default(), AtomicBool::new(false));
            limiter.set(1);
            pay(&limiter, 1 << 30, &stop);
            assert!(!limiter.spend(1, false), "a call returns without having paid");
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| pay(&limiter, 1, &stop));
                end(&limiter, &stop);
                waits.join().unwrap();
            });
        }
    }

    #[test]
    fn a_rate_holds_again_once_writers_would_not_wait() {
        let limiter = RateLimiter::default();
        limiter.set(1);
        limiter.give_way(true);
        assert!((0..9).all(|_| limiter.spend(1 << 30, false)));
        limiter.give_way(false);
        assert!(limiter.spend(1 << 30, false), "nothing is owed of what was free");
        assert!(!limiter.spend(1, false));
    }

    /// Bug: compactions wrote much more than their rate. Cause: each suspension, which may come
    /// many times a second, forgave what was spent before it.
    #[test]
    fn a_suspension_forgives_nothing_from_before() {
        let limiter = RateLimiter::default();
        limiter.set(1);
        assert!(limiter.spend(1 << 30, false));
        for _ in 0..3 {
            limiter.give_way(true);
            assert!(limiter.spend(1 << 30, false), "it is free");
            limiter.give_way(false);
            assert!(!limiter.spend(1, false), "what was spent before is owed");
        }
    }
}
