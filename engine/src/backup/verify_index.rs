//! A persistent index held against the records that it is over: nodes have no checksums.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::verify::VerifyReport;
use crate::commit::{Accepted, Content, Recovered};
use crate::engine::Engine;
use crate::engine::open::records;
use crate::error::{Damage, Mismatch, Result};
use crate::memtable::Record;
use crate::mvcc::pin;
use crate::os::HashMap;
use crate::pm::Region;
use crate::ptree::forest::Forest;
use crate::record::{Kind, LSN_MAX, TableId};
use crate::table::TableCore;

impl VerifyReport {
    /// Each entry leads to a committed record of its table, and each record up to the merged
    /// boundary is found, or a newer one of its key. Commits wait meanwhile.
    pub(super) fn index(
        &mut self,
        engine: &Engine,
        region: &Region,
        recovered: &Recovered,
    ) -> Result<()> {
        let Some(forest) = &engine.forest else { return Ok(()) };
        let tables: HashMap<TableId, Arc<TableCore>> =
            engine.tables().into_iter().map(|t| (t.id(), t)).collect();
        let entries = recovered.zones.iter().flat_map(|(_, entries)| entries);
        let entries = entries.filter(|entry| entry.content != Content::Prepared);
        let entries: Vec<&Accepted> = entries.collect();
        let ends = entries.iter().map(|e| (e.payload_at, e.payload_at + e.payload_len));
        let ends: BTreeMap<u64, u64> = ends.collect();
        let end_of = |at: u64| {
            let (_, end) = ends.range(..=at).next_back()?;
            (at < *end && at.is_multiple_of(8)).then_some(*end)
        };
        for table in tables.values() {
            self.checked += 1;
            // The table may be dropped meanwhile.
            let _guard = pin();
            if let Some(at) = table.view().level0.in_zones.wrong_offset(table.id(), &end_of)? {
                let found = Mismatch::new("the offset of a record of it", at.to_string());
                self.damages.push(damage(forest, table.id(), found));
            }
        }
        let merged = forest.merged();
        for (at, record) in entries.iter().flat_map(|entry| records(region, entry)) {
            let is_indexed = matches!(record.kind, Kind::Put | Kind::Delete | Kind::Merge);
            let Some(table) = tables.get(&record.table).filter(|_| is_indexed) else { continue };
            if record.seq <= merged && !is_found(table, &record)? {
                let got = "none of its key, or an older one";
                let found = Mismatch::new(format!("the record at {at}"), got);
                self.damages.push(damage(forest, table.id(), found));
            }
        }
        Ok(())
    }
}

/// Whether a read finds a record, or a newer one of its key, or it has moved to level 1.
fn is_found(table: &TableCore, record: &Record<'_>) -> Result<bool> {
    let _guard = pin();
    let view = table.view();
    let drained = &view.version.drained;
    let found = view.level0.get(record.key, LSN_MAX, drained)?;
    let found = found.map_or(0, |found| found.seq).max(drained.get(record.key));
    // An opening indexes the newest version of a key alone, and that may not be merged yet.
    let unmerged = view.newest_in_memtables(record.key).unwrap_or(0);
    Ok(found.max(unmerged) >= record.seq || table.check().is_err())
}

fn damage(forest: &Forest, table: TableId, found: Mismatch) -> Damage {
    found.at(format!("persistent index of table {table}"), "pm", forest.path(), 0)
}
