//! The metadata of a damaged database: what the sound edits of its journal make, and the table
//! events and commits of runs that the region has.
//!
//! A sound edit is true, also where edits before it are lost. So:
//!
//! - What one of them ended has no part in the others: a table that was dropped, an extent, a run
//!   or a row table that was removed. An edit that brought or moved it may be lost or not.
//! - An event that no edit has stands behind the edit of the event before it.
//! - An extent enters its level although others overlap it there. A lost edit removed those. They
//!   stay, since their rows may be nowhere else: a reader goes by sequence numbers.
//! - A table whose creation is lost is made. It takes its name even from another one, which was
//!   renamed since, and is kept under a name that no table has.
//! - Of what still does not fit, each operation by itself is left out. It moves or commits what is
//!   not there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::{LostEdits, VersionSet, opened};
use crate::base::error::{Damage, Mismatch, Result};
use crate::base::options::Tier;
use crate::base::record::{Lsn, TableId};
use crate::os::Files;
use crate::sstable::ExtentMeta;
use crate::storage::{ExtentStore, Location};
use crate::version::edit::{Edit, Op};
use crate::version::journal::{self, Journal, JournalFloor, ReadEdits, Replayed};
use crate::version::state::{Broken, State};

type MetaOp = Op<Arc<ExtentMeta>>;

/// What was committed by records of the region, and the journal may lack.
#[derive(Default)]
pub(crate) struct Decided {
    /// Table events, as edits.
    pub(crate) events: BTreeMap<Lsn, Edit<Arc<ExtentMeta>>>,
    /// Runs, with the LSNs of their commits.
    pub(crate) runs: BTreeMap<u64, Lsn>,
}

/// What can be read of a journal.
pub(crate) struct SalvagedSet {
    pub(crate) set: VersionSet,
    /// What of it is lost, and what does not fit the rest.
    pub(crate) lost: Vec<Damage>,
    /// A torn append, where the floor names an earlier epoch. Nothing hangs on it: what it freed is
    /// not let go before a floor names it.
    pub(crate) torn: Option<Damage>,
    pub(crate) ended: Ended,
    pub(crate) lost_edits: LostEdits,
    /// Whether lost edits may have named objects: sound ones do, or say that a table's extents
    /// become some. So may a checkpoint that is lost, and the last edits.
    pub(crate) may_have_objects: bool,
}

/// What is gone, as far as edits and events tell.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Nothing below these was there at the checkpoint but what it made. Where edits are lost, that
    /// is sure only up to the greatest that it names: a number is given before the edit that uses
    /// it.
    next_table: TableId,
    next_extent: u64,
    tables: BTreeSet<TableId>,
    pub(crate) extents: BTreeSet<u64>,
    /// Where extents lie that were copied to another place under their ids.
    copied: BTreeMap<u64, Location>,
    runs: BTreeSet<u64>,
    rows: BTreeSet<u64>,
}

impl Ended {
    fn by<'a>(ops: impl Iterator<Item = &'a MetaOp> + Clone) -> Ended {
        let mut ended = Ended::default();
        for op in ops.clone() {
            let _is_new = match op {
                Op::DropTable { table } => ended.tables.insert(*table),
                Op::RemoveExtent { id, .. } | Op::RemoveFromRun { id, .. } => {
                    ended.extents.insert(*id)
                }
                Op::AddExtent { extent, .. } if ended.extents.remove(&extent.id) => {
                    ended.copied.insert(extent.id, extent.location).is_none()
                }
                Op::DropRun { run, .. } => ended.runs.insert(*run),
                Op::RemoveRow { id, .. } => ended.rows.insert(*id),
                _ => false,
            };
        }
        // And what went with it.
        for op in ops {
            let with_table = op.table().is_some_and(|table| ended.tables.contains(&table));
            match op {
                Op::AddExtent { extent, .. } if with_table => drop(ended.extents.insert(extent.id)),
                Op::AddRun { run, extents, .. } => {
                    if with_table || ended.runs.contains(run) {
                        ended.extents.extend(extents.iter().map(|extent| extent.id));
                    } else if extents.iter().all(|extent| ended.extents.contains(&extent.id)) {
                        ended.runs.insert(*run);
                    }
                }
                _ => {}
            }
        }
        ended
    }

    /// Begins with the operations of a checkpoint.
    fn begin(&mut self, checkpoint: &[MetaOp], are_lost: bool) {
        for op in checkpoint {
            match op {
                Op::Counters { next_table, next_extent, .. } if !are_lost => {
                    (self.next_table, self.next_extent) = (*next_table, *next_extent);
                }
                Op::AddExtent { extent, .. } => self.next_extent = self.next_extent.max(extent.id),
                _ => {}
            }
            self.next_table = self.next_table.max(op.table().map_or(0, |table| table + 1));
        }
    }

    /// Whether a table that is not there was dropped.
    pub(crate) fn has_table(&self, table: TableId) -> bool {
        table < self.next_table || self.tables.contains(&table)
    }

    /// What an operation does with the rest.
    fn rest_of(&self, op: &MetaOp) -> Option<MetaOp> {
        let has_ended = match op {
            // A run is committed when it is added.
            Op::RemoveExtent { .. }
            | Op::RemoveFromRun { .. }
            | Op::CommitRun { .. }
            | Op::DropRun { .. }
            | Op::RemoveRow { .. } => true,
            Op::AddExtent { extent, .. } => {
                let is_elsewhere = |at: &Location| *at != extent.location;
                self.extents.contains(&extent.id)
                    || self.copied.get(&extent.id).is_some_and(is_elsewhere)
            }
            Op::MoveExtent { id, .. } => self.extents.contains(id),
            Op::AddRun { run, .. } | Op::MoveFromRun { run, .. } => self.runs.contains(run),
            Op::AddRow { row, .. } => self.rows.contains(&row.id),
            _ => false,
        };
        if has_ended || op.table().is_some_and(|table| self.tables.contains(&table)) {
            return None;
        }
        let mut op = op.clone();
        match &mut op {
            Op::AddRun { extents, .. } => extents.retain(|it| !self.extents.contains(&it.id)),
            Op::MoveFromRun { ids, .. } => ids.retain(|id| !self.extents.contains(id)),
            _ => {}
        }
        Some(op)
    }
}

/// `name`, or with a number behind it where that is taken.
pub(crate) fn free_name(name: String, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2u64..).map(|n| format!("{name}-{n}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !is_taken(name)).unwrap_or(name)
}

/// A damaged database's journal, read as far as it can be.
pub(crate) struct ReadableJournal<'a> {
    files: &'a Arc<dyn Files>,
    directory: &'a Path,
    journal: Journal,
    read: ReadEdits,
}

impl<'a> ReadableJournal<'a> {
    /// Reads it. Edits up to `floor` should be there.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no journal; or on an I/O error.
    pub(crate) fn open(
        files: &'a Arc<dyn Files>,
        directory: &'a Path,
        floor: JournalFloor,
    ) -> Result<ReadableJournal<'a>> {
        let (journal, read) = Journal::open_readable(&**files, directory, floor)?;
        Ok(ReadableJournal { files, directory, journal, read })
    }

    /// As [`VersionSet::durable`].
    pub(crate) fn durable(&self) -> Lsn {
        journal::durable(&self.read.edits)
    }

    /// The metadata that it says, to read. Extents may not be where it says, and those of a level
    /// may overlap. `decided` took place.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn replay(self, mut decided: Decided) -> Result<SalvagedSet> {
        let ReadableJournal { files, directory, journal, read } = self;
        let ReadEdits { edits, doubts: mut lost, torn, ends_early } = read;
        let lacks = |what: String, expected: &str, got: &str| {
            Mismatch::new(expected, got).at(what, "journal", directory, 0)
        };
        let mut lost_edits = LostEdits::default();
        edits.iter().for_each(|edit| lost_edits.pass(edit));
        if ends_early {
            lost_edits.are_last();
        }
        let mut replay = SalvageReplay::of(&edits, &mut decided, lost_edits.are_any());
        decided.events.iter().for_each(|(lsn, event)| lost_edits.pass_event(*lsn, event));
        for (offset, expected, edit) in in_order(&edits, &decided.events) {
            if let Some(Broken { name, detail }) = replay.edit(edit) {
                let refused = journal.refuse(offset, format!("{expected} to keep {name}"), detail);
                lost.extend(refused.damage().cloned());
            }
        }
        lost.extend(replay.runs_without_extents(&edits).map(|(run, lsn)| {
            let got = "none; rows that the commit deleted come back";
            run_without_extents((run, lsn), got, directory)
        }));
        lost.extend(replay.keep_expired(&lost_edits).into_iter().map(|name| {
            let expected = "an edit of it behind the edits that are lost";
            let got = "none; the table has none now, and rows are kept that may have expired";
            lacks(format!("time to live of table {name:?}"), expected, got)
        }));
        let may_have_objects = ends_early
            || !edits.first().is_some_and(Replayed::is_checkpoint)
            || edits.iter().flat_map(|edit| &edit.edit.ops).any(speaks_of_objects);
        let SalvageReplay { state, ended, nameless, .. } = replay;
        lost_edits.nameless = nameless;
        let store = ExtentStore::open(Arc::clone(files), directory, &[], true)?;
        let state = opened(&state, &store);
        let set = VersionSet::assemble(Arc::clone(files), directory, store, journal, state, true);
        Ok(SalvagedSet { set, lost, torn, ended, lost_edits, may_have_objects })
    }
}

/// A committed run of which no edit names the extents.
pub(super) fn run_without_extents((run, lsn): (u64, Lsn), got: &str, directory: &Path) -> Damage {
    let what = format!("run {run} of commit {lsn}");
    Mismatch::new("an edit that names its extents", got).at(what, "journal", directory, 0)
}

/// The run of which an edit moves extents to a level by their names, and the LSN of its commit: D
/// rises to that.
fn moved_run(edit: &Edit<Arc<ExtentMeta>>) -> Option<(u64, Lsn)> {
    let run = edit.ops.iter().find_map(|op| match op {
        Op::MoveFromRun { run, .. } => Some(*run),
        _ => None,
    })?;
    let lsn = edit.ops.iter().find_map(|op| match op {
        Op::Drained { seq, .. } => Some(*seq),
        _ => None,
    })?;
    Some((run, lsn))
}

/// Whether an operation names an object, or says that extents of a table become some.
fn speaks_of_objects(op: &MetaOp) -> bool {
    let extents = match op {
        Op::TableOptions { options, .. } => return options.cold == Tier::Object,
        Op::AddExtent { extent, .. } => std::slice::from_ref(extent),
        Op::AddRun { extents, .. } => extents,
        _ => return false,
    };
    extents.iter().flat_map(|extent| extent.places()).any(|place| place.is_object())
}

/// Edits, and each event that they lack behind the edit of the event before it: where it lies, what
/// it is, and the edit.
fn in_order<'a>(
    edits: &'a [Replayed],
    events: &'a BTreeMap<Lsn, Edit<Arc<ExtentMeta>>>,
) -> impl Iterator<Item = (usize, String, &'a Edit<Arc<ExtentMeta>>)> {
    let mut all = BTreeMap::new();
    for (n, edit) in edits.iter().enumerate() {
        all.insert((Some(n), 0), (edit.offset, format!("edit {}", edit.number), &edit.edit));
    }
    for (&lsn, edit) in events {
        let before = edits.iter().rposition(|edit| (1..lsn).contains(&edit.event_lsn()));
        all.insert((before, lsn), (0, format!("event {lsn}"), edit));
    }
    all.into_values()
}

/// What edits make of which some are missing.
struct SalvageReplay {
    state: State<Arc<ExtentMeta>>,
    ended: Ended,
    /// Runs that were committed.
    runs: BTreeMap<u64, Lsn>,
    /// What did not fit so far, in words.
    known: BTreeSet<String>,
    /// Tables whose names are not known.
    nameless: BTreeSet<TableId>,
}

impl SalvageReplay {
    /// Nothing yet, of these edits and `decided`; leaves the events of it that no edit has.
    fn of(edits: &[Replayed], decided: &mut Decided, are_lost: bool) -> SalvageReplay {
        let checkpoint = edits.first().filter(|first| first.is_checkpoint());
        let before = checkpoint.map_or(0, Replayed::event_lsn);
        let dropped = Ended::by(decided.events.values().flat_map(|edit| &edit.ops)).tables;
        let known: BTreeSet<Lsn> = edits.iter().map(Replayed::event_lsn).collect();
        decided.events.retain(|lsn, _| *lsn > before && !known.contains(lsn));
        let of_journal = edits.iter().flat_map(|edit| &edit.edit.ops);
        let of_events = decided.events.values().flat_map(|edit| &edit.ops);
        let mut ended = Ended::by(of_journal.clone().chain(of_events));
        for op in of_journal {
            if let Op::CommitRun { run, lsn, .. } = op {
                decided.runs.insert(*run, *lsn);
            }
        }
        for (run, lsn) in edits.iter().filter_map(|edit| moved_run(&edit.edit)) {
            decided.runs.entry(run).or_insert(lsn);
        }
        ended.tables.extend(dropped);
        ended.begin(checkpoint.map_or(&[], |checkpoint| &checkpoint.edit.ops), are_lost);
        let runs = std::mem::take(&mut decided.runs);
        let (state, known, nameless) = Default::default();
        SalvageReplay { state, ended, runs, known, nameless }
    }

    /// Ends the times to live that a lost edit may have taken away or made longer; of which tables.
    fn keep_expired(&mut self, lost_edits: &LostEdits) -> Vec<String> {
        let mut names = Vec::new();
        let mut edit = Edit { ops: Vec::new() };
        for (&table, described) in self.state.tables.iter() {
            let options = described.version.options;
            if options.ttl.is_some() && lost_edits.can_have_changed(table) {
                names.push(described.name.to_string());
                edit.ops.push(Op::TimeToLive { table, ttl: 0, expired: 0 });
            }
        }
        if let Ok(applied) = self.state.apply_overlapping(&edit) {
            self.state = applied.state;
        }
        names
    }

    /// Runs that were committed, and whose extents no edit names. Those from before the checkpoint
    /// were drained.
    fn runs_without_extents(&self, edits: &[Replayed]) -> impl Iterator<Item = (u64, Lsn)> {
        let ops = edits.iter().flat_map(|edit| &edit.edit.ops);
        let known = ops.filter_map(|op| match op {
            Op::AddRun { run, .. } => Some(*run),
            _ => None,
        });
        let known: BTreeSet<u64> = known.collect();
        let runs = self.runs.range(self.ended.next_extent..).map(|(run, lsn)| (*run, *lsn));
        runs.filter(move |(run, _)| !known.contains(run))
    }

    /// Goes on with an edit; why it does not fit, each reason once.
    fn edit(&mut self, edit: &Edit<Arc<ExtentMeta>>) -> Option<Broken> {
        let mut ops = Vec::with_capacity(edit.ops.len());
        for op in edit.ops.iter().filter_map(|op| self.ended.rest_of(op)) {
            ops.push(op);
            if let Some(&Op::AddRun { table, run, .. }) = ops.last()
                && let Some(&lsn) = self.runs.get(&run)
            {
                ops.push(Op::CommitRun { table, run, lsn });
            }
        }
        let whole = Edit { ops };
        let broken = match self.state.apply(&whole) {
            Ok(applied) => {
                self.state = applied.state;
                return None;
            }
            Err(broken) => broken,
        };
        for op in whole.ops {
            let fitted = Edit { ops: fitted(&self.state, op, &mut self.nameless) };
            if let Ok(applied) = self.state.apply_overlapping(&fitted) {
                self.state = applied.state;
            }
        }
        self.known.insert(broken.detail.clone()).then_some(broken)
    }
}

/// An operation, with what lost edits have done that it needs: its table was made, and no other
/// table has the name that it gives.
fn fitted(
    state: &State<Arc<ExtentMeta>>,
    op: MetaOp,
    nameless: &mut BTreeSet<TableId>,
) -> Vec<MetaOp> {
    let tables = &state.tables;
    let holder = |name: &str| tables.iter().find(|(_, table)| &*table.name == name);
    let mut lost = |table: TableId| {
        nameless.insert(table);
        free_name(format!("lost-{table}"), |n| holder(n).is_some())
    };
    let is_there = op.table().is_none_or(|table| tables.contains_key(&table));
    let mut ops = Vec::new();
    let op = match op {
        Op::CreateTable { table, name, .. } if is_there => Op::RenameTable { table, name },
        op => op,
    };
    if let (false, Some(table)) = (is_there, op.table())
        && !matches!(op, Op::CreateTable { .. })
    {
        ops.push(Op::CreateTable { table, created_lsn: 0, name: lost(table) });
    }
    if let Op::CreateTable { table, name, .. } | Op::RenameTable { table, name } = &op
        && let Some((&holder, _)) = holder(name)
    {
        if holder == *table {
            return ops;
        }
        ops.push(Op::RenameTable { table: holder, name: lost(holder) });
    }
    ops.push(op);
    ops
}

#[cfg(test)]
mod tests;
