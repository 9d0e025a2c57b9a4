//! Row tables of level 0 in a salvage: those that the journal names, and those that lie in the
//! region where its last edits, or all of it, are lost. A directory says of which table it is, and
//! has the checksums of all pages.
//!
//! Only an edit says whether a row table was in use. A drained one may lie there still, whole or in
//! part: its rows are older than what levels have. So where there is a journal only those count
//! that its lost edits can have named.

use std::ops::Range;

use super::SalvageReport;
use crate::error::{Damage, Result};
use crate::level0::{find_rows, salvage_row};
use crate::levels::{SalvagedSet, VersionSet};
use crate::memtable::Record;
use crate::mvcc::DrainedMap;
use crate::pm::Region;
use crate::record::{RowTable, TableId};

impl SalvageReport {
    /// The records of the row tables that the journal names.
    pub(super) fn named_rows<'a>(
        &mut self,
        region: &'a Region,
        set: &VersionSet,
    ) -> Result<Vec<Record<'a>>> {
        let mut records = Vec::new();
        for version in set.tables().iter().filter_map(|table| set.version(table.id)) {
            for row in &version.rows {
                let (table, drained) = (version.table, &version.drained);
                records.extend(salvage_row(region, table, row, drained, &mut self.lost)?);
            }
        }
        Ok(records)
    }

    /// The records of row tables of the region, outside of `zones`, that the journal does not name,
    /// but that edits may have named which it lost.
    pub(super) fn unnamed_rows<'a>(
        &mut self,
        region: &'a Region,
        SalvagedSet { set, ended, lost_edits, .. }: &SalvagedSet,
        zones: &[Range<u64>],
    ) -> Result<Vec<Record<'a>>> {
        let mut records = Vec::new();
        for (table, row) in find_rows(region, zones)? {
            let version = set.version(table);
            let is_gone = version.is_none() && ended.has_table(table);
            if !is_gone && lost_edits.can_have_added(table, &row) {
                let drained = version.map_or_else(DrainedMap::default, |it| it.drained.clone());
                self.unnamed_row(region, (table, &row), &drained, &mut records)?;
            }
        }
        Ok(records)
    }

    /// The records of all row tables of the region, outside of `zones`.
    pub(super) fn all_rows<'a>(
        &mut self,
        region: &'a Region,
        zones: &[Range<u64>],
    ) -> Result<Vec<Record<'a>>> {
        let mut records = Vec::new();
        for (table, row) in find_rows(region, zones)? {
            self.unnamed_row(region, (table, &row), &DrainedMap::default(), &mut records)?;
        }
        Ok(records)
    }

    /// Adds the records of a row table that no edit names, as far as its pages are there. One line
    /// of the report says what is not: it was drained, or it is lost.
    fn unnamed_row<'a>(
        &mut self,
        region: &'a Region,
        (table, row): (TableId, &RowTable),
        drained: &DrainedMap,
        records: &mut Vec<Record<'a>>,
    ) -> Result<()> {
        let (mut lost, before) = (Vec::new(), records.len());
        records.extend(salvage_row(region, table, row, drained, &mut lost)?);
        if let Some(first) = lost.first() {
            let found = records.len() - before;
            self.lost.push(Damage {
                what: format!("row table {} of table {table}", row.id),
                expected: "an edit of the journal that names it, and all of its pages".into(),
                got: format!(
                    "no edit, {found} records, and {} pages of other bytes: the rest was drained \
                     or is lost",
                    lost.len()
                ),
                ..first.clone()
            });
        }
        Ok(())
    }
}
