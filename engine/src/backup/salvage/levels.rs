//! The levels of a table in a salvage.
//!
//! Where edits are lost, extents may be there that others have replaced, in any level and over each
//! other. So what is read of a key counts only if nothing below it is newer.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{SalvageReport, Writer, expired};
use crate::error::{Damage, Result};
use crate::extent::{BlockCache, Blocks, Described, Extent};
use crate::levels::{Level, Version, VersionSet};
use crate::mvcc::{KeyInterval, Tombstones, pin};
use crate::record::{LSN_MAX, Lsn, TableId};
use crate::table::Table;

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
pub(super) fn cache() -> BlockCache {
    BlockCache::new(CACHE_BYTES)
}

impl SalvageReport {
    /// Writes the levels of a table, the deepest first.
    pub(super) fn levels(
        &mut self,
        set: &VersionSet,
        (table, journal_is_whole): (TableId, bool),
        into: &Table,
        writer: &mut Writer<'_>,
    ) -> Result<()> {
        let Some(version) = set.version(table) else { return Ok(()) };
        let layers = Layers::of(&version, expired(set, &version), &mut self.lost);
        let cache = (!journal_is_whole).then(cache);
        layers.write((0, None), (into, cache.as_ref()), writer, &mut self.lost)
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
mod tests {
    use super::*;
    use crate::extent::tests::{Entry, sim_store, write_extent};

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
        extents.iter().for_each(|extent| extent.installed());
        let layers = disjoint(&Level::new(extents.to_vec()));
        let ids = |layer: &Level| layer.extents().iter().map(|e| e.meta().id).collect::<Vec<_>>();
        assert_eq!(layers.iter().map(ids).collect::<Vec<_>>(), [vec![1, 3], vec![2]]);
        let cache = BlockCache::new(1 << 20);
        let newest = |layers: &[Level], key: &str| newest_in(layers, key.as_bytes(), &cache);
        assert_eq!((newest(&layers[..1], "b"), newest(&layers, "b")), (5, 9));
        assert_eq!((newest(&layers, "y"), newest(&layers, "c"), newest(&[], "b")), (7, 0, 0));
    }
}
