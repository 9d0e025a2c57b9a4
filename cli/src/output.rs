//! Standard output for data, standard error for remarks and progress.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;
use crate::text::Encoding;

/// Where and how a command prints.
pub(crate) struct Output {
    /// Whether to print JSON.
    pub(crate) json: bool,
    /// How to print keys and values.
    pub(crate) encoding: Encoding,
    quiet: bool,
    data: BufWriter<Stdout>,
}

/// A record as JSON.
#[derive(Serialize)]
struct Record<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
}

impl Output {
    /// The output of this process.
    pub(crate) fn new(json: bool, encoding: Encoding, quiet: bool) -> Output {
        Output { json, encoding, quiet, data: BufWriter::new(io::stdout()) }
    }

    /// Prints a line of data.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.data, "{line}").map_err(|error| Failure::writing(&error))
    }

    /// Prints a value as one line of JSON.
    pub(crate) fn object(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|error| Failure::Outside(format!("cannot write JSON: {error}")))?;
        self.line(&text)
    }

    /// Prints a record on a line of its own.
    pub(crate) fn record(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Failure> {
        let encoding = self.encoding;
        if self.json {
            let (key, value) = (encoding.whole(key), value.map(|value| encoding.whole(value)));
            return self.object(&Record { key: &key, value: value.as_deref() });
        }
        match value {
            Some(value) => self.line(&format!("{}\t{}", encoding.line(key), encoding.line(value))),
            None => self.line(&encoding.line(key)),
        }
    }

    /// Prints a remark.
    pub(crate) fn remark(&self, remark: &str) {
        if !self.quiet {
            eprintln!("{remark}");
        }
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

    /// A bar over a number of steps.
    pub(crate) fn step_bar(&self) -> ProgressBar {
        self.show(ProgressBar::no_length(), "{msg}: {bar:24} {pos} of {len}, {eta} left")
    }

    fn show(&self, bar: ProgressBar, template: &str) -> ProgressBar {
        if self.quiet || !io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
            return bar;
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar
    }

    /// Hands all data on.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.data.flush().map_err(|error| Failure::writing(&error))
    }
}
