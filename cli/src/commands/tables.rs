//! `tables`: what there is, and about how much of it.

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
}

/// Lists the tables.
pub(crate) fn run(session: &mut Session) -> Result<Outcome, Failure> {
    let database = session.read()?;
    let mut entries = Vec::new();
    for name in database.table_names() {
        let table = database.existing_table(&name)?;
        let records = table.approximate_len::<Vec<u8>>(..)?;
        let bytes = table.approximate_size::<Vec<u8>>(..)?;
        entries.push(Entry { name, records, bytes });
    }
    if session.output.json {
        session.output.object(&entries)?;
        return Ok(Outcome::Good);
    }
    let columns =
        [("table", Align::Left), ("records, about", Align::Right), ("size", Align::Right)];
    let mut grid = Grid::new(&columns);
    for Entry { name, records, bytes } in entries {
        grid.row([name, grouped(records), size(bytes)]);
    }
    for line in grid.lines() {
        session.output.line(&line)?;
    }
    Ok(Outcome::Good)
}
