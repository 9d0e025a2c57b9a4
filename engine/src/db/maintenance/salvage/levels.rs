//! The levels of a table in a salvage.
//!
//! Where edits are lost, extents may be there that others have replaced, in any level and over each
//! other. So what is read of a key counts only if nothing below it is newer.

use std::sync::Arc;

use super::{SalvageReport, Writer, expired};
use crate::error::Result;
use crate::extent::{BlockCache, Blocks, Described, Extent};
use crate::levels::{Level, VersionSet};
use crate::mvcc::{Tombstones, pin};
use crate::record::{LSN_MAX, Lsn, TableId};
use crate::table::Table;

/// Bytes of blocks that are kept to look for newer versions in.
const CACHE_BYTES: u64 = 16 << 20;

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
        let expired = expired(set, &version);
        let layers: Vec<Level> = version.levels.iter().rev().flat_map(disjoint).collect();
        let extents = || layers.iter().flat_map(|layer| layer.extents().iter());
        let mut tombstones = Vec::new();
        for extent in extents() {
            tombstones.extend(extent.salvage_tombstones(&mut self.lost).iter().cloned());
        }
        let tombstones: Tombstones = tombstones.into_iter().collect();
        let cache = BlockCache::new(CACHE_BYTES);
        for (n, layer) in layers.iter().enumerate() {
            let below = if journal_is_whole { &[] } else { &layers[..n] };
            for extent in layer.extents().iter() {
                extent.salvage(&mut self.lost, |entry| {
                    let is_hidden = entry.seq <= expired
                        || tombstones.newest_over(entry.key, LSN_MAX) > entry.seq
                        || newest_in(below, entry.key, &cache) >= entry.seq;
                    match is_hidden {
                        true => Ok(()),
                        false => writer.write(into, entry.kind, entry.key, entry.value),
                    }
                })?;
            }
        }
        Ok(())
    }
}

/// A level as levels in which no extents overlap, the older ones first.
fn disjoint(level: &Level) -> Vec<Level> {
    if level.overlap().is_none() {
        return vec![level.clone()];
    }
    let mut extents = level.extents().to_vec();
    extents.sort_by_key(|extent| extent.meta().greatest_seq);
    let mut layers: Vec<Vec<Arc<Extent>>> = Vec::new();
    for extent in extents {
        let meta = extent.meta();
        let overlaps = |other: &Arc<Extent>| {
            let other = other.meta();
            other.smallest_key <= meta.greatest_key && meta.smallest_key <= other.greatest_key
        };
        let under = layers.iter().rposition(|layer| layer.iter().any(overlaps));
        let at = under.map_or(0, |under| under + 1);
        if at == layers.len() {
            layers.push(Vec::new());
        }
        layers[at].push(extent);
    }
    layers.into_iter().map(Level::new).collect()
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
