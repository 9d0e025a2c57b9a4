//! What edits that are lost can have done, by the sound ones around them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::TableInfo;
use crate::base::record::{LSN_MAX, Lsn, RowTable, TableId};
use crate::sstable::ExtentMeta;
use crate::version::edit::{Edit, Op};
use crate::version::journal::Replayed;

/// Which edits are lost: those whose numbers no sound one has.
#[derive(Debug, Default)]
pub(crate) struct LostEdits {
    /// The number of the last sound edit.
    last: Option<u64>,
    /// Whether any is lost.
    any: bool,
    /// The greatest sequence number of each table in the edits in front of the first lost one.
    newest: BTreeMap<TableId, Lsn>,
    /// Row tables that sound edits added or removed; `None` where the former is lost.
    rows: BTreeMap<u64, Option<(TableId, RowTable)>>,
    /// What edits and events behind the last lost one say, and the LSN of the first of these edits.
    spoken_of: BTreeSet<TableId>,
    named: BTreeSet<TableId>,
    has_options: BTreeSet<TableId>,
    behind: Lsn,
    /// Tables for which a replay had to make a name.
    pub(super) nameless: BTreeSet<TableId>,
}

impl LostEdits {
    /// Takes note of a sound edit.
    pub(super) fn pass(&mut self, edit: &Replayed) {
        let next = self.last.map(|last| last.checked_add(1));
        if !next.map_or(edit.is_checkpoint(), |next| next == Some(edit.number)) {
            self.are_before(edit.lsn);
        }
        self.last = Some(edit.number);
        for op in &edit.edit.ops {
            match op {
                Op::AddRow { table, row } => {
                    self.rows.insert(row.id, Some((*table, *row)));
                    self.raise(*table, row.upto);
                }
                Op::RemoveRow { id, .. } => drop(self.rows.entry(*id).or_default()),
                Op::Drained { table, seq, .. } => self.raise(*table, *seq),
                Op::DrainedMap { table, map } => {
                    map.steps().iter().for_each(|(_, seq)| self.raise(*table, *seq));
                }
                // A run may be newer than rows to come.
                Op::AddExtent { table, extent, .. } if !extent.one_seq => {
                    self.raise(*table, extent.greatest_seq);
                }
                _ => {}
            }
            self.hear(op);
        }
    }

    /// Takes note of an event that the journal lacks.
    pub(super) fn pass_event(&mut self, lsn: Lsn, edit: &Edit<Arc<ExtentMeta>>) {
        if lsn > self.behind {
            edit.ops.iter().for_each(|op| self.hear(op));
        }
    }

    fn hear(&mut self, op: &Op<Arc<ExtentMeta>>) {
        self.spoken_of.extend(op.table());
        match op {
            // What a table has that is made, its own edit says.
            Op::CreateTable { table, .. } => {
                self.named.insert(*table);
                self.has_options.insert(*table);
            }
            Op::RenameTable { table, .. } => drop(self.named.insert(*table)),
            Op::TableOptions { table, .. } | Op::TimeToLive { table, .. } => {
                self.has_options.insert(*table);
            }
            _ => {}
        }
    }

    fn raise(&mut self, table: TableId, seq: Lsn) {
        if !self.any {
            let newest = self.newest.entry(table).or_default();
            *newest = seq.max(*newest);
        }
    }

    /// The last edits are lost.
    pub(super) fn are_last(&mut self) {
        self.are_before(LSN_MAX);
    }

    fn are_before(&mut self, behind: Lsn) {
        self.any = true;
        for said in [&mut self.spoken_of, &mut self.named, &mut self.has_options] {
            said.clear();
        }
        self.behind = behind;
    }

    /// Whether one of them can have added a row table that lies in the region. One that sound edits
    /// speak of was removed since. One from before them was drained, and its rows are older than
    /// those of levels. Row tables of a table do not overlap.
    pub(crate) fn can_have_added(&self, table: TableId, row: &RowTable) -> bool {
        let of_table = self.rows.values().flatten().filter(|(of, _)| *of == table);
        let mut known = of_table.map(|(_, known)| known);
        self.any
            && !self.rows.contains_key(&row.id)
            && row.upto > self.newest.get(&table).copied().unwrap_or(0)
            && known.all(|known| row.upto <= known.after || known.upto <= row.after)
    }

    pub(super) fn are_any(&self) -> bool {
        self.any
    }

    /// Whether one of them can have changed the options of a table.
    pub(super) fn can_have_changed(&self, table: TableId) -> bool {
        self.any && !self.has_options.contains(&table)
    }

    /// Whether one of them can have renamed a table.
    pub(crate) fn can_have_renamed(&self, table: TableId) -> bool {
        self.any && !self.named.contains(&table)
    }

    /// Whether no edit says the name of a table.
    pub(crate) fn has_no_name(&self, table: &TableInfo) -> bool {
        self.nameless.contains(&table.id) && table.name.starts_with("lost-")
    }

    /// Whether one of them can have dropped a table whose last record has this sequence number.
    pub(crate) fn can_have_dropped(&self, table: TableId, last: Lsn) -> bool {
        self.any && !self.spoken_of.contains(&table) && last <= self.behind
    }
}
