//! What a database does, made of two samples of its statistics: the page and `terrace top` show it.
//!
//! A [`Picture`] has text with units, so that a page, a terminal and a file say the same.

mod first;
mod histograms;
mod rates;
mod sections;
mod stairs;

use serde::{Deserialize, Serialize};

pub use first::{LookFirst, look_first};
pub use histograms::Histogram;
pub use stairs::Step;

use rates::Rates;

/// The statistics of a database at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was taken, in milliseconds since 1970.
    pub at_ms: u64,
    /// The statistics.
    pub stats: terrace::Stats,
    /// How long things took.
    pub histograms: Vec<Histogram>,
}

impl Sample {
    /// A sample of statistics and of the text of their metrics.
    pub fn new(at_ms: u64, stats: terrace::Stats, metrics: &str) -> Sample {
        Sample { at_ms, stats, histograms: histograms::parse(metrics) }
    }
}

/// All that is shown of a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Picture {
    /// When it was, in milliseconds since 1970.
    pub at_ms: u64,
    /// The persistence mode of the region.
    pub mode: String,
    /// What to look at first.
    pub first: Vec<LookFirst>,
    /// The places where the data lies, from the newest to the coldest.
    pub stairs: Vec<Step>,
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
    /// Bytes that drains moved out of the region, a second.
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
    let value = serde_json::to_value(&now.stats).unwrap_or_default();
    Picture {
        at_ms: now.at_ms,
        mode: now.stats.mode.to_owned(),
        first: look_first(&value),
        stairs: stairs::of(&rates),
        sections: sections::of(&rates),
        point: point(&rates),
    }
}

fn point(rates: &Rates<'_>) -> Point {
    let stats = &rates.now.stats;
    let part = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let ms = |seconds: f64| seconds * 1e3;
    Point {
        at_ms: rates.now.at_ms,
        appended: rates.of(|stats| stats.pm.appended_bytes as f64),
        drained: rates.of(|stats| stats.background.drained_level0_bytes as f64),
        written: rates.of(|stats| stats.disk.written_bytes as f64),
        read: rates.of(|stats| stats.disk.read_bytes as f64),
        throttled_ms: rates.of(|stats| stats.commit.throttled_ms),
        lock_wait_ms: rates.seconds_in("terrace_lock_wait").map(ms),
        commit_p99_ms: rates
            .quantile("terrace_commit_wait", 0.99)
            .filter(|p| p.is_finite())
            .map(ms),
        get_p99_ms: rates.quantile("terrace_read_get", 0.99).filter(|p| p.is_finite()).map(ms),
        region: part(u64::from(stats.pm.zones_used), u64::from(stats.pm.zones)),
        memory: part(stats.memory.total(), stats.memory.limit),
    }
}
