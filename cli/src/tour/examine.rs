//! The process that opens the database after a kill and looks for everything that was
//! acknowledged in all rounds so far. It prints one JSON object.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use terrace::Database;

use super::batch::Tables;
use super::judge::{Judge, Verdict};
use super::ledger::Line;
use super::machine::Machine;
use crate::args::TourCheckArguments;
use crate::failure::{Failure, Outcome};
use crate::session::Session;

/// What was found, and what opening cost.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Examined {
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    /// How long opening took, with recovery or a takeover, in milliseconds.
    pub(crate) open_ms: f64,
    /// How much of that went into rebuilding the index, in milliseconds.
    pub(crate) rebuild_ms: f64,
    /// Records put back into the index.
    pub(crate) records_rebuilt: u64,
}

/// Opens the database and judges.
pub(crate) fn run(
    session: &mut Session,
    arguments: &TourCheckArguments,
) -> Result<Outcome, Failure> {
    let began = Instant::now();
    let database = Machine::new(&arguments.dir, arguments.machine).open()?;
    let open_ms = began.elapsed().as_secs_f64() * 1e3;
    let open = database.stats().open;
    let mut judge = Judge::new(arguments.rounds);
    read_ledger(&super::ledger_of(&arguments.dir), &mut judge)?;
    read_tables(&database, &arguments.source, &mut judge)?;
    database.close()?;
    let (verdict, lines) = judge.verdict();
    for line in lines {
        session.output.remark(&line);
    }
    let examined = Examined {
        verdict,
        open_ms,
        rebuild_ms: open.rebuild_ms,
        records_rebuilt: open.records_rebuilt,
    };
    session.output.object(&examined)?;
    Ok(if examined.verdict.is_good() { Outcome::Good } else { Outcome::Negative })
}

fn read_ledger(path: &Path, judge: &mut Judge) -> Result<(), Failure> {
    let doing = || format!("read {}", path.display());
    let file = File::open(path).map_err(|error| Failure::io(doing(), &error))?;
    let mut lines = BufReader::new(file);
    while let Some(line) = Line::read(&mut lines).map_err(|error| Failure::io(doing(), &error))? {
        if let Line::Acknowledged { stamp, hash } = line {
            judge.acknowledged(stamp, hash);
        }
    }
    Ok(())
}

fn read_tables(database: &Database, source: &str, judge: &mut Judge) -> Result<(), Failure> {
    let source = database.existing_table(source)?;
    let tables = Tables::open(database)?;
    for record in tables.ledger.iter() {
        let (key, value) = record?;
        judge.ledger(&key, &value, |name, value| {
            source.get(name).map(|found| found.is_some_and(|found| found[..] == *value))
        })?;
    }
    for record in tables.by_name.iter() {
        let (key, value) = record?;
        judge.by_name(&key, &value);
    }
    for record in tables.latest.iter() {
        let (key, value) = record?;
        judge.latest(&key, &value);
    }
    Ok(())
}
