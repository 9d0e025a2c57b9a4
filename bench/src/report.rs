//! Rows of figures: collected over rounds, printed as medians with their spread.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Settings;
use crate::drive::Seen;
use crate::guard::Guard;
use crate::latency::Latency;

/// What a row says, but for its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Key {
    case: String,
    system: String,
    metric: String,
    unit: String,
}

/// A row as it is printed and kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) figure: String,
    pub(crate) case: String,
    pub(crate) system: String,
    pub(crate) metric: String,
    /// The median of the rounds, their smallest and their greatest value.
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) unit: String,
    /// What the source has for it.
    pub(crate) paper: Option<f64>,
}

impl Row {
    /// Whether it is that of a case, a system and a metric.
    pub(crate) fn is(&self, figure: &str, case: &str, system: &str, metric: &str) -> bool {
        (self.figure.as_str(), self.case.as_str()) == (figure, case)
            && (self.system.as_str(), self.metric.as_str()) == (system, metric)
    }

    /// Whether less of it is better.
    pub(crate) fn is_cost(&self) -> bool {
        let unit = self.unit.as_str();
        matches!(unit, "µs" | "ms" | "ns" | "ns/op" | "B" | "bytes" | "lines" | "fences" | "nodes")
            || matches!(unit, "blocks" | "syncs" | "MiB" | "instructions" | "B/B")
    }
}

/// The rows of one run.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    figure: String,
    /// In the order of their first values.
    order: Vec<Key>,
    values: BTreeMap<Key, Vec<f64>>,
    papers: BTreeMap<Key, f64>,
    /// By case and system, the rounds together.
    latencies: Vec<((String, String), Latency)>,
    /// Objects that are no rows: what was seen over time, settings, what was skipped.
    others: Vec<serde_json::Value>,
}

/// Nanoseconds, and how many operations took as long.
type Buckets = Vec<(u64, u64)>;

/// What a process that measured one system hands to the one that asked for it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gathered {
    rows: Vec<(Key, Vec<f64>)>,
    latencies: Vec<((String, String), Buckets)>,
    others: Vec<serde_json::Value>,
}

impl Report {
    /// An empty report.
    pub(crate) fn new(json: bool) -> Report {
        Report {
            json,
            figure: String::new(),
            order: Vec::new(),
            values: BTreeMap::new(),
            papers: BTreeMap::new(),
            latencies: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Names the figure that the rows are of.
    pub(crate) fn set_figure(&mut self, figure: &str) {
        self.figure = figure.to_string();
    }

    /// Says what is measured, with what and on what.
    pub(crate) fn header(
        &mut self,
        figure: &str,
        settings: &Settings,
        guard: &Guard,
    ) -> Result<()> {
        self.figure = figure.to_string();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if self.json {
            let header = json!({
                "figure": figure,
                "version": env!("CARGO_PKG_VERSION"),
                "commit": commit(),
                "seed": settings.seed,
                "rounds": settings.rounds,
                "quick": settings.quick,
                "cores": cores,
                "load": guard.load,
                "disturbed": guard.disturbed,
            });
            println!("{}", serde_json::to_string(&header)?);
        } else {
            println!(
                "{figure}: commit {}, seed {}, {} rounds, {cores} cores, load {:.2}",
                commit(),
                settings.seed,
                settings.rounds,
                guard.load
            );
            if let Some(why) = &guard.disturbed {
                println!("NOT TO BE QUOTED: {why}");
            }
        }
        Ok(())
    }

    /// Adds the value of one round.
    pub(crate) fn add(&mut self, case: &str, system: &str, metric: &str, value: f64, unit: &str) {
        if !value.is_finite() {
            // What it would be a ratio of was not measured.
            return;
        }
        let [case, system, metric, unit] = [case, system, metric, unit].map(str::to_string);
        self.add_all(Key { case, system, metric, unit }, &[value]);
    }

    fn add_all(&mut self, key: Key, values: &[f64]) {
        if !self.values.contains_key(&key) {
            self.order.push(key.clone());
        }
        self.values.entry(key).or_default().extend(values);
    }

    /// Adds the latencies of one round: quantiles as rows, the histogram in the JSON.
    pub(crate) fn latency(&mut self, case: &str, system: &str, latency: &Latency) {
        for (metric, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            self.add(case, system, metric, latency.micros(quantile), "µs");
        }
        self.add_latency((case.to_string(), system.to_string()), latency);
    }

    fn add_latency(&mut self, key: (String, String), latency: &Latency) {
        match self.latencies.iter_mut().find(|(there, _)| *there == key) {
            Some((_, all)) => all.add(latency),
            None => self.latencies.push((key, latency.clone())),
        }
    }

    /// Adds all that was seen of threads at work in one round.
    pub(crate) fn seen(&mut self, case: &str, system: &str, seen: &Seen) {
        self.add(case, system, "throughput", seen.rate(), "op/s");
        self.latency(case, system, &seen.latency);
        self.add(case, system, "longest gap", seen.longest_gap_ms(), "ms");
        self.series(case, system, &["seconds", "op/s"], &seen.series());
    }

    /// Adds what was seen over time; only in the JSON.
    pub(crate) fn series(&mut self, case: &str, system: &str, columns: &[&str], rows: &[Vec<f64>]) {
        self.others.push(json!({
            "figure": self.figure,
            "case": case,
            "system": system,
            "metric": "series",
            "columns": columns,
            "rows": rows,
        }));
    }

    /// Says how a system is set up.
    pub(crate) fn settings(&mut self, system: &str, settings: &str) {
        self.say(json!({
            "figure": self.figure, "system": system, "metric": "settings", "text": settings,
        }));
    }

    /// Says what is not measured, and why; at once on stderr, and with the rows.
    pub(crate) fn skipped(&mut self, what: &str) {
        if self.say(json!({ "figure": self.figure, "metric": "skipped", "text": what })) {
            eprintln!("skipped: {what}");
        }
    }

    /// Says of each case that was gathered that its process had no more memory than that.
    pub(crate) fn bounded(&mut self, gathered: &Gathered, mib: u64) {
        for (Key { case, system, .. }, _) in &gathered.rows {
            self.say(json!({
                "figure": self.figure, "case": case, "system": system, "metric": "bound",
                "mib": mib,
                "text": format!("{case}: at most {mib} MiB for the process and its files' cache"),
            }));
        }
    }

    /// Says that a peer is not measured since this build is without it.
    pub(crate) fn not_built(&mut self, peer: &str) {
        self.skipped(&format!("{peer} is not built in; see `cargo xtask peers`"));
    }

    /// Whether it is said for the first time.
    fn say(&mut self, what: serde_json::Value) -> bool {
        let is_new = !self.others.contains(&what);
        if is_new {
            self.others.push(what);
        }
        is_new
    }

    /// All of it, for another process.
    pub(crate) fn gathered(&self) -> Gathered {
        let row = |key: &Key| (key.clone(), self.values[key].clone());
        let latency =
            |(key, latency): &((String, String), Latency)| (key.clone(), latency.buckets());
        Gathered {
            rows: self.order.iter().map(row).collect(),
            latencies: self.latencies.iter().map(latency).collect(),
            others: self.others.clone(),
        }
    }

    /// Takes in what another process has gathered.
    pub(crate) fn take_in(&mut self, gathered: Gathered) {
        for (key, values) in gathered.rows {
            self.add_all(key, &values);
        }
        for (key, buckets) in gathered.latencies {
            self.add_latency(key, &Latency::of_buckets(&buckets));
        }
        for mut other in gathered.others {
            other["figure"] = json!(self.figure);
            self.say(other);
        }
    }

    /// The value that the source gives for a row.
    pub(crate) fn paper(&mut self, case: &str, system: &str, metric: &str, value: f64) {
        if let Some(key) =
            self.order.iter().find(|k| k.case == case && k.system == system && k.metric == metric)
        {
            self.papers.insert(key.clone(), value);
        }
    }

    /// The median of a row so far.
    pub(crate) fn median(&self, case: &str, system: &str, metric: &str) -> Option<f64> {
        let found = |k: &&Key| k.case == case && k.system == system && k.metric == metric;
        self.order.iter().find(found).map(|key| median(&self.values[key]))
    }

    /// All rows, in the order of their first values.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let row = |key: &Key| {
            let values = &self.values[key];
            Row {
                figure: self.figure.clone(),
                case: key.case.clone(),
                system: key.system.clone(),
                metric: key.metric.clone(),
                value: median(values),
                low: values.iter().copied().fold(f64::INFINITY, f64::min),
                high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                unit: key.unit.clone(),
                paper: self.papers.get(key).copied(),
            }
        };
        self.order.iter().map(row).collect()
    }

    /// What is no row: what was seen over time, histograms, settings, what was skipped.
    pub(crate) fn others(&self) -> Vec<serde_json::Value> {
        let latency = |((case, system), latency): &((String, String), Latency)| {
            json!({
                "figure": self.figure, "case": case, "system": system, "metric": "latency",
                "columns": ["ns", "operations"], "rows": latency.buckets(),
            })
        };
        self.others.iter().cloned().chain(self.latencies.iter().map(latency)).collect()
    }

    /// Prints all rows.
    pub(crate) fn finish(&self) -> Result<()> {
        for row in self.rows() {
            if self.json {
                println!("{}", serde_json::to_string(&row)?);
                continue;
            }
            let paper = row.paper.map_or(String::new(), |p| format!("  paper {}", number(p)));
            println!(
                "{:<28} {:<18} {:<12} {:>10} {:<7} [{} – {}]{paper}",
                row.case,
                row.system,
                row.metric,
                number(row.value),
                row.unit,
                number(row.low),
                number(row.high),
            );
        }
        for other in self.others() {
            if self.json {
                println!("{}", serde_json::to_string(&other)?);
            } else if let Some(text) = other["text"].as_str() {
                let system = other["system"].as_str().unwrap_or_default();
                println!("{} {system}: {text}", other["metric"].as_str().unwrap_or_default());
            }
        }
        Ok(())
    }
}

/// The middle value.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// A value with as many digits as it deserves.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 10_000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// The commit that is measured.
pub(crate) fn commit() -> &'static str {
    env!("TERRACE_COMMIT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }
}
