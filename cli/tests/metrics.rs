//! `metrics`: the text that Prometheus reads, and the dashboard that reads Prometheus.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::Bench;
use serde_json::Value;

/// Names of values in a text of metrics, with the labels as they stand.
fn values(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(value).collect()
}

fn name(value: &str) -> &str {
    value.split_once('{').map_or(value, |(name, _)| name)
}

fn text() -> String {
    let bench = Bench::new();
    bench.run(["put", "-t", "t", "k", "v"]).good();
    bench.run(["compact"]).good();
    bench.run(["metrics"]).good()
}

#[test]
fn what_is_counted_is_there_with_its_type_and_its_unit() {
    let text = text();
    let values = values(&text);
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(values["terrace_pm_capacity_bytes"] > 1e6);
    let is_level = |name: &str| name.starts_with("terrace_level_records{table=\"t\",level=");
    let records = values.iter().filter(|(name, _)| is_level(name));
    assert_eq!(records.map(|(_, records)| records).sum::<f64>(), 1.0);
    assert_eq!(values["terrace_commit_groups_total"], 0.0, "it was just opened");
    assert_eq!(values["terrace_commit_sync_seconds_bucket{le=\"+Inf\"}"], 0.0);
    for value in values.keys().map(|value| name(value)) {
        assert!(value.starts_with("terrace_"), "{value}");
        let stem =
            ["_total", "_bucket", "_sum", "_count"].iter().find_map(|s| value.strip_suffix(s));
        let declared = |name: &str| text.contains(&format!("# TYPE {name} "));
        assert!(declared(value) || stem.is_some_and(declared), "{value}");
    }
    let types = text.lines().filter(|line| line.starts_with("# TYPE "));
    let names: Vec<&str> = types.map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "each is there once");
}

/// Names of metrics in a query.
fn named(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("terrace_"))
}

#[test]
fn each_query_of_the_dashboard_and_each_name_in_the_document_is_of_a_metric() {
    let text = text();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let known: BTreeSet<String> = types
        .map(|line| line.split_once(' ').unwrap())
        .flat_map(|(name, kind)| {
            let suffixes: &[&str] = match kind {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
        })
        .collect();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/");
    let dashboard = std::fs::read_to_string(format!("{root}grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            assert!(named(query).count() > 0, "{query}");
            let unknown: Vec<&str> = named(query).filter(|name| !known.contains(*name)).collect();
            assert!(unknown.is_empty(), "{unknown:?} in {query}");
            queries += 1;
        }
    }
    assert!(queries > 30);
    let document = std::fs::read_to_string(format!("{root}operations.md")).unwrap();
    let unknown: Vec<&str> = named(&document)
        .filter(|name| {
            // Calls of handles in C, a crate, and variables of MariaDB.
            let others = ["terrace_database", "terrace_monitor", "terrace_options"];
            let is_other = others.iter().any(|other| name.starts_with(other));
            !is_other && !known.contains(*name)
        })
        .collect();
    assert!(unknown.is_empty(), "{unknown:?} in operations.md");
}
