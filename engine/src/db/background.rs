//! The background: freezes, merges, drains, compactions, and the release of zones, each job
//! bounded, one after the other on one thread.
//!
//! Every job reads the state of its moment and is safe to be cut anywhere: what it changes on the
//! media it changes by one journal edit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::inner::Engine;
use crate::compaction::{self, Choice, Shape};
use crate::error::{ErrorKind, Result};
use crate::level0::ColumnBudget;
use crate::levels::{Edit, Version};
use crate::memtable::Memtable;
use crate::mvcc::{KeyInterval, defer, drive, pin};
use crate::record::{Lsn, TableId};
use crate::table::TableCore;
use crate::view::Frozen;

/// With nothing to do, the background looks around this often (and writes the floor).
const IDLE: Duration = Duration::from_millis(200);

/// While it waits for readers to leave an epoch, it looks this often.
const COOLING: Duration = Duration::from_millis(1);

/// After a job failed, it waits this long before it tries again.
const RETRY: Duration = Duration::from_millis(500);

/// Bytes of extents aimed at.
const EXTENT_BYTES: usize = 2 * 1024 * 1024;

/// How much larger each level is than the one above.
const LEVEL_RATIO: u64 = 10;

/// What the background has done, and what it waits for.
#[derive(Debug, Default)]
pub(super) struct Background {
    pub(super) freezes: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) drains: AtomicU64,
    pub(super) drained_bytes: AtomicU64,
    pub(super) compactions: AtomicU64,
    pub(super) moves: AtomicU64,
    pub(super) zones_released: AtomicU64,
    pub(super) failures: AtomicU64,
    /// Dead zones, and the flag that is set once no reader from before is left.
    cooling: Mutex<Option<(Vec<u32>, Arc<AtomicBool>)>>,
    pace: Mutex<DrainPace>,
}

/// How fast drains have been of late.
#[derive(Debug, Default)]
struct DrainPace {
    /// Nanoseconds a KiB, smoothed.
    nanos_per_kib: u64,
}

/// How full the region is.
#[derive(Clone, Copy, Debug)]
struct Fill {
    used: u64,
    total: u64,
}

impl Fill {
    /// Whether drains should run: half of the zones are taken.
    fn calls_for_drain(self) -> bool {
        self.used * 2 >= self.total
    }

    /// How far into the last quarter, in thousandths.
    fn urgency(self) -> u64 {
        let quarter = self.total.div_ceil(4);
        let over = self.used.saturating_sub(self.total - quarter);
        over * 1000 / quarter
    }
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
                    self.background.failures.fetch_add(1, Ordering::Relaxed);
                    self.shared.pace.report(Some(e.to_string()));
                    if e.kind() != ErrorKind::Full {
                        self.shared.poison.set(&e);
                        self.shared.committer.wake_all();
                    }
                    RETRY
                }
            };
            self.shared.bell.wait(waited_for);
        }
    }

    /// Does the most urgent job; whether there was one.
    pub(super) fn step(&self) -> Result<bool> {
        self.shared.poison.check()?;
        drive();
        let fill = self.fill();
        self.set_pace(fill);
        Ok(self.link_spare()?
            || self.assign_streams()?
            || self.release_dead()?
            || self.freeze_large()
            || self.merge_one()?
            || (fill.calls_for_drain() && !self.is_behind() && self.drain_oldest()?)
            || self.compact_one()?
            || (fill.calls_for_drain() && self.drain_oldest()?)
            || self.settle_when_idle()?)
    }

    /// Whether some level 1 has outgrown its target by half: then compaction goes first. Else
    /// drains would merge each column with ever more of it, and writers, who wait for drains in
    /// the end, are the ones to be slowed down.
    fn is_behind(&self) -> bool {
        let most = self.options.level1_size.saturating_mul(3) / 2;
        let behind =
            |t: &Arc<TableCore>| t.view().version.level(1).is_some_and(|l| l.bytes() > most);
        self.tables().iter().any(behind)
    }

    /// Links a spare zone to a stream that has none, so that no writer has to.
    fn link_spare(&self) -> Result<bool> {
        let Some(stream) = self.shared.committer.lacks_spare() else { return Ok(false) };
        match self.shared.committer.make_spare(stream) {
            Ok(()) => Ok(true),
            // The region is full: the jobs below make space.
            Err(e) if e.kind() == ErrorKind::Full => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn fill(&self) -> Fill {
        let total = u64::from(self.shared.zones.geometry().zone_count);
        Fill { used: total - u64::from(self.shared.zones.free()), total }
    }

    /// Writers slow down over the last quarter of the region, up to twice the time that a drain
    /// needs for what they write.
    fn set_pace(&self, fill: Fill) {
        let nanos = self.background.pace.lock().nanos_per_kib;
        self.shared.pace.set_delay(nanos * 2 * fill.urgency() / 1000);
    }

    /// Releases zones in which nothing lives, once every reader that may look into them is gone.
    fn release_dead(&self) -> Result<bool> {
        let mut cooling = self.background.cooling.lock();
        if let Some((zones, cool)) = cooling.take() {
            if !cool.load(Ordering::Acquire) {
                *cooling = Some((zones, cool));
                return Ok(false);
            }
            let released = self.shared.committer.release(&zones)?;
            self.background.zones_released.fetch_add(released as u64, Ordering::Relaxed);
            self.shared.pace.report(None);
            let oldest = self.shared.zones.oldest();
            for table in self.tables() {
                self.set.forget_drained_below(table.id(), oldest);
            }
            return Ok(released > 0);
        }
        if self.shared.zones.dead(self.shared.committer.durable()).is_empty() {
            return Ok(false);
        }
        // Eligibility: recovery walks upward from the floor on the media, so what is above it
        // must stay, dead or not.
        let floor = self.settle()?;
        let dead = self.shared.committer.releasable(self.shared.zones.dead(floor));
        if dead.is_empty() {
            return Ok(false);
        }
        let cool = Arc::new(AtomicBool::new(false));
        *cooling = Some((dead, Arc::clone(&cool)));
        defer(move || cool.store(true, Ordering::Release));
        Ok(true)
    }

    /// Bytes at which a memtable is frozen: a sixteenth of the region.
    fn freeze_at(&self) -> u64 {
        self.shared.region.len() / 16
    }

    fn freeze_large(&self) -> bool {
        let large = |t: &Arc<TableCore>| t.view().active.bytes() >= self.freeze_at();
        match self.tables().into_iter().find(large) {
            Some(table) => self.freeze(&table),
            None => false,
        }
    }

    /// Freezes a table's active memtable at a boundary in the order of commits.
    fn freeze(&self, table: &TableCore) -> bool {
        let mut change = table.change();
        if table.check().is_err() || table.view().active.records() == 0 {
            return false;
        }
        let fresh = Arc::new(Memtable::new(Arc::clone(&self.shared.region)));
        self.shared.committer.at_boundary(|boundary| {
            change.apply(|view| {
                let memtable = std::mem::replace(&mut view.active, fresh);
                view.frozen.insert(0, Frozen { memtable, boundary });
            });
        });
        self.background.freezes.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Merges the oldest frozen memtable of some table into its level 0.
    fn merge_one(&self) -> Result<bool> {
        for table in self.tables() {
            let mut change = table.change();
            let Some(oldest) = table.view().frozen.last().cloned() else { continue };
            if self.shared.committer.visible() < oldest.boundary {
                // Groups below the boundary are still being indexed.
                continue;
            }
            {
                let _guard = pin();
                table.view().level0.feed(&oldest.memtable);
            }
            change.apply(|view| {
                view.frozen.pop();
            });
            table.set_merged(oldest.boundary);
            self.background.merges.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves the table with the oldest records a step towards level 1: its memtable is frozen if
    /// they are there, else the next column of its level 0 is drained.
    fn drain_oldest(&self) -> Result<bool> {
        let age = |table: &Arc<TableCore>| {
            let low = table.change().turn.low;
            let view = table.view();
            let in_level0 = (view.level0.size().0 > 0).then_some(low);
            in_level0.into_iter().chain(view.oldest_in_memtables()).min()
        };
        let tables = self.tables();
        let mut by_age: Vec<_> = tables.iter().filter_map(|t| Some((age(t)?, t))).collect();
        by_age.sort_by_key(|(age, _)| *age);
        for (_, table) in by_age {
            if table.view().level0.size().0 > 0 {
                if self.drain_column(table)? {
                    return Ok(true);
                }
            } else if self.freeze(table) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Drains the next column of a table's turn.
    fn drain_column(&self, table: &TableCore) -> Result<bool> {
        let from = Instant::now();
        let floor = self.settle()?;
        let mut change = table.change();
        if table.check().is_err() {
            return Ok(false);
        }
        let upto = table.merged().min(floor);
        let budget =
            ColumnBudget { bytes: (self.shared.region.len() / 64).clamp(1 << 18, 4 << 20) };
        let view = table.view();
        let guard = pin();
        let cursor = change.turn.cursor.clone();
        let Some(column) = compaction::choose_column(&view, &cursor, upto, budget) else {
            // The turn is done: every record from before it began has moved.
            let turn = &mut change.turn;
            turn.low = turn.began.take().unwrap_or(upto);
            let again = !turn.cursor.is_empty();
            turn.cursor.clear();
            return Ok(again);
        };
        #[cfg(any(test, feature = "testing"))]
        let _phase = crate::testing::InPhase::enter(crate::testing::Phase::Drain);
        let horizon = self.shared.snapshots.horizon();
        let before = self.set.store().bytes_written();
        let cache = &self.shared.cache;
        let edit = compaction::drain(&view, &column, &self.set, cache, &horizon, EXTENT_BYTES)?;
        drop(guard);
        let edit = self.planted(edit);
        let versions = self.apply(edit)?;
        self.install(table, &mut change, versions, horizon.newest());
        let turn = &mut change.turn;
        turn.began.get_or_insert(upto);
        match &column.interval.end {
            Some(end) => turn.cursor.clone_from(end),
            None => {
                turn.cursor.clear();
                turn.low = turn.began.take().unwrap_or(upto);
            }
        }
        drop(change);
        self.retire_later(table, column.interval, upto);
        let written = self.set.store().bytes_written() - before;
        self.background.drained_bytes.fetch_add(written, Ordering::Relaxed);
        self.background.drains.fetch_add(1, Ordering::Relaxed);
        self.background.pace.lock().measure(from.elapsed(), written);
        self.shared.pace.report(None);
        Ok(true)
    }

    /// Takes drained records out of level 0 once every reader has a view that hides them.
    fn retire_later(&self, table: &TableCore, interval: KeyInterval, upto: Lsn) {
        let (shared, level0) = (Arc::clone(&self.shared), Arc::clone(&table.view().level0));
        defer(move || {
            let geometry = shared.zones.geometry();
            for at in level0.retire(&interval, upto) {
                shared.zones.sub_live(geometry.zone_of(at), 1);
            }
            shared.bell.ring();
        });
    }

    fn install(
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
                view.pruned = pruned;
            });
        }
    }

    /// Runs one compaction between levels, if some table calls for one.
    fn compact_one(&self) -> Result<bool> {
        let shape = Shape {
            level1_bytes: self.options.level1_size,
            ratio: LEVEL_RATIO,
            extent_bytes: EXTENT_BYTES,
        };
        for table in self.tables() {
            let mut change = table.change();
            let version = Arc::clone(&table.view().version);
            let Some(choice) = compaction::pick(&version, &shape) else { continue };
            if table.check().is_err() {
                continue;
            }
            let horizon = self.shared.snapshots.horizon();
            let moved = matches!(choice, Choice::Move { .. });
            let edit = compaction::run(&choice, &self.set, &self.shared.cache, &horizon, &shape)?;
            let versions = self.apply(edit)?;
            self.install(&table, &mut change, versions, horizon.newest());
            let counter = if moved { &self.background.moves } else { &self.background.compactions };
            counter.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        Ok(false)
    }

    fn settle_when_idle(&self) -> Result<bool> {
        if self.shared.committer.is_settled() {
            return Ok(false);
        }
        self.settle()?;
        Ok(false)
    }

    #[cfg(any(test, feature = "testing"))]
    fn planted(&self, mut edit: Edit) -> Edit {
        if self.options.has(crate::options::Planted::ForgetDrained) {
            edit.ops.retain(|op| !matches!(op, crate::levels::Op::Drained { .. }));
        }
        edit
    }

    #[cfg(not(any(test, feature = "testing")))]
    fn planted(&self, edit: Edit) -> Edit {
        edit
    }
}

impl DrainPace {
    fn measure(&mut self, took: Duration, bytes: u64) {
        let nanos = took.as_nanos() as u64 / bytes.div_ceil(1024).max(1);
        self.nanos_per_kib = (self.nanos_per_kib * 3 + nanos) / 4;
    }
}
