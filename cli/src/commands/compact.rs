//! `compact`: drains memory and merges the levels of tables into one.

use std::ffi::OsString;
use std::ops::{Bound, ControlFlow};

use serde::Serialize;
use terrace::CompactionProgress;

use crate::args::CompactArguments;
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::session::Session;
use crate::text::{counted, grouped, size};

#[derive(Serialize)]
struct Entry {
    table: String,
    #[serde(flatten)]
    done: CompactionProgress,
    /// Bytes of the table's extents before and after.
    bytes_before: u64,
    bytes_after: u64,
}

/// Compacts a table, a range of its keys, or all tables.
pub(crate) fn run(session: &mut Session, arguments: &CompactArguments) -> Result<Outcome, Failure> {
    let encoding = session.output.encoding;
    let parse = |argument: &Option<OsString>| {
        argument.as_ref().map(|argument| encoding.parse(argument)).transpose()
    };
    let (from, to) = (parse(&arguments.from)?, parse(&arguments.to)?);
    let range = (
        from.as_ref().map_or(Bound::Unbounded, Bound::Included),
        to.as_ref().map_or(Bound::Unbounded, Bound::Excluded),
    );
    let database = session.change()?;
    interrupt::on_signals();
    let tables = match &arguments.table {
        Some(table) => vec![table.clone()],
        None => database.table_names(),
    };
    let bar = session.output.step_bar();
    let mut entries = Vec::new();
    for name in tables {
        let table = database.existing_table(&name)?;
        let bytes = || {
            let stats = database.table_stats(&table)?;
            terrace::Result::Ok(stats.levels.iter().map(|level| level.bytes).sum::<u64>())
        };
        let before = bytes()?;
        bar.set_message(name.clone());
        let mut done = CompactionProgress::default();
        if !interrupt::is_asked_for() {
            done = database.compact_range_with(&table, range, |progress| {
                bar.set_position(progress.drains + progress.compactions);
                match interrupt::is_asked_for() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
        }
        if !done.is_finished {
            bar.finish_and_clear();
            let stopped = interrupted(&name, &done);
            return Err(session.output.closed_behind(stopped, database.close()));
        }
        let after = bytes()?;
        entries.push(Entry { table: name, done, bytes_before: before, bytes_after: after });
    }
    bar.finish_and_clear();
    let done = "what was named is compacted";
    session.output.done(done);
    database.close().map_err(Failure::closing(done))?;
    if session.output.json {
        session.output.object(&entries)?;
        return Ok(Outcome::Good);
    }
    for Entry { table, done, bytes_before, bytes_after } in entries {
        let jobs = grouped(done.drains + done.compactions);
        let (before, after) = (size(bytes_before), size(bytes_after));
        session.output.line(&format!("{table}: {before} before, {after} after, {jobs} jobs"))?;
    }
    Ok(Outcome::Good)
}

/// The error of a compaction that a signal has stopped.
fn interrupted(table: &str, done: &CompactionProgress) -> Failure {
    let jobs = counted(done.drains + done.compactions, "job", "jobs");
    Failure::Interrupted(format!(
        "stopped by a signal after {jobs} in table `{table}`: what was compacted stays so; to go \
         on, run it again"
    ))
}
