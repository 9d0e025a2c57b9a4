//! The pacing rule: how far the turn of drains has to have come, and what writers wait if it has
//! not.
//!
//! A turn moves everything that is in level 0 when it begins, its **key mass**, to level 1; after
//! it every zone from before is free. So the region holds what is appended during a turn, and is
//! large enough if **per byte appended the turn advances by at least 1/capacity of its key mass**.
//! What it lags behind that is its **debt**. Writers wait for the debt, and as the region fills, in
//! proportion to what the drain, at its measured rate, needs for their bytes: they slow down
//! smoothly, and at the end as far as the drain goes.
//!
//! Values alone: the background says what it sees, and hands on what comes out.

use std::collections::VecDeque;
use std::time::Duration;

use crate::record::Lsn;

/// Nanoseconds in a second, times the bytes of a KiB.
const NANOS_KIB: u128 = 1024 * 1_000_000_000;

/// The longest wait for a KiB that is ever asked for: a second.
const LONGEST: u128 = 1_000_000_000;

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
    /// Units in the zones of busy streams.
    pub(super) usual: u64,
    /// Whether a writer waits for a zone that is larger than any piece that is free.
    pub(super) is_asked_for: bool,
    /// Bytes of zones that were ever appended to.
    pub(super) appended: u64,
    /// Bytes of records that are not drained.
    pub(super) mass: u64,
    /// Every record of any table at or below it is drained.
    pub(super) low: Lsn,
    /// The last commit that readers see.
    pub(super) visible: Lsn,
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

    /// How full it is, the region or the memory for indexes, on the way from a quarter to three
    /// quarters of what is free when drains begin, in thousandths; more than a thousand beyond.
    fn filling(&self) -> u64 {
        let (from, room) = (self.enough(), self.total - self.enough());
        (self.taken() * 4).saturating_sub(from * 4 + room) * 1000 / (room * 2).max(1)
    }

    /// Nanoseconds that writers wait for a KiB at least as the memory for indexes runs out, however
    /// fast drains seem to go, or before one was measured: there is no end of it that would stop
    /// them. Where all of it is taken, as much again would take two seconds, and from there on ever
    /// longer.
    fn least_delay(&self) -> u128 {
        let eighths = (8000 * self.indexed / self.total.max(1)).saturating_sub(6000);
        let delay = NANOS_KIB / u128::from(self.capacity()) * u128::from(eighths) / 1000;
        if self.indexed > self.used { delay.min(LONGEST) } else { 0 }
    }

    /// Bytes of zones that were taken and are free again, give or take what was there at first.
    fn freed(&self) -> i128 {
        i128::from(self.appended) - i128::from(self.used * self.unit)
    }

    /// Bytes that a turn may see appended: the capacity, but for zones that are open, ready, or
    /// wait for readers; or as much of it as there is memory to index.
    fn capacity(&self) -> u64 {
        let reserve = (self.total / 8).max(3 * self.usual);
        let bytes = self.total.saturating_sub(reserve) * self.unit;
        let bytes = if self.indexed > self.used { bytes / self.indexed * self.used } else { bytes };
        bytes.max(self.unit).max(1)
    }
}

/// Why writers wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reason {
    /// They do not.
    #[default]
    None,
    /// The turn lags behind what was appended.
    Debt,
    /// The region is filling.
    Filling,
    /// The memory for indexes is.
    Indexes,
}

impl Reason {
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::None => "none",
            Reason::Debt => "the drain lags behind its turn",
            Reason::Filling => "the region is filling",
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
    /// How much of that has moved, or was superseded.
    moved: u64,
    /// Whether a drain has run in it.
    begun: bool,
}

/// Keeps the books of turns and of the drain's rate.
#[derive(Debug, Default)]
pub(super) struct Books {
    turn: Turn,
    /// Bytes of key mass that a drain moves a second, smoothed; 0 until one was measured.
    rate: u64,
    /// Bytes of zones that come free a second while the region is filling, smoothed; 0 until that
    /// was measured. Beside drains it has in it what merges prune and cleaning frees.
    freeing: u64,
    /// When the measurement of that began, and what had been freed.
    window: Option<(Duration, i128)>,
    /// Bytes appended at some LSNs, ascending.
    marks: VecDeque<(Lsn, u64)>,
}

/// How long the rate at which zones come free is measured at a time.
const WINDOW: Duration = Duration::from_millis(50);

impl Books {
    /// A drain has moved `bytes` of key mass, and `beside` them bytes of runs, which take no less
    /// time; the wall clock says that it took `took`, with what the background had to do between it
    /// and the drain before.
    pub(super) fn drained(&mut self, bytes: u64, beside: u64, took: Duration) {
        self.turn.moved += bytes;
        self.turn.begun = true;
        let rate = u128::from(bytes + beside) * 1_000_000_000 / took.as_nanos().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        self.rate = if self.rate == 0 { rate } else { (self.rate / 4) * 3 + rate / 4 };
    }

    /// `bytes` of key mass need not be moved any more.
    pub(super) fn pruned(&mut self, bytes: u64) {
        self.turn.moved += bytes;
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
            let (until, appended, mass) = (now.visible, now.appended, now.mass);
            self.turn = Turn { until, appended, mass, moved: 0, begun: false };
        }
        let debt = self.debt(now);
        // Writers wait as long as the drain takes for what they add to its work, when the debt has
        // reached a sixteenth of the turn or half of what was free when drains began is taken; up
        // to four times that towards the end.
        let lag = debt.saturating_mul(8000) / self.turn.mass.max(1);
        let filling = now.filling();
        let pressure = lag.max(filling).min(2000);
        let reason = match (pressure, lag > filling) {
            (0, _) => Reason::None,
            (_, true) => Reason::Debt,
            (_, false) if now.indexed > now.used => Reason::Indexes,
            (_, false) => Reason::Filling,
        };
        let least = if pressure == 0 { 0 } else { u64::try_from(now.least_delay()).unwrap_or(0) };
        Pacing { reason, debt, delay: (self.sustainable(now) * 2 * pressure / 1000).max(least) }
    }

    /// Bytes of key mass by which the turn lags behind the rule.
    fn debt(&self, now: &Sight) -> u64 {
        let appended = now.appended.saturating_sub(self.turn.appended);
        let due = u128::from(appended) * u128::from(self.turn.mass) / u128::from(now.capacity());
        let due = u64::try_from(due).unwrap_or(u64::MAX).min(self.turn.mass);
        due.saturating_sub(self.turn.moved)
    }

    /// Nanoseconds that making room for a KiB takes: what the drain needs for what it adds to its
    /// work, or, if that is more, what zones have needed of late to come free.
    fn sustainable(&self, now: &Sight) -> u64 {
        let share = u128::from(self.turn.mass.min(now.capacity()));
        let draining =
            (share * NANOS_KIB / u128::from(now.capacity())).checked_div(u128::from(self.rate));
        let freeing = NANOS_KIB.checked_div(u128::from(self.freeing));
        // That nothing comes free for a while says little as long as there is room: it counts from
        // where half of that is left, in full at the end.
        let weight = u128::from(now.filling().saturating_sub(500).min(1000));
        let nanos = draining.unwrap_or(0).max(freeing.unwrap_or(0) * weight / 1000);
        u64::try_from(nanos.min(LONGEST)).unwrap_or(0)
    }

    /// Measures how fast zones come free, as long as there is something to free all the time.
    fn measure_freeing(&mut self, now: &Sight) {
        if now.filling() == 0 {
            self.window = None;
            return;
        }
        let (began, freed) = *self.window.get_or_insert((now.clock, now.freed()));
        let took = now.clock.saturating_sub(began);
        if took < WINDOW {
            return;
        }
        self.window = Some((now.clock, now.freed()));
        let bytes = u128::try_from(now.freed() - freed).unwrap_or(0);
        let rate = u64::try_from(bytes * 1_000_000_000 / took.as_nanos()).unwrap_or(u64::MAX);
        // Never less than a zone a second: that nothing came free may be a matter of moments.
        let rate = rate.max(now.unit * now.usual);
        self.freeing = if self.freeing == 0 { rate } else { (self.freeing / 4) * 3 + rate / 4 };
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
mod tests {
    use super::*;

    const ZONE: u64 = 1 << 20;

    fn sight(used: u64, appended: u64, low: Lsn) -> Sight {
        let (total, mass) = (64, used.min(40) * ZONE);
        let (visible, clock) = (appended / 1024, Duration::ZERO);
        let (unit, usual, is_asked_for, indexed) = (ZONE, 1, false, 0);
        let sight = Sight { used, total, indexed, unit, usual, is_asked_for, ..Sight::default() };
        Sight { appended, mass, low, visible, clock, ..sight }
    }

    /// Bug: where records were small, their indexes took whatever they liked of the memory limit.
    /// Cause: drains began, and writers waited, by the units of the region that were taken alone.
    /// Fix: the memory for indexes is a second measure beside them.
    #[test]
    fn the_memory_for_indexes_fills_as_the_region_does() {
        let mut books = Books::default();
        let small = |indexed| Sight { indexed, ..sight(8, 8 * ZONE, 0) };
        assert!(!small(47).calls_for_drain() && small(48).calls_for_drain());
        assert_eq!(books.look(&small(40)), Pacing::default());
        books.drained(8 * ZONE, 0, Duration::from_secs(1));
        let paces: Vec<Pacing> = (48..=64).map(|indexed| books.look(&small(indexed))).collect();
        assert!(paces.iter().map(|pacing| pacing.delay).is_sorted(), "{paces:?}");
        assert_eq!((paces[0].delay, paces[16].reason), (0, Reason::Indexes), "{paces:?}");
        let unmeasured = Books::default().look(&small(64));
        assert!(unmeasured.delay > 0 && unmeasured.delay < paces[16].delay, "{unmeasured:?}");
        // Writers go at a third of what the drain does then, 8 MiB a second.
        let drain = 1024 * 1_000_000_000 / (8 * ZONE);
        assert_eq!(paces[16].delay, drain * 3);
    }

    #[test]
    fn nobody_waits_while_there_is_room() {
        let mut books = Books::default();
        for zones in 0..32 {
            let pacing = books.look(&sight(zones, zones * ZONE, 0));
            assert_eq!((pacing.reason, pacing.delay), (Reason::None, 0), "{zones} zones");
        }
    }

    #[test]
    fn the_debt_is_what_the_rule_asks_for_and_was_not_moved() {
        let mut books = Books::default();
        let begun = books.look(&sight(32, 32 * ZONE, 0));
        assert_eq!(begun.debt, 0);
        books.drained(ZONE, 0, Duration::from_millis(10));
        // 7 of the 56 zones that count were appended: an eighth of the mass is due.
        let pacing = books.look(&sight(36, 39 * ZONE, 0));
        assert_eq!(pacing.debt, 32 * ZONE / 8 - ZONE);
        assert_eq!(pacing.reason, Reason::Debt);
        books.drained(3 * ZONE, 0, Duration::from_millis(30));
        assert_eq!(books.look(&sight(36, 39 * ZONE, 0)).debt, 0);
    }

    #[test]
    fn the_fuller_the_slower_and_never_by_a_leap() {
        let mut books = Books::default();
        books.look(&sight(32, 32 * ZONE, 0));
        books.drained(32 * ZONE, 0, Duration::from_secs(1));
        let delays: Vec<u64> =
            (32..=64).map(|zones| books.look(&sight(zones, 32 * ZONE, 0)).delay).collect();
        assert!(delays.is_sorted(), "{delays:?}");
        assert_eq!(delays[0], 0);
        let full = delays[32];
        assert!(delays.windows(2).all(|w| w[1] - w[0] <= full / 8), "{delays:?}");
        // At seven eighths they go as fast as the drain.
        let even = books.sustainable(&sight(56, 32 * ZONE, 0));
        assert_eq!(delays[24], even, "{delays:?}");
        assert!(even > 0);
    }

    #[test]
    fn writers_wait_for_what_comes_free_where_drains_have_little_to_do() {
        let mut books = Books::default();
        let at = |millis, used, appended: u64| Sight {
            clock: Duration::from_millis(millis),
            mass: ZONE,
            ..sight(used, appended * ZONE, 0)
        };
        books.look(&at(0, 32, 32));
        books.drained(ZONE, 0, Duration::from_millis(1));
        let before = books.look(&at(0, 60, 60)).delay;
        // Ten zones came free in a tenth of a second, while thirteen were taken.
        let after = books.look(&at(100, 63, 73)).delay;
        let each = 1024 * 1_000_000_000 / (100 * ZONE);
        assert!(before < each, "{before}");
        assert!((each * 2..each * 5).contains(&after), "{after} for {each} a KiB");
    }

    #[test]
    fn a_turn_is_what_was_appended_since_the_oldest_record() {
        let mut books = Books::default();
        for zones in 0..32 {
            books.look(&sight(zones, zones * ZONE, 0));
        }
        assert_eq!(books.appended_before_turn(&sight(32, 32 * ZONE, 0)), 0);
        let low = 20 * ZONE / 1024;
        assert_eq!(books.appended_before_turn(&sight(32, 32 * ZONE, low)), 20 * ZONE);
    }
}
