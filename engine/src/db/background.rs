//! The background: which job is next. Freezes and merges are here; drains, cleaning and the release
//! of zones have files of their own. Each job is bounded, one after the other on one thread.
//! Compactions run on it too, or on threads beside it: see `compacting.rs`.
//!
//! Every job reads the state of its moment and is safe to be cut anywhere: what it changes on the
//! media it changes by one journal edit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::budget::Budget;
use super::claims::Claims;
use super::inner::Engine;
use super::metrics::Metrics;
use super::pacing::{Books, Pacing, Sight};
use super::pruning::{Pruning, kept_for};
use super::releasing::Batch;
use crate::error::{Error, ErrorKind, Result};
use crate::level0::{Level0, Superseded};
use crate::levels::Version;
use crate::memtable::{Index, Memtable};
use crate::mvcc::{defer, drive, pin};
use crate::pm::{Purpose, SpentOn};
use crate::record::{LSN_MAX, Lsn, TableId};
use crate::table::TableCore;
use crate::view::Frozen;

/// With nothing to do, the background looks around this often (and writes the floor).
const IDLE: Duration = Duration::from_millis(200);

/// While it waits for readers to leave an epoch, it looks this often.
const COOLING: Duration = Duration::from_millis(1);

/// The most jobs between two extents of a compaction.
const MOST_PASSING: usize = 6;

/// The least memory of an index for which a memtable is frozen.
const LEAST_FROZEN_INDEX: u64 = 64 << 10;

/// Compactions go before drains where level 1 has outgrown its target by half, or drains have used
/// up its layers: more than so many thousandths of it. Else it would grow without a bound, and
/// drains would merge each column with ever more of it. Writers, who wait for drains in the end,
/// are the ones to be slowed down.
const BEHIND: u64 = 1500;

/// After a job failed, it waits this long before it tries again.
const RETRY: Duration = Duration::from_millis(500);

/// When nothing was left to do and nobody wrote for so long, there is time to make level 1 small.
const QUIET: Duration = Duration::from_secs(1);

/// What the background has done, and what it waits for.
#[derive(Debug, Default)]
pub(super) struct Background {
    /// When it first looked.
    began: OnceLock<Instant>,
    /// Dead zones, and the flag that is set once no reader from before is left.
    pub(super) cooling: Mutex<Option<(Vec<u32>, Arc<AtomicBool>)>>,
    /// Zones that are not worth cleaning, with the live records that each had then.
    pub(super) not_worth_cleaning: Mutex<HashMap<u32, u64>>,
    pub(super) metrics: Metrics,
    pub(super) books: Mutex<Books>,
    pub(super) pacing: Mutex<Pacing>,
    /// Bytes appended before the oldest record that is not drained.
    pub(super) appended_before_turn: AtomicU64,
    /// What was visible when there was nothing left to do, and since when.
    rested: Mutex<Option<(Lsn, Instant)>>,
    /// When there was nothing left to do but to write the floor.
    settled: Mutex<Option<Instant>>,
    /// The level 0 that is gone through for what readers needed that are gone.
    pub(super) pruning: Mutex<Option<Pruning>>,
    /// When the last drain of a series ended.
    pub(super) last_drain: Mutex<Option<Instant>>,
    /// Keys that compactions are at work on.
    pub(super) claims: Claims,
    pub(super) budget: Budget,
    /// Bytes read and written when the heap last gave back what was freed.
    pub(super) moved_before_giving_back: AtomicU64,
    /// How often what a compaction reads at most was halved, since the disk had no room for it.
    pub(super) smaller: AtomicU32,
}

impl Background {
    /// Time since it first looked.
    pub(super) fn clock(&self) -> Duration {
        self.began.get_or_init(Instant::now).elapsed()
    }
}

/// The oldest sequence number that a table may have records with in the region.
pub(super) fn age(table: &TableCore) -> Option<Lsn> {
    let low = table.change().turn.low;
    let view = table.view();
    let in_level0 = (view.level0.size().records > 0).then_some(low + 1);
    in_level0.into_iter().chain(view.oldest_in_memtables()).min()
}

impl Engine {
    /// The thread's body.
    pub(super) fn run_background(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let waited_for = match self.step() {
                Ok(true) => continue,
                Ok(false) if self.background.cooling.lock().is_some() => COOLING,
                Ok(false) => IDLE,
                Err(e) => {
                    if e.kind() == ErrorKind::Full {
                        self.shared.pace.report(Some(e.to_string()));
                    }
                    self.note_failure(&e)
                }
            };
            self.shared.bell.wait(waited_for);
        }
    }

    /// A job failed; how long to wait before the next one. A full disk is waited out.
    pub(super) fn note_failure(&self, error: &Error) -> Duration {
        self.background.metrics.failures.add(1);
        if error.kind() != ErrorKind::Full {
            self.stop_because(&error.to_string());
        }
        RETRY
    }

    /// Does the most urgent job; whether there was one.
    pub(super) fn step(&self) -> Result<bool> {
        let _spent = SpentOn::purpose(Purpose::Background);
        self.shared.poison.check()?;
        self.drive();
        self.balance_memory();
        if self.stocktaking_goes_on()? {
            return Ok(true);
        }
        let now = self.sight();
        let due = self.is_drain_due(&now);
        Ok(self.mark_time()?
            || self.keep_up()?
            || self.drop_expired()?
            || self.place_loads()?
            || (due && self.clean(Batch::Large)?)
            || (due && now.level1 <= BEHIND && self.drain_oldest()?)
            || (!self.background.budget.has_workers() && self.compact_one()?)
            || (due && !self.is_far_behind(&now) && self.drain_oldest()?)
            || (due && self.clean(Batch::Any)?)
            || self.release_dead(Batch::Any)?
            || self.prune_needless()?
            || self.drain_runs()?
            || self.give_back()? > 0
            || self.rest()?)
    }

    /// Gives free space of extent files back to the file system, all of it once nobody works; the
    /// bytes.
    fn give_back(&self) -> Result<u64> {
        let (store, works) = (self.set.store(), !self.background.claims.is_empty());
        let is_idle = if self.options.stepped { self.rests() } else { self.is_quiet() };
        if is_idle && !works { store.give_back_all() } else { store.give_back() }
    }

    /// Pushes on what jobs have deferred; all of it where jobs are stepped, so that the same steps
    /// do the same things.
    fn drive(&self) {
        #[cfg(any(test, feature = "testing", feature = "bench"))]
        if self.options.stepped {
            return crate::mvcc::drive_all();
        }
        drive();
    }

    /// Tells writers how fast they may go; whether it is time to drain.
    fn is_drain_due(&self, now: &Sight) -> bool {
        self.set_pace(now).debt > 0 || now.calls_for_drain()
    }

    /// What writers need most.
    fn keep_up(&self) -> Result<bool> {
        let zones = &self.shared.zones;
        if zones.finds_wanted() {
            // It need not be a drain that made that space: a stream gives up its zones, say.
            self.shared.pace.report(None);
        }
        let batch = if zones.lacks_wanted() { Batch::Any } else { Batch::Large };
        Ok(self.link_spare()?
            || self.assign_streams()?
            || self.release_dead(batch)?
            || self.freeze_large()
            || self.merge_some()?)
    }

    /// Lets jobs that writers may wait for pass between two extents of a compaction that runs on
    /// this thread.
    pub(super) fn let_pass(&self) -> Result<()> {
        for _ in 0..MOST_PASSING {
            self.drive();
            let due = self.is_drain_due(&self.sight());
            let passed = self.keep_up().and_then(|did| Ok(did || due && self.drain_oldest()?));
            match passed {
                Ok(true) => {}
                Ok(false) => break,
                // There is room when the compaction is done.
                Err(e) if e.kind() == ErrorKind::Full => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Counts a part of what an opening found in the persistent index, and sees to it that writers
    /// have zones meanwhile; whether there was something to count.
    fn stocktaking_goes_on(&self) -> Result<bool> {
        let goes_on = self.take_stock()?;
        while goes_on && self.link_spare()? {}
        Ok(goes_on)
    }

    /// Whether some level 1 has outgrown its target so far that drains wait for the compactions
    /// that are under way.
    fn is_far_behind(&self, now: &Sight) -> bool {
        now.level1 > 2 * BEHIND && !self.background.claims.is_empty()
    }

    /// How full the fullest level 1 is, in thousandths of its target.
    fn fullness(&self) -> u64 {
        let shape = self.shape();
        let of = |table: &Arc<TableCore>| shape.fullness(&table.view().version);
        (self.tables().iter().map(of).fold(0.0, f64::max) * 1000.0) as u64
    }

    /// The state of the region, as pacing sees it.
    pub(super) fn sight(&self) -> Sight {
        let zones = &self.shared.zones;
        let (total, visible) = (zones.geometry().units, self.shared.committer.visible());
        let mut sight = Sight {
            used: u64::from(total - zones.free()),
            total: u64::from(total),
            indexed: self.indexed(u64::from(total)),
            unit: zones.geometry().unit,
            released: zones.released(),
            usual: u64::from(zones.geometry().usual_units()),
            is_asked_for: zones.lacks_wanted(),
            appended: self.shared.committer.counts().appended.load(Ordering::Relaxed),
            undrained: 0,
            mass: 0,
            bound: visible,
            low: visible,
            visible,
            level1: self.fullness(),
            clock: self.background.clock(),
        };
        // Tables that have records in memtables alone.
        let mut fresh = Vec::new();
        for table in self.tables() {
            let (age, view) = (age(&table), table.view());
            let (in_level0, oldest) = (view.level0.size().bytes, view.oldest_in_memtables());
            sight.undrained += view.undrained_bytes();
            sight.mass += in_level0;
            sight.low = age.map_or(sight.low, |oldest| sight.low.min(oldest - 1));
            match oldest {
                Some(oldest) if in_level0 > 0 => sight.bound = sight.bound.min(oldest - 1),
                Some(oldest) => fresh.push((oldest, view.undrained_bytes())),
                None => {}
            }
        }
        // They are to be drained too before a turn is over.
        let due = fresh.iter().filter(|(oldest, _)| *oldest <= sight.bound);
        sight.mass += due.map(|(_, bytes)| bytes).sum::<u64>();
        sight
    }

    /// How many of `units` the indexes take, if their share of the memory limit is so many. What
    /// they take without any record, of which no drain is rid, does not count.
    fn indexed(&self, units: u64) -> u64 {
        let Some(most) = self.most_indexes() else { return 0 };
        // A table has one in its memtable and one in level 0.
        let empty = self.tables().len() as u64 * 2 * Index::least_memory() as u64;
        let taken = self.shared.region.indexes().bytes().saturating_sub(empty);
        // Where that is most of the share, as much again is for records.
        let most = most.saturating_sub(empty).max(empty).max(1);
        taken.saturating_mul(units) / most
    }

    /// Tells writers how fast they may go.
    fn set_pace(&self, now: &Sight) -> Pacing {
        let mut books = self.background.books.lock();
        let pacing = books.look(now);
        let before = books.appended_before_turn(now);
        self.background.appended_before_turn.store(before, Ordering::Relaxed);
        drop(books);
        self.shared.pace.set_delay(pacing.delay, pacing.reason.name());
        *self.background.pacing.lock() = pacing;
        pacing
    }

    /// Bytes at which a memtable is frozen: a sixteenth of the region.
    fn freeze_at(&self) -> u64 {
        self.shared.region.len() / 16
    }

    /// And bytes that its index takes: a merge has its records in two indexes for a while.
    fn freeze_at_index(&self) -> u64 {
        self.most_indexes().map_or(u64::MAX, |most| (most / 8).max(LEAST_FROZEN_INDEX))
    }

    fn freeze_large(&self) -> bool {
        let (bytes, index) = (self.freeze_at(), self.freeze_at_index());
        let is_large = |m: &Memtable| m.bytes() >= bytes || m.memory() >= index;
        let large = |t: &Arc<TableCore>| is_large(&t.view().active);
        match self.tables().into_iter().find(large) {
            Some(table) => self.freeze(&table) && self.freeze_older(&table),
            None => false,
        }
    }

    /// Freezes what has older records than the memtable that was frozen last, for the boundary of
    /// the persistent index to move on.
    fn freeze_older(&self, than: &TableCore) -> bool {
        let oldest = |table: &TableCore| table.view().oldest_in_memtables().unwrap_or(LSN_MAX);
        if self.forest.is_some() {
            let boundary = oldest(than);
            for table in self.tables().iter().filter(|table| oldest(table) < boundary) {
                self.freeze(table);
            }
        }
        true
    }

    /// Freezes a table's active memtable at a boundary in the order of commits.
    pub(super) fn freeze(&self, table: &TableCore) -> bool {
        let mut change = table.change();
        let view = table.view();
        // An empty one is frozen for its boundary, which lets runs below it be drained.
        let boundary = view.frozen.first().map_or(table.merged(), |frozen| frozen.boundary);
        let for_runs = view.version.runs.iter().any(|run| run.lsn > boundary);
        if table.check().is_err() || (view.active.records() == 0 && !for_runs) {
            return false;
        }
        let fresh = Arc::new(Memtable::new(Arc::clone(&self.shared.region)));
        // Made ready here, since nothing is allocated where the boundary is known.
        let mut frozen = change.changed(|view| {
            let memtable = std::mem::replace(&mut view.active, fresh);
            view.frozen.insert(0, Frozen { memtable, boundary: 0 });
        });
        let before = self.shared.committer.at_boundary(|boundary| {
            match Arc::get_mut(&mut frozen) {
                Some(view) => view.frozen[0].boundary = boundary,
                None => unreachable!("a view that was not installed is nobody else's"),
            }
            change.install(frozen)
        });
        drop(before);
        self.background.metrics.freezes.add(1);
        true
    }

    /// Merges the oldest frozen memtables of some tables into their level 0: of one, or of several
    /// with little in them.
    fn merge_some(&self) -> Result<bool> {
        let (mut merged, mut bytes) = (false, 0);
        for table in self.tables() {
            let mut change = table.change();
            let Some(oldest) = table.view().frozen.last().cloned() else { continue };
            if self.shared.committer.visible() < oldest.boundary {
                // Groups below the boundary are still being indexed.
                continue;
            }
            let floor = self.floor_from(oldest.boundary)?;
            let horizon = self.shared.snapshots.horizon();
            let keep = |seq, newer| kept_for(&horizon, floor, (seq, newer));
            let level0 = Arc::clone(&table.view().level0);
            match level0.reserve(&oldest.memtable) {
                Ok(()) => {}
                // Drains make space in the index.
                Err(e) if e.kind() == ErrorKind::Full => {
                    self.shared.pace.report(Some(e.to_string()));
                    continue;
                }
                Err(e) => return Err(e),
            }
            if level0.size().records == 0 {
                // Whatever is older has moved.
                let oldest = oldest.memtable.oldest().map_or(0, |oldest| oldest - 1);
                change.turn.low = change.turn.low.max(oldest);
            }
            let superseded = {
                let _guard = pin();
                // A part of it may be done: it cannot be tried again.
                let ingested = level0.ingest(&oldest.memtable, &keep);
                ingested.inspect_err(|error| self.stop_because(&error.to_string()))?
            };
            change.apply(|view| {
                view.frozen.pop();
                if !superseded.is_empty() {
                    view.pruned = view.pruned.max(horizon.newest());
                }
            });
            table.set_merged(oldest.boundary);
            self.prune_later(level0, superseded);
            self.background.metrics.merges.add(1);
            // An empty one, frozen for its boundary, has none.
            (merged, bytes) = (true, bytes + oldest.memtable.bytes());
            if bytes >= self.freeze_at() / 4 {
                break;
            }
        }
        if bytes > 0 {
            self.raise_merged()?;
        }
        Ok(merged)
    }

    /// Merges all memtables into the persistent index, where there is one, for the next opening to
    /// read none of their records. Unless stock is still being taken: level 0 stays as it is then.
    ///
    /// # Errors
    ///
    /// An I/O error, or `Unavailable` when the database is poisoned.
    pub(super) fn merge_at_close(&self) -> Result<()> {
        if self.forest.is_none() || self.takes_stock() {
            return Ok(());
        }
        self.shared.poison.check()?;
        for table in self.tables() {
            self.freeze(&table);
        }
        while self.merge_some()? {}
        Ok(())
    }

    /// Notes durably how far the persistent index knows of everything.
    fn raise_merged(&self) -> Result<()> {
        let Some(forest) = &self.forest else { return Ok(()) };
        // Before any memtable is looked at: what it covers is in one of them, or in the index.
        let floor = self.settle()?;
        let oldest = self.tables().iter().filter_map(|t| t.view().oldest_in_memtables()).min();
        forest.raise_merged(oldest.map_or(floor, |oldest| floor.min(oldest - 1)))
    }

    /// Lets go of superseded versions once every reader has a view that can do without.
    pub(super) fn prune_later(&self, level0: Arc<Level0>, superseded: Superseded) {
        if superseded.is_empty() {
            return;
        }
        self.background.metrics.pruned_records.add(superseded.len() as u64);
        self.background.books.lock().pruned(superseded.bytes());
        let shared = Arc::clone(&self.shared);
        defer(move || {
            shared.count_out(|| level0.prune(superseded));
        });
    }

    pub(super) fn install(
        &self,
        table: &TableCore,
        change: &mut crate::table::Change<'_>,
        versions: Vec<(TableId, Arc<Version>)>,
        pruned: Lsn,
    ) {
        for (id, version) in versions {
            debug_assert_eq!(id, table.id(), "a job changes one table");
            change.apply(|view| {
                view.version = version;
                view.pruned = view.pruned.max(pruned);
            });
        }
    }

    /// Whether nobody has written since there was nothing left to do.
    pub(super) fn rests(&self) -> bool {
        self.rests_since().is_some()
    }

    /// Whether that is so for a while. Where jobs are stepped it never is: they go by no clock.
    pub(super) fn is_quiet(&self) -> bool {
        let is_long = |since: Instant| since.elapsed() >= QUIET;
        !self.options.stepped && self.rests_since().is_some_and(is_long)
    }

    fn rests_since(&self) -> Option<Instant> {
        let visible = self.shared.committer.visible();
        let rested = self.background.rested.lock().filter(|(lsn, _)| *lsn == visible);
        rested.map(|(_, since)| since)
    }

    /// Nothing is left to do: no drain is late from here on. The floor is written when nobody
    /// writes, and while somebody does as often as this thread looks around by itself: each time
    /// costs syncs, and there is something new each time.
    fn rest(&self) -> Result<bool> {
        *self.background.last_drain.lock() = None;
        let rested = self.rests();
        if !rested {
            let visible = self.shared.committer.visible();
            *self.background.rested.lock() = Some((visible, Instant::now()));
        }
        if rested && self.background.books.lock().lay_down() {
            self.set_pace(&self.sight());
        }
        self.balance_memory();
        let has_time = rested || self.options.stepped || {
            let settled = self.background.settled.lock();
            settled.is_none_or(|at| at.elapsed() >= IDLE)
        };
        if has_time && self.close_reopened(true)? {
            return Ok(true);
        }
        let settles = has_time && !self.shared.committer.is_settled();
        if settles {
            self.settle()?;
            *self.background.settled.lock() = Some(Instant::now());
        }
        // There may be what waited for that.
        Ok(settles || self.options.stepped && !rested)
    }
}
