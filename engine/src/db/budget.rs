//! What the background may use of the machine: threads, and bytes a second of compactions. May be
//! changed while they run.
//!
//! Thread safety: every method may be called from any thread; the mutexes are held for a few
//! instructions, or in a timed wait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::options::BackgroundTuning;

/// A job that has spent more than it may waits at most so long before it looks again whether the
/// budget was changed, or the database closed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The budget.
#[derive(Debug, Default)]
pub(super) struct Budget {
    threads: AtomicUsize,
    bytes_per_second: AtomicU64,
    /// When what was spent so far is paid for, at the rate.
    paid_at: Mutex<Option<Instant>>,
    /// Rises when there may be something to do.
    rings: Mutex<u64>,
    changed: Condvar,
}

impl Budget {
    /// Sets it.
    pub(super) fn set(&self, tuning: BackgroundTuning) {
        self.threads.store(tuning.threads.max(1), Ordering::Release);
        self.bytes_per_second.store(tuning.bytes_per_second, Ordering::Release);
        *self.paid_at.lock() = None;
        self.ring();
    }

    /// Threads, the background's own among them.
    pub(super) fn threads(&self) -> usize {
        self.threads.load(Ordering::Acquire)
    }

    /// Whether compactions have threads of their own.
    pub(super) fn has_workers(&self) -> bool {
        self.threads() > 1
    }

    /// Wakes the workers.
    pub(super) fn ring(&self) {
        *self.rings.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits for a ring, or for `timeout`.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut rings = self.rings.lock();
        let until = Instant::now() + timeout;
        let before = *rings;
        while *rings == before && !self.changed.wait_until(&mut rings, until).timed_out() {}
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
            drop(paid_at);
            self.wait((paid - now).min(LONGEST_WAIT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_has_to_be_paid_for() {
        let (budget, stop) = (Budget::default(), AtomicBool::new(false));
        budget.set(BackgroundTuning::new().threads(2).bytes_per_second(1 << 20));
        let from = Instant::now();
        for _ in 0..3 {
            budget.spend(32 << 10, &stop);
        }
        assert!(from.elapsed() >= Duration::from_millis(60), "two of three are paid for");
        assert!(budget.has_workers() && budget.threads() == 2);
    }

    #[test]
    fn more_to_spend_or_the_end_wakes_who_waits() {
        for close in [false, true] {
            let (budget, stop) = (Budget::default(), AtomicBool::new(false));
            budget.set(BackgroundTuning::new().bytes_per_second(1));
            budget.spend(1 << 40, &stop);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| budget.spend(1, &stop));
                if close {
                    stop.store(true, Ordering::Release);
                } else {
                    budget.set(BackgroundTuning::new());
                }
                waits.join().unwrap();
            });
        }
    }
}
