//! `table`: where a table has its cold levels.

use std::time::Duration;

use serde::Serialize;
use terrace::{Database, TableOptions, TableStats, Tier};

use crate::args::{TableArguments, TierName};
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::text::size;

/// With `--wait` it looks this often.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct Entry<'a> {
    table: &'a str,
    cold: &'static str,
    object_bytes: u64,
    misplaced_bytes: u64,
    /// Why work on objects fails, if it does.
    note: Option<String>,
}

/// Changes the tier of a table.
pub(crate) fn run(session: &mut Session, arguments: &TableArguments) -> Result<Outcome, Failure> {
    let database = session.write()?;
    let (name, tier) = (arguments.table.as_str(), tier(arguments.tier));
    if database.table_names().iter().any(|other| other == name) {
        database.set_cold_tier(name, tier)?;
    } else {
        database.create_table(name, TableOptions::new().cold(tier))?;
    }
    let bar = session.output.step_bar();
    while arguments.wait && stats_of(&database, name).is_some_and(|t| t.misplaced_bytes > 0) {
        bar.set_message(size(stats_of(&database, name).map_or(0, |t| t.misplaced_bytes)));
        std::thread::sleep(LOOK);
    }
    bar.finish_and_clear();
    let note = database.stats().objects.and_then(|objects| objects.note);
    let stats = stats_of(&database, name);
    database.close()?;
    let (object_bytes, misplaced_bytes) =
        stats.map_or((0, 0), |stats| (stats.object_bytes, stats.misplaced_bytes));
    if session.output.json {
        let cold = tier.as_str();
        session.output.object(&Entry { table: name, cold, object_bytes, misplaced_bytes, note })?;
        return Ok(Outcome::Good);
    }
    let (moved, left) = (size(object_bytes), size(misplaced_bytes));
    let tier = tier.as_str();
    session.output.line(&format!("{name}: tier {tier}, {moved} in objects, {left} to follow"))?;
    if let Some(note) = note {
        session.output.line(&format!("the object store: {note}"))?;
    }
    Ok(Outcome::Good)
}

fn tier(name: TierName) -> Tier {
    match name {
        TierName::Ssd => Tier::Ssd,
        TierName::Object => Tier::Object,
    }
}

fn stats_of(database: &Database, name: &str) -> Option<TableStats> {
    database.stats().tables.into_iter().find(|table| table.name == name)
}
