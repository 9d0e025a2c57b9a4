//! Compactions: on the background's thread, or several at a time on workers beside it.
//!
//! A plan claims the keys that it works on, in its levels, under the right to change the table. It
//! then runs without it: drains and other compactions of the table go on elsewhere. The right is
//! taken again to install what came out.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::claims::Claim;
use super::context::{JobContext, Outcome};
use super::manual::ManualCompaction;
use super::ops::{AddedExtents, edit_is_of, install};
use super::table_index::Rest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::events::CompactionInfo;
use crate::base::options::Failpoint;
use crate::compaction::{
    self, Choice, Done, NextManual, Planned, SPARED_SUBLEVELS, Situation, Work, pick,
};
use crate::mvcc::Horizon;
use crate::os::sync::atomic::Ordering;
use crate::os::time;
use crate::sstable::Extent;
use crate::table::TableCore;
use crate::version::{Version, known_as};

/// The job.
#[derive(Debug, Default)]
pub(crate) struct Compact;

/// A compaction about to run.
pub(crate) struct Plan<'a> {
    table: Arc<TableCore>,
    choice: Choice,
    is_for_tombstones: bool,
    /// A call asked for it.
    is_by_hand: bool,
    /// Whether it reads or writes objects, and whether it writes some.
    touches_objects: bool,
    puts_objects: bool,
    horizon: Horizon,
    claim: Claim<'a>,
}

/// What an edit has installed.
struct Installed {
    /// Extents that moved down beside.
    moved: u64,
    /// Extents that were written.
    written: AddedExtents,
}

impl Plan<'_> {
    fn info(&self, Installed { moved, written }: &Installed) -> CompactionInfo {
        let choice = &self.choice;
        let top = choice.inputs.iter().map(|(n, _)| *n).min().unwrap_or(choice.to);
        let reason = match choice {
            _ if self.is_by_hand => "call",
            Choice { collects, .. } if !collects.is_empty() => "values",
            _ if self.is_for_tombstones => "deletes",
            _ if top == choice.to => "again",
            _ => "level",
        };
        let (down, again) = choice.bytes();
        CompactionInfo {
            table: self.table.name(),
            from_level: known_as(top),
            to_level: known_as(choice.to),
            reason,
            is_move: choice.is_move,
            extents_in: (choice.extents().count() + choice.overlap.len()) as u64,
            bytes_in: down + again,
            extents_out: written.count,
            bytes_out: written.bytes,
            extents_moved: *moved,
            ..CompactionInfo::default()
        }
    }
}

/// What a look at a table found.
pub(crate) enum Look<'a> {
    Found(Box<Plan<'a>>),
    /// The table needs none as it is, however often it is looked at.
    Nothing,
    /// Another job has the table, or keys of it.
    Busy,
}

/// What runs before each extent is written: it may wait, or do what is more urgent.
pub(crate) type BeforeExtent<'a> = &'a dyn Fn(u64) -> Result<()>;

impl Compact {
    /// What the first table that needs a compaction needs most, with its keys claimed. Tables that
    /// other jobs have are passed over: a worker does not wait for one while another needs work.
    pub(crate) fn plan<'a>(&self, ctx: &'a JobContext, work: Work) -> Option<Box<Plan<'a>>> {
        // Before the horizon: what is released between the two is looked at again.
        let releases = ctx.shared.snapshots.releases();
        let rest = ctx.rest();
        let mut tables = ctx.tables.index().compactable((rest, releases), &ctx.shape_at(rest));
        // One that the disk has no room for does not keep the next from making some.
        let refused = ctx.refused.load(Ordering::Relaxed);
        let behind = tables.iter().position(|table| table.id() == refused);
        tables.rotate_left(behind.map_or(0, |at| at + 1));
        for table in tables {
            let version = Arc::clone(&table.view().version);
            let concerns_objects = version.concerns_objects();
            if work == Work::Objects && !concerns_objects {
                continue;
            }
            match self.look_at(ctx, table.clone(), (rest, work)) {
                Look::Found(plan) => return Some(plan),
                Look::Busy => {}
                // A larger job may have something to do, where no thread finds a small one.
                Look::Nothing if table.job_halvings() > 0 => {
                    if let Look::Nothing = self.look_at(ctx, table.clone(), (rest, Work::Any)) {
                        table.allow_large_jobs();
                    }
                }
                // The other threads may find something.
                Look::Nothing if work != Work::Any && concerns_objects => {}
                Look::Nothing => {
                    ctx.tables.index().not_compactable(table.id(), &version, rest);
                }
            }
        }
        None
    }

    /// What a table needs most, its keys claimed.
    pub(crate) fn look_at<'a>(
        &self,
        ctx: &'a JobContext,
        table: Arc<TableCore>,
        (rest, work): (Rest, Work),
    ) -> Look<'a> {
        self.look_for(ctx, table, (rest, work), |version, now| match pick(version, now) {
            Some(choice) => NextManual::Choice(choice),
            None if now.busy.is_empty() => NextManual::Nothing,
            None => NextManual::Busy,
        })
    }

    /// What a request needs next, its keys claimed.
    pub(crate) fn look_by_hand<'a>(
        &self,
        ctx: &'a JobContext,
        request: &ManualCompaction,
        work: Work,
    ) -> Look<'a> {
        let (table, meant) = (Arc::clone(&request.table), (&request.keys, request.upto));
        let mut look = self.look_for(ctx, table, (ctx.rest(), work), |version, now| {
            compaction::pick_manual(version, meant, now)
        });
        if let Look::Found(plan) = &mut look {
            plan.is_by_hand = true;
        }
        look
    }

    fn look_for<'a>(
        &self,
        ctx: &'a JobContext,
        table: Arc<TableCore>,
        (rest, work): (Rest, Work),
        pick: impl FnOnce(&Version, &Situation<'_>) -> NextManual<Arc<Extent>>,
    ) -> Look<'a> {
        let Some(no_other_change) = table.try_change() else { return Look::Busy };
        if table.check().is_err() {
            return Look::Nothing;
        }
        let horizon = ctx.shared.snapshots.horizon();
        let busy = ctx.claims.of(table.id());
        let rests = rest >= Rest::Resting;
        let (version, mut shape) = (Arc::clone(&table.view().version), ctx.shape_at(rest));
        shape.job_bytes >>= table.job_halvings().min(u32::BITS);
        let spared = if shape.may_touch_objects(&version) { SPARED_SUBLEVELS } else { 0 };
        let (readers, shape) = (horizon.readers(), &shape);
        let now = Situation { readers, rests, busy: &busy, spared, work, shape };
        let choice = match pick(&version, &now) {
            NextManual::Choice(choice) => choice,
            NextManual::Busy => return Look::Busy,
            NextManual::Nothing => return Look::Nothing,
        };
        let claimed = match choice.may_hide() {
            true => choice.claimed().deepened(&busy),
            false => choice.claimed(),
        };
        let Some(claim) = ctx.claims.claim(table.id(), claimed) else { return Look::Busy };
        drop(no_other_change);
        debug_assert!(ctx.claims.holds(&claim), "a plan has its keys before it runs");
        let is_for_tombstones = choice.is_for_tombstones(rests);
        let touches_objects = choice.touches_objects(shape, version.options);
        let puts_objects = shape.puts_objects(choice.to, version.options);
        Look::Found(Box::new(Plan {
            table,
            choice,
            is_for_tombstones,
            is_by_hand: false,
            touches_objects,
            puts_objects,
            horizon,
            claim,
        }))
    }

    /// Runs it. `before_extent` is told of the bytes of each extent; where it fails, the compaction
    /// ends there, and what it wrote goes.
    pub(crate) fn run(
        &self,
        plan: &Plan<'_>,
        ctx: &JobContext,
        before_extent: BeforeExtent<'_>,
    ) -> Result<Outcome> {
        let outcome = self.run_plan(plan, ctx, before_extent);
        match &outcome {
            // The end for a closing says nothing of the store.
            Err(error) if error.is_of_store() && !ctx.is_stopping() => {
                ctx.metrics.store_failures.add(1);
                ctx.object_work.failed(error);
            }
            Ok(_) if plan.touches_objects => ctx.object_work.succeeded(),
            _ => {}
        }
        outcome
    }

    fn run_plan(
        &self,
        plan: &Plan<'_>,
        ctx: &JobContext,
        before_extent: BeforeExtent<'_>,
    ) -> Result<Outcome> {
        let Plan { table, choice, horizon, claim, .. } = plan;
        let began = time::now();
        let (waited, is_promised) = (Cell::new(Duration::ZERO), Cell::new(false));
        let before_extent = |bytes| {
            is_promised.set(true);
            let from = time::now();
            // After a failure it ends, and does not wait for what it spent.
            while !ctx.rate.spend(bytes, ctx.is_stopping()) {
                ctx.shared.poison.check()?;
                before_extent(bytes)?;
            }
            waited.set(waited.get() + time::since(from));
            if plan.touches_objects && ctx.is_stopping() {
                // No closing waits for a store.
                let closing = "a compaction with objects ends: the database is closing";
                return Err(Error::new(ErrorKind::Unavailable, closing).of_store());
            }
            before_extent(bytes)
        };
        let (set, cache, shape) = (&ctx.set, &ctx.shared.cache, ctx.shape());
        let (bottom, underestimates) = (claim.bottom(), table.underestimates());
        let planned = Planned { choice, bottom, puts_objects: plan.puts_objects, underestimates };
        let done = compaction::run(planned, set, cache, horizon, &shape, &before_extent);
        let wrote_more = is_promised.get() && done.is_err();
        // The edit too may find none.
        let installed = self.install(plan, ctx, done);
        let failed = installed.as_ref().err();
        if failed.is_some_and(|error| error.kind() == ErrorKind::Full) {
            // A smaller one may find room.
            table.halve_jobs(wrote_more);
        }
        if failed.is_some_and(|error| error.may_pass() || error.kind() == ErrorKind::Corrupt) {
            // What fails for one table need not for the next: that comes first.
            ctx.refused.store(table.id(), Ordering::Relaxed);
        }
        match installed? {
            Some(installed) => self.count(plan, ctx, (&installed, began)),
            // Dropped meanwhile: what was written goes with it.
            None => return Ok(Outcome::DONE),
        }
        let (left_level1, waited) = (Some(choice.out_of_level1()), waited.get());
        Ok(Outcome { left_level1, waited, ..Outcome::DONE })
    }

    /// Installs what came out, with the extents that move down into the room that it made. `None`
    /// if the table was dropped meanwhile.
    fn install(
        &self,
        plan: &Plan<'_>,
        ctx: &JobContext,
        done: Result<Done>,
    ) -> Result<Option<Installed>> {
        let Plan { table, choice, horizon, claim, .. } = plan;
        let mut change = table.change();
        if table.check().is_err() {
            return Ok(None);
        }
        let mut done = done?;
        debug_assert!(ctx.claims.holds(claim), "a claim stands until its edit is installed");
        let version = Arc::clone(&table.view().version);
        let busy = ctx.claims.but(claim);
        let moving = compaction::trivial_moves(&version, choice, &busy).ops;
        let installed =
            Installed { moved: moving.len() as u64, written: AddedExtents::of(&done.edit) };
        done.edit.ops.extend(moving);
        debug_assert!(edit_is_of(&done.edit, table.id()), "a compaction changes its own table");
        let versions =
            match !choice.collects.is_empty() && ctx.options.has(Failpoint::CollectBeforeEdit) {
                true => ctx.adopt_unjournaled(&done.edit, [table.id()].into_iter())?,
                false => ctx.apply_freeing(done.edit)?,
            };
        install(table, &mut change, versions, horizon.newest());
        drop(change);
        ctx.metrics.count_reused(&done.carried_over);
        done.replaced.iter().for_each(|extent| extent.evict());
        Ok(Some(installed))
    }

    fn count(&self, plan: &Plan<'_>, ctx: &JobContext, (installed, began): (&Installed, Instant)) {
        // A move says nothing about room: it writes nothing.
        if !plan.choice.is_move {
            let (refused, id) = (&ctx.refused, plan.table.id());
            plan.table.allow_large_jobs();
            refused.compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed).unwrap_or(id);
        }
        let metrics = &ctx.metrics;
        if plan.choice.is_move { &metrics.moves } else { &metrics.compactions }.add(1);
        metrics.tombstone_compactions.add(u64::from(plan.is_for_tombstones));
        metrics.collections.add(u64::from(!plan.choice.collects.is_empty()));
        metrics.trivially_moved_extents.add(installed.moved);
        ctx.options.events.send(|| CompactionInfo {
            ms: time::since(began).as_secs_f64() * 1e3,
            ..plan.info(installed)
        });
        ctx.memory.balance();
    }
}

#[cfg(test)]
impl Plan<'_> {
    /// The keys that it works on.
    pub(crate) fn interval(&self) -> crate::mvcc::KeyInterval {
        self.choice.interval()
    }

    /// The table that it works on.
    pub(crate) fn table(&self) -> &TableCore {
        &self.table
    }
}
