//! Drains: the next columns of the tables with the oldest records go to level 1. Tables with little
//! go along with others: a round over a thousand idle ones takes as many jobs, syncs and edits as
//! their bytes ask for, and not their number.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::context::{DrainedBytes, JobContext, Outcome};
use super::ops::{freeze, install};
use crate::compaction::{self, Done, DrainPlan, NextDrain};
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

/// The job.
#[derive(Debug, Default)]
pub(in crate::db) struct Drain {
    /// When the last drain of a series ended.
    last: Mutex<Option<Instant>>,
}

/// Tables to drain, in this order.
pub(in crate::db) enum Plan {
    /// The oldest records first. What has them in memtables alone is frozen.
    ByAge(Vec<Arc<TableCore>>),
    /// Tables with runs: those that can be drained, and those that have to be frozen before.
    Runs { ready: Vec<Arc<TableCore>>, early: Vec<Arc<TableCore>> },
}

/// A column that was merged with level 1, short of its edit.
struct Drained<'a> {
    table: &'a Arc<TableCore>,
    change: Change<'a>,
    plan: DrainPlan,
    done: Done,
}

impl Drained<'_> {
    /// Bytes that were merged. What comes of them, no more, is on disk beside them until the edit.
    fn bytes(&self) -> u64 {
        let replaced = self.done.replaced.iter().map(|e| u64::from(e.meta().location.len));
        self.plan.level0_bytes + self.plan.run_bytes + replaced.sum::<u64>()
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
    /// Its round is over; whether another one may begin.
    RoundOver(bool),
    /// Nothing for now.
    Nothing,
}

/// Bytes that a table has above level 1 outside of memtables.
fn undrained(view: &View) -> u64 {
    let runs = view.version.runs.iter().map(|run| run.extents.bytes());
    view.level0.size().bytes + runs.sum::<u64>()
}

impl Drain {
    /// Tables with undrained records, the oldest first.
    pub(in crate::db) fn plan(&self, ctx: &JobContext) -> Option<Plan> {
        let tables = ctx.tables.index().by_age();
        (!tables.is_empty()).then_some(Plan::ByAge(tables))
    }

    /// Tables with runs. Reads have to look at each run, so none is left when there is time.
    pub(in crate::db) fn plan_runs(&self, ctx: &JobContext) -> Option<Plan> {
        let (mut ready, mut early) = (Vec::new(), Vec::new());
        for table in ctx.tables.index().runs() {
            let view = table.view();
            let Some(oldest) = view.version.runs.last().map(|run| run.lsn) else { continue };
            let is_frozen = !view.frozen.is_empty();
            drop(view);
            if table.merged() >= oldest {
                ready.push(table);
            } else if !is_frozen {
                early.push(table);
            }
        }
        (!ready.is_empty() || !early.is_empty()).then_some(Plan::Runs { ready, early })
    }

    /// Nothing is left to do: no drain is late from here on.
    pub(in crate::db) fn end_series(&self) {
        *self.last.lock() = None;
    }

    /// Moves the first of the tables that can go a step towards level 1, and with it others.
    ///
    /// # Errors
    ///
    /// Those of reading, writing and of the edit.
    pub(in crate::db) fn run(&self, plan: Plan, ctx: &JobContext) -> Result<Outcome> {
        match plan {
            Plan::ByAge(tables) => self.drain_by_age(&tables, ctx),
            Plan::Runs { ready, early } => {
                for (n, table) in ready.iter().enumerate() {
                    let first = (table, table.change());
                    let outcome = self.drain(first, &ready[n + 1..], ctx)?;
                    if outcome.did {
                        return Ok(outcome);
                    }
                }
                let early = early.iter().take(MOST_TABLES);
                Ok(Outcome::did(early.filter(|table| freeze(ctx, table)).count() > 0))
            }
        }
    }

    fn drain_by_age(&self, tables: &[Arc<TableCore>], ctx: &JobContext) -> Result<Outcome> {
        let in_level0 = |table: &TableCore| table.view().level0.size().records > 0;
        let mut passed_over = None;
        for (n, oldest) in tables.iter().enumerate() {
            let others = &tables[n + 1..];
            if in_level0(oldest) {
                let Some(change) = oldest.try_change() else {
                    passed_over = passed_over.or(Some(n));
                    continue;
                };
                let outcome = self.drain((oldest, change), others, ctx)?;
                if outcome.did {
                    return Ok(outcome);
                }
            } else if freeze(ctx, oldest) {
                let more = others.iter().filter(|table| !in_level0(table));
                for table in more.take(MOST_TABLES - 1) {
                    freeze(ctx, table);
                }
                return Ok(Outcome::DONE);
            }
        }
        // No other table needs a drain: now it may wait for the one that another job changes.
        let Some(n) = passed_over else { return Ok(Outcome::NOTHING) };
        self.drain((&tables[n], tables[n].change()), &tables[n + 1..], ctx)
    }

    /// Drains the next column of `first`, and with it all that those of `others` have whose level 0
    /// and runs fit the budget too.
    fn drain<'a>(
        &self,
        (first, change): (&'a Arc<TableCore>, Change<'a>),
        others: &'a [Arc<TableCore>],
        ctx: &JobContext,
    ) -> Result<Outcome> {
        let from = self.last.lock().unwrap_or_else(Instant::now);
        // Merges have seen to it, as a rule.
        let floor = ctx.floor_from(first.merged())?;
        #[cfg(any(test, feature = "testing"))]
        let _phase = crate::testing::InPhase::enter(crate::testing::Phase::Drain);
        let before = ctx.set.store().bytes_written();
        // Taken before any version is looked at, so it holds for all of them.
        let horizon = ctx.shared.snapshots.horizon();
        let budget = drain_budget(ctx);
        let mut columns = match next_column(ctx, (first, change), floor, &horizon, budget)? {
            Next::Column(column) => vec![column],
            Next::RoundOver(again) => return Ok(Outcome::did(again)),
            Next::Nothing => return Ok(Outcome::NOTHING),
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
            // A table that another job changes goes with the next drain.
            let Some(change) = table.try_change() else { continue };
            match next_column(ctx, (table, change), floor, &horizon, left) {
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
        let drained = install_all(ctx, columns, &horizon, from)?;
        ctx.metrics.drained_bytes.add(ctx.set.store().bytes_written() - before);
        *self.last.lock() = Some(Instant::now());
        ctx.shared.pace.report(None);
        ctx.memory.balance();
        Ok(Outcome { drained: Some(drained), ..Outcome::DONE })
    }
}

/// Bytes that a job merges, beyond which no more columns are added to it.
fn drain_budget(ctx: &JobContext) -> u64 {
    (ctx.shared.region.len() / 16).clamp(1 << 18, 4 << 20)
}

/// Merges the next column of a table's round with level 1.
fn next_column<'a>(
    ctx: &JobContext,
    (table, mut change): (&'a Arc<TableCore>, Change<'a>),
    floor: Lsn,
    horizon: &Horizon,
    bytes: u64,
) -> Result<Next<'a>> {
    if table.check().is_err() {
        return Ok(Next::Nothing);
    }
    let _guard = pin();
    let view = table.view();
    let upto = table.merged().min(floor).min(view.drains_below() - 1);
    let (busy, shape) = (ctx.claims.of(table.id()), ctx.shape());
    let from = (change.round.cursor.as_slice(), upto);
    let next = compaction::plan_drain(&view, from, ColumnBudget { bytes }, &shape, &busy)?;
    let plan = match next {
        NextDrain::Column(plan) => plan,
        // The end of the compaction that works on its keys wakes the background.
        NextDrain::Claimed => return Ok(Next::Nothing),
        NextDrain::RoundOver => {
            // Every record from before it began has moved.
            let round = &mut change.round;
            let low = round.began.take().unwrap_or(upto);
            debug_assert!(low <= floor, "what is drained is at or below the floor");
            round.low = low;
            let again = !round.cursor.is_empty();
            round.cursor.clear();
            return Ok(Next::RoundOver(again));
        }
    };
    debug_assert!(plan.column.upto <= floor, "what is drained is at or below the floor");
    debug_assert!(
        !busy.iter().any(|busy| busy.overlaps(&plan.reach)) || plan.inputs.is_empty(),
        "a drain merges with nothing that a compaction works on"
    );
    let cache = &ctx.shared.cache;
    let mut done = compaction::drain(&view, &plan, &ctx.set, cache, horizon, &shape)?;
    if ctx.options.has(Planted::ForgetDrained) {
        done.edit.ops.retain(|op| !matches!(op, Op::Drained { .. }));
    }
    drop(view);
    Ok(Next::Column(Box::new(Drained { table, change, plan, done })))
}

/// Applies one edit for all columns, and shows it.
fn install_all(
    ctx: &JobContext,
    columns: Vec<Box<Drained<'_>>>,
    horizon: &Horizon,
    from: Instant,
) -> Result<DrainedBytes> {
    if !is_installed_early(ctx, &columns) {
        ctx.set.sync_extents()?;
    }
    let ops = columns.iter().flat_map(|drained| drained.done.edit.ops.iter().cloned());
    let versions = apply(ctx, Edit { ops: ops.collect() }, &columns)?;
    let (mut level0, mut runs, mut added) = (0, 0, 0);
    for drained in columns {
        level0 += drained.plan.level0_bytes;
        runs += drained.plan.run_bytes;
        added += drained.added();
        ctx.metrics.spilled_extents.add(drained.used_up());
        install_one(ctx, *drained, &versions, horizon);
        ctx.metrics.drains.add(1);
    }
    Ok(DrainedBytes { level0, runs, added, took: from.elapsed() })
}

/// Shows a column's part of the edit, and goes on in its round.
fn install_one(
    ctx: &JobContext,
    drained: Drained<'_>,
    versions: &[(TableId, Arc<Version>)],
    horizon: &Horizon,
) {
    let Drained { table, mut change, plan, done } = drained;
    let column = plan.column;
    ctx.metrics.count_reused(&done.reused);
    let own = versions.iter().filter(|(id, _)| *id == table.id()).cloned();
    let before = Arc::clone(&table.view().version);
    install(table, &mut change, own.collect(), horizon.newest());
    debug_assert!(
        table.view().version.drained.get(&column.interval.start)
            >= before.drained.get(&column.interval.start),
        "D never falls"
    );
    done.replaced.iter().for_each(|extent| extent.evict(&ctx.shared.cache));
    let round = &mut change.round;
    round.began.get_or_insert(column.upto);
    match &column.interval.end {
        Some(end) => {
            debug_assert!(*end > round.cursor, "a round goes up");
            round.cursor.clone_from(end);
        }
        None => {
            round.cursor.clear();
            round.low = round.began.take().unwrap_or(column.upto);
        }
    }
    drop(change);
    retire_later(ctx, table, column.interval, column.upto);
}

/// Takes drained records out of level 0 once every reader has a view that hides them.
fn retire_later(ctx: &JobContext, table: &Arc<TableCore>, interval: KeyInterval, upto: Lsn) {
    let (shared, table) = (Arc::clone(&ctx.shared), Arc::clone(table));
    let (level0, drained) = {
        let view = table.view();
        (Arc::clone(&view.level0), planted_drained(ctx, &view.version.drained, upto))
    };
    defer(move || {
        shared.count_out(|| level0.retire(&interval, upto, &drained));
        table.mark_changed();
    });
}

/// What level 0 takes for drained when it removes range tombstones.
fn planted_drained(ctx: &JobContext, drained: &DrainedMap, upto: Lsn) -> DrainedMap {
    let mut drained = drained.clone();
    if ctx.options.has(Planted::RetireRangesEarly) {
        drained.set(&KeyInterval::all(), upto);
    }
    drained
}

/// Whether the edit of these columns is to come before the values that they wrote apart.
fn is_installed_early(ctx: &JobContext, columns: &[Box<Drained<'_>>]) -> bool {
    let mut ops = columns.iter().flat_map(|drained| &drained.done.edit.ops);
    let refers = |op: &Op| match op {
        Op::AddExtent { extent, .. } => !extent.meta().values.is_empty(),
        _ => false,
    };
    ctx.options.has(Planted::InstallBeforeSync) && ops.any(refers)
}

/// Journals the edit of a drain.
fn apply(
    ctx: &JobContext,
    edit: Edit,
    columns: &[Box<Drained<'_>>],
) -> Result<Vec<(TableId, Arc<Version>)>> {
    if ctx.options.has(Planted::ReuseBeforeEdit) {
        let tables = columns.iter().map(|drained| drained.table.id());
        return ctx.adopt_unjournaled(&edit, tables);
    }
    ctx.apply(edit)
}
