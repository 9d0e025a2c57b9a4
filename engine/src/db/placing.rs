//! Bulk loads: once everything that is older has come down, extents that nothing is in the way of
//! get their places in levels by one edit, unread. What has to be merged is left to the drain.

use super::inner::Engine;
use crate::compaction;
use crate::error::Result;
use crate::mvcc::{KeyInterval, pin};
use crate::options::Planted;
use crate::record::Lsn;
use crate::table::TableCore;

impl Engine {
    /// Places some extents of a bulk load, or freezes a memtable that has older records.
    pub(super) fn place_loads(&self) -> Result<bool> {
        for table in self.tables() {
            let view = table.view();
            let loads = || view.version.runs.iter().rev().filter(|run| run.loaded);
            if loads().next().is_none() {
                continue;
            }
            let looked_at = table.change().turn.placed;
            let Some(load) = loads().find(|run| run.lsn > looked_at) else { continue };
            let done = match table.merged() >= load.lsn {
                true => self.place_some(&table)?,
                false => view.frozen.is_empty() && self.freeze(&table),
            };
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn place_some(&self, table: &TableCore) -> Result<bool> {
        let floor = self.settle()?;
        let mut change = table.change();
        if table.check().is_err() {
            return Ok(false);
        }
        let _guard = pin();
        let view = table.view();
        let (version, level0) = (&view.version, &view.level0);
        let upto = table.merged().min(floor).min(view.drains_below() - 1);
        let busy = self.background.claims.of(table.id());
        // Of a range tombstone that begins before them no bytes count.
        let has_none = |keys: &KeyInterval, upto: Lsn| -> Result<bool> {
            Ok(level0.bytes_in(keys, upto, &version.drained)? == 0
                && level0.tombstones_in(keys, upto, &version.drained).is_empty()
                || self.options.has(Planted::PlaceOverOlder))
        };
        let placing = compaction::place(version, upto, &busy, &has_none)?;
        let Some(placing) = placing else {
            // Keys that a compaction works on may be free later; the rest is the drain's.
            if busy.is_empty() {
                let seen = version.runs.iter().map(|run| run.lsn).filter(|lsn| *lsn <= upto).max();
                change.turn.placed = change.turn.placed.max(seen.unwrap_or(0));
            }
            return Ok(false);
        };
        let versions = self.apply(placing.edit(table.id()))?;
        self.install(table, &mut change, versions, 0);
        drop(change);
        let reused = placing.reused();
        self.background.metrics.moves.add(reused.extents);
        self.background.metrics.count_reused(&reused);
        Ok(true)
    }
}
