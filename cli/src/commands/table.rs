//! `table`: where a table has its cold levels.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use terrace::{Database, Table, Tier};

use crate::args::{TableArguments, TierName};
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::text::size;

/// With `--wait` it looks this often.
const LOOK: Duration = Duration::from_millis(200);

/// What fails for so long ends a command that waits. The background tries again within it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Since when there is a note of what fails. One of a store that was away for a moment goes.
#[derive(Default)]
pub(super) struct Lasting(Option<Instant>);

impl Lasting {
    /// The note, once there is one for so long that it will stay.
    pub(super) fn look<T>(&mut self, note: Option<T>) -> Option<T> {
        let began = self.0.unwrap_or_else(Instant::now);
        self.0 = note.as_ref().map(|_| began);
        note.filter(|_| began.elapsed() > PATIENCE)
    }
}

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
    let done = format!("table `{name}` has tier {}", tier.as_str());
    let bar = session.output.byte_bar(Some(database.table_stats(&table)?.misplaced_bytes));
    let moved = if arguments.wait { wait(&database, &table, &bar) } else { Ok(()) };
    bar.finish_and_clear();
    if let Err(cause) = moved {
        let done = format!("{done}, and not all of it is there");
        let failure = Failure::Partly { done, cause: Box::new(cause) };
        return Err(session.output.closed_behind(failure, database.close()));
    }
    let (stats, note) = (database.table_stats(&table)?, note(&database));
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

/// Waits until all of a table is where its tier has it, what moves it fails for long, or the
/// database has stopped.
fn wait(database: &Database, table: &Table, bar: &ProgressBar) -> Result<(), Failure> {
    let mut lasting = Lasting::default();
    loop {
        let misplaced = database.table_stats(table)?.misplaced_bytes;
        if misplaced == 0 {
            return Ok(());
        }
        // Nothing moves any more. The error says why.
        if database.stats().stopped.is_some() {
            database.sync()?;
        }
        if let Some(note) = lasting.look(note(database)) {
            return Err(Failure::Outside(format!("the object store: {note}")));
        }
        // What is written meanwhile follows, too.
        let total = bar.length().unwrap_or(0).max(misplaced);
        bar.set_length(total);
        bar.set_position(total - misplaced);
        std::thread::sleep(LOOK);
    }
}

fn note(database: &Database) -> Option<String> {
    database.stats().objects.and_then(|objects| objects.note)
}

fn tier(name: TierName) -> Tier {
    match name {
        TierName::Ssd => Tier::Ssd,
        TierName::Object => Tier::Object,
    }
}

#[cfg(test)]
mod tests {
    use terrace::Options;

    use super::*;

    /// Bug: `--wait` waited for ever where the database had stopped. Cause: it looked at what is
    /// left and at the store alone. Fix: it ends with the error of the database.
    #[test]
    fn a_database_that_stopped_ends_a_wait() {
        let dir = tempfile::tempdir().unwrap();
        let (path, store) = (dir.path().join("db"), dir.path().join("store"));
        std::fs::create_dir(&store).unwrap();
        let options = Options::new().pm_size(4 << 20);
        let options = options.object_store(format!("file://{}", store.display()));
        let database = options.open(&path).unwrap();
        let table = database.table("t").unwrap();
        table.put("k", "v").unwrap();
        database.compact_range(&table, ..).unwrap();
        // Nothing can be moved there.
        std::fs::remove_dir_all(&store).unwrap();
        std::fs::write(&store, "").unwrap();
        database.set_cold_tier(&table, Tier::Object).unwrap();
        assert!(database.table_stats(&table).unwrap().misplaced_bytes > 0);
        std::fs::remove_file(path.join("LOCK")).unwrap();
        let end = Instant::now() + Duration::from_mins(1);
        while database.stats().stopped.is_none() {
            assert!(Instant::now() < end, "it stops");
            std::thread::yield_now();
        }
        let failure = wait(&database, &table, &ProgressBar::hidden()).unwrap_err();
        assert!(failure.message().contains("the database stopped"), "{}", failure.message());
    }

    /// Bug: `--wait` waited for ever, in silence, where the store refuses. Cause: it looked at what
    /// is left alone, and at the note behind that. Fix: a note that stays ends it.
    #[test]
    fn a_note_that_stays_ends_a_wait_and_one_that_goes_does_not() {
        let mut lasting = Lasting::default();
        assert_eq!(lasting.look(Some("away")), None);
        let long_ago = || Instant::now().checked_sub(2 * PATIENCE);
        lasting.0 = long_ago();
        assert_eq!(lasting.look(Some("away")), Some("away"));
        lasting.0 = long_ago();
        assert_eq!(lasting.look(None::<&str>), None);
        assert_eq!(lasting.look(Some("away")), None, "it begins anew");
    }
}
