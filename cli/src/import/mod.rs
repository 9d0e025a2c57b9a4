//! `import`: the rows of a file into a table.

mod loader;
mod rows;
mod way;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::args::{Format, ImportArguments};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::session::Session;
use crate::text::{counted, grouped, size};

pub(crate) use loader::{Loaded, Loader};
pub(crate) use rows::{BadRow, Row, read};
use way::Way;

/// How many of the broken rows left out are listed.
const LISTED: usize = 10;

/// Imports a file.
pub(crate) fn run(session: &mut Session, arguments: &ImportArguments) -> Result<Outcome, Failure> {
    let begin = Instant::now();
    let is_stdin = arguments.file == Path::new("-");
    let format = match arguments.format.or_else(|| format_of(&arguments.file)) {
        Some(format) => format,
        None => {
            let why = "cannot tell how the rows are written; say --format csv, tsv or jsonl";
            return Err(Failure::Invalid(why.to_owned()));
        }
    };
    let (input, length): (Box<dyn Read>, Option<u64>) = if is_stdin {
        (Box::new(std::io::stdin()), None)
    } else {
        let file = open(&arguments.file)?;
        let length = file.metadata().ok().filter(|data| data.is_file()).map(|data| data.len());
        (Box::new(file), length)
    };
    let bar = session.output.byte_bar(length);
    // The columns are looked at before anything is made.
    let rows = read(bar.wrap_read(input), format, arguments.key.as_deref())?;

    let database = session.write()?;
    let table = database.table(&arguments.table)?;
    let mut way = Way::new(&database, &table, arguments)?;
    let mut skipped = Vec::new();
    let mut skipped_count = 0_u64;
    interrupt::on_signals();
    for row in rows {
        // A read that the signal has cut short is no error of the file.
        if interrupt::is_asked_for() {
            let loaded = way.stop()?;
            bar.finish_and_clear();
            database.close()?;
            return Err(interrupted(&loaded, skipped_count, arguments));
        }
        match row? {
            Ok(Row { key, value }) => way.add(&key, &value)?,
            Err(bad) if arguments.skip_bad => {
                skipped_count += 1;
                if skipped.len() < LISTED {
                    skipped.push(bad);
                }
            }
            Err(bad) => {
                let loaded = way.stop()?;
                bar.finish_and_clear();
                return Err(stopped(&bad, &loaded, &arguments.table));
            }
        }
    }
    let loaded = way.finish()?;
    bar.finish_and_clear();
    database.close()?;
    let report = Report { loaded, skipped_count, skipped, took: begin.elapsed() };
    report.print(session, &arguments.table)
}

/// Opens a file to read.
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::Invalid(format!("there is no file {}", path.display()))
        }
        _ => Failure::io(format!("open {}", path.display()), &error),
    })
}

/// How the rows of a file are written, going by its extension.
pub(crate) fn format_of(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "csv" => Some(Format::Csv),
        "tsv" | "tab" => Some(Format::Tsv),
        "jsonl" | "ndjson" => Some(Format::Jsonl),
        _ => None,
    }
}

/// The error for a broken row. What came before it is committed, so that the line says how far
/// the import got.
fn stopped(bad: &BadRow, loaded: &Loaded, table: &str) -> Failure {
    Failure::Invalid(format!(
        "line {}: {}; the {} rows before it are in table `{table}`, it and those after it are \
         not (--skip-bad leaves broken rows out)",
        bad.line,
        bad.reason,
        grouped(loaded.rows)
    ))
}

/// The error of an import that a signal has stopped.
fn interrupted(loaded: &Loaded, skipped: u64, arguments: &ImportArguments) -> Failure {
    let table = &arguments.table;
    Failure::Interrupted(match arguments.bulk {
        true => format!("stopped by a signal: nothing is in table `{table}`, as --bulk has it"),
        false => format!(
            "stopped by a signal: the first {} of {} are in table `{table}`, those after them are \
             not; {skipped} were left out; to go on, import the rest",
            counted(loaded.rows, "row", "rows"),
            arguments.file.display(),
        ),
    })
}

struct Report {
    loaded: Loaded,
    skipped_count: u64,
    skipped: Vec<BadRow>,
    took: Duration,
}

impl Report {
    fn print(&self, session: &mut Session, table: &str) -> Result<Outcome, Failure> {
        let Loaded { rows, bytes, repeated } = self.loaded;
        let output = &mut session.output;
        if output.json {
            let listed: Vec<_> = self
                .skipped
                .iter()
                .map(|bad| json!({ "line": bad.line, "reason": bad.reason }))
                .collect();
            output.object(&json!({
                "table": table,
                "rows": rows,
                "bytes": bytes,
                "repeated": repeated,
                "skipped": self.skipped_count,
                "skipped_first": listed,
                "seconds": self.took.as_secs_f64(),
            }))?;
            return Ok(Outcome::Good);
        }
        for bad in &self.skipped {
            output.remark(&format!("left out line {}: {}", bad.line, bad.reason));
        }
        if self.skipped_count > self.skipped.len() as u64 {
            let more = self.skipped_count - self.skipped.len() as u64;
            output.remark(&format!("left out {} more", grouped(more)));
        }
        if repeated > 0 {
            let repeated = grouped(repeated);
            output.remark(&format!("{repeated} rows repeat an earlier key; the last one stays"));
        }
        let seconds = self.took.as_secs_f64();
        output.remark(&format!(
            "{} rows, {} into `{table}` in {seconds:.1} s; {} left out",
            grouped(rows),
            size(bytes),
            grouped(self.skipped_count)
        ));
        Ok(Outcome::Good)
    }
}
