//! Salvage without a journal: the region's records by their tables, and the rows of each extent in
//! a table of its own, since no extent says which table it belongs to.
//!
//! Only the journal knows which extents and row tables were in use. Without it, tables of extents
//! and those of the region may show rows that were replaced or deleted. What the region says of
//! deletes applies to its own tables alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::{SalvageReport, Writer, begin, end};
use crate::db::events::Event;
use crate::db::open::{Loaded, Opening};
use crate::error::{Damage, Result};
use crate::extent::{Extent, find_extents};
use crate::memtable::Record;
use crate::options::{TableOptions, Tier};
use crate::record::{Kind, LSN_MAX, SYSTEM_TABLE, TableId};
use crate::table::WriteBatch;
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
    let extents = find_extents(&store)?;
    let target = begin(to)?;
    let mut writer = Writer { db: &target, batch: WriteBatch::new(), records: 0 };
    if let Some(loaded) = loaded {
        region(loaded, &mut writer, report)?;
    }
    let mut names: BTreeSet<String> = target.table_names().into_iter().collect();
    for extent in &extents {
        let name = free_name(extent.meta().id, &mut names);
        rows_of(extent, (&store, &name), &mut writer, report)?;
    }
    writer.finish()?;
    report.records = writer.records;
    report.tables = target.table_names().len() as u64;
    end(target, to)
}

/// Writes the records of the region.
fn region(loaded: &Loaded, writer: &mut Writer<'_>, report: &mut SalvageReport) -> Result<()> {
    let records = report.region(loaded, SalvageReport::all_rows)?;
    let tables = tables_in(&records);
    for known in tables.values() {
        if let Known::Named(name, options) = known {
            writer.db.create_table_for_operands(name, options.cold(Tier::Ssd))?;
        }
    }
    for record in records.iter().filter(|record| record.table != SYSTEM_TABLE) {
        let into = match tables.get(&record.table) {
            Some(Known::Dropped) => continue,
            Some(Known::Named(name, _)) => writer.db.table(name)?,
            None => writer.db.table(&format!("lost-{}", record.table))?,
        };
        match record.tombstone(0) {
            Some(tombstone) => writer.delete_range(&into, &tombstone.interval)?,
            None => writer.write(&into, record.kind, record.key, record.value)?,
        }
    }
    Ok(())
}

/// What events among records in the order of commits make of tables.
fn tables_in(records: &[Record<'_>]) -> BTreeMap<TableId, Known> {
    let mut tables: BTreeMap<TableId, Known> = BTreeMap::new();
    let events = records.iter().filter(|record| record.kind == Kind::TableEvent);
    for event in events.filter_map(|record| Event::decode(record.key, record.value)) {
        match event {
            Event::Create { table, name, options } => {
                tables.insert(table, Known::Named(name, options));
            }
            Event::Drop { table } => {
                tables.insert(table, Known::Dropped);
            }
            Event::Rename { table, name } => {
                let options = match tables.get(&table) {
                    Some(Known::Named(_, options)) => *options,
                    _ => TableOptions::new(),
                };
                tables.insert(table, Known::Named(name, options));
            }
            Event::Truncate { table, new, name, options } => {
                tables.insert(table, Known::Dropped);
                tables.insert(new, Known::Named(name, options));
            }
            Event::Options { table, options: new, .. } => {
                if let Some(Known::Named(_, options)) = tables.get_mut(&table) {
                    *options = new;
                }
            }
        }
    }
    tables
}

/// A name that no table has yet. Several extents may have one id: it is given again when the job
/// that it was given to has ended without an edit.
fn free_name(id: u64, taken: &mut BTreeSet<String>) -> String {
    let first = format!("extent-{id:08}");
    let mut name = first.clone();
    for n in 2u64.. {
        if taken.insert(name.clone()) {
            break;
        }
        name = format!("{first}-{n}");
    }
    name
}

/// Writes the rows of an extent to a table of its own, and says so.
fn rows_of(
    extent: &Extent,
    (store, name): (&ExtentStore, &str),
    writer: &mut Writer<'_>,
    report: &mut SalvageReport,
) -> Result<()> {
    let meta = extent.meta();
    let into = writer.db.table(name)?;
    let tombstones = extent.salvage_tombstones(&mut report.lost);
    extent.salvage(&mut report.lost, |entry| {
        let is_hidden = tombstones.newest_over(entry.key, LSN_MAX) > entry.seq;
        if is_hidden { Ok(()) } else { writer.write(&into, entry.kind, entry.key, entry.value) }
    })?;
    report.lost.push(Damage {
        tier: "ssd",
        file: store.path(meta.location.file),
        offset: meta.location.offset,
        what: format!("table of extent {}", meta.id),
        expected: "the journal's word for it".into(),
        got: format!(
            "no journal; its rows are in the table {name:?}, whether they are current or not"
        ),
    });
    Ok(())
}
