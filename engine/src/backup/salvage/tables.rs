//! The tables of the new database that rows go to, and the levels of a table in a salvage.
//!
//! A record of the region names its table by a number. Where the name of that is lost, its records
//! go to a table of their own, under a name that no other table has.
//!
//! Where edits are lost, extents may be there that others have replaced, in any level and over each
//! other. So what is read of a key counts only if nothing below it is newer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::{SalvageReport, Writer, bytes_of, expired};
use crate::base::error::{Damage, Mismatch, Result};
use crate::base::record::{Kind, LSN_MAX, Lsn, SYSTEM_TABLE, TableId};
use crate::engine::Database;
use crate::memtable::Record;
use crate::mvcc::{DrainedMap, KeyInterval, Tombstones, pin};
use crate::sstable::{BlockCache, Blocks, Described, Extent};
use crate::table::Table;
use crate::version::{Ended, Level, SalvagedSet, Version, VersionSet, free_name};

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
    cache: Arc<BlockCache>,
}

impl<'a> SalvagedTables<'a> {
    /// None, for records of the database in `from`.
    pub(super) fn new(db: &'a Database, from: &'a Path) -> SalvagedTables<'a> {
        SalvagedTables { db, from, known: BTreeMap::new(), cache: cache() }
    }

    /// Those of the tables that a journal names; they are in `db` under the same names.
    pub(super) fn of_journal(
        (db, from): (&'a Database, &'a Path),
        journal: &SalvagedSet,
        now: u64,
    ) -> Result<SalvagedTables<'a>> {
        let (set, is_whole) = (&journal.set, journal.lost.is_empty());
        let mut into_tables = SalvagedTables::new(db, from);
        for table in set.tables() {
            let Some(version) = set.version(table.id) else { continue };
            let (drained, expired) = (version.drained.clone(), expired((set, now), &version));
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

    /// All of a table up to here has expired.
    pub(super) fn expired(&self, table: TableId) -> Lsn {
        let known = self.known.get(&table).and_then(Option::as_ref);
        known.map_or(0, |salvaged| salvaged.expired)
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
        writer.meter.did(bytes_of(record))?;
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
            let target = (into, &*into_tables.cache);
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

/// Bytes of blocks that are kept to look for newer versions in.
const CACHE_BYTES: u64 = 16 << 20;

/// The levels of a table in order of age. The deepest and oldest comes first.
pub(super) struct Layers {
    layers: Vec<Level>,
    tombstones: Tombstones,
    /// All up to here has expired.
    expired: Lsn,
}

impl Layers {
    /// Those of a version; what of their tombstones cannot be read goes to `lost`.
    pub(super) fn of(version: &Version, expired: Lsn, lost: &mut Vec<Damage>) -> Layers {
        let layers: Vec<Level> = version.levels.iter().rev().flat_map(disjoint).collect();
        let mut tombstones = Vec::new();
        for extent in layers.iter().flat_map(|layer| layer.extents().iter()) {
            tombstones.extend(extent.salvage_tombstones(lost).iter().cloned());
        }
        Layers { layers, tombstones: tombstones.into_iter().collect(), expired }
    }

    /// Whether they have what is newer than, or the same as, a version of a key.
    pub(super) fn hide(&self, key: &[u8], seq: Lsn, cache: &BlockCache) -> bool {
        self.tombstones.newest_over(key, LSN_MAX) > seq
            || newest_in(&self.layers, key, cache) >= seq
    }

    /// Writes their rows that are newer than `above`, of keys that lie `within`.
    fn write(
        &self,
        (above, within): (Lsn, Option<&KeyInterval>),
        (into, cache): (&Table, Option<&BlockCache>),
        writer: &mut Writer<'_>,
        lost: &mut Vec<Damage>,
    ) -> Result<()> {
        let above = above.max(self.expired);
        for (n, layer) in self.layers.iter().enumerate() {
            let extents = within.map_or(&**layer.extents(), |within| layer.overlapping(within));
            for extent in extents.iter().filter(|extent| extent.meta().greatest_seq > above) {
                extent.salvage(lost, |entry| {
                    let is_hidden = entry.seq <= above
                        || within.is_some_and(|within| !within.contains(entry.key))
                        || self.tombstones.newest_over(entry.key, LSN_MAX) > entry.seq
                        || cache.is_some_and(|cache| {
                            newest_in(&self.layers[..n], entry.key, cache) >= entry.seq
                        });
                    match is_hidden {
                        true => Ok(()),
                        false => writer.write(into, entry.kind, entry.key, entry.value),
                    }
                })?;
                if within.is_none() {
                    writer.meter.did(u64::from(extent.meta().location.len))?;
                }
            }
        }
        Ok(())
    }

    /// Deletes what lies in an interval so far, but for their rows that are newer than `seq` or of
    /// the same commit: a row outlives the range delete of its own batch.
    pub(super) fn delete_range(
        &self,
        (interval, seq): (&KeyInterval, Lsn),
        (into, cache): (&Table, &BlockCache),
        writer: &mut Writer<'_>,
    ) -> Result<()> {
        writer.delete_range(into, interval)?;
        // What cannot be read was told when all was written.
        let above = seq.saturating_sub(1);
        self.write((above, Some(interval)), (into, Some(cache)), writer, &mut Vec::new())
    }
}

/// A cache for what looks for newer versions.
pub(super) fn cache() -> Arc<BlockCache> {
    BlockCache::new(CACHE_BYTES)
}

impl SalvageReport {
    /// Writes the levels of a table, the deepest first.
    pub(super) fn levels(
        &mut self,
        (set, now): (&VersionSet, u64),
        (table, journal_is_whole): (TableId, bool),
        into: &Table,
        writer: &mut Writer<'_>,
    ) -> Result<()> {
        let Some(version) = set.version(table) else { return Ok(()) };
        let layers = Layers::of(&version, expired((set, now), &version), &mut self.lost);
        let cache = (!journal_is_whole).then(cache);
        layers.write((0, None), (into, cache.as_deref()), writer, &mut self.lost)
    }
}

/// A level as levels in which no extents overlap, the older ones first.
fn disjoint(level: &Level) -> Vec<Level> {
    if level.overlap().is_none() {
        return vec![level.clone()];
    }
    let mut extents = level.extents().to_vec();
    extents.sort_by_key(|extent| extent.meta().greatest_seq);
    // Each by the smallest keys.
    let mut layers: Vec<BTreeMap<Vec<u8>, Arc<Extent>>> = Vec::new();
    for extent in extents {
        let meta = extent.meta();
        let overlaps = |layer: &BTreeMap<Vec<u8>, Arc<Extent>>| {
            let before = layer.range(..=meta.greatest_key.clone()).next_back();
            before.is_some_and(|(_, other)| other.meta().greatest_key >= meta.smallest_key)
        };
        let at = layers.iter().rposition(overlaps).map_or(0, |under| under + 1);
        if at == layers.len() {
            layers.push(BTreeMap::new());
        }
        layers[at].insert(meta.smallest_key.clone(), extent);
    }
    layers.into_iter().map(|layer| Level::new(layer.into_values().collect())).collect()
}

/// The greatest sequence number of a key in levels, as far as they can be read.
fn newest_in(levels: &[Level], key: &[u8], cache: &BlockCache) -> Lsn {
    let guard = pin();
    let found = levels.iter().filter_map(|level| level.find(key)).filter_map(|extent| {
        let found = extent.get(key, LSN_MAX, Blocks::new(cache, &guard)).ok()??;
        Some(found.seq)
    });
    found.max().unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::*;
    use crate::sstable::tests::{Entry, sim_store, write_extent};

    /// Bug: rows of extents that a lost edit had removed took the place of newer ones.
    /// Cause: salvage went by levels alone.
    /// Fix: extents that overlap are written by their sequence numbers. A row counts
    /// only if nothing below it is newer.
    #[test]
    fn extents_that_overlap_lie_over_each_other_by_their_sequence_numbers() {
        let (_, store) = sim_store();
        let extent = |id, keys: [&str; 2], seq| {
            write_extent(&store, id, &keys.map(|key| Entry::put(key.as_bytes(), seq, b"v")))
        };
        // The newer one comes first by its keys.
        let extents =
            [extent(1, ["b", "d"], 5), extent(2, ["a", "b"], 9), extent(3, ["x", "y"], 7)];
        extents.iter().for_each(|extent| extent.installed(1));
        let layers = disjoint(&Level::new(extents.to_vec()));
        let ids = |layer: &Level| layer.extents().iter().map(|e| e.meta().id).collect::<Vec<_>>();
        assert_eq!(layers.iter().map(ids).collect::<Vec<_>>(), [vec![1, 3], vec![2]]);
        let cache = BlockCache::new(1 << 20);
        let newest = |layers: &[Level], key: &str| newest_in(layers, key.as_bytes(), &cache);
        assert_eq!((newest(&layers[..1], "b"), newest(&layers, "b")), (5, 9));
        assert_eq!((newest(&layers, "y"), newest(&layers, "c"), newest(&[], "b")), (7, 0, 0));
    }
}
