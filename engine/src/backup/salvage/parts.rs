//! Salvage without a journal: the region's records by their tables, and the rows of each extent in
//! a table of its own, since no extent says which table it belongs to. Where edits of a journal are
//! lost, they may have named extents too: those that no other edit names get such tables.
//!
//! Only the journal knows which extents and row tables were in use. Without it, tables of extents
//! and those of the region may show rows that were replaced or deleted. What the region says of
//! deletes applies to its own tables alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::tables::SalvagedTables;
use super::{SalvageReport, Writer, begin, end};
use crate::engine::events::Event;
use crate::engine::open::{Loaded, Opening};
use crate::error::{Mismatch, Result};
use crate::extent::{Extent, FoundExtents, find_extents};
use crate::levels::{Ended, free_name};
use crate::memtable::Record;
use crate::options::{TableOptions, Tier};
use crate::record::{Kind, LSN_MAX, TableId};
use crate::tier::ExtentStore;

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
    to: &Path,
    report: &mut SalvageReport,
) -> Result<()> {
    let store = ExtentStore::open(Arc::clone(&opening.files), opening.path, &[], true)?;
    if let Some(loaded) = loaded {
        let database_id = loaded.superblock.database_id;
        opening.attach_objects_of(&store, database_id, BTreeSet::new(), 0)?;
    }
    report.unnamed_objects(opening, &store, &Ended::default());
    let target = begin(to)?;
    let mut writer = Writer::new(&target);
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
    let in_zones = report.zones(loaded)?;
    let rows = report.all_rows(&loaded.region, &in_zones.zones)?;
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
    records.iter().try_for_each(|record| report.record(record, (&mut into_tables, &ended), writer))
}

/// What events among records in the order of commits make of tables.
///
/// Events may be lost. Where a table takes the name of another one, that was renamed or dropped
/// since. So it has no name any more, and its records are as those of a table that was never named.
fn tables_in(records: &[Record<'_>]) -> BTreeMap<TableId, Known> {
    let mut tables: BTreeMap<TableId, Known> = BTreeMap::new();
    let events = records.iter().filter(|record| record.kind == Kind::TableEvent);
    for event in events.filter_map(|record| Event::decode(record.key, record.value)) {
        if let Event::Drop { table } | Event::Truncate { table, .. } = event {
            tables.insert(table, Known::Dropped);
        }
        let options = |table| match tables.get(&table) {
            Some(Known::Named(_, options)) => *options,
            _ => TableOptions::new(),
        };
        let (table, name, options) = match event {
            Event::Drop { .. } => continue,
            Event::Create { table, name, options } => (table, name, options),
            Event::Truncate { new, name, options, .. } => (new, name, options),
            Event::Rename { table, name } => (table, name, options(table)),
            Event::Options { table, options: new, .. } => {
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
        let extents = find_extents(store, &mut self.lost);
        let mut names: BTreeSet<String> = writer.db.table_names().into_iter().collect();
        for extent in extents.each_of(is_wanted) {
            // Several extents may have one id: it is given again when the job that it was given to
            // has ended without an edit.
            let name = format!("extent-{:08}", extent.meta().id);
            let name = free_name(name, |name| names.contains(name));
            rows_of((&extents, &extent), (store, &name), writer, self)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::SYSTEM_TABLE;

    /// What events make of tables.
    fn after(events: &[Event]) -> BTreeMap<TableId, Known> {
        let encoded: Vec<_> = events.iter().map(Event::encode).collect();
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
        let create = |table| Event::Create { table, name: "a".into(), options };
        let truncate = |table| Event::Truncate { table, new: table + 1, name: "a".into(), options };
        let rename = |table| Event::Rename { table, name: "a".into() };
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
