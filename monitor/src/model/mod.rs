//! What a database does, made of two samples of its statistics: the page and `terrace top` show it.
//!
//! A [`Picture`] has text with units, so that a page, a terminal and a file say the same.

mod first;
mod histograms;
mod map;
pub(crate) mod past;
mod rates;
mod sections;
mod stairs;

use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::json;
use terrace::{Stats, StatsReader};

pub use first::{LookFirst, look_first};
pub use histograms::Histogram;
pub use map::{COLUMNS, KeyMap, MapJob, MapLevel};
pub use stairs::Step;

use rates::Rates;

/// The statistics of a database at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was taken.
    pub at: Instant,
    /// When it was taken, in milliseconds since 1970.
    pub at_ms: u64,
    /// The statistics.
    pub stats: Stats,
    /// How long things took.
    pub histograms: Vec<Histogram>,
    /// Maps of the largest tables.
    pub maps: Vec<KeyMap>,
}

impl Sample {
    /// A sample of statistics and of the text of their metrics.
    pub fn new(at: Instant, at_ms: u64, stats: Stats, metrics: &str) -> Sample {
        let (histograms, maps) = (histograms::parse(metrics), Vec::new());
        Sample { at, at_ms, stats, histograms, maps }
    }

    /// The same with maps of the largest tables, whose extents it walks over.
    #[must_use]
    pub fn with_maps(mut self, reader: &StatsReader) -> Sample {
        self.maps = map::of(reader, &self.stats.tables);
        self
    }
}

/// All that is shown of a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Picture {
    /// When it was, in milliseconds since 1970.
    pub at_ms: u64,
    /// What the database was, as [`Stats::state`] has it.
    pub state: String,
    /// What should be known: why the database stopped, damage that the opening found, and failures
    /// of stores.
    pub notes: Vec<String>,
    /// The persistence mode of the region.
    pub mode: String,
    /// What to look at first.
    pub first: Vec<LookFirst>,
    /// The places where the data lies, from the newest to the coldest.
    pub stairs: Vec<Step>,
    /// Where keys lie in the levels of the largest tables.
    pub maps: Vec<KeyMap>,
    /// The rest, in tables.
    pub sections: Vec<Section>,
    /// Numbers that are drawn over time.
    pub point: Point,
}

/// A table of a [`Picture`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// A word that names it.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// What should be known of it, or nothing.
    pub note: String,
    /// What the rows are, then the heading of each cell.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row of a [`Section`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// Its part of a whole, between 0 and 1, where it is one.
    pub share: Option<f64>,
    /// A text for each column.
    pub cells: Vec<String>,
}

/// Numbers of a moment that are drawn over time. Without an earlier sample there are no rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Point {
    /// When it was, in milliseconds since 1970.
    pub at_ms: u64,
    /// Bytes that writers appended to the region, a second.
    pub appended: Option<f64>,
    /// Bytes that drains wrote, a second.
    pub drained: Option<f64>,
    /// Bytes written to extents, a second.
    pub written: Option<f64>,
    /// Bytes read from extents, a second.
    pub read: Option<f64>,
    /// Milliseconds that writers waited for pace and space, a second.
    pub throttled_ms: Option<f64>,
    /// Milliseconds that threads waited for locks of rows, a second.
    pub lock_wait_ms: Option<f64>,
    /// The bound that 99 % of commits stayed under, in milliseconds.
    pub commit_p99_ms: Option<f64>,
    /// The same of look-ups.
    pub get_p99_ms: Option<f64>,
    /// The part of the region that is taken.
    pub region: f64,
    /// Memory that is held, of the limit; 0 without one.
    pub memory: f64,
}

impl Point {
    /// The fields by name, but for the time.
    pub fn series(&self) -> [(&'static str, Option<f64>); 10] {
        [
            ("appended", self.appended),
            ("drained", self.drained),
            ("written", self.written),
            ("read", self.read),
            ("throttled_ms", self.throttled_ms),
            ("lock_wait_ms", self.lock_wait_ms),
            ("commit_p99_ms", self.commit_p99_ms),
            ("get_p99_ms", self.get_p99_ms),
            ("region", Some(self.region)),
            ("memory", Some(self.memory)),
        ]
    }
}

/// The picture of a sample. What rises is shown a second, as it rose since the `earlier` one.
pub fn picture(now: &Sample, earlier: Option<&Sample>) -> Picture {
    let rates = Rates::new(now, earlier);
    let stats = &now.stats;
    let parts = json!({
        "commit": stats.commit, "pace": stats.pace, "pm": stats.pm, "cache": stats.cache,
    });
    Picture {
        at_ms: now.at_ms,
        state: stats.state.to_owned(),
        notes: notes(stats),
        mode: stats.mode.to_owned(),
        first: look_first(&parts),
        stairs: stairs::of(&rates),
        maps: now.maps.clone(),
        sections: sections::of(&rates),
        point: point(&rates),
    }
}

fn notes(stats: &Stats) -> Vec<String> {
    let share = stats.share.as_ref();
    let notes = [
        ("stopped", stats.stopped.as_ref()),
        ("space", stats.pace.stuck.as_ref()),
        ("region", stats.pm.note.as_ref()),
        ("index", stats.pm.index_note.as_ref()),
        ("object store", stats.objects.as_ref().and_then(|of| of.note.as_ref())),
        ("shared store", share.and_then(|of| of.note.as_ref())),
        ("shared store", share.and_then(|of| of.collect_note.as_ref())),
    ];
    let notes = notes.into_iter().filter_map(|(of, note)| note.map(|note| format!("{of}: {note}")));
    notes.collect()
}

fn point(rates: &Rates<'_>) -> Point {
    let stats = &rates.now.stats;
    let part = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let ms = |seconds: f64| seconds * 1e3;
    Point {
        at_ms: rates.now.at_ms,
        appended: rates.of(|stats| stats.pm.appended_bytes as f64),
        drained: rates.of(|stats| stats.background.drained_bytes as f64),
        written: rates.of(|stats| stats.disk.written_bytes as f64),
        read: rates.of(|stats| stats.disk.read_bytes as f64),
        throttled_ms: rates.of(|stats| stats.commit.throttled_ms),
        lock_wait_ms: rates.of(|stats| stats.locks.waited_ms),
        commit_p99_ms: rates
            .quantile("terrace_commit_wait", 0.99)
            .filter(|p| p.is_finite())
            .map(ms),
        get_p99_ms: rates.quantile("terrace_read_get", 0.99).filter(|p| p.is_finite()).map(ms),
        region: part(u64::from(stats.pm.zones_used), u64::from(stats.pm.zones)),
        memory: part(stats.memory.total(), stats.memory.limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use terrace::{LockWait, Options, TxnOptions};

    fn sample(db: &terrace::Database, at: Instant, at_ms: u64) -> Sample {
        Sample::new(at, at_ms, db.stats(), &db.metrics_text())
    }

    /// Bug: a clock that was set back took the rates away. Cause: seconds were a difference of its
    /// times. Fix: they are those of the monotonic clock.
    #[test]
    fn rates_are_by_the_clock_that_nobody_sets() {
        let db = Options::new().pm_size(4 << 20).in_memory(64 << 20).open("db").unwrap();
        let table = db.table("t").unwrap();
        let began = Instant::now();
        let one = sample(&db, began, 3_600_000);
        let before = one.stats.pm.appended_bytes;
        table.put("key", [7; 1000]).unwrap();
        let two = sample(&db, began + Duration::from_secs(2), 0);
        let appended = (two.stats.pm.appended_bytes - before) as f64;
        assert_eq!(picture(&two, Some(&one)).point.appended, Some(appended / 2.0));
    }

    /// Bug: the page said "0 ms" while a writer waited. Cause: statistics counted a wait when it
    /// ended. Fix: they count waits as they go on.
    #[test]
    fn a_wait_is_shown_as_it_goes_on() {
        let db = Options::new().pm_size(4 << 20).in_memory(64 << 20).open("db").unwrap();
        let table = db.table("t").unwrap();
        let holder = db.begin().unwrap();
        holder.put(&table, "key", "held").unwrap();
        std::thread::scope(|scope| {
            let waits = TxnOptions::new().lock_wait(LockWait::Endless);
            let waits = db.begin_with(waits).unwrap();
            let table = &table;
            scope.spawn(move || waits.put(table, "key", "waits"));
            while db.stats().locks.waiting == 0 {
                std::thread::yield_now();
            }
            let one = sample(&db, Instant::now(), 0);
            let two = sample(&db, one.at + Duration::from_secs(1), 0);
            let shown = picture(&two, Some(&one));
            assert!(shown.point.lock_wait_ms.unwrap() > 0.0);
            let waits = shown.sections.iter().find(|section| section.id == "waits").unwrap();
            let locks = &waits.rows[1].cells[1];
            assert!(locks.starts_with("1 waits now, one or another for "), "{locks}");
            holder.roll_back();
        });
    }
}
