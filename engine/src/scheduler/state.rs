//! What the scheduler knows when it picks a job, gathered once a step. It costs what changed since
//! the step before, however many tables there are: see `table_index.rs`.

use std::time::Duration;

use crate::base::record::Lsn;
use crate::jobs::table_index::{Has, HasFlags, Rest, Totals};
use crate::jobs::{JobContext, Jobs, freeze_bounds};
use crate::memtable::Index;
use crate::os::sync::atomic::Ordering;
use crate::pm::PAGE;

/// Nanoseconds in a second, times the bytes of a KiB.
pub(super) const NANOS_KIB: u128 = 1024 * 1_000_000_000;

/// Writers are to write half of what compactions bring down where level 1 has so many thousandths
/// of its target: drains are about to wait for compactions.
pub(super) const CROWDED: u64 = 2000;

/// And writers wait a little from here on.
const CROWDING: u64 = 1100;

/// Row tables are drained from where they take so many hundredths of the region, which is their
/// container. It is the share of the source ("MatrixKV", ATC 2020): the receiver becomes the
/// compactor there, and what is left has room for the next receiver while the compactor goes.
const CONTAINER_SHARE: u64 = 60;

/// How full the region is at some moment, and what is on its way out of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegionUsage {
    /// Units taken, and units that there are or that the region still grows by.
    pub(crate) used: u64,
    pub(crate) total: u64,
    /// Units' worth of pages that row tables take.
    pub(crate) in_rows: u64,
    /// As many of these as the indexes take of their share of the memory limit.
    pub(crate) indexed: u64,
    /// Bytes in a unit.
    pub(crate) unit: u64,
    /// Units that came free since the database was opened.
    pub(crate) released: u64,
    /// Units in the zones of busy streams.
    pub(crate) usual: u64,
    /// Whether a writer waits for a zone that is larger than any piece that is free.
    pub(crate) is_asked_for: bool,
    /// Whether the log of a shared store has to go further back than it shall.
    pub(crate) is_log_long: bool,
    /// Bytes of zones that were ever appended to.
    pub(crate) appended: u64,
    /// Bytes of records that are not drained.
    pub(crate) undrained: u64,
    /// As many of these as a round that begins now is to move: those in level 0.
    pub(crate) bytes_due: u64,
    /// Of no table with a level 0 is a record at or below it in a memtable: where `low` is when
    /// such a round is over.
    pub(crate) bound: Lsn,
    /// Every record of any table at or below it is drained.
    pub(crate) low: Lsn,
    /// The last commit that readers see.
    pub(crate) visible: Lsn,
    /// How full the fullest level 1 is, in thousandths of its target.
    pub(crate) level1: u64,
    /// Time since the database was opened.
    pub(crate) clock: Duration,
}

impl RegionUsage {
    /// Whether drains should run: enough of the region is taken, row tables have their share of it,
    /// or not enough of it in one piece is free. A round frees zones in the order of their age, and
    /// so makes whole pieces.
    pub(crate) fn calls_for_drain(&self) -> bool {
        self.taken() >= self.enough() || self.is_container_full() || self.is_asked_for
    }

    /// Whether row tables take their share of the region. As the receiver gains, as much of the
    /// compactor goes. So the next round begins when the receiver alone has that share, and the
    /// compactor is empty.
    fn is_container_full(&self) -> bool {
        self.in_rows * 100 >= self.total * CONTAINER_SHARE
    }

    /// Units that are taken, in the region or, if that is more, of the memory for indexes: where
    /// records are small it is the latter that runs out.
    pub(super) fn taken(&self) -> u64 {
        self.used.max(self.indexed)
    }

    /// Units from which on drains run: three quarters, or as much as leaves sixteen zones of busy
    /// streams, and half at least. The more a round moves, the less often what lies below is
    /// written again, and the more is superseded before it is moved at all.
    pub(super) fn enough(&self) -> u64 {
        let most = (self.total * 3 / 4).min(self.total.saturating_sub(16 * self.usual));
        most.max(self.total.div_ceil(2))
    }

    /// How full it is, the region or the memory for indexes, on the way from where drains begin,
    /// in thousandths; more than a thousand beyond.
    pub(super) fn filling(&self) -> u64 {
        let (from, room) = (self.enough(), self.total - self.enough());
        self.taken().saturating_sub(from) * 1000 / room.max(1)
    }

    /// Bytes that may be appended before it is full, but for standby zones.
    pub(super) fn room(&self) -> u64 {
        let free = self.total.saturating_sub(self.taken() + 2 * self.usual);
        // Never nothing: a stream that has an open zone goes on in it.
        self.bytes(free).max(self.unit / 4).max(1)
    }

    /// Bytes that units are worth: where it is the memory for indexes that runs out, less.
    pub(super) fn bytes(&self, units: u64) -> u64 {
        let bytes = units * self.unit;
        if self.indexed > self.used { bytes / self.indexed * self.used } else { bytes }
    }

    /// Nanoseconds that writers wait for a KiB at least as the memory for indexes runs out, however
    /// fast drains seem to go, or before one was measured: there is no end of it that would stop
    /// them. Where all of it is taken, as much again would take two seconds, and from there on ever
    /// longer.
    pub(super) fn least_delay(&self) -> u128 {
        let eighths = (8000 * self.indexed / self.total.max(1)).saturating_sub(6000);
        let all = self.bytes(self.total).max(self.unit).max(1);
        let delay = NANOS_KIB / u128::from(all) * u128::from(eighths) / 1000;
        if self.indexed > self.used { delay } else { 0 }
    }

    /// Whether writers wait for compactions, or are about to: level 1 has more than its target
    /// while writes go on, or half of what the region had left where drains begin is taken.
    pub(super) fn waits_for_compactions(&self, rest: Rest) -> bool {
        (rest == Rest::Busy && self.crowding() > 0) || self.filling() >= 500
    }

    /// How far level 1 is on the way to where drains stop, in thousandths of half of it.
    pub(super) fn crowding(&self) -> u64 {
        self.level1.saturating_sub(CROWDING) * 2000 / (CROWDED - CROWDING)
    }
}

impl RegionUsage {
    /// The usage of this moment, with what tables have. `clock` is the time since the database was
    /// opened.
    pub(super) fn gather(ctx: &JobContext, clock: Duration) -> (RegionUsage, Totals) {
        let (zones, committer) = (&ctx.shared.zones, &ctx.shared.committer);
        // The region may grow on another thread: what is free is of an earlier moment than the
        // whole, so there is never more of it.
        let free = zones.free();
        let (geometry, total) = (zones.geometry(), zones.room());
        let visible = committer.visible();
        let totals = ctx.tables.index().totals(&ctx.shape());
        let low = totals.oldest.pace_upto(visible);
        let bound = totals.oldest_over_level0.pace_upto(visible);
        // Tables with records in memtables alone are to be drained too before a round is over.
        let bytes_due = totals.level0 + totals.fresh_upto(bound);
        debug_assert!(bytes_due <= totals.undrained, "a round moves what is not drained");
        debug_assert!(low <= visible && bound <= visible, "what is drained is visible");
        debug_assert!(free <= total, "no more units are free than there are");
        debug_assert!(low <= bound, "a round that begins now ends above what is drained");
        debug_assert!(totals.level0 <= totals.undrained, "level 0 has what is not drained");
        // What waits for the shared store no drain frees, and it is let go before it is missed.
        // What was let go is released soon.
        let kept =
            committer.feed().map_or(0, |feed| zones.dead_units((feed.acknowledged(), visible)));
        let usage = RegionUsage {
            used: u64::from(geometry.units.saturating_sub(free + kept)),
            total: u64::from(total),
            in_rows: ctx.shared.pages.used() * PAGE / geometry.unit,
            indexed: indexed(ctx, u64::from(total)),
            unit: geometry.unit,
            released: zones.released(),
            usual: u64::from(geometry.usual_units()),
            is_asked_for: zones.lacks_wanted(),
            is_log_long: low < ctx.drains_upto.load(Ordering::Acquire),
            appended: committer.counts.appended.load(Ordering::Relaxed),
            undrained: totals.undrained,
            bytes_due,
            bound,
            low,
            visible,
            level1: totals.level1,
            clock,
        };
        debug_assert!(usage.room() > 0 && usage.unit > 0, "a round has a finite debt: {usage:?}");
        debug_assert!(drains_in_time(&usage), "drains begin before the region is full: {usage:?}");
        (usage, totals)
    }
}

/// Drains begin before the region is full, and there is something to take before they do.
fn drains_in_time(now: &RegionUsage) -> bool {
    now.enough() <= now.total && now.enough() * 2 >= now.total
}

/// How many of `units` the indexes take, if their share of the memory limit is so many. What they
/// take without any record does not count: no drain frees it.
fn indexed(ctx: &JobContext, units: u64) -> u64 {
    let Some(most) = ctx.memory.most_indexes() else { return 0 };
    // A table has one in its memtable and one in level 0.
    let empty = ctx.tables.len() as u64 * 2 * Index::least_memory() as u64;
    let taken = ctx.shared.region.indexes().bytes().saturating_sub(empty);
    // Where that is most of the share, as much again is for records.
    let most = most.saturating_sub(empty).max(empty).max(1);
    taken.saturating_mul(units) / most
}

/// What there may be to do, and how urgent it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionState {
    /// The rule of pacing, or the region's filling, asks for drains.
    pub(super) is_drain_due: bool,
    /// How full the fullest level 1 is, in thousandths of its target.
    pub(super) level1: u64,
    /// A writer waits for a zone that is larger than any free piece.
    pub(super) lacks_zone: bool,
    /// Commits that free space have been made, or wait, where others find none.
    pub(super) serves_freeing: bool,
    /// The region is to grow, or could not the last time.
    pub(super) grows: bool,
    /// Compactions have threads of their own.
    pub(super) has_workers: bool,
    /// Some memtable is large.
    pub(super) has_large_memtable: bool,
    /// A call waits for a manual compaction.
    pub(super) has_requests: bool,
    /// What some table has.
    pub(super) has: HasFlags,
}

impl RegionState {
    /// The state of this moment, with what tables have, and what pacing said of it.
    pub(super) fn gather(
        (ctx, jobs): (&JobContext, &Jobs),
        totals: &Totals,
        is_drain_due: bool,
        has_workers: bool,
    ) -> RegionState {
        let ((bytes, memory), mut has) = (freeze_bounds(ctx), totals.has);
        has[Has::Kept as usize] |= jobs.prune_versions.goes_on();
        has[Has::Deletes as usize] |= has[Has::Ranges as usize];
        RegionState {
            is_drain_due,
            level1: totals.level1,
            lacks_zone: ctx.shared.zones.lacks_wanted(),
            serves_freeing: ctx.shared.zones.serves_freeing(),
            grows: ctx.shared.zones.geometry().next_step().is_some(),
            has_workers,
            has_large_memtable: totals.active_bytes >= bytes || totals.active_memory >= memory,
            has_requests: !ctx.manual.is_empty(),
            has,
        }
    }

    /// Whether some table has it.
    pub(super) fn has(&self, what: Has) -> bool {
        self.has[what as usize]
    }
}
