//! Drains: the next columns of the tables with the oldest records go to level 1. Tables with little
//! go along with others: a turn over a thousand idle ones takes as many jobs, syncs and edits as
//! their bytes ask for, and not their number.

use std::sync::Arc;
use std::time::Instant;

use super::background::age;
use super::inner::Engine;
use crate::compaction::{self, Column, Done, Shape};
use crate::error::{ErrorKind, Result};
use crate::extent::Extent;
use crate::level0::ColumnBudget;
use crate::levels::{Edit, Op, Version};
use crate::mvcc::{DrainedMap, Horizon, KeyInterval, defer, pin};
use crate::options::Planted;
use crate::record::{Lsn, TableId};
use crate::table::{Change, TableCore};
use crate::view::View;

/// The most tables that one job freezes or drains.
const MOST_TABLES: usize = 64;

/// A column that was merged with level 1, short of its edit.
struct Drained<'a> {
    table: &'a TableCore,
    change: Change<'a>,
    column: Column,
    done: Done,
    /// Bytes of level 0 that it moves.
    mass: u64,
    /// Bytes of the extents of runs that it is merged with.
    of_runs: u64,
}

impl Drained<'_> {
    /// Bytes that were merged. What comes of them, no more, is on disk beside them until the edit.
    fn bytes(&self) -> u64 {
        let replaced = self.done.replaced.iter().map(|e| u64::from(e.meta().location.len));
        self.mass + self.of_runs + replaced.sum::<u64>()
    }

    /// Bytes that level 1 has more for it.
    fn added(&self) -> u64 {
        let len = |extent: &Arc<Extent>| u64::from(extent.meta().location.len);
        let new = |op: &Op| if let Op::AddExtent { extent, .. } = op { len(extent) } else { 0 };
        let gone: u64 = self.done.replaced.iter().map(len).sum();
        self.done.edit.ops.iter().map(new).sum::<u64>().saturating_sub(gone)
    }

    /// Extents of runs that it uses up.
    fn used_up(&self) -> u64 {
        let is_one = |op: &&Op| matches!(op, Op::RemoveFromRun { .. });
        self.done.edit.ops.iter().filter(is_one).count() as u64
    }
}

/// What a table has to drain.
enum Next<'a> {
    Column(Box<Drained<'a>>),
    /// Its turn is over; whether another one may begin.
    TurnOver(bool),
    /// Nothing for now.
    Nothing,
}

/// Whether range tombstones would be drained with a column.
fn has_ranges(view: &View, column: &Column) -> bool {
    let drained = &view.version.drained;
    !view.level0.tombstones_in(&column.interval, column.upto, drained).is_empty()
}

/// Bytes that a table has above level 1 outside of memtables.
fn undrained(view: &View) -> u64 {
    let runs = view.version.runs.iter().map(|run| run.extents.bytes());
    view.level0.size().bytes + runs.sum::<u64>()
}

impl Engine {
    /// Moves the tables with the oldest records a step towards level 1: memtables are frozen if
    /// the oldest are there, else columns of level 0 are drained, with one edit.
    pub(super) fn drain_oldest(&self) -> Result<bool> {
        let tables = self.tables();
        let mut by_age: Vec<_> = tables.iter().filter_map(|t| Some((age(t)?, t))).collect();
        by_age.sort_by_key(|(age, _)| *age);
        let by_age: Vec<&TableCore> = by_age.into_iter().map(|(_, table)| &**table).collect();
        let in_level0 = |table: &&TableCore| table.view().level0.size().records > 0;
        for (n, oldest) in by_age.iter().enumerate() {
            let others = &by_age[n + 1..];
            if in_level0(oldest) {
                if self.drain(oldest, others)? {
                    return Ok(true);
                }
            } else if self.freeze(oldest) {
                let more = others.iter().filter(|table| !in_level0(table));
                for table in more.take(MOST_TABLES - 1) {
                    self.freeze(table);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves tables that have runs a step on: reads have to look at each run, so none is left when
    /// there is time.
    pub(super) fn drain_runs(&self) -> Result<bool> {
        let (mut ready, mut early) = (Vec::new(), Vec::new());
        let tables = self.tables();
        for table in &tables {
            let view = table.view();
            let Some(oldest) = view.version.runs.last() else { continue };
            if table.merged() >= oldest.lsn {
                ready.push(&**table);
            } else if view.frozen.is_empty() {
                early.push(table);
            }
        }
        for (n, table) in ready.iter().enumerate() {
            if self.drain(table, &ready[n + 1..])? {
                return Ok(true);
            }
        }
        let early = early.into_iter().take(MOST_TABLES);
        Ok(early.filter(|table| self.freeze(table)).count() > 0)
    }

    /// Bytes that a job merges, beyond which no more columns are added to it.
    fn drain_budget(&self) -> u64 {
        (self.shared.region.len() / 16).clamp(1 << 18, 4 << 20)
    }

    /// Drains the next column of `first`, and with it all that those of `others` have whose level 0
    /// and runs fit the budget too.
    fn drain(&self, first: &TableCore, others: &[&TableCore]) -> Result<bool> {
        let from = self.background.last_drain.lock().unwrap_or_else(Instant::now);
        // Merges have seen to it, as a rule.
        let floor = self.floor_from(first.merged())?;
        #[cfg(any(test, feature = "testing"))]
        let _phase = crate::testing::InPhase::enter(crate::testing::Phase::Drain);
        let before = self.set.store().bytes_written();
        // Taken before any version is looked at, so it holds for all of them.
        let horizon = self.shared.snapshots.horizon();
        let budget = self.drain_budget();
        let mut columns = match self.next_column(first, floor, &horizon, budget)? {
            Next::Column(column) => vec![column],
            Next::TurnOver(again) => return Ok(again),
            Next::Nothing => return Ok(false),
        };
        let mut left = budget.saturating_sub(columns[0].bytes());
        for table in others {
            if columns.len() == MOST_TABLES {
                break;
            }
            let bytes = undrained(&table.view());
            if bytes == 0 || bytes > left {
                continue;
            }
            match self.next_column(table, floor, &horizon, left) {
                Ok(Next::Column(column)) => {
                    left = left.saturating_sub(column.bytes());
                    columns.push(column);
                }
                Ok(_) => {}
                // There was space for those before.
                Err(e) if e.kind() == ErrorKind::Full => break,
                Err(e) => return Err(e),
            }
        }
        self.install_drained(columns, &horizon, from)?;
        let written = self.set.store().bytes_written() - before;
        self.background.metrics.drained_bytes.add(written);
        *self.background.last_drain.lock() = Some(Instant::now());
        self.shared.pace.report(None);
        self.background.budget.ring();
        self.balance_memory();
        Ok(true)
    }

    /// Merges the next column of a table's turn with level 1.
    fn next_column<'a>(
        &self,
        table: &'a TableCore,
        floor: Lsn,
        horizon: &Horizon,
        bytes: u64,
    ) -> Result<Next<'a>> {
        let mut change = table.change();
        if table.check().is_err() {
            return Ok(Next::Nothing);
        }
        let _guard = pin();
        let view = table.view();
        let upto = table.merged().min(floor).min(view.drains_below() - 1);
        let cursor = change.turn.cursor.clone();
        let (budget, mut shape) = (ColumnBudget { bytes }, self.shape());
        let Some(column) = compaction::choose_column(&view, &cursor, upto, budget, &shape)? else {
            // The turn is done: every record from before it began has moved.
            let turn = &mut change.turn;
            turn.low = turn.began.take().unwrap_or(upto);
            let again = !turn.cursor.is_empty();
            turn.cursor.clear();
            return Ok(Next::TurnOver(again));
        };
        let reach = compaction::reach(&view.version, &column, &shape);
        if self.background.claims.of(table.id()).iter().any(|busy| busy.overlaps(&reach)) {
            // What a compaction is at work on is left to it, however little it is: the column comes
            // to lie over it, or would have to wait for its end.
            shape.little_bytes = 0;
        }
        let Some(column) = self.free_part(table, &view, column, &shape) else {
            // A compaction is at work on its keys; its end rings the bell.
            return Ok(Next::Nothing);
        };
        let (cache, version) = (&self.shared.cache, &view.version);
        let mass = view.level0.bytes_in(&column.interval, column.upto, &version.drained)?;
        let of_runs = compaction::run_bytes(version, &column);
        let moves = (&column, mass + of_runs);
        let mut done = compaction::drain(&view, moves, &self.set, cache, horizon, &shape)?;
        done.edit = self.planted(done.edit);
        Ok(Next::Column(Box::new(Drained { table, change, column, done, mass, of_runs })))
    }

    /// The part of a column that compactions leave to a drain.
    fn free_part(
        &self,
        table: &TableCore,
        view: &View,
        column: Column,
        shape: &Shape,
    ) -> Option<Column> {
        let (version, has_ranges) = (&view.version, has_ranges(view, &column));
        let layer = compaction::layer_for(version, &column.interval, shape);
        if !has_ranges && version.overlapping(layer, &column.interval).is_empty() {
            // It comes to lie above all that they work on.
            return Some(column);
        }
        let end = column.interval.end.clone();
        let reach = |column: &Column| compaction::reach(version, column, shape);
        let free = self.background.claims.leave_to(table.id(), column, reach)?;
        // A range tombstone is cut behind some key, and a claim may begin in front of one.
        (free.interval.end == end || !has_ranges).then_some(free)
    }

    /// Applies one edit for all columns, and shows it.
    fn install_drained(
        &self,
        columns: Vec<Box<Drained<'_>>>,
        horizon: &Horizon,
        from: Instant,
    ) -> Result<()> {
        if !self.is_installed_early(&columns) {
            self.set.sync_extents()?;
        }
        let ops = columns.iter().flat_map(|drained| drained.done.edit.ops.iter().cloned());
        let versions = self.apply_drain(Edit { ops: ops.collect() }, &columns)?;
        let background = &self.background;
        let mass = columns.iter().map(|drained| drained.mass).sum();
        let of_runs = columns.iter().map(|drained| drained.of_runs).sum();
        let added = columns.iter().map(|drained| drained.added()).sum();
        let used_up = columns.iter().map(|drained| drained.used_up()).sum();
        background.metrics.spilled_extents.add(used_up);
        for drained in columns {
            let Drained { table, mut change, column, done, .. } = *drained;
            background.metrics.count_reused(&done.reused);
            let own = versions.iter().filter(|(id, _)| *id == table.id()).cloned();
            self.install(table, &mut change, own.collect(), horizon.newest());
            done.replaced.iter().for_each(|extent| extent.evict(&self.shared.cache));
            let turn = &mut change.turn;
            turn.began.get_or_insert(column.upto);
            match &column.interval.end {
                Some(end) => turn.cursor.clone_from(end),
                None => {
                    turn.cursor.clear();
                    turn.low = turn.began.take().unwrap_or(column.upto);
                }
            }
            drop(change);
            self.retire_later(table, column.interval, column.upto);
            background.metrics.drains.add(1);
        }
        background.books.lock().drained(mass, of_runs, added, from.elapsed());
        Ok(())
    }

    /// Takes drained records out of level 0 once every reader has a view that hides them.
    fn retire_later(&self, table: &TableCore, interval: KeyInterval, upto: Lsn) {
        let shared = Arc::clone(&self.shared);
        let (level0, drained) = {
            let view = table.view();
            (Arc::clone(&view.level0), self.planted_drained(&view.version.drained, upto))
        };
        defer(move || shared.count_out(|| level0.retire(&interval, upto, &drained)));
    }

    fn planted(&self, mut edit: Edit) -> Edit {
        if self.options.has(Planted::ForgetDrained) {
            edit.ops.retain(|op| !matches!(op, Op::Drained { .. }));
        }
        edit
    }

    /// What level 0 takes for drained when it lets range tombstones go.
    fn planted_drained(&self, drained: &DrainedMap, upto: Lsn) -> DrainedMap {
        let mut drained = drained.clone();
        if self.options.has(Planted::RetireRangesEarly) {
            drained.set(&KeyInterval::all(), upto);
        }
        drained
    }

    /// Whether the edit of these columns is to come before the values that they wrote apart.
    fn is_installed_early(&self, columns: &[Box<Drained<'_>>]) -> bool {
        let mut ops = columns.iter().flat_map(|drained| &drained.done.edit.ops);
        let refers = |op: &Op| match op {
            Op::AddExtent { extent, .. } => !extent.meta().values.is_empty(),
            _ => false,
        };
        self.options.has(Planted::InstallBeforeSync) && ops.any(refers)
    }

    /// Journals the edit of a drain.
    fn apply_drain(
        &self,
        edit: Edit,
        columns: &[Box<Drained<'_>>],
    ) -> Result<Vec<(TableId, Arc<Version>)>> {
        if self.options.has(Planted::ReuseBeforeEdit) {
            return self.adopt_unjournaled(&edit, columns.iter().map(|drained| drained.table.id()));
        }
        self.apply(edit)
    }

    /// A planted bug: shows an edit of some tables that is not in the journal.
    pub(super) fn adopt_unjournaled(
        &self,
        edit: &Edit,
        tables: impl Iterator<Item = TableId>,
    ) -> Result<Vec<(TableId, Arc<Version>)>> {
        self.set.adopt(edit)?;
        Ok(tables.filter_map(|id| Some((id, self.set.version(id)?))).collect())
    }
}
