//! When records were written, to about a second. No record holds its time. Marks do: a mark is an
//! LSN and the time at which commits had come that far.
//!
//! A mark says that everything at or below its LSN was written at its time or before. So a record
//! counts as written at the time of the first mark at or above it. That is never too early. A
//! record above all marks counts as written now. A mark is in the journal before it is used.
//!
//! Marks become fewer with age ([`Timeline::thin`]). A record between two marks that are kept
//! counts as written at the later one, at most a 64th of its age late. So a month of marks, one a
//! second, takes some kilobytes.
//!
//! Invariants:
//!
//! 1. LSNs ascend, and times do not fall.
//! 2. Thinning brings nothing back: what has expired stays expired, for every time to live in use
//!    and for every moment at which some reader reads.

use super::Time;
use crate::record::Lsn;

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
    use proptest::prelude::*;

    use super::*;

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
        assert_eq!([at(0), at(159), at(160), at(161), at(209), at(210)], [0, 0, 10, 20, 20, 30]);
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
                    moments().flat_map(|at| ttls.iter().map(move |l| t.expired(*l, at))).collect()
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
