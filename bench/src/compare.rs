//! `compare OLD NEW`: two runs beside each other. A difference counts only where the rounds of the
//! two do not overlap and it is larger than what one run alone scatters.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::report::{Row, number};

/// Differences below this share are not worth a word.
const WORTH_A_WORD: f64 = 0.05;

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Worse,
    /// Within what the rounds scatter.
    Same,
}

/// Prints what changed; whether nothing got worse.
pub(crate) fn run(old: &Path, new: &Path) -> Result<bool> {
    let (old, new) = (read(old)?, read(new)?);
    let by_key = |rows: &[Row]| -> BTreeMap<[String; 4], Row> {
        rows.iter().map(|row| (key(row), row.clone())).collect()
    };
    let before = by_key(&old);
    let (mut better, mut worse, mut same) = (0, 0, 0);
    for row in &new {
        let Some(old) = before.get(&key(row)) else { continue };
        let verdict = judge(old, row);
        match verdict {
            Verdict::Same => same += 1,
            Verdict::Better => better += 1,
            Verdict::Worse => worse += 1,
        }
        if verdict != Verdict::Same {
            println!(
                "{:<7} {:+6.1} %  {} · {} · {} · {}: {} → {} {}",
                if verdict == Verdict::Better { "better" } else { "WORSE" },
                (row.value / old.value - 1.0) * 100.0,
                row.figure,
                row.case,
                row.system,
                row.metric,
                number(old.value),
                number(row.value),
                row.unit,
            );
        }
    }
    let now = by_key(&new);
    let gone = before.keys().filter(|key| !now.contains_key(*key)).count();
    println!("{better} better, {worse} worse, {same} the same within their spread, {gone} gone");
    Ok(worse == 0)
}

fn key(row: &Row) -> [String; 4] {
    [row.figure.clone(), row.case.clone(), row.system.clone(), row.metric.clone()]
}

fn judge(old: &Row, new: &Row) -> Verdict {
    let overlap = old.low <= new.high && new.low <= old.high;
    let scatter = |row: &Row| (row.high - row.low).abs() / row.value.abs().max(f64::MIN_POSITIVE);
    let change = (new.value - old.value) / old.value.abs().max(f64::MIN_POSITIVE);
    if overlap || change.abs() < WORTH_A_WORD.max(scatter(old).min(scatter(new))) {
        return Verdict::Same;
    }
    if (change > 0.0) == new.is_cost() { Verdict::Worse } else { Verdict::Better }
}

/// The rows of a file that `--json` or `report` made.
fn read(path: &Path) -> Result<Vec<Row>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // Headers and series are objects of other shapes.
    let rows: Vec<Row> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    ensure!(!rows.is_empty(), "{} holds no rows; make it with --json or report", path.display());
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: &str, low: f64, value: f64, high: f64) -> Row {
        let text = String::new;
        let (figure, case, system, metric) = (text(), text(), text(), text());
        Row { figure, case, system, metric, value, low, high, unit: unit.into(), paper: None }
    }

    #[test]
    fn only_what_stands_out_of_the_noise_counts() {
        let old = row("op/s", 95.0, 100.0, 105.0);
        assert_eq!(judge(&old, &row("op/s", 118.0, 120.0, 125.0)), Verdict::Better);
        assert_eq!(judge(&old, &row("op/s", 78.0, 80.0, 85.0)), Verdict::Worse);
        assert_eq!(judge(&old, &row("op/s", 100.0, 120.0, 125.0)), Verdict::Same, "they overlap");
        assert_eq!(judge(&old, &row("op/s", 105.5, 106.0, 106.5)), Verdict::Better);
        assert_eq!(judge(&old, &row("op/s", 105.1, 104.0, 106.5)), Verdict::Same, "a trifle");
        let slow = row("µs", 9.0, 10.0, 11.0);
        assert_eq!(judge(&slow, &row("µs", 19.0, 20.0, 21.0)), Verdict::Worse);
        assert_eq!(judge(&slow, &row("µs", 4.0, 5.0, 6.0)), Verdict::Better);
    }
}
