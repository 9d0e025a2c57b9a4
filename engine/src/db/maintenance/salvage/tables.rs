//! The tables of the new database that records of the region go to.
//!
//! A record names its table by a number. Where the name of that is lost, its records go to a table
//! of their own, under a name that no other table has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{SalvageReport, Writer, expired};
use crate::db::Database;
use crate::error::{Damage, Result};
use crate::levels::{GoneTables, VersionSet, free_name};
use crate::memtable::Record;
use crate::mvcc::DrainedMap;
use crate::record::{Kind, Lsn, SYSTEM_TABLE, TableId};
use crate::table::Table;

/// Where the records of a table go.
pub(super) struct SalvagedTable {
    into: Table,
    /// What of them the levels have.
    drained: DrainedMap,
    /// All up to here has expired.
    expired: Lsn,
}

/// The tables by the numbers that records name.
pub(super) struct SalvagedTables<'a> {
    db: &'a Database,
    /// The damaged database.
    from: &'a Path,
    /// `None` for a table that was dropped.
    known: BTreeMap<TableId, Option<SalvagedTable>>,
}

impl<'a> SalvagedTables<'a> {
    /// None, for records of the database in `from`.
    pub(super) fn new(db: &'a Database, from: &'a Path) -> SalvagedTables<'a> {
        SalvagedTables { db, from, known: BTreeMap::new() }
    }

    /// Those of the tables that a journal names; they are in `db` under the same names.
    pub(super) fn of_journal(
        (db, from): (&'a Database, &'a Path),
        set: &VersionSet,
    ) -> Result<SalvagedTables<'a>> {
        let mut into_tables = SalvagedTables::new(db, from);
        for table in set.tables() {
            let Some(version) = set.version(table.id) else { continue };
            let (drained, expired) = (version.drained.clone(), expired(set, &version));
            let salvaged = SalvagedTable { into: db.table(&table.name)?, drained, expired };
            into_tables.known.insert(table.id, Some(salvaged));
        }
        Ok(into_tables)
    }

    /// All records of a table go to `into`.
    pub(super) fn take_in(&mut self, table: TableId, into: Table) {
        let salvaged = SalvagedTable { into, drained: DrainedMap::default(), expired: 0 };
        self.known.insert(table, Some(salvaged));
    }

    /// The records of a table that was dropped go nowhere.
    pub(super) fn leave_out(&mut self, table: TableId) {
        self.known.insert(table, None);
    }

    /// Makes a table for the records of one that has no name any more; says so.
    fn make_lost(&mut self, table: TableId, report: &mut SalvageReport) -> Result<()> {
        let names: BTreeSet<String> = self.db.table_names().into_iter().collect();
        let name = free_name(format!("lost-{table}"), |name| names.contains(name));
        self.take_in(table, self.db.table(&name)?);
        report.lost.push(Damage {
            tier: "journal",
            file: self.from.to_path_buf(),
            offset: 0,
            what: format!("table {table}"),
            expected: "an edit or an event that says its name".into(),
            got: format!("none; its rows are in the table {name:?}"),
        });
        Ok(())
    }
}

impl SalvageReport {
    /// Writes a record of the region to its table, unless it has moved on or its table is gone.
    pub(super) fn record<'a>(
        &mut self,
        record: &Record<'a>,
        (into_tables, gone): (&mut SalvagedTables<'_>, &GoneTables),
        writer: &mut Writer<'a>,
    ) -> Result<()> {
        if record.table == SYSTEM_TABLE {
            if record.kind == Kind::Blob {
                writer.blob = Some(record.value);
            }
            return Ok(());
        }
        if !into_tables.known.contains_key(&record.table) {
            match gone.has(record.table) {
                true => into_tables.leave_out(record.table),
                false => into_tables.make_lost(record.table, self)?,
            }
        }
        let Some(Some(salvaged)) = into_tables.known.get(&record.table) else { return Ok(()) };
        let SalvagedTable { into, drained, expired } = salvaged;
        if record.seq <= *expired {
            return Ok(());
        }
        if let Some(tombstone) = record.tombstone(0) {
            let left = drained.undrained(&tombstone.interval, record.seq);
            return left.iter().try_for_each(|part| writer.delete_range(into, part));
        }
        if drained.get(record.key) >= record.seq {
            return Ok(());
        }
        writer.write(into, record.kind, record.key, record.value)
    }
}
