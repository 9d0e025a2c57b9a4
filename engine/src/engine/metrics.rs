//! Statistics and histograms by the names that they have outside.
//!
//! One table has all metrics: the type, the name, a unit that the name ends with, what it says, and
//! where its value is. A counter's name ends with `_total`. `text.rs` writes them as Prometheus
//! reads them, the history keeps them.

#![allow(clippy::cast_lossless, reason = "one macro has counts of several widths")]

#[cfg(feature = "metrics")]
mod text;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Stats;
use crate::base::operations::{Histogram, Times};
use MetricType::{Counter, Gauge};
use Unit::{Bytes, Seconds};
#[cfg(feature = "metrics")]
pub(super) use text::text_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricType {
    /// It only rises while a database is open.
    Counter,
    Gauge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Seconds,
}

/// Labels of a value.
type Labels<'a> = &'a [(&'static str, &'a str)];

/// Takes a value with its labels.
type Give<'a> = dyn FnMut(Labels<'_>, f64) + 'a;

/// A number of [`Stats`].
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "the text alone has what it says"))]
struct Metric {
    metric_type: MetricType,
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    /// Gives each value with its labels.
    values: fn(&Stats, &mut Give<'_>),
}

/// Lines `type name unit, "what it says" => values;`.
macro_rules! metrics {
    ($($kind:ident $name:ident $($unit:ident)?, $help:literal => $values:expr;)*) => {
        const METRICS: &[Metric] = &[$(Metric {
            metric_type: $kind,
            name: concat!("terrace_", stringify!($name)),
            unit: metrics!(@unit $($unit)?),
            help: $help,
            values: $values,
        },)*];
    };
    (@unit) => { None };
    (@unit $unit:ident) => { Some($unit) };
}

/// One value.
macro_rules! of {
    ($($part:tt)*) => { |stats, give| give(&[], stats.$($part)* as f64) };
}

/// One value for each table.
macro_rules! table {
    ($($part:tt)*) => {
        |stats, give| {
            for table in &stats.tables {
                give(&[("table", table.name.as_str())], table.$($part)* as f64);
            }
        }
    };
}

/// One value for each level of each table.
macro_rules! level {
    ($($part:tt)*) => {
        |stats, give| {
            for table in &stats.tables {
                for level in &table.levels {
                    let number = level.level.to_string();
                    let labels = [("table", table.name.as_str()), ("level", number.as_str())];
                    give(&labels, level.$($part)* as f64);
                }
            }
        }
    };
}

/// One value with an object store.
macro_rules! object {
    ($($part:tt)*) => {
        |stats, give| stats.objects.iter().for_each(|of| give(&[], of.$($part)* as f64))
    };
}

/// One value where the database is shared.
macro_rules! share {
    ($($part:tt)*) => {
        |stats, give| stats.share.iter().for_each(|of| give(&[], of.$($part)* as f64))
    };
}

metrics! {
    Gauge open_duration Seconds, "How long the opening took" => of!(open.total_ms / 1e3);
    Counter commit_groups, "Commit groups" => of!(commit.groups);
    Counter commit_records, "Records in commit groups" => of!(commit.records);
    Counter commit_runs, "Groups made durable together" => of!(commit.runs);
    Counter commit_syncs, "Syncs of the file of the region for commits" => of!(commit.syncs);
    Counter commit_written Bytes, "Bytes written or fenced for commits" => of!(commit.bytes);
    Counter commit_throttled Seconds, "How long writers waited for space or the pace, together" =>
        of!(commit.throttled_ms / 1e3);
    Counter commit_spilled_runs, "Runs of commits too large for a zone, and of bulk loads" =>
        of!(commit.spilled_runs);
    Gauge commit_waiting, "Writers that wait for space or the pace now" => of!(pace.waiting);
    Counter lock_waited Seconds, "How long threads waited for locks, together" =>
        of!(locks.waited_ms / 1e3);
    Gauge lock_waiting, "Threads that wait for locks now" => of!(locks.waiting);
    Gauge open_stopped, "1 once the database has stopped after a failure" =>
        |stats, give| give(&[], f64::from(u8::from(stats.stopped.is_some())));
    Gauge commit_visible_lsn, "The last commit that readers see" => of!(commit.visible);
    Gauge commit_durable_lsn, "The last commit that survives a power cut" => of!(commit.durable);
    Counter pm_syncs, "Syncs of the file of the region, by purpose" => |stats, give| {
        stats.persistence.iter().for_each(|of| give(&[("purpose", of.purpose)], of.syncs as f64));
    };
    Counter pm_written Bytes, "Bytes written to the file of the region or fenced, by purpose" =>
        |stats, give| {
        stats.persistence.iter().for_each(|of| give(&[("purpose", of.purpose)], of.bytes as f64));
    };
    Counter pm_appended Bytes, "Bytes appended to the region" => of!(pm.appended_bytes);
    Gauge pm_capacity Bytes, "Size of the region" => of!(pm.capacity);
    Gauge pm_zones, "Units of the region" => of!(pm.zones);
    Gauge pm_zones_used, "Units that are taken" => of!(pm.zones_used);
    Gauge pm_zones_pinned, "Units without a record that counts, kept by readers or the next sync" =>
        of!(pm.zones_pinned);
    Gauge pm_round Bytes, "Bytes appended since the oldest record that is not drained" =>
        of!(pm.round_bytes);
    Gauge pm_live_records, "Records in the region that count" => of!(pm.live_records);
    Gauge pace_delay Seconds, "How long writers wait for each KiB" =>
        of!(pace.delay_ns as f64 / 1e9);
    Gauge pace_debt Bytes, "By how much the round of drains lags behind" => of!(pace.debt);
    Gauge table_memtable Bytes, "Bytes of the region that memtables take" => table!(memtable_bytes);
    Gauge table_level0 Bytes, "Bytes of the region that level 0 takes" => table!(level0_bytes);
    Gauge table_values Bytes, "Bytes of large values on disk" => table!(value_bytes);
    Gauge table_values_live Bytes, "Of these, bytes that records refer to" =>
        table!(value_live_bytes);
    Gauge table_objects Bytes, "Bytes that are objects" => table!(object_bytes);
    Gauge level_extents, "Extents of a level" => level!(extents);
    Gauge level_records, "Records of a level" => level!(records);
    Gauge level_deletes, "Of these, deletes" => level!(deletes);
    Gauge level_size Bytes, "Bytes of a level on disk" => level!(bytes);
    Counter level_answered, "Look-ups that a level answered" => level!(answered);
    Gauge disk_files Bytes, "Bytes of extent files on the device" => of!(disk.file_bytes);
    Gauge disk_extents Bytes, "Of these, bytes that hold extents" => of!(disk.extent_bytes);
    Gauge disk_headroom Bytes, "Free bytes that are kept for jobs under way" =>
        of!(disk.headroom_bytes);
    Gauge disk_readers, "Openings that read beside the writer" => of!(disk.readers);
    Gauge disk_kept Bytes, "Bytes of extents that only these need" => of!(disk.kept_bytes);
    Counter disk_written Bytes, "Bytes written to extents" => of!(disk.written_bytes);
    Counter disk_read Bytes, "Bytes read from extents" => of!(disk.read_bytes);
    Counter disk_reads, "Reads of extents" => of!(disk.reads);
    Counter disk_syncs, "Syncs of extent files" => of!(disk.syncs);
    Gauge cache_capacity Bytes, "Bytes that the block cache may hold" => of!(cache.capacity);
    Gauge cache_used Bytes, "Bytes that it holds" => of!(cache.used);
    Counter cache_hits, "Blocks found in the cache" => of!(cache.hits);
    Counter cache_misses, "Blocks that had to be read" => of!(cache.misses);
    Gauge memory_limit Bytes, "The limit of memory; 0 without one" => of!(memory.limit);
    Gauge memory_held Bytes, "Memory that is held, by part" => |stats, give| {
        let memory = &stats.memory;
        let parts = [
            ("region", memory.region),
            ("indexes", memory.indexes),
            ("filters", memory.filters),
            ("extents", memory.extents),
            ("writes", memory.writes),
            ("locks", memory.locks),
            ("read_ahead", memory.read_ahead),
            ("iterators", memory.iterators),
            ("jobs", memory.jobs),
            ("cache", memory.cache),
        ];
        parts.into_iter().for_each(|(part, bytes)| give(&[("part", part)], bytes as f64));
    };
    Counter background_merges, "Memtables merged into level 0" => of!(background.merges);
    Counter background_drains, "Columns drained to level 1" => of!(background.drains);
    Counter background_drained Bytes, "Bytes of level 0 that drains have moved" =>
        of!(background.drained_level0_bytes);
    Counter background_drain_written Bytes, "Bytes that drains have written" =>
        of!(background.drained_bytes);
    Counter background_compactions, "Merges between levels" => of!(background.compactions);
    Counter background_tombstone_drains, "Drains for deletes alone" =>
        of!(background.tombstone_drains);
    Counter background_tombstone_compactions, "Compactions for deletes alone" =>
        of!(background.tombstone_compactions);
    Counter background_failures, "Jobs that failed and were tried again" =>
        of!(background.failures);
    Gauge background_snapshots, "Snapshots held, those of ranges and transactions included" =>
        of!(background.snapshots);
    Gauge object_deleting, "Objects that are to be deleted" => object!(deleting);
    Counter object_retries, "Requests that were made again after a failure" => object!(retries);
    Counter object_hedges, "Reads that were made a second time because the first took long" =>
        object!(hedges);
    Counter object_sent Bytes, "Bytes of objects that were sent" => object!(sent_bytes);
    Counter object_received Bytes, "Bytes of objects that came" => object!(received_bytes);
    Counter object_asked, "Requests by kind, each attempt" => |stats, give| {
        stats.objects.iter().for_each(|of| {
            let kinds = [
                ("get", of.gets),
                ("put", of.puts),
                ("head", of.heads),
                ("delete", of.deletes),
                ("list", of.lists),
            ];
            kinds.into_iter().for_each(|(kind, n)| give(&[("kind", kind)], n as f64));
        });
    };
    Counter object_failures, "Failed requests, by what happened" => |stats, give| {
        for &(kind, n) in stats.objects.iter().flat_map(|of| &of.failures) {
            give(&[("kind", kind)], n as f64);
        }
    };
    Gauge share_lag_commits, "Commits that are visible here and not yet in the shared store" =>
        share!(lag_commits);
    Gauge share_lag Bytes, "Bytes of commits that wait" => share!(lag_bytes);
    Gauge share_lag_age Seconds, "Age of the oldest commit that waits" =>
        share!(lag_ms as f64 / 1e3);
    Counter share_segments, "Segments that were sent" => share!(segments);
    Counter share_checkpoints, "Checkpoints that were sent" => share!(checkpoints);
}

/// A histogram of seconds.
struct Timed<'a> {
    name: &'static str,
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "the history needs no text"))]
    help: &'static str,
    histogram: &'a Histogram,
}

fn histograms(times: &Times) -> [Timed<'_>; 9] {
    let timed = |name, help, histogram| Timed { name, help, histogram };
    let [get, range, commit, enqueue, transaction] = &times.operations;
    [
        timed("terrace_read_get", "Look-ups of one key or several, one of 64", get),
        timed("terrace_read_range", "Chunks of ranges, one of 64", range),
        timed(
            "terrace_commit_wait",
            "Commits and prepares that were waited for, one of 64",
            commit,
        ),
        timed(
            "terrace_commit_enqueue",
            "Commits up to their place in the order, one of 64",
            enqueue,
        ),
        timed("terrace_transaction_call", "Calls on one row, one of 64", transaction),
        timed("terrace_commit_sync", "Syncs of the region for commits", &times.syncs),
        timed("terrace_lock_wait", "Waits for locks on rows", &times.lock_waits),
        timed("terrace_background_drain", "Drains", &times.drains),
        timed("terrace_object_request", "Attempts at requests to the store", &times.requests),
    ]
}

/// All values at one moment, by name with its labels. Those of several tables are added up.
/// Histograms have values with the feature `metrics` alone.
pub(super) fn values(stats: &Stats, times: &Times) -> BTreeMap<String, f64> {
    let (mut all, mut name) = (BTreeMap::new(), String::new());
    for metric in METRICS {
        (metric.values)(stats, &mut |labels, value| {
            name.clear();
            name += metric.name;
            name += match metric.unit {
                Some(Bytes) => "_bytes",
                Some(Seconds) => "_seconds",
                None => "",
            };
            name += if metric.metric_type == Counter { "_total" } else { "" };
            let labels = labels.iter().filter(|(label, _)| *label != "table");
            for (n, (label, of)) in labels.enumerate() {
                let written = write!(name, "{}{label}=\"{of}\"", if n == 0 { "{" } else { "," });
                debug_assert!(written.is_ok(), "writing to a string does not fail");
            }
            name += if name.contains('{') { "}" } else { "" };
            // Most are of one of many tables, and there already.
            match all.get_mut(&name) {
                Some(sum) => *sum += value,
                None => drop(all.insert(name.clone(), value)),
            }
        });
    }
    let timed = histograms(times).into_iter().filter(|_| cfg!(feature = "metrics"));
    for Timed { name, histogram, .. } in timed {
        let buckets = histogram.buckets();
        all.insert(format!("{name}_seconds_sum"), histogram.sum());
        let mut count = 0;
        for (bound, of) in buckets {
            count += of;
            // As the text has it.
            let bound = match bound {
                f64::INFINITY => "+Inf".to_owned(),
                ..1e-6 => format!("{bound:e}"),
                _ => bound.to_string(),
            };
            all.insert(format!("{name}_seconds_bucket{{le=\"{bound}\"}}"), count as f64);
        }
        all.insert(format!("{name}_seconds_count"), count as f64);
    }
    all
}
