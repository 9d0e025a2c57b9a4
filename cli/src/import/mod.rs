//! `import`: the rows of a file into a table.

mod field;
mod loader;
mod quotes;
mod rows;
mod way;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use terrace::ErrorKind;

use crate::args::{Format, ImportArguments};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::session::Session;
use crate::text::{counted, grouped, size};
use crate::watch;

pub(crate) use loader::{Loaded, Loader};
pub(crate) use rows::{BadRow, Row, read};
use way::Way;

/// How many of the broken rows left out are listed.
const LISTED: usize = 10;

/// Imports a file.
pub(crate) fn run(session: &mut Session, arguments: &ImportArguments) -> Result<Outcome, Failure> {
    let begin = Instant::now();
    let format = match arguments.format.or_else(|| format_of(&arguments.file)) {
        Some(format) => format,
        None => {
            let why = "cannot tell how the rows are written; say --format csv, tsv or jsonl";
            return Err(Failure::Invalid(why.to_owned()));
        }
    };
    let (input, length) = input(&arguments.file)?;
    let bar = session.output.byte_bar(length);
    // The columns are looked at before anything is made.
    let input = bar.wrap_read(interrupt::Stops(input));
    let rows = read(input, format, arguments.key.as_deref())?;

    let database = session.write()?;
    let _page = match arguments.watch {
        true => Some(watch::serve(session, &database)?),
        false => None,
    };
    let is_new = !database.table_names().contains(&arguments.table);
    let table = database.table(&arguments.table)?;
    let mut way = Way::new(&database, &table, arguments)?;
    let mut left_out = LeftOut::default();
    interrupt::on_signals();
    let added = add_all(rows, &mut way, &mut left_out, arguments);
    let (loaded, ended) = way.end(added);
    bar.finish_and_clear();
    if let Err(stop) = ended {
        // An import that has put nothing in leaves no table that it has made.
        let is_empty = is_new && loaded.rows == 0 && !stop.may_have_committed();
        let dropped = if is_empty { database.drop_table(&table) } else { Ok(()) };
        if let Err(error) = dropped {
            let what = "the table has no rows, and could not be dropped";
            session.output.remark(&format!("{what}: {error}"));
        }
        let failure = stopped(stop, &loaded, &left_out, arguments);
        return Err(session.output.closed_behind(failure, database.close()));
    }
    let rows = counted(loaded.rows, "row", "rows");
    let done = format!("all rows, {rows}, are in table `{}`", arguments.table);
    session.output.done(&done);
    database.close().map_err(Failure::closing(done))?;
    let report = Report { loaded, left_out, took: begin.elapsed() };
    report.print(session, &arguments.table)
}

/// Rows that were left out: how many, and the first ones.
#[derive(Default)]
struct LeftOut {
    count: u64,
    first: Vec<BadRow>,
}

/// Why no more rows were added.
enum Stop {
    /// A signal came.
    Signal,
    /// A row is broken.
    Broken(BadRow),
    /// Rows cannot be read, or written.
    Failed(Failure),
}

impl Stop {
    /// Whether what was being committed may be in the table all the same.
    fn may_have_committed(&self) -> bool {
        let Stop::Failed(Failure::Engine(error)) = self else { return false };
        error.kind() == ErrorKind::UnknownOutcome
    }
}

impl From<terrace::Error> for Stop {
    fn from(error: terrace::Error) -> Stop {
        Stop::Failed(Failure::Engine(error))
    }
}

/// Adds all rows, or those before what stops it.
fn add_all(
    rows: rows::Rows<'_>,
    way: &mut Way<'_>,
    left_out: &mut LeftOut,
    arguments: &ImportArguments,
) -> Result<(), Stop> {
    for row in rows {
        // A read that the signal has cut short is no error of the file.
        if interrupt::is_asked_for() {
            return Err(Stop::Signal);
        }
        match row.map_err(Stop::Failed)? {
            Ok(Row { key, value }) => way.add(&key, &value)?,
            Err(bad) if arguments.skip_bad => {
                left_out.count += 1;
                if left_out.first.len() < LISTED {
                    left_out.first.push(bad);
                }
            }
            Err(bad) => return Err(Stop::Broken(bad)),
        }
    }
    Ok(())
}

/// What is to be read, `-` for standard input, and how many bytes that is, where it is known.
pub(crate) fn input(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let file = open(path)?;
    let length = file.metadata().ok().filter(|data| data.is_file()).map(|data| data.len());
    Ok((Box::new(file), length))
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

/// The error of an import that ended before its last row. It says what is in the table.
fn stopped(
    stop: Stop,
    loaded: &Loaded,
    left_out: &LeftOut,
    arguments: &ImportArguments,
) -> Failure {
    let (table, rows) = (&arguments.table, counted(loaded.rows, "row", "rows"));
    let after = match stop.may_have_committed() {
        true => "of those after them, one batch may be there",
        false => "those after them are not",
    };
    let done = match arguments.bulk {
        true if stop.may_have_committed() => format!("all rows are in table `{table}`, or none"),
        true => format!("nothing is in table `{table}`, as --bulk has it"),
        false => format!(
            "the first {rows} of {} are in table `{table}`, {after}; {} were left out",
            arguments.file.display(),
            left_out.count
        ),
    };
    match stop {
        Stop::Signal if arguments.bulk => {
            Failure::Interrupted(format!("stopped by a signal: {done}"))
        }
        Stop::Signal => {
            Failure::Interrupted(format!("stopped by a signal: {done}; to go on, import the rest"))
        }
        Stop::Broken(bad) => Failure::Invalid(format!(
            "line {}: {}; the {} rows before it are in table `{table}`, it and those after it are \
             not (--skip-bad leaves broken rows out)",
            bad.line,
            bad.reason,
            grouped(loaded.rows)
        )),
        Stop::Failed(cause) => Failure::Partly { done, cause: Box::new(cause) },
    }
}

struct Report {
    loaded: Loaded,
    left_out: LeftOut,
    took: Duration,
}

impl Report {
    fn print(&self, session: &mut Session, table: &str) -> Result<Outcome, Failure> {
        let Loaded { rows, bytes, repeated, has_uncounted } = self.loaded;
        let LeftOut { count, first } = &self.left_out;
        let output = &mut session.output;
        if output.json {
            let listed: Vec<_> =
                first.iter().map(|bad| json!({ "line": bad.line, "reason": bad.reason })).collect();
            output.object(&json!({
                "table": table,
                "rows": rows,
                "bytes": bytes,
                "repeated": (!has_uncounted).then_some(repeated),
                "skipped": count,
                "skipped_first": listed,
                "seconds": self.took.as_secs_f64(),
            }))?;
            return Ok(Outcome::Good);
        }
        for bad in first {
            output.remark(&format!("left out line {}: {}", bad.line, bad.reason));
        }
        let more = count - first.len() as u64;
        if more > 0 {
            output.remark(&format!("left out {} more", grouped(more)));
        }
        if has_uncounted {
            output.remark("there are too many keys to count those that are repeated");
        } else if repeated > 0 {
            let repeated = grouped(repeated);
            output.remark(&format!("{repeated} rows repeat an earlier key; the last one stays"));
        }
        let seconds = self.took.as_secs_f64();
        output.remark(&format!(
            "{} rows, {} into `{table}` in {seconds:.1} s; {} left out",
            grouped(rows),
            size(bytes),
            grouped(*count)
        ));
        Ok(Outcome::Good)
    }
}
