//! `stats`: what the engine counts, as it names it. `metrics`: the same for Prometheus.

use serde_json::{Map, Value};
use terrace_monitor::model::{LookFirst, look_first};

use crate::failure::{Failure, Outcome};
use crate::grid::{Align, Grid};
use crate::session::Session;
use crate::text::{grouped, size};

/// Prints the statistics of the database.
pub(crate) fn run(session: &mut Session) -> Result<Outcome, Failure> {
    let stats = session.read()?.stats();
    if session.output.json {
        session.output.object(&stats)?;
        return Ok(Outcome::Good);
    }
    let value = serde_json::to_value(&stats)
        .map_err(|error| Failure::Outside(format!("cannot read the statistics: {error}")))?;
    for line in describe(&value) {
        session.output.line(&line)?;
    }
    Ok(Outcome::Good)
}

/// Prints the statistics as Prometheus reads them.
pub(crate) fn metrics(session: &mut Session) -> Result<Outcome, Failure> {
    let text = session.read()?.metrics_text();
    text.lines().try_for_each(|line| session.output.line(line))?;
    Ok(Outcome::Good)
}

/// The statistics line by line: what to look at first, a section for each part, then each list as a
/// table. The names are the engine's own, so that a new count needs no line here.
fn describe(stats: &Value) -> Vec<String> {
    let mut lines = look_first_lines(stats);
    let mut lists = Vec::new();
    for (name, part) in stats.as_object().into_iter().flatten() {
        let mut counts = Grid::new(&[(name, Align::Left), ("", Align::Right)]);
        match part {
            Value::Object(fields) => {
                for (field, value) in fields {
                    match value {
                        Value::Array(rows) => lists.push((format!("{name} {field}"), list(rows))),
                        plain => counts.row([field.replace('_', " "), cell((name, field), plain)]),
                    }
                }
            }
            Value::Array(rows) => lists.push((name.clone(), list(rows))),
            plain => {
                lines.extend(["".to_owned(), format!("{name}  {}", cell(("", name), plain))]);
            }
        }
        let counts = counts.lines();
        if counts.len() > 1 {
            lines.push(String::new());
            lines.extend(counts);
        }
    }
    for (name, rows) in lists.iter().filter(|(_, rows)| !rows.is_empty()) {
        lines.extend([String::new(), name.replace('_', " ")]);
        lines.extend(table(rows).lines());
    }
    lines
}

/// The numbers to look at first, as the page of a running database has them.
fn look_first_lines(stats: &Value) -> Vec<String> {
    let heads = [("look at first", Align::Left), ("", Align::Right), ("", Align::Left)];
    let mut grid = Grid::new(&heads);
    for LookFirst { name, value, remark } in look_first(stats) {
        grid.row([name, value, remark]);
    }
    grid.lines()
}

fn list(rows: &[Value]) -> Vec<Map<String, Value>> {
    rows.iter().filter_map(Value::as_object).map(spread).collect()
}

/// A row with what is nested in it spread out: the levels of a table become columns.
fn spread(row: &Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, value) in row {
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter().filter_map(Value::as_object).enumerate() {
                    let number = item.get(name.trim_end_matches('s'));
                    let number = number.map_or(at.to_string(), |number| cell(("", ""), number));
                    for (field, value) in item.iter().filter(|(field, _)| !name.contains(*field)) {
                        let column = format!("{} {number} {field}", name.trim_end_matches('s'));
                        out.insert(column, value.clone());
                    }
                }
            }
            plain => {
                out.insert(name.clone(), plain.clone());
            }
        }
    }
    out
}

/// A list as a table on its side, a column a row, since tables have more counts than a line holds.
fn table(rows: &[Map<String, Value>]) -> Grid {
    let text = |field: &str, value: Option<&Value>| {
        value.map_or_else(String::new, |value| cell(("", field), value))
    };
    let is_name = |field: &str| matches!(field, "name" | "purpose");
    let name = |row: &Map<String, Value>| {
        text("name", row.iter().find(|(field, _)| is_name(field)).map(|(_, value)| value))
    };
    let names: Vec<String> = rows.iter().map(name).collect();
    let mut columns = vec![("", Align::Left)];
    columns.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    let mut grid = Grid::new(&columns);
    let mut fields: Vec<&String> = Vec::new();
    for field in rows.iter().flat_map(Map::keys).filter(|field| !is_name(field)) {
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    for field in fields {
        let cells = rows.iter().map(|row| text(field, row.get(field)));
        grid.row(std::iter::once(field.replace('_', " ")).chain(cells));
    }
    grid
}

/// A value of a field in a section, with its unit.
fn cell((section, field): (&str, &str), value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) if is_of_bytes(section, field) => {
                let per_second = if field.ends_with("_rate") { "/s" } else { "" };
                size(whole) + per_second
            }
            (Some(whole), _) => grouped(whole),
            (None, Some(fraction)) => format!("{fraction:.3}"),
            (None, None) => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Whether a field counts bytes.
fn is_of_bytes(section: &str, field: &str) -> bool {
    let last = field.rsplit(['_', ' ']).next().unwrap_or_default();
    match section {
        "memory" => true,
        "cache" => matches!(last, "capacity" | "used"),
        _ => {
            matches!(last, "bytes" | "capacity" | "size" | "memory" | "debt" | "rate")
                || field.starts_with("largest_")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_line_up_with_their_units_and_lists_are_tables() {
        let stats = json!({
            "mode": "file",
            "commit": {"groups": 1234, "throttled_ms": 1500.25, "bytes": 2048},
            "pm": {"capacity": 8 << 20, "zones": 8, "zones_used": 4, "zones_live": 2},
            "pace": {"reason": "filling", "drain_rate": 3072},
            "cache": {"hits": 99, "misses": 1, "used": 1024},
            "memory": {"limit": 0, "cache": 4096},
            "tables": [{"name": "a", "level0_records": 1, "levels": [{"level": 2, "bytes": 7}]}],
        });
        let expected = [
            "look at first",
            "writers        1,500 ms  of waiting since this opening; reason to wait now: filling",
            "region             50 %  of 8.0 MiB is taken; 25 % has records that count",
            "cache              99 %  of 100 blocks that were read were in the cache",
        ];
        let lines = describe(&stats);
        assert_eq!(lines[..4], expected);
        let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = lines.iter().map(words).collect();
        for line in [
            "mode file",
            "commit",
            "groups 1,234",
            "throttled ms 1500.250",
            "bytes 2.0 KiB",
            "drain rate 3.0 KiB/s",
            "cache 4.0 KiB",
            "limit 0 B",
            "tables",
            "level0 records 1",
            "level 2 bytes 7 B",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line} in {lines:?}");
        }
    }
}
