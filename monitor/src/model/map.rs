//! A map of a table: its keys from left to right, its levels from top to bottom.

use serde::{Deserialize, Serialize};
use terrace::{StatsReader, TableStats};

/// Columns of a map.
pub const COLUMNS: usize = 48;

/// So many tables have a map, the largest.
const MOST_TABLES: usize = 3;

/// Where the keys of a table lie, and where they are read. Each column has as many bytes of the
/// largest level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyMap {
    /// The table.
    pub table: String,
    /// Its levels, from the top.
    pub levels: Vec<MapLevel>,
    /// What jobs of the background work on.
    pub jobs: Vec<MapJob>,
}

/// A level of a [`KeyMap`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MapLevel {
    /// Its number.
    pub level: u8,
    /// Bytes in each column, about.
    pub bytes: Vec<u64>,
    /// The most reads of late of an extent in each column.
    pub reads: Vec<u32>,
}

/// A job in a [`KeyMap`]: from one level to another, and from one column up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapJob {
    /// The upper level.
    pub top: u8,
    /// The lower level.
    pub bottom: u8,
    /// The first column.
    pub from: usize,
    /// The last one.
    pub to: usize,
}

/// The maps of the largest tables that have something on disk. It walks over their extents twice.
pub(crate) fn of(reader: &StatsReader, tables: &[TableStats]) -> Vec<KeyMap> {
    let on_disk = |table: &TableStats| table.levels.iter().map(|level| level.bytes).sum::<u64>();
    let mut tables: Vec<_> = tables.iter().filter(|table| on_disk(table) > 0).collect();
    tables.sort_by_key(|table| std::cmp::Reverse(on_disk(table)));
    tables.into_iter().take(MOST_TABLES).filter_map(|table| map(reader, table)).collect()
}

fn map(reader: &StatsReader, table: &TableStats) -> Option<KeyMap> {
    let largest = table.levels.iter().max_by_key(|level| level.bytes)?;
    let (step, mut sum) = ((largest.bytes / COLUMNS as u64).max(1), 0);
    // Where each column but the first begins.
    let mut bounds: Vec<Vec<u8>> = Vec::new();
    reader.extents(&table.name, |extent| {
        if extent.level == largest.level {
            if sum >= step * (bounds.len() as u64 + 1) && bounds.len() + 1 < COLUMNS {
                bounds.push(extent.smallest_key.to_vec());
            }
            sum += extent.bytes;
        }
    })?;
    // Extents of level 1 overlap.
    bounds.sort_unstable();
    let (count, column) =
        (bounds.len() + 1, |key: &[u8]| bounds.partition_point(|at| **at <= *key));
    let mut levels: Vec<MapLevel> = Vec::new();
    let jobs = reader.extents(&table.name, |extent| {
        let at = levels.iter().position(|of| of.level == extent.level).unwrap_or(levels.len());
        if at == levels.len() {
            let (bytes, reads) = (vec![0; count], vec![0; count]);
            levels.push(MapLevel { level: extent.level, bytes, reads });
        }
        let (from, to) = (column(extent.smallest_key), column(extent.greatest_key));
        for n in from..=to {
            levels[at].bytes[n] += extent.bytes / (to - from + 1) as u64;
            levels[at].reads[n] = levels[at].reads[n].max(extent.reads);
        }
    })?;
    let jobs = jobs.into_iter().map(|job| {
        let (from, end) = (column(&job.start), job.end.map_or(count - 1, |end| column(&end)));
        MapJob { top: job.top, bottom: job.bottom, from, to: end.max(from) }
    });
    let jobs = jobs.collect();
    Some(KeyMap { table: table.name.clone(), levels, jobs })
}
