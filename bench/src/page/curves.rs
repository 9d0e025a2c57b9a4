//! What was seen over time, and how latencies are spread: one chart a case, a line a system.

use std::fmt::{Result, Write as _};

use serde_json::Value;

use super::chart::{Axis, Line, draw};
use crate::latency::Latency;
use crate::report::number;

/// Quantiles that stand on the axis.
const QUANTILES: [(f64, &str); 5] =
    [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];

/// Figures whose charts are the point, and not folded away.
const OPEN: [&str; 3] = ["stalls", "pm-budget", "growth"];

/// The charts of a figure.
pub(super) fn figure(page: &mut String, figure: &str, others: &[Value]) -> Result {
    let own: Vec<&Value> = others.iter().filter(|o| o["figure"] == figure).collect();
    let of = |metric: &str| -> Vec<&Value> {
        own.iter().copied().filter(|o| o["metric"] == metric).collect()
    };
    for skipped in of("skipped") {
        let text = skipped["text"].as_str().unwrap_or_default();
        writeln!(page, "<p class=legend>Not measured: {}.</p>", super::escape(text))?;
    }
    let (series, latencies) = (of("series"), of("latency"));
    if series.is_empty() && latencies.is_empty() {
        return Ok(());
    }
    let open = if OPEN.contains(&figure) { " open" } else { "" };
    writeln!(page, "<details{open}><summary>Over time, and latencies</summary>")?;
    for (case, systems) in by_case(&series) {
        let width = systems[0]["columns"].as_array().map_or(0, Vec::len);
        match (width, systems[0]["columns"][0] == "seconds") {
            (2, true) => over_time(page, case, &systems)?,
            (2, false) => over_size(page, case, &systems)?,
            _ => systems.iter().try_for_each(|one| columns(page, case, one))?,
        }
    }
    for (case, systems) in by_case(&latencies) {
        latency(page, case, &systems)?;
    }
    writeln!(page, "</details>")
}

/// By case, in the order of the first; of each system its first round.
fn by_case<'a>(all: &[&'a Value]) -> Vec<(&'a str, Vec<&'a Value>)> {
    let mut cases: Vec<(&str, Vec<&Value>)> = Vec::new();
    for &one in all {
        let case = one["case"].as_str().unwrap_or_default();
        match cases.iter_mut().find(|(there, _)| *there == case) {
            Some((_, systems)) if systems.iter().any(|s| s["system"] == one["system"]) => {}
            Some((_, systems)) => systems.push(one),
            None => cases.push((case, vec![one])),
        }
    }
    cases
}

fn system(of: &Value) -> &str {
    of["system"].as_str().unwrap_or_default()
}

fn column(of: &Value, n: usize) -> Vec<f64> {
    of["rows"].as_array().into_iter().flatten().filter_map(|row| row[n].as_f64()).collect()
}

fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(1e-9, f64::max)
}

/// One value of several systems over time.
fn over_time(page: &mut String, case: &str, systems: &[&Value]) -> Result {
    let name = systems[0]["columns"][1].as_str().unwrap_or_default();
    let end = most(systems.iter().flat_map(|s| column(s, 0)));
    let top = round_up(most(systems.iter().flat_map(|s| column(s, 1))));
    let line = |s: &&Value| {
        let points = column(s, 0).into_iter().zip(column(s, 1));
        Line::of(system(s), points.map(|(x, y)| (x / end, y / top)).collect())
    };
    let lines: Vec<Line> = systems.iter().map(line).collect();
    let (y, x) = (Axis::even(top, short), Axis::even(end, |s| format!("{s:.1} s")));
    draw(page, &format!("{case} · {name} each 100 ms"), &y, &x, &lines)
}

/// One value of several systems over what doubles from point to point.
fn over_size(page: &mut String, case: &str, systems: &[&Value]) -> Result {
    let name = systems[0]["columns"][1].as_str().unwrap_or_default();
    let sizes = column(systems[0], 0);
    let least = sizes.iter().copied().fold(f64::INFINITY, f64::min);
    let doublings = (most(sizes.iter().copied()) / least).log2().max(1.0);
    let place = |size: f64| (size / least).log2() / doublings;
    let top = round_up(most(systems.iter().flat_map(|s| column(s, 1))));
    let line = |s: &&Value| {
        let points = column(s, 0).into_iter().zip(column(s, 1));
        Line::of(system(s), points.map(|(x, y)| (place(x), y / top)).collect())
    };
    let lines: Vec<Line> = systems.iter().map(line).collect();
    let ticks = sizes.iter().map(|size| (place(*size), short(*size))).collect();
    draw(page, &format!("{case} · {name}"), &Axis::even(top, short), &Axis { ticks }, &lines)
}

/// Several values of one system over time, each as a share of its greatest.
fn columns(page: &mut String, case: &str, of: &Value) -> Result {
    const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#8a8a8a", "#009e73"];
    let seconds = column(of, 0);
    let end = most(seconds.iter().copied());
    let names: Vec<&str> =
        of["columns"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let line = |(n, name): (usize, &&str)| {
        let values = column(of, n);
        let top = most(values.iter().copied());
        let points = seconds.iter().zip(&values).map(|(x, y)| (x / end, y / top)).collect();
        let label = format!("{name}, of {}", number(top));
        Line { label, colour: COLOURS[(n - 1) % COLOURS.len()], dashed: false, points }
    };
    let lines: Vec<Line> = names.iter().enumerate().skip(1).map(line).collect();
    let y = Axis::even(100.0, |share| format!("{share:.0} %"));
    let x = Axis::even(end, |s| format!("{s:.1} s"));
    draw(page, &format!("{case} over time · {}", system(of)), &y, &x, &lines)
}

/// Latencies by quantile, both axes logarithmic.
fn latency(page: &mut String, case: &str, systems: &[&Value]) -> Result {
    let histogram = |of: &&Value| {
        let rows = of["rows"].as_array().into_iter().flatten();
        let bucket = |row: &Value| Some((row[0].as_u64()?, row[1].as_u64()?));
        Latency::of_buckets(&rows.filter_map(bucket).collect::<Vec<_>>())
    };
    let histograms: Vec<Latency> = systems.iter().map(histogram).collect();
    let least = histograms.iter().map(|h| h.micros(0.5)).fold(f64::INFINITY, f64::min);
    let top = most(histograms.iter().map(|h| h.micros(0.9999)));
    let (from, to) = (least.max(1e-3).log10().floor(), top.log10().ceil());
    let decades = (to - from).max(1.0);
    // 50 % on the left, each nine as far from the last one as that one from its.
    let nines = |quantile: f64| (-(1.0 - quantile).log10() - 0.301) / 3.7;
    let points = |h: &Latency| {
        let steps = (0..=100).map(|n| 1.0 - 10f64.powf(-(0.301 + 3.7 * f64::from(n) / 100.0)));
        let y = |q: f64| (h.micros(q).max(1e-3).log10() - from) / decades;
        steps.map(|q| (nines(q).clamp(0.0, 1.0), y(q))).collect()
    };
    let lines: Vec<Line> =
        systems.iter().zip(&histograms).map(|(s, h)| Line::of(system(s), points(h))).collect();
    let decade = |n: u32| (f64::from(n) / decades, micros(10f64.powf(from + f64::from(n))));
    let y = Axis { ticks: (0..=decades as u32).map(decade).collect() };
    let x = QUANTILES.iter().map(|(q, word)| (nines(*q).clamp(0.0, 1.0), (*word).to_string()));
    draw(page, &format!("{case} · latency by quantile"), &y, &Axis { ticks: x.collect() }, &lines)
}

/// The next value whose quarters are round.
fn round_up(value: f64) -> f64 {
    const ROUND: [f64; 8] = [1.0, 1.2, 1.6, 2.0, 3.2, 4.0, 6.0, 8.0];
    let power = 10f64.powf(value.log10().floor());
    let enough = ROUND.into_iter().map(|digit| digit * power).find(|round| *round >= value);
    enough.unwrap_or(10.0 * power)
}

/// A time in its unit.
fn micros(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} s", v / 1e6),
        v if v >= 1e3 => format!("{} ms", v / 1e3),
        v if v >= 1.0 => format!("{v} µs"),
        v => format!("{} ns", v * 1e3),
    }
}

/// A count that fits beside an axis.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.1} M", v / 1e6),
        v if v >= 1e3 => format!("{:.0} k", v / 1e3),
        v => format!("{v:.0}"),
    }
}
