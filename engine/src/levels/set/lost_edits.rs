//! What edits that are lost can have done, by the sound ones around them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::extent::{Described, ExtentMeta};
use crate::levels::edit::Op;
use crate::levels::journal::Replayed;
use crate::levels::state::State;
use crate::levels::version::Version;
use crate::record::{LSN_MAX, Lsn, RowTable, TableId};

/// Which edits are lost: those whose numbers no sound one has.
#[derive(Debug, Default)]
pub(crate) struct LostEdits {
    /// The number of the last sound edit.
    last: Option<u64>,
    /// What each table had in front of the first lost edit: its greatest sequence number. `None`
    /// where no edit is lost.
    newest: Option<BTreeMap<TableId, Lsn>>,
    /// Row tables that sound edits added or removed; `None` where the former is lost.
    rows: BTreeMap<u64, Option<(TableId, RowTable)>>,
    /// The tables that edits behind the last lost one speak of, and the LSN of the first of these.
    spoken_of: BTreeSet<TableId>,
    behind: Lsn,
}

impl LostEdits {
    /// Takes note of a sound edit, which `state` does not have yet.
    pub(super) fn pass(&mut self, state: &State<Arc<ExtentMeta>>, edit: &Replayed) {
        // Only a checkpoint begins with counters.
        let begins = matches!(edit.edit.ops.first(), Some(Op::Counters { .. }));
        let follows = self.last.map_or(begins, |last| last.checked_add(1) == Some(edit.number));
        if !follows {
            self.are_before(state, edit.lsn);
        }
        self.last = Some(edit.number);
        for op in &edit.edit.ops {
            match op {
                Op::AddRow { table, row } => drop(self.rows.insert(row.id, Some((*table, *row)))),
                Op::RemoveRow { id, .. } => drop(self.rows.entry(*id).or_default()),
                _ => {}
            }
            self.spoken_of.extend(op.table());
        }
    }

    /// The last edits are lost.
    pub(super) fn are_last(&mut self, state: &State<Arc<ExtentMeta>>) {
        self.are_before(state, LSN_MAX);
    }

    fn are_before(&mut self, state: &State<Arc<ExtentMeta>>, behind: Lsn) {
        let newest = || state.tables.iter().map(|(&id, table)| (id, newest(&table.version)));
        self.newest.get_or_insert_with(|| newest().collect());
        self.spoken_of.clear();
        self.behind = behind;
    }

    /// Whether one of them can have added a row table that lies in the region. One that sound edits
    /// speak of was removed since. One from before them was drained, and its rows are older than
    /// those of levels. Row tables of a table do not overlap.
    pub(crate) fn can_have_added(&self, table: TableId, row: &RowTable) -> bool {
        let Some(newest) = &self.newest else { return false };
        let of_table = self.rows.values().flatten().filter(|(of, _)| *of == table);
        let mut known = of_table.map(|(_, known)| known);
        !self.rows.contains_key(&row.id)
            && row.upto > newest.get(&table).copied().unwrap_or(0)
            && known.all(|known| row.upto <= known.after || known.upto <= row.after)
    }

    /// Whether one of them can have dropped a table whose last record has this sequence number.
    pub(crate) fn can_have_dropped(&self, table: TableId, last: Lsn) -> bool {
        self.newest.is_some() && !self.spoken_of.contains(&table) && last <= self.behind
    }
}

/// The greatest sequence number that a version knows of. A run may be newer than rows to come.
fn newest<E: Described>(version: &Version<E>) -> Lsn {
    let rows = version.rows.iter().map(|row| row.upto);
    let drained = version.drained.steps().iter().map(|(_, seq)| *seq);
    let extents = version.levels.iter().flat_map(|level| level.extents().iter());
    let extents = extents.filter(|extent| !extent.meta().one_seq);
    let extents = extents.map(|extent| extent.meta().greatest_seq);
    rows.chain(drained).chain(extents).max().unwrap_or(0)
}
