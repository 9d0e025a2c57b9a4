//! `dump` and `load`: all rows of a database, in binary form or as JSON lines.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use terrace::limits::MAX_VALUE_LEN;
use terrace::{Database, DumpEntry, DumpOptions, DumpReport, TableOptions, UnshippedReport};

use super::unshipped::dump_unshipped;
use crate::args::{DumpArguments, LoadArguments};
use crate::failure::{Failure, Outcome};
use crate::file;
use crate::interrupt::{self, Stops, stopped};
use crate::output::{JsonBytes, write_json_line};
use crate::session::Session;
use crate::text::{Encoding, counted};

/// The version of the JSON lines.
const VERSION: u32 = 1;

/// A line with the longest key and the longest value, and some room: hexadecimal digits are two a
/// byte, an escape in JSON six.
const LONGEST_LINE: u64 = 8 * MAX_VALUE_LEN as u64;

/// A line of a dump; `docs/operations.md` has their order.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum DumpLine<'a> {
    Dump { dump: u32 },
    Table { table: Cow<'a, str>, options: BTreeMap<String, String> },
    Blob { blob: JsonBytes<'a> },
    Rows { rows: Cow<'a, str> },
    Row { key: JsonBytes<'a>, value: JsonBytes<'a> },
    End { end: DumpEnd },
}

/// What the dump has.
#[derive(PartialEq, Serialize, Deserialize)]
struct DumpEnd {
    tables: u64,
    rows: u64,
}

/// Dumps. A reader of standard output that goes away is no error.
pub(crate) fn dump(session: &mut Session, arguments: &DumpArguments) -> Result<Outcome, Failure> {
    let to_output = arguments.file == Path::new("-");
    let (json, encoding) = (session.output.json, session.output.encoding);
    let json = json || arguments.unshipped;
    let unshipped_of = arguments.unshipped.then(|| session.store()).transpose()?;
    if to_output && !json && io::stdout().is_terminal() {
        let why = "a dump in binary form could change the terminal; name a file, or say --json";
        return Err(Failure::Invalid(why.to_owned()));
    }
    let mut options = options_of(&arguments.table);
    if arguments.without_prepared {
        options = options.without_prepared();
    }
    let database = session.read()?;
    interrupt::on_signals();
    let write = |to: &mut dyn Write| match &unshipped_of {
        Some(url) => dump_unshipped(&database, url, encoding, &mut Until(to)).map(told),
        None if json => dump_lines(&database, &options, encoding, to).map(counts),
        None => database.dump(&options, Until(to)).map(counts).map_err(Failure::from),
    };
    let write = |to: &mut dyn Write| write(to).map_err(ended);
    let done = if to_output {
        let done = write(&mut session.output);
        let done = done.and_then(|done| session.output.flush().map(|()| done));
        if session.output.reader_is_gone() {
            return Ok(Outcome::Good);
        }
        done
    } else {
        file::replace(&arguments.file, |to| {
            let bar = session.output.byte_bar(None);
            let mut to = BufWriter::new(bar.wrap_write(to));
            let done = write(&mut to)?;
            bar.finish_and_clear();
            let failed = |error| Failure::io(format!("write {}", arguments.file.display()), &error);
            to.flush().map_err(failed).map(|()| done)
        })
    };
    session.output.remark(&done?);
    Ok(Outcome::Good)
}

/// What a dump has, for people.
fn counts(DumpReport { tables, rows, .. }: DumpReport) -> String {
    let (tables, rows) = (counted(tables, "table", "tables"), counted(rows, "row", "rows"));
    format!("{tables} with {rows} dumped")
}

/// What the shared store lacks, for people.
fn told(report: UnshippedReport) -> String {
    let UnshippedReport { shipped, last, commits, has_let_go, .. } = report;
    let from = shipped + 1;
    let behind = match counted(commits, "commit", "commits") {
        _ if commits == 0 => format!("the store has all commits, up to {shipped}"),
        commits => format!("{commits} never left: {from} to {last}"),
    };
    match has_let_go {
        true => {
            format!("{behind}; others may be missing, since zones were let go: dump the rows")
        }
        false => behind,
    }
}

/// Loads a dump of either form.
pub(crate) fn load(session: &mut Session, arguments: &LoadArguments) -> Result<Outcome, Failure> {
    let (input, length) = crate::import::input(&arguments.file)?;
    let bar = session.output.byte_bar(length);
    interrupt::on_signals();
    let mut input = BufReader::new(bar.wrap_read(Stops(input)));
    let failed = |error| Failure::io(format!("read {}", arguments.file.display()), &error);
    let is_json = input.fill_buf().map_err(|e| ended(failed(e)))?.first() == Some(&b'{');
    let options = options_of(&arguments.table);
    let database = session.write()?;
    let loaded = match is_json {
        true => database.load_entries(&options, |add| load_lines(input, add)),
        false => database.load(&options, input),
    };
    let loaded = loaded.map_err(|error| ended(error.into()));
    bar.finish_and_clear();
    let closed = database.close();
    let report = match loaded {
        Ok(report) => report,
        Err(failure) => return Err(session.output.closed_behind(failure, closed)),
    };
    let DumpReport { tables, rows, .. } = report;
    let (tables, rows) = (counted(tables, "table", "tables"), counted(rows, "row", "rows"));
    let done = format!("{tables} with {rows} loaded");
    session.output.done(&done);
    closed.map_err(Failure::closing(&done))?;
    match session.output.json {
        true => session.output.object(&report)?,
        false => session.output.remark(&done),
    }
    Ok(Outcome::Good)
}

fn options_of(tables: &[String]) -> DumpOptions {
    tables.iter().fold(DumpOptions::new(), DumpOptions::table)
}

/// A failure after a signal is what the signal asked for.
fn ended(failure: Failure) -> Failure {
    match (interrupt::is_asked_for(), failure) {
        (true, failure) => Failure::Interrupted(failure.message()),
        (false, failure) => failure,
    }
}

/// Output that takes nothing after a signal.
struct Until<'a>(&'a mut dyn Write);

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match interrupt::is_asked_for() {
            true => Err(stopped()),
            false => self.0.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn dump_lines(
    database: &Database,
    options: &DumpOptions,
    encoding: Encoding,
    to: &mut dyn Write,
) -> Result<DumpReport, Failure> {
    let mut to = Until(to);
    let mut line = |line: &DumpLine<'_>| write_json_line(&mut to, line);
    let failed = |error| Failure::io("write the dump", &error);
    line(&DumpLine::Dump { dump: VERSION }).map_err(failed)?;
    let report = database.dump_entries(options, |entry| {
        line(&match entry {
            DumpEntry::Table(name, options) => {
                let options = options.named().into_iter();
                let options = options.map(|(name, value)| (name.to_owned(), value)).collect();
                DumpLine::Table { table: name.into(), options }
            }
            DumpEntry::Blob(blob) => DumpLine::Blob { blob: JsonBytes::new(encoding, blob) },
            DumpEntry::Rows(name) => DumpLine::Rows { rows: name.into() },
            DumpEntry::Row(key, value) => DumpLine::Row {
                key: JsonBytes::new(encoding, key),
                value: JsonBytes::new(encoding, value),
            },
        })
    })?;
    let end = DumpEnd { tables: report.tables, rows: report.rows };
    line(&DumpLine::End { end }).map_err(failed)?;
    Ok(report)
}

fn load_lines(
    mut input: BufReader<impl Read>,
    add: &mut dyn FnMut(DumpEntry<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let (mut came, mut number) = (DumpEnd { tables: 0, rows: 0 }, 0_u64);
    let mut text = Vec::new();
    loop {
        text.clear();
        number += 1;
        let wrong = |why: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {why}"))
        };
        (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut text)?;
        if text.last() != Some(&b'\n') {
            return Err(wrong(match text.len() as u64 {
                LONGEST_LINE => format!("it has more than {LONGEST_LINE} bytes, as no row has"),
                _ => "it has no end; the dump was cut off here".to_owned(),
            }));
        }
        let line = serde_json::from_slice(&text);
        let line = line.map_err(|error| wrong(format!("it is no line of a dump: {error}")))?;
        match line {
            DumpLine::Dump { dump: VERSION } if number == 1 => {}
            DumpLine::Dump { dump } => return Err(wrong(format!("version {dump} of a dump"))),
            _ if number == 1 => return Err(wrong("a dump begins with {\"dump\":1}".to_owned())),
            DumpLine::Table { table, options } => {
                let mut of = TableOptions::new();
                for (name, value) in &options {
                    of.set(name, value).map_err(|error| wrong(error.to_string()))?;
                }
                add(DumpEntry::Table(&table, of))?;
            }
            DumpLine::Blob { blob } => add(DumpEntry::Blob(&blob.decode().map_err(wrong)?))?,
            DumpLine::Rows { rows } => {
                came.tables += 1;
                add(DumpEntry::Rows(&rows))?;
            }
            DumpLine::Row { key, value } => {
                let (key, value) = (key.decode().map_err(wrong)?, value.decode().map_err(wrong)?);
                came.rows += 1;
                add(DumpEntry::Row(&key, &value))?;
            }
            DumpLine::End { end } if end == came => {
                return match input.fill_buf()?.is_empty() {
                    true => Ok(()),
                    false => Err(wrong("more follows the end of the dump".to_owned())),
                };
            }
            DumpLine::End { end } => {
                let DumpEnd { tables, rows } = end;
                return Err(wrong(format!(
                    "the end counts {tables} tables with {rows} rows, and {} with {} came",
                    came.tables, came.rows
                )));
            }
        }
    }
}
