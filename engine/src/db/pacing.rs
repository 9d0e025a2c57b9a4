//! The pacing rule: how far the turn of drains has to have come, and what writers wait if it has
//! not.
//!
//! A turn moves everything that is in level 0 when it begins, its **key mass**, to level 1; after
//! it every zone from before is free, and perhaps hardly one sooner. So what is free when a turn
//! begins has to last for all of it: **per byte appended the turn advances by at least 1/room of
//! its key mass**. What it lags behind that is its **debt**. Where turns follow each other zones
//! come free all the time, and writers go as fast as these do; beside it they use up the room that
//! is left no faster than what is left to drain, at the measured rate, and half a turn at least:
//! the next one begins with what room is left, and what came meanwhile and has moved with its
//! columns brought its end no nearer. So they slow down where drains do, and need not stop.
//!
//! Drains fill level 1, which compactions empty, and wait for them where it has far more than it
//! shall have. Writers wait before that, in proportion to what compactions, at their rate,
//! need for what comes of the writers' bytes: so drains do not stop, and nor do writers.
//!
//! Values alone: the background says what it sees, and hands on what comes out.

use std::collections::VecDeque;
use std::time::Duration;

use crate::record::Lsn;

/// Nanoseconds in a second, times the bytes of a KiB.
const NANOS_KIB: u128 = 1024 * 1_000_000_000;

/// The longest wait for a KiB that is ever asked for: a second.
const LONGEST: u128 = 1_000_000_000;

/// Writers are to write half of what compactions bring down where level 1 has so many thousandths
/// of its target: drains are about to wait for compactions.
const CROWDED: u64 = 2000;

/// And writers wait a little from here on.
const CROWDING: u64 = 1100;

/// What the background sees of the region at some moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    /// Units taken, and units that there are.
    pub(super) used: u64,
    pub(super) total: u64,
    /// As many of these as the indexes take of their share of the memory limit.
    pub(super) indexed: u64,
    /// Bytes in a unit.
    pub(super) unit: u64,
    /// Units that came free since the database was opened.
    pub(super) released: u64,
    /// Units in the zones of busy streams.
    pub(super) usual: u64,
    /// Whether a writer waits for a zone that is larger than any piece that is free.
    pub(super) is_asked_for: bool,
    /// Bytes of zones that were ever appended to.
    pub(super) appended: u64,
    /// Bytes of records that are not drained.
    pub(super) undrained: u64,
    /// As many of these as a turn that begins now is to move: those in level 0.
    pub(super) mass: u64,
    /// Of no table with a level 0 is a record at or below it in a memtable: where `low` is when
    /// such a turn is over.
    pub(super) bound: Lsn,
    /// Every record of any table at or below it is drained.
    pub(super) low: Lsn,
    /// The last commit that readers see.
    pub(super) visible: Lsn,
    /// How full the fullest level 1 is, in thousandths of its target.
    pub(super) level1: u64,
    /// Time since the database was opened.
    pub(super) clock: Duration,
}

impl Sight {
    /// Whether drains should run: enough of the region is taken, or not enough of it in one piece
    /// is free. A turn frees zones in the order of their age, and so makes whole pieces.
    pub(super) fn calls_for_drain(&self) -> bool {
        self.taken() >= self.enough() || self.is_asked_for
    }

    /// Units that are taken, in the region or, if that is more, of the memory for indexes: where
    /// records are small it is the latter that runs out.
    fn taken(&self) -> u64 {
        self.used.max(self.indexed)
    }

    /// Units from which on drains run: three quarters, or as much as leaves sixteen zones of busy
    /// streams, and half at least. The more a turn moves, the less often what lies below is written
    /// again, and the more is superseded before it is moved at all.
    fn enough(&self) -> u64 {
        let most = (self.total * 3 / 4).min(self.total.saturating_sub(16 * self.usual));
        most.max(self.total.div_ceil(2))
    }

    /// How full it is, the region or the memory for indexes, on the way from where drains begin,
    /// in thousandths; more than a thousand beyond.
    fn filling(&self) -> u64 {
        let (from, room) = (self.enough(), self.total - self.enough());
        self.taken().saturating_sub(from) * 1000 / room.max(1)
    }

    /// Bytes that may be appended before it is full, but for spare zones.
    fn room(&self) -> u64 {
        let free = self.total.saturating_sub(self.taken() + 2 * self.usual);
        // Never nothing: who has an open zone goes on in it.
        self.bytes(free).max(self.unit / 4).max(1)
    }

    /// Bytes that units are worth: where it is the memory for indexes that runs out, less.
    fn bytes(&self, units: u64) -> u64 {
        let bytes = units * self.unit;
        if self.indexed > self.used { bytes / self.indexed * self.used } else { bytes }
    }

    /// Nanoseconds that writers wait for a KiB at least as the memory for indexes runs out, however
    /// fast drains seem to go, or before one was measured: there is no end of it that would stop
    /// them. Where all of it is taken, as much again would take two seconds, and from there on ever
    /// longer.
    fn least_delay(&self) -> u128 {
        let eighths = (8000 * self.indexed / self.total.max(1)).saturating_sub(6000);
        let all = self.bytes(self.total).max(self.unit).max(1);
        let delay = NANOS_KIB / u128::from(all) * u128::from(eighths) / 1000;
        if self.indexed > self.used { delay } else { 0 }
    }

    /// How far level 1 is on the way to where drains stop, in thousandths of half of it.
    fn crowding(&self) -> u64 {
        self.level1.saturating_sub(CROWDING) * 2000 / (CROWDED - CROWDING)
    }
}

/// Why writers wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reason {
    /// They do not.
    #[default]
    None,
    /// The turn has to come to its end before the region is full.
    Turn,
    /// The region is nearly full, and little of it comes free.
    Filling,
    /// Compactions lag behind drains.
    Crowding,
    /// The memory for indexes is.
    Indexes,
}

impl Reason {
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::None => "none",
            Reason::Turn => "the region is filling, and drains go on",
            Reason::Filling => "the region is filling",
            Reason::Crowding => "compactions lag behind drains",
            Reason::Indexes => "the memory for indexes is filling",
        }
    }
}

/// What writers are asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pacing {
    pub(super) reason: Reason,
    /// Bytes by which the turn lags.
    pub(super) debt: u64,
    /// Nanoseconds to wait a KiB.
    pub(super) delay: u64,
}

/// The turn that is under way, over all tables.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// It is over when everything up to here is drained.
    until: Lsn,
    /// Bytes appended when it began.
    appended: u64,
    /// Its key mass.
    mass: u64,
    /// Bytes that could be appended when its drains began.
    room: u64,
    /// How much has moved, or was superseded: of its mass, and of what is newer.
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

/// Keeps the books of turns and of the drain's rate.
#[derive(Debug, Default)]
pub(super) struct Books {
    turn: Turn,
    /// Bytes of key mass that a drain moves a second, smoothed; 0 until one was measured.
    rate: u64,
    /// Bytes that drains added to level 1, for bytes of key mass that they moved.
    risen: Share,
    /// Bytes that compactions took out of level 1, for nanoseconds in which some were at work.
    sunk: Share,
    /// When the last compaction ended.
    compacted_at: Duration,
    /// Bytes of zones that come free a second while a turn goes on, smoothed; 0 until that was
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

impl Books {
    /// A drain has moved `bytes` of level 0, and `beside` them bytes of runs, which take no less
    /// time, and level 1 has `added` bytes more; the wall clock says that it took `took`, with what
    /// the background had to do between it and the drain before.
    pub(super) fn drained(&mut self, bytes: u64, beside: u64, added: u64, took: Duration) {
        self.turn.moved += bytes;
        self.risen.count(added, bytes + beside);
        self.turn.begun = true;
        let rate = u128::from(bytes + beside) * 1_000_000_000 / took.as_nanos().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        self.rate = smoothed(self.rate, rate);
    }

    /// A compaction has taken `bytes` out of level 1, at work `from` a moment `to` another. Where
    /// several are at work at a time, each has the time since the one before it ended.
    pub(super) fn compacted(&mut self, bytes: u64, (from, to): (Duration, Duration)) {
        let took = to.saturating_sub(from.max(self.compacted_at));
        self.sunk.count(bytes, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / 2));
        self.compacted_at = to;
    }

    /// `bytes` of key mass need not be moved any more.
    pub(super) fn pruned(&mut self, bytes: u64) {
        self.turn.moved += bytes;
    }

    /// Nobody writes, and nothing is left to do: a turn that stands half-way slows no writer.
    /// Whether there was one.
    pub(super) fn lay_down(&mut self) -> bool {
        std::mem::take(&mut self.turn.begun)
    }

    /// Bytes of key mass that drains move a second.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// Bytes that were appended before the oldest record that is not drained. What was appended
    /// since is what the region may hold, beside zones that are open or kept by readers.
    pub(super) fn appended_before_turn(&self, now: &Sight) -> u64 {
        let before = self.marks.partition_point(|(lsn, _)| *lsn <= now.low);
        before.checked_sub(1).map_or(0, |i| self.marks[i].1)
    }

    /// Looks at the region; what writers are to do now.
    pub(super) fn look(&mut self, now: &Sight) -> Pacing {
        self.mark(now);
        self.measure_freeing(now);
        // A turn ends when all of it is drained; as long as nothing calls for drains, none begins.
        if now.low >= self.turn.until || (!now.calls_for_drain() && !self.turn.begun) {
            let (until, appended, mass) = (now.bound, now.appended, now.mass);
            self.turn = Turn { until, appended, mass, room: now.room(), moved: 0, begun: false };
        }
        let delays = [
            (Reason::Turn, self.draining(now)),
            (Reason::Filling, self.freeing(now)),
            (Reason::Crowding, self.sinking(now)),
            (Reason::Indexes, now.least_delay()),
        ];
        let none = (Reason::None, 0);
        let longest = delays.into_iter().fold(none, |a, b| if b.1 > a.1 { b } else { a });
        let (reason, delay) = (longest.0, longest.1.min(LONGEST) as u64);
        Pacing { reason, debt: self.debt(now), delay }
    }

    /// Bytes of key mass by which the turn lags behind the rule.
    fn debt(&self, now: &Sight) -> u64 {
        let Turn { appended, mass, room, moved, .. } = self.turn;
        let appended = now.appended.saturating_sub(appended);
        let due = u128::from(appended) * u128::from(mass) / u128::from(room.max(1));
        u64::try_from(due).unwrap_or(u64::MAX).min(mass).saturating_sub(moved)
    }

    /// Nanoseconds for each KiB after which the rest of the turn will be drained when the room that
    /// is left, and what comes free meanwhile, is used up.
    fn draining(&self, now: &Sight) -> u128 {
        if !self.turn.begun && !now.calls_for_drain() {
            return 0;
        }
        let Turn { mass, moved, .. } = self.turn;
        let left = mass.saturating_sub(moved).max(mass / 2);
        // What is newer lies among the rest as it does among what has moved.
        let newer = u128::from(now.undrained.saturating_sub(left)) * u128::from(left);
        let left = u128::from(left) + newer / u128::from(mass.max(1));
        let over_rate = |n: u128| n.checked_div(u128::from(self.rate)).unwrap_or(0);
        // Nobody knows that it will: it counts less where less than half of the room is left.
        let counted = (2000 - 2 * now.filling().min(1000)).min(1000);
        let freed = over_rate(left * u128::from(self.freeing)) * u128::from(counted) / 1000;
        over_rate(left * NANOS_KIB) / (u128::from(now.room()) + freed)
    }

    /// Nanoseconds that zones have needed of late to come free for a KiB. That nothing comes free
    /// for a while says little as long as there is room: it counts from where half of that is left,
    /// and twice at the end.
    fn freeing(&self, now: &Sight) -> u128 {
        let nanos = NANOS_KIB.checked_div(u128::from(self.freeing)).unwrap_or(0);
        nanos * u128::from(now.filling().saturating_sub(500).min(500)) / 250
    }

    /// Nanoseconds that compactions need to take out of level 1 what drains add to it for a KiB: in
    /// full half-way to where drains stop, and twice there.
    fn sinking(&self, now: &Sight) -> u128 {
        let Share { bytes: added, of: mass } = self.risen;
        let Share { bytes: sunk, of: nanos } = self.sunk;
        let added = u128::from(added) * 1024 * u128::from(nanos);
        let nanos = added.checked_div(u128::from(mass) * u128::from(sunk)).unwrap_or(0);
        nanos * u128::from(now.crowding().min(2000)) / 1000
    }

    /// Measures how fast zones come free, as long as a turn goes on. They may all come free at its
    /// end, so it takes as long as it takes for some to.
    fn measure_freeing(&mut self, now: &Sight) {
        let goes_on = self.turn.begun || now.calls_for_drain();
        let Some((began, before)) = self.window else {
            self.window = goes_on.then_some((now.clock, now.released));
            return;
        };
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
    fn mark(&mut self, now: &Sight) {
        let last = self.marks.back().copied().unwrap_or_default();
        if now.visible > last.0 && now.appended >= last.1 + now.unit * now.usual / 8 {
            self.marks.push_back((now.visible, now.appended));
        }
        while self.marks.get(1).is_some_and(|(lsn, _)| *lsn <= now.low) {
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
