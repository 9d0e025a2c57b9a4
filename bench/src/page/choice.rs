//! Which container of level 0 to choose when, out of the rows of `containers`.

use std::collections::BTreeSet;

use crate::report::{Row, number};

/// Containers by the systems that keep all tables in them, the default first.
const CONTAINERS: [(&str, &str); 3] = [
    ("terrace-emulated", "global index"),
    ("terrace-matrix", "matrix"),
    ("terrace-triangle", "triangle"),
];

/// Values so near to the best one that the choice does not matter.
const NEAR: f64 = 0.03;

/// What decides: how fast, and how long the slowest in a hundred take.
const METRICS: [&str; 2] = ["throughput", "p99"];

/// Sentences that say which container is the best one in which cases, and whether one never is.
/// None for other figures, or where only one container was measured.
pub(super) fn of_container(figure: &str, rows: &[&Row]) -> Vec<String> {
    if figure != "containers" {
        return Vec::new();
    }
    let mut wins: Vec<(&str, Vec<String>)> =
        CONTAINERS.iter().map(|(_, name)| (*name, Vec::new())).collect();
    let mut undecided = Vec::new();
    let (mut seen, mut measured) = (BTreeSet::new(), BTreeSet::new());
    for row in rows.iter().filter(|row| METRICS.contains(&row.metric.as_str())) {
        let own: Vec<(usize, &Row)> = CONTAINERS
            .iter()
            .enumerate()
            .filter_map(|(n, (system, _))| {
                let is = |r: &&&Row| r.is(figure, &row.case, system, &row.metric);
                Some((n, *rows.iter().find(is)?))
            })
            .collect();
        if own.len() < 2 || !seen.insert((&row.case, &row.metric)) {
            continue;
        }
        measured.extend(own.iter().map(|(n, _)| *n));
        let what = format!("{} ({})", row.case, row.metric);
        match best(&own) {
            Some((n, times)) => wins[n].1.push(format!("{what}, {}×", number(times))),
            None => undecided.push(what),
        }
    }
    if measured.len() < 2 {
        return Vec::new();
    }
    let is_measured = |n: &usize| measured.contains(n);
    let mut lines: Vec<String> = (0..CONTAINERS.len())
        .filter(is_measured)
        .map(|n| match &wins[n] {
            (name, cases) if cases.is_empty() => {
                format!("The {name} is never the best choice on these figures.")
            }
            (name, cases) => format!(
                "Choose the {name} for {}: so many times as good as the next container.",
                cases.join("; ")
            ),
        })
        .collect();
    if !undecided.is_empty() {
        lines.push(format!(
            "It makes no difference above the spread, or above three hundredths, for {}: keep the \
             {} there.",
            undecided.join("; "),
            CONTAINERS[0].1
        ));
    }
    lines
}

/// The best of a case, and how many times as good as the next one it is. `None` if that is near, or
/// the rounds of both overlap.
fn best(own: &[(usize, &Row)]) -> Option<(usize, f64)> {
    let is_cost = own[0].1.is_cost();
    let mut by_value = own.to_vec();
    by_value.sort_by(|(_, a), (_, b)| {
        let order = a.value.total_cmp(&b.value);
        if is_cost { order } else { order.reverse() }
    });
    let ((n, first), (_, second)) = (by_value[0], by_value[1]);
    let (greater, less) = if is_cost { (second, first) } else { (first, second) };
    let times = greater.value / less.value;
    let is_apart = greater.low > less.high && times > 1.0 + NEAR;
    is_apart.then_some((n, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, system: &str, metric: &str, (low, value, high): (f64, f64, f64)) -> Row {
        let [case, system, metric] = [case, system, metric].map(str::to_string);
        let unit = if metric == "p99" { "µs" } else { "op/s" }.to_string();
        let figure = "containers".to_string();
        Row { figure, case, system, metric, value, low, high, unit, paper: None }
    }

    #[test]
    fn each_case_has_its_container_and_one_that_has_none_is_named() {
        let rows = [
            row("fill", "terrace-emulated", "throughput", (90.0, 100.0, 110.0)),
            row("fill", "terrace-matrix", "throughput", (140.0, 150.0, 160.0)),
            row("fill", "terrace-triangle", "throughput", (90.0, 100.0, 110.0)),
            row("fill", "rocksdb-scaled", "throughput", (900.0, 900.0, 900.0)),
            row("read", "terrace-emulated", "throughput", (100.0, 110.0, 120.0)),
            row("read", "terrace-matrix", "throughput", (90.0, 100.0, 101.0)),
            row("at a rate", "terrace-emulated", "p99", (10.0, 10.0, 10.0)),
            row("at a rate", "terrace-matrix", "p99", (30.0, 30.0, 30.0)),
            row("at a rate", "terrace-emulated", "depth", (1.0, 1.0, 1.0)),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let lines = of_container("containers", &rows);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(
            lines[0].starts_with("Choose the global index for at a rate (p99), 3"),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("Choose the matrix for fill (throughput), 1.5"), "{lines:?}");
        assert_eq!(lines[2], "The triangle is never the best choice on these figures.");
        assert!(lines[3].contains("read (throughput)"), "{lines:?}");
        assert!(of_container("ycsb", &rows).is_empty());
        assert!(of_container("containers", &rows[3..4]).is_empty());
    }
}
