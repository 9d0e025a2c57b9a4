//! The pacing rule: how far the round of drains has to have come, and what writers wait if it has
//! not.
//!
//! A round moves everything that is in level 0 when it begins, its **bytes due**, to level 1; after
//! it every zone from before is free, and perhaps hardly one sooner. Pages of row tables are free
//! as soon as what lies in them has moved. So what is free when a round begins, with those pages,
//! has to last for all of it: **per byte appended the round advances by at least 1/room of its
//! bytes due**. What it lags behind that is its **debt**. Where rounds follow each other zones
//! come free all the time, and writers go as fast as these do. Writers use up the room that is
//! left no faster than the rest of the round takes to drain, at the measured rate. The rest
//! counts as half a round at least. The next round begins with what room is left. What came
//! meanwhile and has moved with its columns brought the end of this one no nearer. So they slow
//! down where drains do, and need not stop.
//!
//! Drains fill level 1, which compactions empty, and wait for them where it has far more than it
//! shall have. Writers wait before that, in proportion to what compactions, at their rate,
//! need for what comes of the writers' bytes: so drains do not stop, and nor do writers.
//!
//! Values alone: the background says what it sees, and hands on what comes out.

use std::collections::VecDeque;
use std::time::Duration;

use super::state::{NANOS_KIB, RegionUsage};
use crate::base::record::Lsn;

/// The longest wait for a KiB that is ever asked for: a second.
pub(super) const LONGEST: u128 = 1_000_000_000;

/// Why writers wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reason {
    /// They do not.
    #[default]
    None,
    /// The round has to come to its end before the region is full.
    Round,
    /// The region is nearly full, and little of it comes free.
    Filling,
    /// Compactions lag behind drains.
    Crowding,
    /// The memory for indexes is.
    Indexes,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::None => "none",
            Reason::Round => "the region is filling, and drains go on",
            Reason::Filling => "the region is filling",
            Reason::Crowding => "compactions lag behind drains",
            Reason::Indexes => "the memory for indexes is filling",
        }
    }
}

/// What writers are asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pacing {
    pub(crate) reason: Reason,
    /// Bytes by which the round lags.
    pub(crate) debt: u64,
    /// Nanoseconds to wait a KiB.
    pub(crate) delay: u64,
}

/// The round that is under way, over all tables.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// It is over when everything up to here is drained.
    until: Lsn,
    /// Bytes appended when it began.
    appended: u64,
    /// Its bytes due.
    bytes_due: u64,
    /// Bytes that could be appended when its drains began, and those of pages that come free with
    /// what it moves.
    room: u64,
    /// How much has moved, or was superseded: of its bytes_due, and of what is newer.
    moved: u64,
    /// Whether a drain has run in it.
    begun: bool,
}

/// A rate with what it was measured as now; 0 is none yet.
fn smoothed(before: u64, now: u64) -> u64 {
    if before == 0 { now } else { before / 4 * 3 + now / 4 }
}

/// Bytes for some amount of something else, of late: what was counted before counts a little less
/// with each time. Jobs differ in what they do, and many of one kind may follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    bytes: u64,
    of: u64,
}

impl Share {
    fn count(&mut self, bytes: u64, of: u64) {
        self.bytes = self.bytes / 32 * 31 + bytes;
        self.of = self.of / 32 * 31 + of;
    }
}

/// Keeps the stats of rounds and of the drain's rate.
#[derive(Debug, Default)]
pub(crate) struct PacingStats {
    round: Round,
    /// Drains are for the log of a shared store alone: no writer waits for them.
    is_aside: bool,
    /// Bytes of bytes due that a drain moves a second, smoothed; 0 until one was measured.
    rate: u64,
    /// Bytes that drains added to level 1, for bytes of bytes due that they moved.
    risen: Share,
    /// Bytes that compactions took out of level 1, for nanoseconds in which some were at work.
    sunk: Share,
    /// When the last compaction ended.
    compacted_at: Duration,
    /// Bytes of zones that come free a second while a round goes on, smoothed; 0 until that was
    /// measured. Beside drains it has in it what merges prune and cleaning frees.
    freeing: u64,
    /// When the measurement of that began, and the units that had come free.
    window: Option<(Duration, u64)>,
    /// Bytes appended at some LSNs, ascending.
    marks: VecDeque<(Lsn, u64)>,
}

/// How long the rate at which zones come free is measured at a time, and at most if none does.
const WINDOW: Duration = Duration::from_millis(50);
const LONGEST_WINDOW: Duration = Duration::from_secs(2);

impl PacingStats {
    /// A drain has moved `bytes` of level 0, and `beside` them bytes of runs, which take no less
    /// time. Level 1 has `added` bytes more. The drain took `took` by the wall clock, with what the
    /// background had to do between it and the drain before.
    pub(crate) fn drained(&mut self, bytes: u64, beside: u64, added: u64, took: Duration) {
        self.round.moved += bytes;
        self.risen.count(added, bytes + beside);
        self.round.begun |= !self.is_aside;
        let rate = u128::from(bytes + beside) * 1_000_000_000 / took.as_nanos().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        self.rate = smoothed(self.rate, rate);
    }

    /// A compaction has taken `bytes` out of level 1, at work `from` a moment `to` another. Where
    /// several are at work at a time, each has the time since the one before it ended.
    pub(crate) fn compacted(&mut self, bytes: u64, (from, to): (Duration, Duration)) {
        debug_assert!(from <= to, "a compaction ends after it began");
        let took = to.saturating_sub(from.max(self.compacted_at));
        self.sunk.count(bytes, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / 2));
        self.compacted_at = to;
    }

    /// `bytes` of bytes due need not be moved any more.
    pub(crate) fn pruned(&mut self, bytes: u64) {
        self.round.moved += bytes;
    }

    /// Ends a round that stands half-way, so that it slows no writer. The caller found no writes
    /// and nothing left to do. Whether there was one.
    pub(crate) fn end_round(&mut self) -> bool {
        std::mem::take(&mut self.round.begun)
    }

    /// Bytes of bytes due that drains move a second.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Bytes that were appended before the oldest record that is not drained. What was appended
    /// since is what the region may hold, beside zones that are open or kept by readers.
    pub(crate) fn appended_before_round(&self, now: &RegionUsage) -> u64 {
        debug_assert!(self.marks.iter().is_sorted(), "marks ascend, in LSNs and in bytes");
        let before = self.marks.partition_point(|(lsn, _)| *lsn <= now.low);
        before.checked_sub(1).map_or(0, |i| self.marks[i].1)
    }

    /// Looks at the region; what writers are to do now.
    pub(crate) fn look(&mut self, now: &RegionUsage) -> Pacing {
        self.mark(now);
        self.measure_freeing(now);
        self.is_aside = now.is_log_long && !now.calls_for_drain();
        // A round ends when all of it is drained; as long as nothing calls for drains, none begins.
        if now.low >= self.round.until || (!now.calls_for_drain() && !self.round.begun) {
            let (until, appended, bytes_due) = (now.bound, now.appended, now.bytes_due);
            let room = now.room() + bytes_due.min(now.in_rows * now.unit);
            self.round = Round { until, appended, bytes_due, room, moved: 0, begun: false };
        }
        let delays = [
            (Reason::Round, self.draining(now)),
            (Reason::Filling, self.freeing(now)),
            (Reason::Crowding, self.sinking(now)),
            (Reason::Indexes, now.least_delay()),
        ];
        let none = (Reason::None, 0);
        let longest = delays.into_iter().fold(none, |a, b| if b.1 > a.1 { b } else { a });
        let (reason, delay) = (longest.0, longest.1.min(LONGEST) as u64);
        let pacing = Pacing { reason, debt: self.debt(now), delay };
        debug_assert!(pacing.debt <= self.round.bytes_due, "a round lags by itself at most");
        debug_assert_eq!(pacing.delay == 0, pacing.reason == Reason::None, "a wait has a reason");
        pacing
    }

    /// Bytes of bytes due by which the round lags behind the rule.
    fn debt(&self, now: &RegionUsage) -> u64 {
        let Round { appended, bytes_due, room, moved, .. } = self.round;
        let appended = now.appended.saturating_sub(appended);
        let due = u128::from(appended) * u128::from(bytes_due) / u128::from(room.max(1));
        u64::try_from(due).unwrap_or(u64::MAX).min(bytes_due).saturating_sub(moved)
    }

    /// Nanoseconds for each KiB after which the rest of the round will be drained when the room
    /// that is left, and what comes free meanwhile, is used up.
    fn draining(&self, now: &RegionUsage) -> u128 {
        if !self.round.begun && !now.calls_for_drain() {
            return 0;
        }
        let Round { bytes_due, moved, .. } = self.round;
        let left = bytes_due.saturating_sub(moved).max(bytes_due / 2);
        // What is newer lies among the rest as it does among what has moved.
        let newer = u128::from(now.undrained.saturating_sub(left)) * u128::from(left);
        let left = u128::from(left) + newer / u128::from(bytes_due.max(1));
        let over_rate = |n: u128| n.checked_div(u128::from(self.rate)).unwrap_or(0);
        // That is an estimate: it counts less where less than half of the room is left.
        let counted = (2000 - 2 * now.filling().min(1000)).min(1000);
        let freed = over_rate(left * u128::from(self.freeing)) * u128::from(counted) / 1000;
        over_rate(left * NANOS_KIB) / (u128::from(now.room()) + freed)
    }

    /// Nanoseconds that zones have needed of late to come free for a KiB. That nothing comes free
    /// for a while says little as long as there is room: it counts from where half of that is left,
    /// and twice at the end.
    fn freeing(&self, now: &RegionUsage) -> u128 {
        let nanos = NANOS_KIB.checked_div(u128::from(self.freeing)).unwrap_or(0);
        nanos * u128::from(now.filling().saturating_sub(500).min(500)) / 250
    }

    /// Nanoseconds that compactions need to take out of level 1 what drains add to it for a KiB: in
    /// full half-way to where drains stop, and twice there.
    fn sinking(&self, now: &RegionUsage) -> u128 {
        let Share { bytes: added, of: bytes_due } = self.risen;
        let Share { bytes: sunk, of: nanos } = self.sunk;
        let added = u128::from(added) * 1024 * u128::from(nanos);
        let nanos = added.checked_div(u128::from(bytes_due) * u128::from(sunk)).unwrap_or(0);
        nanos * u128::from(now.crowding().min(2000)) / 1000
    }

    /// Measures how fast zones come free, as long as a round goes on. They may all come free at its
    /// end, so it takes as long as it takes for some to.
    fn measure_freeing(&mut self, now: &RegionUsage) {
        let goes_on = self.round.begun || now.calls_for_drain();
        let Some((began, before)) = self.window else {
            self.window = goes_on.then_some((now.clock, now.released));
            return;
        };
        debug_assert!(before <= now.released, "what came free only grows");
        debug_assert!(began <= now.clock, "time goes on");
        let (took, units) = (now.clock.saturating_sub(began), now.released - before);
        if took >= WINDOW && units > 0 || took >= LONGEST_WINDOW {
            let bytes = u128::from(units * now.unit);
            let rate = u64::try_from(bytes * 1_000_000_000 / took.as_nanos()).unwrap_or(u64::MAX);
            // Never less than a zone a second: that nothing came free may be a matter of moments.
            let rate = rate.max(now.unit * now.usual);
            self.freeing = smoothed(self.freeing, rate);
            self.window = Some((now.clock, now.released));
        }
        if !goes_on {
            self.window = None;
        }
    }

    /// Remembers how much was appended up to now; a few marks a zone.
    fn mark(&mut self, now: &RegionUsage) {
        let last = self.marks.back().copied().unwrap_or_default();
        if now.visible > last.0 && now.appended >= last.1 + now.unit * now.usual / 8 {
            debug_assert!(last <= (now.visible, now.appended), "marks ascend");
            self.marks.push_back((now.visible, now.appended));
        }
        while self.marks.get(1).is_some_and(|(lsn, _)| *lsn <= now.low) {
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
