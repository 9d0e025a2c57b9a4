//! Commits too large for a zone: their records are in extents, as a run for each table, and what
//! goes through the ring is the runs' numbers.
//!
//! Outline. (1) The extents are synced, and the journal keeps them as pending. (2) Each table's
//! view gets its run, which nobody sees. (3) The commit takes its ticket, and with it the runs
//! their LSN: they are visible and durable when the commit is, with all else that it has. (4) The
//! journal is told, table by table, and only then the commit's records in the region need not stay.
//! `docs/commit.md` has the argument.
//!
//! Everything that can fail does so before (3), and is undone then. If the process dies, the next
//! opening finds pending runs, and whether their commit was accepted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Shared;
use super::core::TableCore;
use crate::commit::{Batch, Group, Home, JournalMark, Pending};
use crate::error::{ErrorKind, Result};
use crate::extent::Extent;
use crate::levels::{Edit, Level, Op, Version};
use crate::memtable::record_len;
use crate::options::{Durability, Planted};
use crate::record::{EntryRef, Lsn, TableId};
use crate::spill::ExtentWriter;
use crate::view::{Joining, TicketLsn};

/// What a commit has written to one table.
pub(crate) struct NewRun {
    pub(crate) core: Arc<TableCore>,
    /// Sorted and disjoint, each key once.
    pub(crate) extents: Vec<Arc<Extent>>,
}

/// A run that stands in its table's view.
struct Joined {
    core: Arc<TableCore>,
    run: Joining,
}

impl Shared {
    /// Commits runs, and with them a batch of other tables, all of it or nothing, durably: the LSN,
    /// which was waited for. Whoever waits for it again learns how that ended.
    ///
    /// # Errors
    ///
    /// As [`Table::put`](crate::Table::put), but for `UnknownOutcome`; `Full` also when the disk
    /// has no room for extents or for the journal.
    pub(crate) fn commit_runs(
        &self,
        batch: &Batch,
        mut runs: Vec<NewRun>,
        deadline: Option<Instant>,
    ) -> Result<Lsn> {
        let _finishes = self.large.read();
        self.check_writable()?;
        if self.committer.fits(batch.stored_len() + runs.len() * record_len(8, 0)) {
            return self.commit_joined(batch, runs, deadline);
        }
        runs.extend(self.runs_of(batch)?);
        self.commit_joined(&batch.without_operations(), runs, deadline)
    }

    /// Writes what a batch has for each table as a run.
    fn runs_of(&self, batch: &Batch) -> Result<Vec<NewRun>> {
        let (homes, operations) = (batch.homes(), batch.sorted());
        let of_tables = operations.chunk_by(|a, b| a.home == b.home);
        let runs = of_tables.map(|operations| {
            let bytes = operations.iter().map(|o| record_len(o.key.len(), o.value.len()) as u64);
            let mut writer = ExtentWriter::new(&self.set, bytes.sum(), false)?;
            for operation in operations {
                let (key, kind, value) = (operation.key, operation.kind, operation.value);
                writer.add(EntryRef { key, seq: 1, kind, value })?;
            }
            let home = Arc::clone(&homes[operations[0].home]).into_any();
            let core = home.downcast().unwrap_or_else(|_| unreachable!("tables are TableCores"));
            Ok(NewRun { core, extents: writer.finish()? })
        });
        runs.collect()
    }

    fn commit_joined(
        &self,
        batch: &Batch,
        runs: Vec<NewRun>,
        deadline: Option<Instant>,
    ) -> Result<Lsn> {
        let mut joined = Vec::with_capacity(runs.len());
        let enqueued =
            self.join(runs, &mut joined).and_then(|()| self.enqueue_runs(batch, &joined, deadline));
        let pending = match enqueued {
            Ok(pending) => pending,
            Err(e) => {
                self.withdraw(&joined);
                return Err(e);
            }
        };
        let (zone, lsn) = (pending.zone(), pending.lsn());
        self.committer.counts().spilled_runs.fetch_add(joined.len() as u64, Ordering::Relaxed);
        // If it fails the database is poisoned, and whoever waits for it learns that.
        if self.region.has(Planted::RunBeforeRecord) || pending.wait().is_ok() {
            self.conclude(&joined, lsn, zone);
        }
        Ok(lsn)
    }

    /// Steps 1 and 2. What has been done of it is in `joined` also when it fails.
    fn join(&self, runs: Vec<NewRun>, joined: &mut Vec<Joined>) -> Result<()> {
        self.set.store().sync().inspect_err(|e| {
            self.set.poison();
            self.stop_because(&e.to_string());
        })?;
        let lsn = TicketLsn::unknown();
        for NewRun { core, extents } in runs {
            let mut change = core.change();
            // What drops the table waits for the change, so it is there for the edit.
            core.check()?;
            let run = self.set.next_extent_id();
            let add = Op::AddRun { table: core.id(), run, extents: extents.clone() };
            self.apply(Edit { ops: vec![add] })?;
            let run = Joining { id: run, extents: Level::new(extents), lsn: Arc::clone(&lsn) };
            change.apply(|view| view.joining.push(run.clone()));
            drop(change);
            joined.push(Joined { core, run });
        }
        Ok(())
    }

    /// Step 3, up to the ticket.
    fn enqueue_runs(
        &self,
        batch: &Batch,
        joined: &[Joined],
        deadline: Option<Instant>,
    ) -> Result<Pending<'_>> {
        let largest = self.zones.geometry().largest_zone();
        let group = || {
            self.check_writable()?;
            let mut group = Group::encode(batch, largest)?;
            let runs = joined.iter().map(|j| (Arc::clone(&j.core) as Arc<dyn Home>, j.run.id));
            group.add_runs(runs, largest)?;
            Ok(group)
        };
        // One for all of them.
        let at_ticket = |lsn| joined.iter().take(1).for_each(|joined| joined.run.lsn.set(lsn));
        self.enqueue_group(&group, (Durability::Durable, deadline), &at_ticket)
    }

    /// Undoes the steps before the ticket. What cannot be undone now is at the next opening.
    fn withdraw(&self, joined: &[Joined]) {
        for Joined { core, run } in joined {
            let mut change = core.change();
            change.apply(|view| view.joining.retain(|other| other.id != run.id));
            // Dropped, the table has taken the run along, or is about to.
            if core.check().is_ok() {
                let op = Op::DropRun { table: core.id(), run: run.id };
                drop(self.apply(Edit { ops: vec![op] }));
            }
        }
    }

    /// Step 4. The commit is decided, so a failure stops the database, and the next opening goes on.
    fn conclude(&self, joined: &[Joined], lsn: Lsn, zone: u32) {
        for Joined { core, run } in joined {
            let mut change = core.change();
            if core.check().is_err() {
                // The table was dropped after that, and takes the run along once the event that
                // drops it is in the journal.
                drop(change);
                drop(self.ddl.lock());
                continue;
            }
            let op = Op::CommitRun { table: core.id(), run: run.id, lsn };
            let versions = match self.apply(Edit { ops: vec![op] }) {
                Ok(versions) => versions,
                Err(e) => return self.stop_because(&e.to_string()),
            };
            let version = versions.into_iter().find(|(id, _)| *id == core.id());
            change.apply(|view| {
                view.joining.retain(|other| other.id != run.id);
                view.version = version.map_or(Arc::clone(&view.version), |(_, version)| version);
            });
        }
        self.zones.sub_live(zone, joined.len() as u64);
        self.bell.ring();
    }

    /// Applies an edit to the journal, durably. The floor names it from the next run on.
    ///
    /// # Errors
    ///
    /// `Full` when the disk is full, and nothing was changed; anything else poisons the database.
    pub(crate) fn apply(&self, edit: Edit) -> Result<Vec<(TableId, Arc<Version>)>> {
        let applied = self.set.apply(edit, self.committer.durable());
        match &applied {
            Ok(_) => {
                let floor = self.set.floor();
                self.committer.note_journal(JournalMark { epoch: floor.epoch, edit: floor.number });
            }
            Err(e) if e.kind() == ErrorKind::Full => {}
            Err(e) => self.stop_because(&e.to_string()),
        }
        applied
    }

    /// Poisons the database and wakes everybody who waits.
    pub(crate) fn stop_because(&self, cause: &str) {
        self.poison.set_because(cause.to_string());
        self.committer.wake_all();
        self.pace.report(Some(cause.to_string()));
    }
}
