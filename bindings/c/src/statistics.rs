//! Statistics: the numbers that programs look at as a structure, and all of them as JSON.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr;

use crate::database::Database;
use crate::error::{Error, OwnedText, Status, c_text};
use crate::guard::{self, Failure, Result, need};
use crate::pointers::StatisticsOut;
use crate::table::Table;

/// Numbers of an open database. Counters start at its opening. Later versions of the library add
/// numbers at the end.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Statistics {
    /// The last commit that readers see.
    pub visible: u64,
    /// The last commit that survives a power cut.
    pub durable: u64,
    /// Commit groups.
    pub commit_groups: u64,
    /// Records in them.
    pub commit_records: u64,
    /// Syncs of the region's file.
    pub commit_syncs: u64,
    /// Milliseconds that writers were slowed down because the region was filling.
    pub throttled_ms: u64,
    /// Bytes of the region.
    pub pm_capacity: u64,
    /// Zones of the region, in units.
    pub pm_zones: u64,
    /// Zones that are taken, in units.
    pub pm_zones_used: u64,
    /// Records of the region that count.
    pub pm_live_records: u64,
    /// Bytes of extent files on the device.
    pub disk_file_bytes: u64,
    /// Of these, bytes that hold extents.
    pub disk_extent_bytes: u64,
    /// Bytes written to extents.
    pub disk_written_bytes: u64,
    /// Bytes read from extents.
    pub disk_read_bytes: u64,
    /// In so many reads.
    pub disk_reads: u64,
    /// Bytes that the block cache may hold.
    pub cache_capacity: u64,
    /// Bytes that it holds.
    pub cache_used: u64,
    /// Blocks found in it.
    pub cache_hits: u64,
    /// Blocks that had to be read.
    pub cache_misses: u64,
    /// The limit of memory in bytes; 0 without one.
    pub memory_limit: u64,
    /// Bytes of memory that the database holds.
    pub memory_held: u64,
    /// Columns drained to level 1.
    pub drains: u64,
    /// Merges between levels.
    pub compactions: u64,
    /// Jobs of the background that failed and were tried again.
    pub background_failures: u64,
    /// Snapshots held, those of cursors included.
    pub snapshots: u64,
    /// Tables.
    pub tables: u64,
}

/// How many numbers there are.
const NUMBERS: usize = size_of::<Statistics>() / size_of::<u64>();

impl Statistics {
    fn new(stats: &terrace::Stats) -> Statistics {
        Statistics {
            visible: stats.commit.visible,
            durable: stats.commit.durable,
            commit_groups: stats.commit.groups,
            commit_records: stats.commit.records,
            commit_syncs: stats.commit.syncs,
            throttled_ms: stats.commit.throttled_ms as u64,
            pm_capacity: stats.pm.capacity,
            pm_zones: stats.pm.zones.into(),
            pm_zones_used: stats.pm.zones_used.into(),
            pm_live_records: stats.pm.live_records,
            disk_file_bytes: stats.disk.file_bytes,
            disk_extent_bytes: stats.disk.extent_bytes,
            disk_written_bytes: stats.disk.written_bytes,
            disk_read_bytes: stats.disk.read_bytes,
            disk_reads: stats.disk.reads,
            cache_capacity: stats.cache.capacity,
            cache_used: stats.cache.used,
            cache_hits: stats.cache.hits,
            cache_misses: stats.cache.misses,
            memory_limit: stats.memory.limit,
            memory_held: stats.memory.total(),
            drains: stats.background.drains,
            compactions: stats.background.compactions,
            background_failures: stats.background.failures,
            snapshots: stats.background.snapshots,
            tables: stats.tables.len() as u64,
        }
    }

    /// The numbers in the order of the structure.
    pub(crate) fn write_to(&self, words: &mut [u64; NUMBERS]) {
        *words = [
            self.visible,
            self.durable,
            self.commit_groups,
            self.commit_records,
            self.commit_syncs,
            self.throttled_ms,
            self.pm_capacity,
            self.pm_zones,
            self.pm_zones_used,
            self.pm_live_records,
            self.disk_file_bytes,
            self.disk_extent_bytes,
            self.disk_written_bytes,
            self.disk_read_bytes,
            self.disk_reads,
            self.cache_capacity,
            self.cache_used,
            self.cache_hits,
            self.cache_misses,
            self.memory_limit,
            self.memory_held,
            self.drains,
            self.compactions,
            self.background_failures,
            self.snapshots,
            self.tables,
        ];
    }
}

/// Numbers of a table. Versions, deletes and expired records that were not compacted yet count.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TableStatistics {
    /// Records in the region: memtables and level 0.
    pub pm_records: u64,
    /// Bytes they take there.
    pub pm_bytes: u64,
    /// Records on disk, in levels.
    pub disk_records: u64,
    /// Bytes they take there, compressed; large values and spilled runs included.
    pub disk_bytes: u64,
    /// How long records live, in milliseconds; 0 for ever.
    pub ttl_ms: u64,
}

/// Writes statistics to *statistics. Pass sizeof(terrace_statistics) as the size: a library that
/// has more numbers than the structure leaves out the last ones, and one that has fewer writes
/// zeros.
///
/// Errors: TERRACE_INVALID for NULL, and for a size that cannot be.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_get_statistics(
    database: Option<&Database>,
    statistics: StatisticsOut,
    size: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    let mut statistics = statistics;
    guard::done(error, || {
        statistics.write(size, &Statistics::new(&need(database, "database")?.0.stats()))
    })
}

/// All statistics as a JSON object, with the names of the Rust type Stats. NULL after an error.
/// Free it with terrace_string_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_get_statistics_json(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<OwnedText>> {
    guard::made(error, || json(&need(database, "database")?.0.stats()))
}

/// Statistics, and histograms of how long things take, in the text format of OpenMetrics, which
/// Prometheus reads. docs/operations.md has what to watch. NULL after an error. Free it with
/// terrace_string_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_metrics_text(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<OwnedText>> {
    guard::made(error, || Ok(OwnedText::new(need(database, "database")?.0.metrics_text())))
}

/// Numbers with the names that they have in terrace_database_metrics_text.
#[derive(Debug)]
pub struct Metrics(Vec<Metric>);

#[derive(Debug)]
struct Metric {
    name: CString,
    value: f64,
}

/// What terrace_database_metrics_text has, as numbers in the order of their names, which have their
/// labels as there. Those of several tables are added up. NULL after an error. Free it with
/// terrace_metrics_free.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_database_metrics(
    database: Option<&Database>,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Metrics>> {
    guard::made(error, || {
        let values = need(database, "database")?.0.metric_values();
        let metric = |(name, value)| Metric { name: c_text(name), value };
        Ok(Metrics(values.into_iter().map(metric).collect()))
    })
}

/// How many there are; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_metrics_len(metrics: Option<&Metrics>) -> usize {
    metrics.map_or(0, |metrics| metrics.0.len())
}

/// The name of one of them, counted from 0: UTF-8 that ends with a zero byte and belongs to the
/// list. Its value is written to *value, if that is not NULL. NULL when there is none there.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_metrics_at(
    metrics: Option<&Metrics>,
    at: usize,
    value: Option<&mut MaybeUninit<f64>>,
) -> *const c_char {
    let Some(metric) = metrics.and_then(|metrics| metrics.0.get(at)) else { return ptr::null() };
    if let Some(value) = value {
        value.write(metric.value);
    }
    metric.name.as_ptr()
}

/// Frees them. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_metrics_free(metrics: Option<Box<Metrics>>) {
    guard::free(metrics);
}

/// A structure of the engine as JSON.
pub(crate) fn json(of: &impl serde::Serialize) -> Result<OwnedText> {
    let text = serde_json::to_vec(of).map_err(|e| Failure::Panic(format!("as JSON: {e}")))?;
    Ok(OwnedText::new(text))
}

/// The numbers of a table. A table that was renamed is the same one.
///
/// Errors: TERRACE_INVALID for NULL; TERRACE_MISSING_TABLE when the table was dropped.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_table_get_statistics(
    table: Option<&Table>,
    statistics: Option<&mut MaybeUninit<TableStatistics>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (table, out) = (need(table, "table")?, need(statistics, "statistics")?);
        let found = table.database.table_stats(&table.table)?;
        out.write(TableStatistics {
            pm_records: found.memtable_records + found.level0_records,
            pm_bytes: found.memtable_bytes + found.level0_bytes,
            disk_records: found.levels.iter().map(|level| level.records).sum(),
            disk_bytes: found.levels.iter().map(|level| level.bytes).sum::<u64>()
                + found.value_bytes
                + found.spilled_bytes,
            ttl_ms: found.ttl_ms.unwrap_or(0),
        });
        Ok(())
    })
}
