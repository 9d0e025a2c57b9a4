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
use crate::levels::{GoneTables, Version, VersionSet};
use crate::memtable::Record;
use crate::mvcc::DrainedMap;
use crate::pm::Region;
use crate::record::{Lsn, RowTable, TableId};

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
        (set, gone): (&VersionSet, &GoneTables),
        zones: &[Range<u64>],
    ) -> Result<Vec<Record<'a>>> {
        let mut records = Vec::new();
        for (table, row) in find_rows(region, zones)? {
            let version = set.version(table);
            let is_news = match &version {
                Some(version) => is_news_to(version, set, &row),
                None => !gone.has(table),
            };
            if is_news {
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

/// Whether a row table that a version does not have can have come after it. What has come before
/// was drained, and its rows are older than those of levels.
fn is_news_to(version: &Version, set: &VersionSet, row: &RowTable) -> bool {
    let is_named = version.rows.iter().any(|named| named.id == row.id);
    !is_named && (row.id >= set.next_numbers().1 || row.after >= newest(version))
}

/// The greatest sequence number that a version knows of.
fn newest(version: &Version) -> Lsn {
    let rows = version.rows.iter().map(|row| row.upto);
    let drained = version.drained.steps().iter().map(|(_, seq)| *seq);
    let extents = version.levels.iter().flat_map(|level| level.extents().iter());
    let extents = extents.map(|extent| extent.meta().greatest_seq);
    rows.chain(drained).chain(extents).max().unwrap_or(0)
}
