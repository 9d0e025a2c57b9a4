//! The tables of the new database that records of the region go to.
//!
//! A record names its table by a number. Where the name of that is lost, its records go to a table
//! of their own, under a name that no other table has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::levels::{Layers, cache};
use super::{SalvageReport, Writer, expired};
use crate::engine::Database;
use crate::error::{Damage, Mismatch, Result};
use crate::extent::BlockCache;
use crate::levels::{Ended, SalvagedSet, VersionSet, free_name};
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
    /// Its levels, where edits are lost: what D says of them may be lost, too.
    levels: Option<Layers>,
}

/// The tables by the numbers that records name.
pub(super) struct SalvagedTables<'a> {
    db: &'a Database,
    /// The damaged database.
    from: &'a Path,
    /// `None` for a table that was dropped.
    known: BTreeMap<TableId, Option<SalvagedTable>>,
    cache: BlockCache,
}

impl<'a> SalvagedTables<'a> {
    /// None, for records of the database in `from`.
    pub(super) fn new(db: &'a Database, from: &'a Path) -> SalvagedTables<'a> {
        SalvagedTables { db, from, known: BTreeMap::new(), cache: cache() }
    }

    /// Those of the tables that a journal names; they are in `db` under the same names.
    pub(super) fn of_journal(
        (db, from): (&'a Database, &'a Path),
        (set, is_whole): (&VersionSet, bool),
    ) -> Result<SalvagedTables<'a>> {
        let mut into_tables = SalvagedTables::new(db, from);
        for table in set.tables() {
            let Some(version) = set.version(table.id) else { continue };
            let (drained, expired) = (version.drained.clone(), expired(set, &version));
            let levels = (!is_whole).then(|| Layers::of(&version, expired, &mut Vec::new()));
            let into = db.table(&table.name)?;
            let salvaged = SalvagedTable { into, drained, expired, levels };
            into_tables.known.insert(table.id, Some(salvaged));
        }
        Ok(into_tables)
    }

    /// All records of a table go to `into`.
    pub(super) fn take_in(&mut self, table: TableId, into: Table) {
        let drained = DrainedMap::default();
        let salvaged = SalvagedTable { into, drained, expired: 0, levels: None };
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
        report.lost.push(without_name(self.from, table, &name));
        Ok(())
    }

    /// Whether levels have what is newer than a version of a key of a table.
    pub(super) fn hide(&self, table: TableId, key: &[u8], seq: Lsn) -> bool {
        let levels = self.known.get(&table).and_then(|known| known.as_ref()?.levels.as_ref());
        levels.is_some_and(|levels| levels.hide(key, seq, &self.cache))
    }
}

fn without_name(from: &Path, table: TableId, name: &str) -> Damage {
    let got = format!("none; its rows are in the table {name:?}");
    let found = Mismatch::new("an edit or an event that says its name", got);
    found.at(format!("table {table}"), "journal", from, 0)
}

impl SalvageReport {
    /// Says which tables have lost their names, and which ones lost edits may have dropped.
    pub(super) fn doubted_tables(
        &mut self,
        from: &Path,
        SalvagedSet { set, lost_edits, .. }: &SalvagedSet,
        records: &[Record<'_>],
    ) {
        // They ascend.
        let last: BTreeMap<TableId, Lsn> = records.iter().map(|r| (r.table, r.seq)).collect();
        for table in set.tables() {
            if lost_edits.has_no_name(&table) {
                self.lost.push(without_name(from, table.id, &table.name));
            }
            let last = last.get(&table.id).copied().unwrap_or(0);
            let got = if lost_edits.can_have_dropped(table.id, last) {
                "none; it is kept, and may have been dropped or renamed"
            } else if lost_edits.can_have_renamed(table.id) {
                "none that says its name, which may be an older one"
            } else {
                continue;
            };
            let expected = "an edit or a record of it behind the edits that are lost";
            let what = format!("table {:?}", table.name);
            self.lost.push(Mismatch::new(expected, got).at(what, "journal", from, 0));
        }
    }

    /// Writes a record of the region to its table, unless it has moved on or its table is gone.
    pub(super) fn record<'a>(
        &mut self,
        record: &Record<'a>,
        (into_tables, ended): (&mut SalvagedTables<'_>, &Ended),
        writer: &mut Writer<'a>,
    ) -> Result<()> {
        if record.table == SYSTEM_TABLE {
            if record.kind == Kind::Blob {
                writer.blob = Some(record.value);
            }
            return Ok(());
        }
        if !into_tables.known.contains_key(&record.table) {
            match ended.has_table(record.table) {
                true => into_tables.leave_out(record.table),
                false => into_tables.make_lost(record.table, self)?,
            }
        }
        let Some(Some(salvaged)) = into_tables.known.get(&record.table) else { return Ok(()) };
        let SalvagedTable { into, drained, expired, levels } = salvaged;
        if record.seq <= *expired {
            return Ok(());
        }
        if let Some(tombstone) = record.tombstone(0) {
            let left = drained.undrained(&tombstone.interval, record.seq);
            let target = (into, &into_tables.cache);
            return left.iter().try_for_each(|part| match levels {
                Some(levels) => levels.delete_range((part, record.seq), target, writer),
                None => writer.delete_range(into, part),
            });
        }
        if drained.get(record.key) >= record.seq
            || into_tables.hide(record.table, record.key, record.seq)
        {
            return Ok(());
        }
        writer.write(into, record.kind, record.key, record.value)
    }
}
