//! The tables of a picture.

use terrace::{LevelStats, Stats, TableStats};

use super::first::waiting_now;
use super::rates::{Rates, UNKNOWN, bound, number};
use super::{Row, Section};
use crate::units::{grouped, size, time};

/// So many tables are shown, the largest.
const MOST_TABLES: usize = 30;

pub(super) fn of(rates: &Rates<'_>) -> Vec<Section> {
    let stats = &rates.now.stats;
    let mut sections = vec![waits(rates), latencies(rates), memory(stats), zones(stats)];
    sections.extend([blocks(rates), jobs(rates)]);
    sections.extend(stats.objects.as_ref().map(|_| requests(rates)));
    sections.extend(share(rates));
    sections.push(tables(&stats.tables));
    sections
}

fn section(id: &str, title: &str, columns: &[&str], rows: Vec<Row>) -> Section {
    let columns = columns.iter().map(|&column| column.to_owned()).collect();
    Section { id: id.to_owned(), title: title.to_owned(), note: String::new(), columns, rows }
}

fn row<const N: usize>(name: &str, cells: [String; N]) -> Row {
    Row { name: name.to_owned(), share: None, cells: cells.into() }
}

/// A row with its part of a whole.
fn part<const N: usize>(name: &str, (of, whole): (u64, u64), cells: [String; N]) -> Row {
    let share = (whole > 0).then(|| (of as f64 / whole as f64).min(1.0));
    Row { share, ..row(name, cells) }
}

fn a_second(seconds: Option<f64>) -> String {
    seconds.map_or(UNKNOWN.to_owned(), |seconds| match seconds {
        0.0 => "0/s".to_owned(),
        some => format!("{}/s", time(some)),
    })
}

/// What writers wait for, and why.
fn waits(rates: &Rates<'_>) -> Section {
    let stats = &rates.now.stats;
    let pace = rates.of(|stats| stats.commit.throttled_ms).map(|ms| ms / 1e3);
    let since = time(stats.commit.throttled_ms / 1e3);
    let mut why = match stats.pace.delay_ns {
        0 => stats.pace.reason.to_owned(),
        delay => format!("{}; {} for each KiB", stats.pace.reason, time(delay as f64 / 1e9)),
    };
    if let Some(stuck) = &stats.pace.stuck {
        why = format!("{why}; no space can be made: {stuck}");
    }
    let now = |waiting, ms: f64, why: String| match waiting {
        0 => why,
        _ => format!("{}: {why}", waiting_now(waiting, ms / 1e3)),
    };
    let why = now(stats.pace.waiting, stats.pace.waiting_ms, why);
    let of = |name: &str, metric: &str, why: &str| {
        let sum = rates.histogram(metric).map_or(UNKNOWN.to_owned(), |of| time(of.sum));
        row(name, [a_second(rates.seconds_in(metric)), why.to_owned(), sum])
    };
    let debt = format!(
        "Drains move {}/s and are {} behind.",
        size(stats.pace.drain_rate),
        size(stats.pace.debt)
    );
    let held_up = rates.of(|stats| stats.locks.waited_ms).map(|ms| ms / 1e3);
    let locks = format!("{} waits have ended", number(rates.count_in("terrace_lock_wait")));
    let locks = now(stats.locks.waiting, stats.locks.waiting_ms, locks);
    let syncs = number(rates.count_in("terrace_commit_sync"));
    let rows = vec![
        row("pace and space", [a_second(pace), why, since]),
        row("locks of rows", [a_second(held_up), locks, time(stats.locks.waited_ms / 1e3)]),
        of("syncs", "terrace_commit_sync", &format!("{syncs} syncs for commits")),
    ];
    let columns = ["waits for", "waited", "why", "since the opening"];
    Section { note: debt, ..section("waits", "What writers wait for", &columns, rows) }
}

fn latencies(rates: &Rates<'_>) -> Section {
    /// One of so many calls is timed.
    const SAMPLE: f64 = 64.0;
    let kinds = [
        ("commits", "terrace_commit_wait", SAMPLE),
        ("commits up to their place", "terrace_commit_enqueue", SAMPLE),
        ("look-ups", "terrace_read_get", SAMPLE),
        ("chunks of ranges", "terrace_read_range", SAMPLE),
        ("calls of transactions", "terrace_transaction_call", SAMPLE),
        ("syncs", "terrace_commit_sync", 1.0),
        ("waits for locks", "terrace_lock_wait", 1.0),
        ("drains", "terrace_background_drain", 1.0),
        ("requests to the store", "terrace_object_request", 1.0),
    ];
    let rows = kinds.into_iter().filter(|(_, name, _)| {
        let is_used = rates.histogram(name).is_some_and(|of| of.count() > 0);
        is_used || *name == "terrace_commit_wait" || *name == "terrace_read_get"
    });
    let rows = rows.map(|(kind, name, of)| {
        let since = |part| rates.histogram(name).and_then(|all| all.quantile(part, None));
        let now = |part| rates.quantile(name, part);
        let each = number(rates.count_in(name).map(|count| count * of));
        let cells =
            [each, bound(now(0.5)), bound(now(0.99)), bound(since(0.5)), bound(since(0.99))];
        row(kind, cells)
    });
    let columns = ["of", "how many", "p50 now", "p99 now", "p50 in all", "p99 in all"];
    let note = "About one of 64 calls is timed; every sync, wait, drain and request is.".to_owned();
    Section { note, ..section("latencies", "How long calls take", &columns, rows.collect()) }
}

fn memory(stats: &Stats) -> Section {
    let memory = &stats.memory;
    let whole = if memory.limit > 0 { memory.limit } else { memory.total() };
    let parts = [
        ("region", memory.region),
        ("indexes", memory.indexes),
        ("filters", memory.filters),
        ("extents", memory.extents),
        ("writes", memory.writes),
        ("locks", memory.locks),
        ("read ahead", memory.read_ahead),
        ("iterators", memory.iterators),
        ("jobs", memory.jobs),
        ("cache", memory.cache),
        ("all of it", memory.total()),
    ];
    let rows = parts.map(|(name, bytes)| {
        let percent = if whole == 0 { 0.0 } else { 100.0 * bytes as f64 / whole as f64 };
        part(name, (bytes, whole), [size(bytes), format!("{percent:.1} %")])
    });
    let (note, column) = match memory.limit {
        0 => ("There is no limit.".to_owned(), "of all"),
        limit => (format!("The limit is {}.", size(limit)), "of the limit"),
    };
    Section { note, ..section("memory", "Memory", &["part", "holds", column], rows.to_vec()) }
}

fn zones(stats: &Stats) -> Section {
    let pm = &stats.pm;
    let whole = u64::from(pm.zones);
    let units = |name: &str, units: u32| {
        let units = u64::from(units);
        part(name, (units, whole), [grouped(units), size(units * pm.zone_size)])
    };
    let rows = vec![
        units("taken", pm.zones_used),
        units("with records that count", pm.zones_live),
        units("appended to", pm.zones_open),
        units("kept by readers or the next sync", pm.zones_pinned),
        units("all", pm.zones),
    ];
    let note = format!(
        "A unit is {}. The largest free piece is {}. {} were appended since the oldest record that \
         is not drained.",
        size(pm.zone_size),
        size(pm.largest_free),
        size(pm.round_bytes)
    );
    Section { note, ..section("zones", "Zones of the region", &["units", "count", "size"], rows) }
}

fn blocks(rates: &Rates<'_>) -> Section {
    let stats = &rates.now.stats;
    let (cache, disk) = (&stats.cache, &stats.disk);
    let all = cache.hits + cache.misses;
    let rows = vec![
        part(
            "found in the cache",
            (cache.hits, all),
            [rates.number(|stats| stats.cache.hits), grouped(cache.hits)],
        ),
        part(
            "read",
            (cache.misses, all),
            [rates.number(|stats| stats.cache.misses), grouped(cache.misses)],
        ),
        row("bytes read", [rates.bytes(|stats| stats.disk.read_bytes), size(disk.read_bytes)]),
        row(
            "bytes written",
            [rates.bytes(|stats| stats.disk.written_bytes), size(disk.written_bytes)],
        ),
        row("syncs of extents", [rates.number(|stats| stats.disk.syncs), grouped(disk.syncs)]),
    ];
    let note = format!(
        "Extents take {} of {} in files; {} are kept free for jobs.",
        size(disk.extent_bytes),
        size(disk.file_bytes),
        size(disk.headroom_bytes)
    );
    let columns = ["blocks", "now", "since the opening"];
    Section { note, ..section("blocks", "Blocks and extents", &columns, rows) }
}

fn jobs(rates: &Rates<'_>) -> Section {
    let background = &rates.now.stats.background;
    let count = |name: &str, of: fn(&Stats) -> u64| {
        row(name, [rates.number(of), grouped(of(&rates.now.stats))])
    };
    let rows = vec![
        count("merges into level 0", |stats| stats.background.merges),
        count("drains to level 1", |stats| stats.background.drains),
        count("compactions", |stats| stats.background.compactions),
        count("moves of extents", |stats| stats.background.moves),
        count("zones released", |stats| stats.background.zones_released),
        count("failures", |stats| stats.background.failures),
    ];
    let note = format!("{} snapshots are held.", grouped(background.snapshots));
    let columns = ["jobs", "now", "since the opening"];
    Section { note, ..section("jobs", "Jobs of the background", &columns, rows) }
}

fn requests(rates: &Rates<'_>) -> Section {
    let count = |name: &str, of: fn(&terrace::ObjectStats) -> u64| {
        let of = |stats: &Stats| stats.objects.as_ref().map_or(0, of);
        row(name, [rates.number(of), grouped(of(&rates.now.stats))])
    };
    let rows = vec![
        count("reads", |of| of.gets),
        count("writes", |of| of.puts),
        count("looks", |of| of.heads),
        count("deletions", |of| of.deletes),
        count("lists", |of| of.lists),
        count("made again", |of| of.retries),
    ];
    let of = rates.now.stats.objects.as_ref();
    let note = of.map(|of| of.note.clone().unwrap_or_else(|| of.store.clone())).unwrap_or_default();
    let columns = ["requests", "now", "since the opening"];
    Section { note, ..section("objects", "Object store", &columns, rows) }
}

/// How far followers can be, where the database is shared.
fn share(rates: &Rates<'_>) -> Option<Section> {
    let share = rates.now.stats.share.as_ref()?;
    let lag = format!("{} ms, {}", grouped(share.lag_ms), size(share.lag_bytes));
    let rows = vec![
        row("commits not yet in the store", [grouped(share.lag_commits), lag]),
        row("the last commit there", [grouped(share.shipped), String::new()]),
        row("segments", [grouped(share.segments), size(share.segment_bytes)]),
        row("checkpoints", [grouped(share.checkpoints), size(share.checkpoint_bytes)]),
    ];
    let note = share.note.clone().unwrap_or_else(|| share.store.clone());
    let columns = ["of the shared store", "count", "lag or size"];
    Some(Section { note, ..section("share", "What followers lag behind by", &columns, rows) })
}

fn tables(tables: &[TableStats]) -> Section {
    let level = |table: &TableStats, is_meant: fn(&LevelStats) -> bool| -> u64 {
        table.levels.iter().filter(|level| is_meant(level)).map(|level| level.bytes).sum()
    };
    let parts = |table: &TableStats| {
        [
            table.memtable_bytes,
            table.level0_bytes,
            table.spilled_bytes,
            level(table, |level| level.level == 1),
            level(table, |level| level.level > 1),
            table.value_bytes,
            table.object_bytes,
        ]
    };
    // Objects are in levels and values.
    let all = |table: &TableStats| parts(table)[..6].iter().sum::<u64>();
    let mut shown: Vec<&TableStats> = tables.iter().collect();
    shown.sort_by_key(|table| std::cmp::Reverse(all(table)));
    let left = shown.len().saturating_sub(MOST_TABLES);
    shown.truncate(MOST_TABLES);
    let rows = shown.into_iter().map(|table| row(&table.name, parts(table).map(size))).collect();
    let note = match (tables.len(), left) {
        (0, _) => "There are none.".to_owned(),
        (_, 0) => String::new(),
        _ => format!("These are the largest; {} more are there.", grouped(left as u64)),
    };
    let columns = [
        "table",
        "memtables",
        "level 0",
        "not merged in",
        "level 1",
        "level 2 and deeper",
        "large values",
        "as objects",
    ];
    Section { note, ..section("tables", "Tables", &columns, rows) }
}
