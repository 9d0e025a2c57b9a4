//! `stats`: what the engine counts, as it names it.

use serde_json::{Map, Value};

use crate::failure::{Failure, Outcome};
use crate::grid::{Align, Grid};
use crate::session::Session;
use crate::text::grouped;

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

/// The statistics line by line: plain counts first, then each list as a table. The names are the
/// engine's own, so that a new count needs no line here.
fn describe(stats: &Value) -> Vec<String> {
    let mut counts = Grid::new(&[("what", Align::Left), ("value", Align::Right)]);
    let mut lists = Vec::new();
    flatten("", stats, &mut counts, &mut lists);
    let mut lines = counts.lines();
    for (name, rows) in lists {
        lines.push(String::new());
        lines.push(name);
        lines.extend(table(&rows).lines());
    }
    lines
}

type List = (String, Vec<Map<String, Value>>);

fn flatten(path: &str, value: &Value, counts: &mut Grid, lists: &mut Vec<List>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
                flatten(&path.replace('_', " "), field, counts, lists);
            }
        }
        Value::Array(items) => {
            let rows: Vec<Map<String, Value>> =
                items.iter().filter_map(Value::as_object).map(spread).collect();
            if !rows.is_empty() {
                lists.push((path.to_owned(), rows));
            }
        }
        plain => counts.row([path, &cell(plain)]),
    }
}

/// A row with what is nested in it spread out: the levels of a table become columns.
fn spread(row: &Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, value) in row {
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter().filter_map(Value::as_object).enumerate() {
                    let number = item.get(name.trim_end_matches('s')).map_or(at.to_string(), cell);
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
    let name = |row: &Map<String, Value>| row.get("name").map_or(String::new(), cell);
    let names: Vec<String> = rows.iter().map(name).collect();
    let mut columns = vec![("", Align::Left)];
    columns.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    let mut grid = Grid::new(&columns);
    let mut fields: Vec<&String> = Vec::new();
    for field in rows.iter().flat_map(Map::keys).filter(|field| *field != "name") {
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    for field in fields {
        let cells = rows.iter().map(|row| row.get(field).map_or_else(String::new, cell));
        grid.row(std::iter::once(field.replace('_', " ")).chain(cells));
    }
    grid
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => grouped(whole),
            (None, Some(fraction)) => format!("{fraction:.3}"),
            (None, None) => number.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_line_up_and_lists_are_tables() {
        let stats = json!({
            "commit": {"groups": 1234},
            "tables": [{"name": "a", "level0_records": 1, "levels": [{"level": 2, "bytes": 7}]}],
        });
        let expected = [
            "what           value",
            "commit groups  1,234",
            "",
            "tables",
            "                a",
            "level0 records  1",
            "level 2 bytes   7",
        ];
        assert_eq!(describe(&stats), expected);
    }
}
