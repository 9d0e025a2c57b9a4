//! Standard output for data, standard error for remarks and progress.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};
use terrace::Progress;

use crate::failure::Failure;
use crate::interrupt::{self, StandardOutput};
use crate::text::{Encoding, escape, from_hex};

/// Work that takes longer than this shows its progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where and how a command prints.
pub(crate) struct Output {
    /// Whether to print JSON.
    pub(crate) json: bool,
    /// How to print keys and values.
    pub(crate) encoding: Encoding,
    quiet: bool,
    data: BufWriter<StandardOutput>,
    /// The reader of standard output has closed it, as `head` does. What is printed goes nowhere
    /// then, and how the command ends does not depend on it.
    reader_is_gone: bool,
    /// What the command has done, which a failure to print it says first.
    done: Option<String>,
}

/// A record as JSON.
#[derive(Serialize)]
struct Record<'a> {
    key: JsonBytes<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<JsonBytes<'a>>,
}

/// Bytes in JSON: text as a string, and other bytes as an object with their hexadecimal digits.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum JsonBytes<'a> {
    Text(Cow<'a, str>),
    Bytes { hex: String },
}

impl JsonBytes<'_> {
    pub(crate) fn new(encoding: Encoding, bytes: &[u8]) -> JsonBytes<'_> {
        match (encoding, std::str::from_utf8(bytes)) {
            (Encoding::Text, Ok(text)) => JsonBytes::Text(text.into()),
            _ => JsonBytes::Bytes { hex: Encoding::Hex.whole(bytes) },
        }
    }
}

impl JsonBytes<'_> {
    /// The bytes, or why there are none.
    pub(crate) fn decode(&self) -> Result<Cow<'_, [u8]>, String> {
        match self {
            JsonBytes::Text(text) => Ok(text.as_bytes().into()),
            JsonBytes::Bytes { hex } => from_hex(hex.as_bytes())
                .map(Cow::from)
                .ok_or_else(|| format!("`{hex}` is not an even number of hex digits")),
        }
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::io("write standard output", error)
}

/// Whether no process reads what was written.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.data.write(bytes).inspect_err(|error| self.reader_is_gone |= is_gone(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.data.flush().inspect_err(|error| self.reader_is_gone |= is_gone(error))
    }
}

impl Output {
    /// The output of this process.
    pub(crate) fn new(json: bool, encoding: Encoding, quiet: bool) -> Result<Output, Failure> {
        let data = StandardOutput::new().map_err(|error| failed(&error))?;
        let data = BufWriter::new(data);
        Ok(Output { json, encoding, quiet, data, reader_is_gone: false, done: None })
    }

    /// Prints a line of data. What would end the line, or change a terminal, is escaped.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        let line = escape(line.as_bytes(), |c| c.is_control() && c != '\t');
        self.bytes(&line)?;
        self.bytes("\n")
    }

    /// Prints bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        if self.reader_is_gone {
            return Ok(());
        }
        let written = self.data.write_all(bytes.as_ref());
        self.note(written)
    }

    /// Whether no process reads standard output any more. A command that prints much stops then.
    pub(crate) fn reader_is_gone(&self) -> bool {
        self.reader_is_gone
    }

    /// What is printed from now on speaks of what is done.
    pub(crate) fn done(&mut self, done: impl Into<String>) {
        self.done = Some(done.into());
    }

    fn note(&mut self, written: io::Result<()>) -> Result<(), Failure> {
        match written {
            Err(error) if is_gone(&error) => {
                self.reader_is_gone = true;
                Ok(())
            }
            Err(error) if self.data.get_ref().is_over => {
                Err(Failure::Interrupted(failed(&error).message()))
            }
            written => written.map_err(|error| match self.done.clone() {
                None => failed(&error),
                Some(done) => {
                    let done = format!("{done}, but standard output does not say so");
                    Failure::Partly { done, cause: Box::new(failed(&error)) }
                }
            }),
        }
    }

    /// Prints a value as one line of JSON.
    pub(crate) fn object(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|error| Failure::Outside(format!("cannot write JSON: {error}")))?;
        self.bytes(in_json(&text))?;
        self.bytes("\n")
    }

    /// Prints a record on a line of its own.
    pub(crate) fn record(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Failure> {
        let encoding = self.encoding;
        if self.json {
            let json = |bytes| JsonBytes::new(encoding, bytes);
            return self.object(&Record { key: json(key), value: value.map(json) });
        }
        match value {
            Some(value) => self.line(&format!("{}\t{}", encoding.line(key), encoding.line(value))),
            None => self.line(&encoding.line(key)),
        }
    }

    /// Prints a value by itself. A terminal gets no control characters but ends of lines and tabs:
    /// they could do anything to it.
    pub(crate) fn value(&mut self, value: &[u8]) -> Result<(), Failure> {
        let text = match io::stdout().is_terminal() {
            true => self.encoding.on_terminal(value),
            false => self.encoding.whole(value),
        };
        self.bytes(text)?;
        self.bytes("\n")
    }

    /// Prints a remark.
    pub(crate) fn remark(&self, remark: &str) {
        if !self.quiet {
            say(remark);
        }
    }

    /// The failure of a command that has closed its database then. A closing that failed too is a
    /// remark.
    pub(crate) fn closed_behind(&self, failure: Failure, closed: terrace::Result<()>) -> Failure {
        if let Err(error) = closed {
            self.remark(&format!("the database could not be closed: {error}"));
        }
        failure
    }

    /// A bar over a known number of bytes, shown where a person can see it.
    pub(crate) fn byte_bar(&self, total: Option<u64>) -> ProgressBar {
        let template = match total {
            Some(_) => "{bar:24} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{spinner} {bytes}, {bytes_per_sec}",
        };
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        self.show(bar, template)
    }

    /// A count of steps whose number is not known.
    pub(crate) fn step_bar(&self) -> ProgressBar {
        self.show(ProgressBar::no_length(), "{msg}: {pos} jobs in {elapsed}")
    }

    /// Draws how far the engine is with what it does, and ends that after a signal.
    pub(crate) fn progress(&self) -> impl Fn(&Progress) -> ControlFlow<()> + use<> {
        let is_shown = self.is_shown();
        let drawn: Mutex<Option<ProgressBar>> = Mutex::default();
        move |at| {
            let mut drawn = drawn.lock().unwrap_or_else(|left| left.into_inner());
            if at.done == 0 || drawn.is_none() {
                let template = match at.unit {
                    "bytes" => {
                        "{msg}: {bar:24} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left"
                    }
                    _ => "{msg}: {bar:24} {pos} of {len}",
                };
                *drawn = Some(styled(ProgressBar::new(at.total), is_shown, template));
            }
            let is_over = interrupt::is_asked_for() || at.done == at.total;
            if let Some(bar) = drawn.as_ref().filter(|bar| bar.elapsed() > PATIENCE && !is_over) {
                bar.set_message(at.operation);
                bar.set_length(at.total);
                bar.set_position(at.done);
            } else if is_over && let Some(bar) = drawn.take() {
                bar.finish_and_clear();
            }
            match interrupt::is_asked_for() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }

    fn show(&self, bar: ProgressBar, template: &str) -> ProgressBar {
        styled(bar, self.is_shown(), template)
    }

    /// Whether a person sees what is drawn.
    fn is_shown(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Hands all data on.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if self.reader_is_gone {
            return Ok(());
        }
        let flushed = self.data.flush();
        self.note(flushed)
    }
}

fn styled(bar: ProgressBar, is_shown: bool, template: &str) -> ProgressBar {
    if !is_shown {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    } else if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Prints to standard error, without what could change a terminal. Where no process reads it, it
/// is lost, and nothing else.
pub(crate) fn say(text: &str) {
    let text = Encoding::Text.on_terminal(text.as_bytes());
    writeln!(io::stderr(), "{text}").unwrap_or_default();
}

/// Writes an object as a line of JSON.
pub(crate) fn write_json_line(to: &mut dyn Write, line: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(line).map_err(io::Error::other)?;
    writeln!(to, "{}", in_json(&text))
}

/// JSON without the control characters that it may have as they are: those from 7f on, which some
/// terminals obey.
pub(crate) fn in_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            // Writing to a string cannot fail.
            true => write!(out, "\\u{:04x}", u32::from(c)).unwrap_or_default(),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: a compaction that a signal had stopped ended with the error of the closing behind it.
    /// Fix: what ended the command is what is told.
    #[test]
    fn a_failed_closing_takes_no_failures_place() {
        let output = Output::new(false, Encoding::Text, true).unwrap();
        let closed = Err(terrace::Options::new().set("absent", "").unwrap_err());
        let failure = output.closed_behind(Failure::Interrupted("stopped".to_owned()), closed);
        assert_eq!((failure.exit_code(), failure.message()), (130, "stopped".to_owned()));
    }
}
