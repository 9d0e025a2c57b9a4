//! The clock that gives the age of records. It is the machine's clock, but it never goes back. If
//! the machine's clock is set back, this one goes on from where it was. The journal holds the last
//! time that was read. So it does not go back from one opening to the next either.
//!
//! Thread safety: any number of threads read it. A later read is not smaller, in whichever thread.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::base::record::Lsn;
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

// When records were written, to about a second. No record holds its time. Marks do: a mark is an
// LSN and the time at which commits had come that far.
//
// A mark says that everything at or below its LSN was written at its time or before. So a record
// counts as written at the time of the first mark at or above it. That is never too early. A
// record above all marks counts as written now. A mark is in the journal before it is used.
//
// Marks become fewer with age ([`Timeline::thin`]). A record between two marks that are kept
// counts as written at the later one, at most a 64th of its age late. So a month of marks, one a
// second, takes some kilobytes.
//
// Invariants:
//
// 1. LSNs ascend, and times do not fall.
// 2. Thinning brings nothing back: what has expired stays expired, for every time to live in use
//    and for every moment at which some reader reads.

/// A record between two marks is dated too late by at most one part in `PRECISION` of its age.
const PRECISION: u64 = 64;

/// Marks by which something expires within this time stay: a read may use them before it sees the
/// thinned marks. In microseconds.
const SOON: u64 = 60_000_000;

/// Everything at or below `lsn` was written at `time` or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeMark {
    pub(crate) lsn: Lsn,
    pub(crate) time: Time,
}

/// The marks of a database, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeline {
    marks: Vec<TimeMark>,
}

impl Timeline {
    /// The marks.
    pub(crate) fn marks(&self) -> &[TimeMark] {
        &self.marks
    }

    /// The marks up to `lsn`.
    pub(crate) fn up_to(&self, lsn: Lsn) -> Timeline {
        let marks = self.marks.iter().copied().take_while(|mark| mark.lsn <= lsn);
        Timeline { marks: marks.collect() }
    }

    /// The newest one.
    pub(crate) fn last(&self) -> Option<TimeMark> {
        self.marks.last().copied()
    }

    /// Whether `mark` may come next (invariant 1).
    pub(crate) fn is_followed_by(&self, mark: TimeMark) -> bool {
        self.last().is_none_or(|last| last.lsn < mark.lsn && last.time <= mark.time)
    }

    /// Adds a mark, which comes after all others.
    pub(crate) fn add(&mut self, mark: TimeMark) {
        debug_assert!(self.is_followed_by(mark), "invariant 1");
        self.marks.push(mark);
    }

    /// The LSN up to which everything has lived for `ttl` at the moment `now`; 0 if nothing has.
    pub(crate) fn expired(&self, ttl: u64, now: Time) -> Lsn {
        let has = self.marks.partition_point(|mark| mark.time.saturating_add(ttl) <= now);
        has.checked_sub(1).map_or(0, |newest| self.marks[newest].lsn)
    }

    /// Drops marks that are closer to each other than their age needs. `ttls` are all times to live
    /// in use. No reader reads as of a moment before `oldest`. The time is `now`, and not much
    /// later when the result replaces the marks in use.
    pub(crate) fn thin(&mut self, ttls: &[u64], oldest: Time, now: Time) {
        let soon = now.saturating_add(SOON);
        let mut kept: Vec<TimeMark> = Vec::with_capacity(self.marks.len());
        for pair in self.marks.windows(2) {
            let (mark, next) = (pair[0], pair[1]);
            let has = |mark: TimeMark, ttl: u64, at: Time| mark.time.saturating_add(ttl) <= at;
            // Something has outlived one mark only, at a moment at which some reader reads
            // (invariant 2).
            let tells = ttls.iter().any(|ttl| has(mark, *ttl, soon) && !has(next, *ttl, oldest));
            let is_close = match kept.last() {
                Some(before) => {
                    next.time - before.time <= now.saturating_sub(next.time) / PRECISION
                }
                // Everything before the first mark is older than it. So the next one must have
                // expired for all.
                None => ttls.iter().all(|ttl| has(next, *ttl, oldest)),
            };
            if tells || !is_close {
                kept.push(mark);
            }
        }
        kept.extend(self.last());
        self.marks = kept;
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

    mod timeline {
        use proptest::prelude::*;

        use super::super::*;

        const SECOND: u64 = 1_000_000;

        fn timeline(marks: &[(Lsn, u64)]) -> Timeline {
            let mut timeline = Timeline::default();
            for (lsn, seconds) in marks {
                timeline.add(TimeMark { lsn: *lsn, time: seconds * SECOND });
            }
            timeline
        }

        #[test]
        fn what_is_old_enough_has_expired_and_no_more() {
            let timeline = timeline(&[(10, 100), (20, 101), (30, 150)]);
            let at = |seconds: u64| timeline.expired(60 * SECOND, seconds * SECOND);
            assert_eq!(
                [at(0), at(159), at(160), at(161), at(209), at(210)],
                [0, 0, 10, 20, 20, 30]
            );
            assert_eq!(timeline.expired(60 * SECOND, 160 * SECOND - 1), 0, "to the microsecond");
            assert_eq!(timeline.expired(u64::MAX, 160 * SECOND), 0, "what lives for ever");
            assert_eq!(Timeline::default().expired(0, 160 * SECOND), 0);
        }

        #[test]
        fn marks_ascend() {
            let timeline = timeline(&[(10, 100)]);
            for (lsn, time, follows) in [(11, 100, true), (10, 101, false), (11, 99, false)] {
                let mark = TimeMark { lsn, time: time * SECOND };
                assert_eq!(timeline.is_followed_by(mark), follows, "{mark:?}");
            }
        }

        #[test]
        fn a_month_of_marks_is_a_few_hundred() {
            let (mut timeline, ttls) = (Timeline::default(), [60 * SECOND, 30 * 86_400 * SECOND]);
            // One each 26 seconds.
            for n in 1..100_000 {
                let time = n * 26 * SECOND;
                timeline.add(TimeMark { lsn: n, time });
                if n % 50 == 0 {
                    timeline.thin(&ttls, time, time);
                }
            }
            assert!((100..1200).contains(&timeline.marks().len()), "{}", timeline.marks().len());
        }

        proptest! {
            #[test]
            fn thinning_brings_nothing_back_and_dates_little_too_late(
                steps in prop::collection::vec((1u64..4, 0u64..3000), 1..200),
                ttls in prop::collection::vec(1u64..5000, 1..4),
                held in 0u64..4000,
            ) {
                let ttls: Vec<u64> = ttls.iter().map(|ttl| ttl * SECOND).collect();
                let (mut whole, mut thinned) = (Timeline::default(), Timeline::default());
                let (mut lsn, mut now) = (0, 1_000_000 * SECOND);
                // A reader reads as of the moment at which the LSN was `held`.
                let mut oldest = None;
                for (lsns, seconds) in steps {
                    lsn += lsns;
                    now += seconds * SECOND;
                    whole.add(TimeMark { lsn, time: now });
                    thinned.add(TimeMark { lsn, time: now });
                    let read_at = *oldest.get_or_insert(now);
                    let moments = || [read_at, read_at.midpoint(now), now].into_iter();
                    let expired = |t: &Timeline| -> Vec<Lsn> {
                        let at_one = |at| ttls.iter().map(move |l| t.expired(*l, at));
                        moments().flat_map(at_one).collect()
                    };
                    let before = expired(&thinned);
                    thinned.thin(&ttls, read_at, now);
                    prop_assert_eq!(before, expired(&thinned));
                    if lsn > held {
                        oldest = Some(now);
                    }
                }
                // Everything is dated, and by how much too late.
                for mark in whole.marks() {
                    let found = thinned.marks().iter().find(|m| m.lsn >= mark.lsn).unwrap();
                    let late = found.time - mark.time;
                    let longest = ttls.iter().max().unwrap();
                    let counts = mark.time + longest > now;
                    prop_assert!(!counts || late <= (now - mark.time) / PRECISION, "{late} late");
                }
            }
        }
    }
}
