//! The metadata of a damaged database: what the sound edits of its journal make.
//!
//! A sound edit is true, also where edits before it are lost. So an edit that does not fit what is
//! known is taken as far as possible:
//!
//! - An extent enters its level although others overlap it there. A lost edit removed those. They
//!   stay, since their rows may be nowhere else: a reader goes by sequence numbers.
//! - A table whose creation is lost is made. It takes its name even from another one, which was
//!   renamed or dropped since, and is kept under a name that no table has.
//! - Of what still does not fit, each operation by itself is left out and reported.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::{LostEdits, VersionSet, opened};
use crate::error::{Damage, Result};
use crate::extent::{Described, ExtentMeta};
use crate::levels::edit::{Edit, Op};
use crate::levels::journal::{Journal, JournalFloor, Replayed};
use crate::levels::state::{Applied, Broken, State};
use crate::os::Files;
use crate::record::TableId;
use crate::tier::ExtentStore;

type MetaOp = Op<Arc<ExtentMeta>>;

/// What can be read of a journal.
pub(crate) struct SalvagedSet {
    pub(crate) set: VersionSet,
    /// What of it is lost, and what does not fit the rest.
    pub(crate) lost: Vec<Damage>,
    pub(crate) gone: GoneTables,
    /// The extents that sound edits removed.
    pub(crate) removed: BTreeSet<u64>,
    pub(crate) lost_edits: LostEdits,
}

/// The tables that were dropped, as far as that is known.
#[derive(Debug, Default)]
pub(crate) struct GoneTables {
    /// No table below it was there at the checkpoint but those that it made.
    next: TableId,
    dropped: BTreeSet<TableId>,
}

impl GoneTables {
    /// Takes note of a table that was dropped.
    pub(crate) fn add(&mut self, table: TableId) {
        self.dropped.insert(table);
    }

    /// Whether a table that is not there was dropped.
    pub(crate) fn has(&self, table: TableId) -> bool {
        table < self.next || self.dropped.contains(&table)
    }
}

/// `name`, or with a number behind it where that is taken.
pub(crate) fn free_name(name: String, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2u64..).map(|n| format!("{name}-{n}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !is_taken(name)).unwrap_or(name)
}

impl VersionSet {
    /// Opens a damaged database's metadata to read. Extents may not be where it says, and those of
    /// a level may overlap. Edits up to `floor` should be there.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no journal; or on an I/O error.
    pub(crate) fn open_readable(
        files: Arc<dyn Files>,
        directory: &Path,
        floor: JournalFloor,
    ) -> Result<SalvagedSet> {
        let (journal, edits, mut lost) = Journal::open_readable(&*files, directory)?;
        let found = journal.floor();
        let missing = ((found.epoch, found.number) < (floor.epoch, floor.number)).then(|| Damage {
            tier: "journal",
            file: directory.to_path_buf(),
            offset: 0,
            what: "journal".into(),
            expected: format!("edits up to {}", floor.number),
            got: format!("edits up to {}", found.number),
        });
        let last = edits.last().map_or(0, |last| last.offset as u64);
        let ends_early = missing.is_some() || lost.iter().any(|lost| lost.offset > last);
        let mut replay = SalvageReplay::default();
        for edit in &edits {
            for Broken { name, detail } in replay.edit(edit) {
                let expected = format!("edit {} to keep {name}", edit.number);
                let refused = journal.refuse(edit.offset, expected, detail);
                lost.extend(refused.damage().cloned());
            }
        }
        lost.extend(missing);
        let SalvageReplay { state, gone, removed, mut lost_edits, .. } = replay;
        if ends_early {
            lost_edits.are_last(&state);
        }
        let store = ExtentStore::open(Arc::clone(&files), directory, &[], true)?;
        let state = opened(&state, &store);
        let set = VersionSet::assemble(files, directory, store, journal, state, true);
        Ok(SalvagedSet { set, lost, gone, removed, lost_edits })
    }

    /// As [`adopt`](VersionSet::adopt), where edits may be lost: what they did that `edit` needs is
    /// done as well.
    ///
    /// # Errors
    ///
    /// `Invalid` if an operation does not fit all the same.
    pub(crate) fn adopt_readable(&self, edit: &Edit) -> Result<()> {
        for op in &edit.ops {
            let mut ops = needed_by(&self.current.load(), op);
            ops.push(op.clone());
            self.adopt(&Edit { ops })?;
        }
        Ok(())
    }
}

/// What edits make of which some are missing.
#[derive(Default)]
struct SalvageReplay {
    state: State<Arc<ExtentMeta>>,
    gone: GoneTables,
    removed: BTreeSet<u64>,
    lost_edits: LostEdits,
    edits: u64,
    /// What did not fit so far, in words.
    known: BTreeSet<String>,
}

impl SalvageReplay {
    /// Goes on with an edit; what does not fit of it, each once.
    fn edit(&mut self, edit: &Replayed) -> Vec<Broken> {
        self.lost_edits.pass(&self.state, edit);
        let edit = &edit.edit;
        for op in &edit.ops {
            match op {
                Op::DropTable { table } => self.gone.add(*table),
                Op::RemoveExtent { id, .. } | Op::RemoveFromRun { id, .. } => {
                    self.removed.insert(*id);
                }
                _ => {}
            }
        }
        let applied = self.state.apply(edit);
        // Only a checkpoint begins with counters.
        let begins = matches!(edit.ops.first(), Some(Op::Counters { .. }));
        let is_checkpoint = self.edits == 0 && begins && applied.is_ok();
        self.edits += 1;
        let mut refused = match applied {
            Ok(applied) => {
                self.take(applied);
                Vec::new()
            }
            Err(broken) => match self.state.apply_overlapping(edit) {
                Ok(applied) => {
                    self.take(applied);
                    vec![broken]
                }
                Err(_) => edit.ops.iter().filter_map(|op| self.op(op).err()).collect(),
            },
        };
        if is_checkpoint {
            self.gone.next = self.state.counters.next_table;
        }
        refused.retain(|broken| self.known.insert(broken.detail.clone()));
        refused
    }

    /// Goes on with one operation.
    fn op(&mut self, op: &MetaOp) -> std::result::Result<(), Broken> {
        let mut ops = needed_by(&self.state, op);
        ops.push(op.clone());
        let applied = self.state.apply_overlapping(&Edit { ops })?;
        self.take(applied);
        Ok(())
    }

    fn take(&mut self, applied: Applied<Arc<ExtentMeta>>) {
        self.state = applied.state;
        self.removed.extend(applied.removed.iter().map(|extent| extent.id));
    }
}

/// What lost edits have done that an operation needs: its table was made, and no other table
/// has the name that it gives.
fn needed_by<E: Described>(state: &State<E>, op: &Op<E>) -> Vec<Op<E>> {
    let tables = &state.tables;
    let holder = |name: &str| tables.iter().find(|(_, table)| &*table.name == name);
    let lost = |table: TableId| free_name(format!("lost-{table}"), |n| holder(n).is_some());
    let mut ops = Vec::new();
    match op {
        Op::AddExtent { table, .. }
        | Op::DrainedMap { table, .. }
        | Op::AddRow { table, .. }
        | Op::AddRun { table, .. }
        | Op::RenameTable { table, .. }
            if !tables.contains_key(table) =>
        {
            let name = lost(*table);
            ops.push(Op::CreateTable { table: *table, created_lsn: 0, name });
        }
        _ => {}
    }
    if let Op::CreateTable { name, .. } | Op::RenameTable { name, .. } = op
        && let Some((&table, _)) = holder(name)
    {
        ops.push(Op::RenameTable { table, name: lost(table) });
    }
    ops
}
