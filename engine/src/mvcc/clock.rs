//! The clock that gives the age of records. It is the machine's clock, but it never goes back. If
//! the machine's clock is set back, this one goes on from where it was. The journal holds the last
//! time that was read. So it does not go back from one opening to the next either.
//!
//! Thread safety: any number of threads read it. A later read is not smaller, in whichever thread.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::time;

/// Microseconds since 1970.
pub(crate) type Time = u64;

/// Where a clock gets its time.
pub(crate) trait TimeSource: Send + Sync + fmt::Debug {
    /// Since 1970, as the machine is set.
    fn wall(&self) -> Duration;

    /// Since some moment; it never goes back.
    fn steady(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
struct Machine {
    began: Instant,
}

impl TimeSource for Machine {
    fn wall(&self) -> Duration {
        // The wall clock of a machine that is set to before 1970 does not count.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn steady(&self) -> Duration {
        time::since(self.began)
    }
}

/// A duration in the clock's unit. One that does not fit is the greatest there is.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A clock that never goes back.
#[derive(Debug)]
pub(crate) struct Clock {
    source: Arc<dyn TimeSource>,
    /// How far the time is ahead of the steady clock. It only rises, and so does the time.
    ahead: AtomicU64,
}

impl Clock {
    /// The machine's.
    pub(crate) fn of_machine() -> Arc<Clock> {
        Clock::new(Arc::new(Machine { began: time::now() }))
    }

    /// A clock over `source`.
    pub(crate) fn new(source: Arc<dyn TimeSource>) -> Arc<Clock> {
        Arc::new(Clock { source, ahead: AtomicU64::new(0) })
    }

    /// The time.
    pub(crate) fn now(&self) -> Time {
        // In this order, so that a pause between the two does not put the clock forward.
        let wall = micros(self.source.wall());
        let steady = micros(self.source.steady());
        steady.saturating_add(self.raise(wall.saturating_sub(steady)))
    }

    /// Puts it forward to `time` at least.
    pub(crate) fn forward_to(&self, time: Time) {
        self.raise(time.saturating_sub(micros(self.source.steady())));
    }

    fn raise(&self, ahead: u64) -> u64 {
        self.ahead.fetch_max(ahead, Ordering::AcqRel).max(ahead)
    }
}

#[cfg(any(test, feature = "testing"))]
pub(crate) mod by_hand {
    use super::{Arc, AtomicU64, Duration, Ordering, TimeSource};

    /// A clock that a test sets. Clones are the same clock.
    #[derive(Clone, Debug)]
    pub struct HandClock {
        wall: Arc<AtomicU64>,
        steady: Arc<AtomicU64>,
    }

    impl Default for HandClock {
        fn default() -> HandClock {
            const IN_2026: u64 = 1_770_000_000_000_000;
            HandClock { wall: Arc::new(AtomicU64::new(IN_2026)), steady: Arc::default() }
        }
    }

    impl HandClock {
        /// Lets time pass.
        pub fn pass(&self, time: Duration) {
            let micros = super::micros(time);
            self.steady.fetch_add(micros, Ordering::AcqRel);
            self.wall.fetch_add(micros, Ordering::AcqRel);
        }

        /// Sets the machine's clock back.
        pub fn set_back(&self, by: Duration) {
            self.wall.fetch_sub(super::micros(by), Ordering::AcqRel);
        }

        /// Sets it forward, though no time has passed.
        pub fn set_forward(&self, by: Duration) {
            self.wall.fetch_add(super::micros(by), Ordering::AcqRel);
        }
    }

    impl TimeSource for HandClock {
        fn wall(&self) -> Duration {
            Duration::from_micros(self.wall.load(Ordering::Acquire))
        }

        fn steady(&self) -> Duration {
            Duration::from_micros(self.steady.load(Ordering::Acquire))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::by_hand::HandClock;
    use super::*;

    #[test]
    fn it_goes_on_where_the_machines_goes_back() {
        let hand = HandClock::default();
        let clock = Clock::new(Arc::new(hand.clone()));
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let start = clock.now();
        hand.pass(second);
        assert_eq!(clock.now() - start, 1_000_000);
        hand.set_back(hour);
        assert_eq!(clock.now() - start, 1_000_000);
        hand.pass(second);
        assert_eq!(clock.now() - start, 2_000_000, "time passes all the same");
        hand.set_forward(2 * hour);
        assert_eq!(clock.now() - start, 3_602_000_000, "and it follows forward");
    }

    #[test]
    fn it_begins_no_earlier_than_it_was_read() {
        let hand = HandClock::default();
        let before = Clock::new(Arc::new(hand.clone()));
        hand.pass(Duration::from_secs(9));
        let last = before.now();
        hand.set_back(Duration::from_secs(100));
        let after = Clock::new(Arc::new(hand.clone()));
        assert!(after.now() < last);
        after.forward_to(last);
        assert_eq!(after.now(), last);
        hand.pass(Duration::from_secs(1));
        assert_eq!(after.now(), last + 1_000_000);
    }

    #[test]
    fn the_machines_clock_goes_forward() {
        let clock = Clock::of_machine();
        let first = clock.now();
        assert!(first > 1_700_000_000_000_000 && clock.now() >= first);
    }
}
