//! Salvage of what no edit names.
//!
//! Without a journal the region's records go by their tables, and the rows of each extent go to a
//! table of its own, since no extent says which table it belongs to. Where edits of a journal are
//! lost, they may have named extents too: those that no other edit names get such tables. Only the
//! journal knows which extents were in use, so such tables may show rows that were replaced or
//! deleted. What the region says of deletes applies to its own tables alone.
//!
//! Row tables of level 0 are those that the journal names, and those that lie in the region where
//! its last edits, or all of it, are lost. A directory says of which table it is, and has the
//! checksums of all pages. A drained row table may lie there still, whole or in part: its rows are
//! older than what levels have. So where there is a journal only those count that its lost edits
//! can have named.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::tables::SalvagedTables;
use super::{SalvageReport, Writer, begin, bytes_of, end};
use crate::base::error::{Damage, Mismatch, Result};
use crate::base::options::{TableOptions, Tier};
use crate::base::progress::Meter;
use crate::base::record::{Kind, LSN_MAX, RowTable, TableId};
use crate::engine::open::{Loaded, NamedObjects, Opening};
use crate::engine::table_events::TableEvent;
use crate::level0::{find_rows, salvage_row};
use crate::memtable::Record;
use crate::mvcc::DrainedMap;
use crate::pm::Region;
use crate::sstable::{Extent, FoundExtents, find_extents};
use crate::storage::ExtentStore;
use crate::version::{Ended, SalvagedSet, VersionSet, free_name};

/// A table, as far as events in the region tell of it.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    Named(String, TableOptions),
    Dropped,
}

/// Writes what can be read without a journal to a new database in `to`.
pub(super) fn salvage(
    opening: &Opening<'_>,
    loaded: Option<&Loaded>,
    (to, meter): (&Path, &Meter),
    report: &mut SalvageReport,
) -> Result<()> {
    let store = ExtentStore::open(Arc::clone(&opening.files), opening.path, &[], true)?;
    if let Some(loaded) = loaded {
        let database_id = loaded.superblock.database_id;
        opening.attach_objects_of(&store, database_id, NamedObjects::default(), 0)?;
    }
    report.unnamed_objects(opening, &store, &Ended::default());
    let target = begin(to, opening.options)?;
    let mut writer = Writer::new(&target, meter);
    if let Some(loaded) = loaded {
        region((loaded, opening.path), &mut writer, report)?;
    }
    report.unnamed_extents(&store, |_| true, &mut writer)?;
    report.records = writer.finish()?;
    report.tables = target.table_names().len() as u64;
    end(target, to)
}

/// Writes the records of the region.
fn region<'a>(
    (loaded, from): (&'a Loaded, &Path),
    writer: &mut Writer<'a>,
    report: &mut SalvageReport,
) -> Result<()> {
    let in_zones = report.zones(loaded, 0, writer.meter)?;
    let rows = report.all_rows((&loaded.region, writer.meter), &in_zones.zones)?;
    let records = report.region(&loaded.region, in_zones, rows);
    let (db, ended) = (writer.db, Ended::default());
    let mut into_tables = SalvagedTables::new(db, from);
    for (table, known) in tables_in(&records) {
        match known {
            Known::Named(name, options) => {
                let options = options.cold(Tier::Ssd);
                into_tables.take_in(table, db.create_followed_table(&name, options)?);
            }
            Known::Dropped => into_tables.leave_out(table),
        }
    }
    writer.meter.plan(records.iter().map(bytes_of).sum());
    records.iter().try_for_each(|record| report.record(record, (&mut into_tables, &ended), writer))
}

/// What events among records in the order of commits make of tables.
///
/// Events may be lost. Where a table takes the name of another one, that was renamed or dropped
/// since. So it has no name any more, and its records are as those of a table that was never named.
fn tables_in(records: &[Record<'_>]) -> BTreeMap<TableId, Known> {
    let mut tables: BTreeMap<TableId, Known> = BTreeMap::new();
    let events = records.iter().filter(|record| record.kind == Kind::TableEvent);
    for event in events.filter_map(|record| TableEvent::decode(record.key, record.value)) {
        if let TableEvent::Drop { table, .. } | TableEvent::Truncate { table, .. } = event {
            tables.insert(table, Known::Dropped);
        }
        let options = |table| match tables.get(&table) {
            Some(Known::Named(_, options)) => *options,
            _ => TableOptions::new(),
        };
        let (table, name, options) = match event {
            TableEvent::Drop { .. } => continue,
            TableEvent::Create { table, name, options } => (table, name, options),
            TableEvent::Truncate { new, name, options, .. } => (new, name, options),
            TableEvent::Rename { table, name, .. } => (table, name, options(table)),
            TableEvent::Options { table, options: new, .. } => {
                if let Some(Known::Named(_, options)) = tables.get_mut(&table) {
                    *options = new;
                }
                continue;
            }
        };
        tables.retain(|_, known| !matches!(known, Known::Named(other, _) if *other == name));
        tables.insert(table, Known::Named(name, options));
    }
    tables
}

impl SalvageReport {
    /// Writes the rows of the extents that `is_wanted` wants to tables of their own.
    pub(super) fn unnamed_extents(
        &mut self,
        store: &Arc<ExtentStore>,
        is_wanted: impl Fn(u64) -> bool,
        writer: &mut Writer<'_>,
    ) -> Result<()> {
        let extents = find_extents(store, &mut self.lost, writer.meter)?;
        let mut names: BTreeSet<String> = writer.db.table_names().into_iter().collect();
        for extent in extents.each_of(is_wanted) {
            // Several extents may have one id: it is given again when the job that it was given to
            // has ended without an edit.
            let name = format!("extent-{:08}", extent.meta().id);
            let name = free_name(name, |name| names.contains(name));
            writer.meter.plan(u64::from(extent.meta().location.len));
            rows_of((&extents, &extent), (store, &name), writer, self)?;
            writer.meter.did(u64::from(extent.meta().location.len))?;
            names.insert(name);
        }
        Ok(())
    }
}

/// Writes the rows of an extent to a table of its own, and says so.
fn rows_of(
    (extents, extent): (&FoundExtents, &Extent),
    (store, name): (&ExtentStore, &str),
    writer: &mut Writer<'_>,
    report: &mut SalvageReport,
) -> Result<()> {
    let meta = extent.meta();
    let into = writer.db.table(name)?;
    let tombstones = extent.salvage_tombstones(&mut report.lost);
    extents.salvage(extent, &mut report.lost, |entry| {
        let is_hidden = tombstones.newest_over(entry.key, LSN_MAX) > entry.seq;
        if is_hidden { Ok(()) } else { writer.write(&into, entry.kind, entry.key, entry.value) }
    })?;
    let found = Mismatch::new(
        "an edit or a record that says whether it is in use",
        format!("none; its rows are in the table {name:?}, whether they are current or not"),
    );
    let what = format!("table of extent {}", meta.id);
    report.lost.push(store.damage(&meta.location, 0, what, found));
    Ok(())
}

impl SalvageReport {
    /// The records of the row tables that the journal names.
    pub(super) fn named_rows<'a>(
        &mut self,
        (region, meter): (&'a Region, &Meter),
        set: &VersionSet,
    ) -> Result<Vec<Record<'a>>> {
        let mut records = Vec::new();
        for version in set.tables().iter().filter_map(|table| set.version(table.id)) {
            for row in &version.rows {
                let told = (&mut self.lost, meter);
                let found = salvage_row(region, (version.table, row), &version.drained, told)?;
                records.extend(found);
            }
        }
        Ok(records)
    }

    /// The records of row tables of the region, outside of `zones`, that the journal does not name,
    /// but that edits may have named which it lost.
    pub(super) fn unnamed_rows<'a>(
        &mut self,
        (region, meter): (&'a Region, &Meter),
        SalvagedSet { set, ended, lost_edits, .. }: &SalvagedSet,
        zones: &[Range<u64>],
    ) -> Result<Vec<Record<'a>>> {
        let mut records = Vec::new();
        for (table, row) in find_rows(region, zones, meter)? {
            let version = set.version(table);
            let is_gone = version.is_none() && ended.has_table(table);
            if !is_gone && lost_edits.can_have_added(table, &row) {
                let drained = version.map_or_else(DrainedMap::default, |it| it.drained.clone());
                self.unnamed_row((region, meter), (table, &row), &drained, &mut records)?;
            }
        }
        Ok(records)
    }

    /// The records of all row tables of the region, outside of `zones`.
    pub(super) fn all_rows<'a>(
        &mut self,
        (region, meter): (&'a Region, &Meter),
        zones: &[Range<u64>],
    ) -> Result<Vec<Record<'a>>> {
        let mut records = Vec::new();
        for (table, row) in find_rows(region, zones, meter)? {
            let drained = DrainedMap::default();
            self.unnamed_row((region, meter), (table, &row), &drained, &mut records)?;
        }
        Ok(records)
    }

    /// Adds the records of a row table that no edit names, as far as its pages are there. One line
    /// of the report says what is not: it was drained, or it is lost.
    fn unnamed_row<'a>(
        &mut self,
        (region, meter): (&'a Region, &Meter),
        (table, row): (TableId, &RowTable),
        drained: &DrainedMap,
        records: &mut Vec<Record<'a>>,
    ) -> Result<()> {
        let (mut lost, before) = (Vec::new(), records.len());
        records.extend(salvage_row(region, (table, row), drained, (&mut lost, meter))?);
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::*;
    use crate::base::record::SYSTEM_TABLE;

    /// What events make of tables.
    fn after(events: &[TableEvent]) -> BTreeMap<TableId, Known> {
        let encoded: Vec<_> = events.iter().map(TableEvent::encode).collect();
        let mut records = Vec::new();
        for (seq, (key, value)) in (1..).zip(&encoded) {
            let (table, kind) = (SYSTEM_TABLE, Kind::TableEvent);
            records.push(Record { seq, table, kind, key, value });
        }
        tables_in(&records)
    }

    fn named(name: &str) -> Known {
        Known::Named(name.into(), TableOptions::new())
    }

    /// Bug: salvage without a journal failed as a whole, each time.
    /// Cause: events were lost, and two tables seemed to have one name. None could be made twice.
    /// Fix: the name is that of the table that took it last. The other one has none.
    #[test]
    fn a_name_is_that_of_the_table_that_took_it_last() {
        let options = TableOptions::new();
        let create = |table| TableEvent::Create { table, name: "a".into(), options };
        let truncate =
            |table| TableEvent::Truncate { table, new: table + 1, name: "a".into(), options };
        let rename = |table| TableEvent::Rename { table, name: "a".into(), before: "b".into() };
        // The event between them is lost: a truncation, a drop, or that the other was renamed.
        let after_truncation = after(&[create(3), truncate(4)]);
        let want = [(4, Known::Dropped), (5, named("a"))];
        assert_eq!(after_truncation, BTreeMap::from(want));
        assert_eq!(after(&[create(3), create(7)]), BTreeMap::from([(7, named("a"))]));
        assert_eq!(after(&[create(3), rename(7)]), BTreeMap::from([(7, named("a"))]));
        // Nothing is lost.
        let want = [(3, Known::Dropped), (4, named("a"))];
        assert_eq!(after(&[create(3), truncate(3)]), BTreeMap::from(want));
        assert_eq!(after(&[create(3), rename(3)]), BTreeMap::from([(3, named("a"))]));
    }
}
