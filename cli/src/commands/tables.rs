//! `tables`: what there is, and about how much of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::grid::{Align, Grid};
use crate::session::Session;
use crate::text::{grouped, size};

#[derive(Serialize)]
struct Entry {
    name: String,
    records: u64,
    bytes: u64,
    /// How long its records live; nothing for those that do not expire.
    ttl_ms: Option<u64>,
}

/// Lists the tables.
pub(crate) fn run(session: &mut Session) -> Result<Outcome, Failure> {
    let database = session.read()?;
    let ttls: BTreeMap<String, Option<u64>> =
        database.stats().tables.into_iter().map(|table| (table.name, table.ttl_ms)).collect();
    let mut entries = Vec::new();
    for name in database.table_names() {
        let table = database.existing_table(&name)?;
        let records = table.approximate_len(..)?;
        let bytes = table.approximate_size(..)?;
        let ttl_ms = ttls.get(&name).copied().flatten();
        entries.push(Entry { name, records, bytes, ttl_ms });
    }
    if session.output.json {
        session.output.object(&entries)?;
        return Ok(Outcome::Good);
    }
    let columns = [
        ("table", Align::Left),
        ("records, about", Align::Right),
        ("size", Align::Right),
        ("time to live", Align::Right),
    ];
    let mut grid = Grid::new(&columns);
    for Entry { name, records, bytes, ttl_ms } in entries {
        grid.row([name, grouped(records), size(bytes), ttl_ms.map_or_else(String::new, time)]);
    }
    for line in grid.lines() {
        session.output.line(&line)?;
    }
    Ok(Outcome::Good)
}

/// A time in the largest unit that it is a whole number of.
fn time(milliseconds: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)];
    match units.iter().find(|(_, unit)| milliseconds.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", grouped(milliseconds / unit)),
        None => format!("{:?}", Duration::from_millis(milliseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_numbers_where_they_can_be() {
        let times = [1000, 90_000, 7_200_000, 86_400_000 * 1500, 1500].map(time);
        assert_eq!(times, ["1 s", "90 s", "2 h", "1,500 d", "1.5s"]);
    }
}
