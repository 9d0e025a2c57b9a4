//! Drains: the next columns of the tables with the oldest records go to level 1. Tables with little
//! go along with others: a round over a thousand idle ones takes as many jobs, syncs and edits as
//! their bytes ask for, and not their number.

use std::sync::Arc;
use std::time::Instant;

use super::columns::{self, DrainSize, Drained, drain_in_room, install_all};
use super::context::{JobContext, Outcome};
use super::ops::freeze;
use super::table_index::Has;
use crate::base::error::{ErrorKind, Result};
use crate::base::record::Lsn;
use crate::compaction::{self, NextDrain};
use crate::mvcc::{Horizon, pin};
use crate::os::sync::locks::Mutex;
use crate::os::time;
use crate::read::view::View;
use crate::table::{Change, TableCore};

/// The most tables that one job freezes or drains.
const MOST_TABLES: usize = 64;

/// The job.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// When the last drain of a series ended.
    last: Mutex<Option<Instant>>,
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
    /// Moves a table with runs a step towards level 1, or freezes some that have to be before.
    /// Reads have to look at each run, so none is left when there is time.
    pub(crate) fn step_runs(&self, ctx: &JobContext) -> Result<Outcome> {
        let (mut ready, mut early) = (Vec::new(), Vec::new());
        let tables = ctx.tables.index().having(Has::Runs);
        for table in tables {
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
        let mut failed = None;
        for (n, table) in ready.iter().enumerate() {
            match self.drain((table, table.change()), &ready[n + 1..], (ctx, "runs")) {
                Err(e) if e.may_pass() => failed = failed.or(Some(e)),
                Ok(outcome) if !outcome.did => {}
                done => return done,
            }
        }
        let early = early.iter().take(MOST_TABLES);
        let frozen = early.filter(|table| freeze(ctx, table)).count() > 0;
        failed.filter(|_| !frozen).map_or(Ok(Outcome::did(frozen)), Err)
    }

    /// Nothing is left to do: no drain is late from here on.
    pub(crate) fn end_series(&self) {
        *self.last.lock() = None;
    }

    /// Moves the table with the oldest records that can go a step towards level 1, and with it
    /// others. One that has them in memtables alone is frozen. One that the disk has no room for,
    /// or whose extents cannot be read, keeps no other from its turn.
    pub(crate) fn step(&self, ctx: &JobContext) -> Result<Outcome> {
        let tables = ctx.tables.index().by_age();
        let in_level0 = |table: &TableCore| table.view().level0.size().records > 0;
        let (mut passed_over, mut failed) = (None, None);
        for (n, oldest) in tables.iter().enumerate() {
            let others = &tables[n + 1..];
            if in_level0(oldest) {
                let Some(change) = oldest.try_change() else {
                    passed_over = passed_over.or(Some(n));
                    continue;
                };
                match self.drain((oldest, change), others, (ctx, "region")) {
                    Err(e) if e.may_pass() => failed = failed.or(Some(e)),
                    Ok(outcome) if !outcome.did => {}
                    done => return done,
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
        let done = passed_over.map(|n| {
            self.drain((&tables[n], tables[n].change()), &tables[n + 1..], (ctx, "region"))
        });
        let outcome = done.transpose()?.unwrap_or(Outcome::NOTHING);
        failed.filter(|_| !outcome.did).map_or(Ok(outcome), Err)
    }

    /// Drains the next column of `first`, and more with it, as far as the disk has room.
    fn drain<'a>(
        &self,
        (first, change): (&'a Arc<TableCore>, Change<'a>),
        others: &'a [Arc<TableCore>],
        (ctx, reason): (&JobContext, &'static str),
    ) -> Result<Outcome> {
        let mut change = Some(change);
        drain_in_room(ctx, reason, |size| {
            let change = change.take().or_else(|| first.try_change());
            let Some(change) = change else { return Ok(Outcome::NOTHING) };
            self.drain_some((first, change), others, ctx, size)
        })
    }

    /// Drains the next column of `first`, and with it all that those of `others` have whose level 0
    /// and runs fit the budget too.
    fn drain_some<'a>(
        &self,
        (first, change): (&'a Arc<TableCore>, Change<'a>),
        others: &'a [Arc<TableCore>],
        ctx: &JobContext,
        size: &DrainSize,
    ) -> Result<Outcome> {
        let from = self.last.lock().unwrap_or_else(time::now);
        // Merges have seen to it, as a rule.
        let floor = ctx.floor_from(first.merged())?;
        #[cfg(any(test, feature = "testing"))]
        let _phase = crate::testing::InPhase::enter(crate::testing::Phase::Drain);
        // Taken before any version is looked at, so it holds for all of them.
        let horizon = ctx.shared.snapshots.horizon();
        let mut columns = match next_column(ctx, (first, change), (floor, &horizon), size)? {
            Next::Column(column) => vec![column],
            Next::RoundOver(again) => return Ok(Outcome::did(again)),
            Next::Nothing => return Ok(Outcome::NOTHING),
        };
        let mut left = size.beside(&columns[0]);
        for table in others {
            if columns.len() == MOST_TABLES {
                break;
            }
            let bytes = undrained(&table.view());
            if bytes == 0 || bytes > left.budget {
                continue;
            }
            // A table that another job changes goes with the next drain.
            let Some(change) = table.try_change() else { continue };
            match next_column(ctx, (table, change), (floor, &horizon), &left) {
                Ok(Next::Column(column)) => {
                    left = left.beside(&column);
                    columns.push(column);
                }
                Ok(_) => {}
                // There was space for those before.
                Err(e) if e.kind() == ErrorKind::Full => break,
                Err(e) if e.may_pass() => {}
                Err(e) => return Err(e),
            }
        }
        debug_assert!(columns.len() <= MOST_TABLES, "an edit is of so many tables at most");
        let drained = install_all(ctx, columns, &horizon, (from, size))?;
        *self.last.lock() = Some(time::now());
        ctx.shared.pace.report(None);
        ctx.memory.balance();
        Ok(Outcome { drained: Some(drained), ..Outcome::DONE })
    }
}

/// Merges the next column of a table's round with level 1.
fn next_column<'a>(
    ctx: &JobContext,
    (table, mut change): (&'a Arc<TableCore>, Change<'a>),
    (floor, horizon): (Lsn, &Horizon),
    size: &DrainSize,
) -> Result<Next<'a>> {
    if table.check().is_err() {
        return Ok(Next::Nothing);
    }
    let view = table.view();
    let upto = table.merged().min(floor).min(view.drains_below() - 1);
    let upto = columns::in_round(&view, &change.round, upto);
    let busy = ctx.claims.of(table.id());
    let from = (change.round.cursor.as_slice(), upto);
    let next = {
        let _guard = pin();
        compaction::plan_drain(&view, from, size.budget, &size.shape, &busy)?
    };
    let plan = match next {
        NextDrain::Column(plan) => plan,
        // The end of the compaction that works on its keys wakes the background.
        NextDrain::Claimed => return Ok(Next::Nothing),
        NextDrain::RoundOver => {
            // Every record from before it began has moved.
            let round = &mut change.round;
            let low = round.began.take().unwrap_or(upto);
            debug_assert!(low <= floor, "what is drained is at or below the floor");
            // A merge into an empty level 0 may have raised it beyond where the round began.
            round.low = round.low.max(low);
            let again = !round.cursor.is_empty();
            round.cursor.clear();
            return Ok(Next::RoundOver(again));
        }
    };
    debug_assert!(plan.column.upto <= floor, "what is drained is at or below the floor");
    debug_assert!(plan.column.upto < view.drains_below(), "a pending run stays above D");
    debug_assert!(plan.reach.covers(&plan.column.interval), "a drain reaches over its column");
    let done = columns::merge(ctx, &view, &plan, (horizon, &busy), (size, false))?;
    drop(view);
    Ok(Next::Column(Box::new(Drained { table, change, plan, done, is_in_turn: true })))
}
