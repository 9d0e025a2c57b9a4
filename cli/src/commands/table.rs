//! `table`: where a table has its cold levels.

use std::time::Duration;

use serde::Serialize;
use terrace::Tier;

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
    let table = database.table(name)?;
    if table.options().cold_tier() != tier {
        database.set_cold_tier(&table, tier)?;
    }
    let bar = session.output.step_bar();
    let mut stats = database.table_stats(&table)?;
    while arguments.wait && stats.misplaced_bytes > 0 {
        bar.set_message(size(stats.misplaced_bytes));
        std::thread::sleep(LOOK);
        stats = database.table_stats(&table)?;
    }
    bar.finish_and_clear();
    let note = database.stats().objects.and_then(|objects| objects.note);
    let done = format!("table `{name}` has tier {}", tier.as_str());
    database.close().map_err(Failure::closing(done))?;
    let (object_bytes, misplaced_bytes) = (stats.object_bytes, stats.misplaced_bytes);
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
