//! Commits too large for a zone: their records are in extents, as a run for each table, and what
//! goes through the ring is the runs' numbers.
//!
//! Outline. (1) The extents are synced, and the journal keeps them as pending. (2) Each table's
//! view gets its run, which no reader sees. (3) The commit takes its ticket, and with it the runs
//! their LSN: they are visible and durable when the commit is, with all else that it has. (4) The
//! journal is told, table by table, and only then the commit's records in the region need not stay.
//! `docs/commit.md` has the argument.
//!
//! `write.rs` has what brings such a commit to its ticket. Everything that can fail does so before
//! (3), and is undone then. If the process dies, the next opening finds pending runs, and whether
//! their commit was accepted.
//!
//! A commit that comes from elsewhere has its runs written here too: the reader of a shared log
//! lays out what the writer's run had.

use std::sync::Arc;

use super::Shared;
use super::core::{TableBatch, TableCore};
use super::extent_writer::ExtentWriter;
use super::shared::UnshippedRun;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::Failpoint;
use crate::base::record::{EntryRef, Kind, Lsn, TableId};
use crate::commit::{CommitTable, JournalMark};
use crate::memtable::record_len;
use crate::os::sync::atomic::Ordering;
use crate::read::view::{PendingRun, TicketLsn};
use crate::sstable::Format;
use crate::storage::EXTENT_BYTES;
use crate::version::{Edit, EditReservation, Level, Op, Room, Version};

/// What a commit has written to one table.
#[derive(Clone)]
pub(crate) struct NewRun {
    pub(crate) core: Arc<TableCore>,
    /// Each key once.
    pub(crate) extents: Level,
    /// Whether they are laid out as those of levels are.
    pub(crate) loaded: bool,
}

impl NewRun {
    /// The tables of the runs that a commit is about to have, those of `batch` after `runs`. They
    /// have no numbers yet.
    pub(crate) fn to_come(
        runs: &[NewRun],
        batch: Option<&TableBatch>,
    ) -> Vec<(Arc<dyn CommitTable>, u64)> {
        let given = runs.iter().map(|run| Arc::clone(&run.core));
        let cores = given.chain(batch.into_iter().flat_map(TableBatch::tables));
        cores.map(|core| (core as Arc<dyn CommitTable>, 0)).collect()
    }
}

/// A run that stands in its table's view.
pub(crate) struct Joined {
    core: Arc<TableCore>,
    run: PendingRun,
}

impl Joined {
    /// Its table, and its number.
    pub(crate) fn table(&self) -> (Arc<dyn CommitTable>, u64) {
        (Arc::clone(&self.core) as _, self.run.id)
    }

    pub(crate) fn id(&self) -> u64 {
        self.run.id
    }

    /// The number of its table, and its rows.
    pub(crate) fn rows(&self) -> (TableId, Level) {
        (self.core.id(), self.run.extents.clone())
    }

    /// The LSN of its commit, once that has its ticket.
    pub(crate) fn lsn(&self) -> Option<Lsn> {
        self.run.lsn.get()
    }

    /// Records in it.
    pub(crate) fn records(&self) -> u64 {
        self.run.extents.records()
    }

    /// The commit of `runs` has its ticket.
    pub(crate) fn at_ticket(runs: &[Joined], lsn: Lsn) {
        debug_assert!(
            runs.windows(2).all(|pair| Arc::ptr_eq(&pair[0].run.lsn, &pair[1].run.lsn)),
            "the runs of a commit share one LSN"
        );
        // One for all of them.
        runs.iter().take(1).for_each(|joined| joined.run.lsn.set(lsn));
    }
}

impl Shared {
    /// What is left of a batch that does not fit in a zone beside its commit's runs and `others`
    /// bytes: its puts and deletes are to become runs too.
    pub(crate) fn rest_of(
        &self,
        batch: &TableBatch,
        runs: &[NewRun],
        others: usize,
    ) -> Option<TableBatch> {
        let stored = batch.stored_len() + runs.len() * record_len(8, 0) + others;
        (!self.committer.fits(stored)).then(|| batch.without_rows())
    }

    /// Writes what a batch has for each table as a run. The space for all of them comes first.
    ///
    /// # Errors
    ///
    /// `Full` when the disk has no room, and nothing is written; or on an I/O error.
    pub(crate) fn runs_of(&self, batch: &TableBatch) -> Result<Vec<NewRun>> {
        let (tables, operations): (Vec<_>, _) = (batch.tables().collect(), batch.sorted()?);
        let of_tables = operations.chunk_by(|a, b| a.table == b.table).map(|operations| {
            let bytes = operations.iter().map(|o| record_len(o.key.len(), o.value.len()) as u64);
            Ok((operations, ExtentWriter::new(&self.set, bytes.sum(), false)?))
        });
        let of_tables = of_tables.collect::<Result<Vec<_>>>()?.into_iter();
        let runs = of_tables.map(|(operations, mut writer)| {
            debug_assert!(
                operations.is_sorted_by(|a, b| a.key < b.key),
                "a run has each key once, in order"
            );
            for operation in operations {
                let (key, kind, value) = (operation.key, operation.kind, &*operation.value);
                writer.add(EntryRef { key, seq: 1, kind, value })?;
            }
            let core = Arc::clone(&tables[operations[0].table]);
            Ok(NewRun { core, extents: Level::new(writer.finish()?), loaded: false })
        });
        runs.collect()
    }

    /// Steps 1 and 2. What has been done of it is in `joined` also when it fails.
    pub(crate) fn join(&self, runs: Vec<NewRun>, joined: &mut Vec<Joined>) -> Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        self.sync_extents()?;
        let lsn = TicketLsn::unknown();
        for NewRun { core, extents, loaded } in runs {
            debug_assert!(extents.records() > 0, "a run that joins a table has records");
            let mut change = core.change();
            // What drops the table waits for the change, so it is there for the edit.
            core.check()?;
            let run = self.set.next_extent_id();
            let listed = extents.extents().to_vec();
            let add = Op::AddRun { table: core.id(), run, extents: listed, loaded };
            self.apply(Edit { ops: vec![add] })?;
            let run = PendingRun { id: run, extents, lsn: Arc::clone(&lsn) };
            change.apply(|view| view.pending_runs.push(run.clone()));
            drop(change);
            joined.push(Joined { core, run });
        }
        debug_assert!(lsn.get().is_none(), "runs join their tables before the ticket (step 2)");
        Ok(())
    }

    /// Keeps runs without a ticket until the shared store has them: with their commit, or with the
    /// prepare that has the ticket `of`. Those that a bulk load has laid out are `loaded`.
    pub(crate) fn keep_for_shipper(
        &self,
        joined: &[Joined],
        of: Option<&Arc<TicketLsn>>,
        loaded: &[bool],
    ) {
        if !self.unshipped.has_room() {
            return;
        }
        for (n, Joined { core, run }) in joined.iter().enumerate() {
            let (rows, lsn) = (run.extents.clone(), Arc::clone(of.unwrap_or(&run.lsn)));
            let loaded = loaded.get(n).is_some_and(|loaded| *loaded);
            self.unshipped.add(run.id, UnshippedRun { table: core.id(), rows, loaded, lsn });
        }
    }

    /// Makes extents durable that were written.
    pub(super) fn sync_extents(&self) -> Result<()> {
        self.set.sync_extents().inspect_err(|e| self.stop_because(&e.to_string()))
    }

    /// Steps 1 and 2 for a run that the journal has as pending, one of several of `lsn`.
    pub(crate) fn join_again(
        &self,
        core: &Arc<TableCore>,
        (id, extents): (u64, Level),
        lsn: &Arc<TicketLsn>,
    ) -> Joined {
        let run = PendingRun { id, extents, lsn: Arc::clone(lsn) };
        core.change().apply(|view| view.pending_runs.push(run.clone()));
        Joined { core: Arc::clone(core), run }
    }

    /// Undoes the steps before the ticket.
    pub(crate) fn withdraw(&self, joined: &[Joined]) {
        self.unshipped.forget(joined.iter().map(|joined| joined.run.id));
        self.drop_pending(joined);
    }

    /// As [`withdraw`](Shared::withdraw), of a prepare that was rolled back.
    pub(crate) fn drop_pending(&self, joined: &[Joined]) {
        for Joined { core, run } in joined {
            debug_assert!(
                run.lsn.get().is_none(),
                "only runs of a commit without a ticket are withdrawn"
            );
            let mut change = core.change();
            change.apply(|view| view.pending_runs.retain(|other| other.id != run.id));
            self.end_run(core, run.id);
        }
    }

    /// Tells the journal of runs that ended when it had no room, as far as it has some now. The
    /// background calls it.
    pub(crate) fn end_runs(&self) {
        let mut ended = std::mem::take(&mut *self.ended_runs.lock());
        while let Some((core, run)) = ended.pop() {
            let _change = core.change();
            if !self.end_run(&core, run) {
                break;
            }
        }
        self.ended_runs.lock().append(&mut ended);
    }

    /// Tells the journal that a run ended, with its table's change held; whether it had the room.
    /// Else the run is kept for [`end_runs`](Shared::end_runs).
    fn end_run(&self, core: &Arc<TableCore>, run: u64) -> bool {
        // Dropped, the table has taken the run along, or is about to.
        if core.check().is_err() {
            return true;
        }
        let op = Op::DropRun { table: core.id(), run };
        let ended = self.apply_in(Edit { ops: vec![op] }, Room::Freeing);
        let has_room = ended.err().is_none_or(|e| !e.may_pass());
        if !has_room {
            self.ended_runs.lock().push((Arc::clone(core), run));
        }
        has_room
    }

    /// Has the journal's space for step 4, before the ticket: a full disk does not stop what is
    /// decided.
    pub(crate) fn reserve_conclusion(&self, joined: &[Joined]) -> Result<EditReservation<'_>> {
        let edits = joined.iter().map(|Joined { core, run }| Edit {
            ops: vec![Op::CommitRun { table: core.id(), run: run.id, lsn: 0 }],
        });
        self.set.reserve_edits(edits, Room::Freeing)
    }

    /// Step 4, in the space that was reserved for it. The commit is decided, so a failure stops the
    /// database, and the next opening goes on.
    pub(crate) fn conclude(
        &self,
        joined: &[Joined],
        lsn: Lsn,
        zone: u32,
        mut reservation: EditReservation<'_>,
    ) {
        debug_assert!(
            lsn <= self.committer.durable() || self.region.has(Failpoint::RunBeforeRecord),
            "the journal learns of a commit once its record in the region is durable (step 4)"
        );
        debug_assert!(
            joined.iter().all(|joined| joined.lsn() == Some(lsn)),
            "the journal gives a run the LSN that readers see it at"
        );
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
            let versions = match self.apply_reserved(Edit { ops: vec![op] }, &mut reservation) {
                Ok(versions) => versions,
                Err(e) => return self.stop_because(&e.to_string()),
            };
            let version = versions.into_iter().find(|(id, _)| *id == core.id());
            debug_assert!(
                version.iter().any(|(_, version)| version.runs.iter().any(|r| r.id == run.id)),
                "a run is of the version once it is not pending any more (view invariant 5)"
            );
            change.apply(|view| {
                view.pending_runs.retain(|other| other.id != run.id);
                view.version = version.map_or(Arc::clone(&view.version), |(_, version)| version);
            });
        }
        let count = joined.len() as u64;
        self.committer.counts.spilled_runs.fetch_add(count, Ordering::Relaxed);
        self.zones.sub_live(zone, count);
        self.wakeup.wake();
    }

    /// Applies an edit to the journal, durably. The floor names it from the next run on, or at once
    /// where it frees space: what it freed may be written over then.
    ///
    /// # Errors
    ///
    /// `Full` when the disk is full, and nothing was changed; anything else poisons the database.
    pub(crate) fn apply(&self, edit: Edit) -> Result<Vec<(TableId, Arc<Version>)>> {
        self.apply_in(edit, Room::Ordinary)
    }

    /// As [`Shared::apply`]; `room` says how much of the journal's space it may use.
    pub(crate) fn apply_in(&self, edit: Edit, room: Room) -> Result<Vec<(TableId, Arc<Version>)>> {
        let frees = edit.frees();
        self.applied(self.set.apply_in(edit, self.committer.durable(), room), frees)
    }

    /// As [`Shared::apply`], in space that was reserved.
    ///
    /// # Errors
    ///
    /// Any poisons the database.
    pub(crate) fn apply_reserved(
        &self,
        edit: Edit,
        reservation: &mut EditReservation<'_>,
    ) -> Result<Vec<(TableId, Arc<Version>)>> {
        let frees = edit.frees();
        self.applied(self.set.apply_reserved(edit, self.committer.durable(), reservation), frees)
    }

    /// Sees to what follows an edit, which may free space.
    fn applied<T>(&self, applied: Result<T>, frees: bool) -> Result<T> {
        match &applied {
            Ok(_) => {
                let floor = self.set.floor();
                self.committer.note_journal(JournalMark { epoch: floor.epoch, edit: floor.number });
                if frees {
                    // A failure has poisoned the database, and nothing that the edit freed is used.
                    self.committer.sync_floor()?;
                    self.set.give_back(floor);
                }
            }
            // Nothing has changed, and the job is made again.
            Err(e) if e.may_pass() || e.kind() == ErrorKind::Closed => {}
            Err(e) => self.stop_because(&e.to_string()),
        }
        applied
    }

    /// Poisons the database and wakes every waiting thread.
    pub(crate) fn stop_because(&self, cause: &str) {
        self.poison.set_because(cause.to_string());
        self.wake_stopped(cause);
    }

    /// As [`stop_because`](Self::stop_because), of an error.
    pub(crate) fn stop_by(&self, cause: &Error) {
        self.poison.set(cause);
        self.wake_stopped(&cause.to_string());
    }

    fn wake_stopped(&self, cause: &str) {
        self.committer.wake_all();
        self.pace.report(Some(cause.to_string()));
    }
}

/// What a run that is being written holds in memory: the extent under way, which may grow a little
/// beyond its size. With large values as much again, for the value extent under way.
const HELD: usize = EXTENT_BYTES + EXTENT_BYTES / 4;

/// A run that is being written. Dropped, it leaves nothing.
pub(crate) struct RunWriter {
    core: Arc<TableCore>,
    writer: ExtentWriter,
    loaded: bool,
    _held: HeldMemory,
}

/// Bytes that a writer holds in memory.
struct HeldMemory {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.shared.write_memory.changed(self.bytes, 0);
    }
}

impl RunWriter {
    /// Begins a run of a table.
    pub(crate) fn new(shared: &Arc<Shared>, core: &Arc<TableCore>, loaded: bool) -> RunWriter {
        let options = core.view().version.options;
        let own = options.compression.map(|(_, deeper)| deeper);
        let format = Format::of(options, own.unwrap_or(shared.load_compression));
        let bytes = if options.large_values.is_some() { 2 * HELD } else { HELD };
        shared.write_memory.changed(0, bytes);
        let held = HeldMemory { shared: Arc::clone(shared), bytes };
        let writer = ExtentWriter::lasting(&shared.set, format);
        RunWriter { core: Arc::clone(core), writer, loaded, _held: held }
    }

    /// Adds a row, of which the key is greater than all before.
    pub(crate) fn add(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        // What is written here in place of the LSN means nothing.
        self.writer.add(EntryRef { key, seq: 1, kind, value })
    }

    /// The run, to be committed.
    pub(crate) fn finish(self) -> Result<NewRun> {
        let extents = Level::new(self.writer.finish()?);
        Ok(NewRun { core: self.core, extents, loaded: self.loaded })
    }
}
