//! A quote in a CSV file that opens and is never closed, and rows that do not end.
//!
//! The reader of CSV ends its last field where the file ends, and so takes all rows behind such a
//! quote for a part of one value. This looks at the bytes on their way to that reader, by its
//! rules: a quote opens a field only as its first byte, and two of them in a row within it are one.
//! A reader of rows holds one row in memory, so a row beyond [`LONGEST`] ends the reading.

use std::io::{self, Read};

use terrace::limits::MAX_VALUE_LEN;

use crate::args::Format;

/// No row is that long, however it is written.
pub(super) const LONGEST: u64 = 16 * MAX_VALUE_LEN as u64;

/// Where the bytes so far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// At the first byte of a field.
    Start,
    /// In a field without quotes, or behind its closing quote.
    Plain,
    /// In a field with quotes.
    Quoted,
    /// Behind a quote that closes the field, unless another one follows.
    Closing,
}

/// Bytes of a file of rows. The read that finds its end fails while a quote is open, and one that
/// finds a row too long does.
pub(super) struct Quotes<R> {
    input: R,
    format: Format,
    at: At,
    /// How many bytes of a byte order mark may still come.
    mark: &'static [u8],
    line: u64,
    /// The line of the quote that opened last.
    opened: u64,
    /// Where the row under way begins, and how long it is.
    row_line: u64,
    row_bytes: u64,
}

impl<R: Read> Quotes<R> {
    pub(super) fn new(input: R, format: Format) -> Quotes<R> {
        let (mark, at) = (b"\xef\xbb\xbf", At::Start);
        Quotes { input, format, at, mark, line: 1, opened: 1, row_line: 1, row_bytes: 0 }
    }

    fn take(&mut self, byte: u8) {
        self.row_bytes += 1;
        if let [next, rest @ ..] = self.mark
            && *next == byte
        {
            self.mark = rest;
            return;
        }
        self.mark = &[];
        self.at = match (self.at, byte) {
            (At::Start, b'"') if self.format == Format::Csv => {
                self.opened = self.line;
                At::Quoted
            }
            (At::Quoted, b'"') => At::Closing,
            (At::Closing, b'"') | (At::Quoted, _) => At::Quoted,
            (_, b'\n' | b'\r' | b',') => At::Start,
            _ => At::Plain,
        };
        self.line += u64::from(byte == b'\n');
        if matches!(byte, b'\n' | b'\r') && self.at == At::Start {
            (self.row_line, self.row_bytes) = (self.line, 0);
        }
    }

    /// The error of a row that is too long.
    fn too_long(&self) -> io::Error {
        let why = match self.at {
            At::Quoted => format!("; the quote that opens on line {} is not closed", self.opened),
            _ => String::new(),
        };
        let message =
            format!("the row on line {} has more than {LONGEST} bytes{why}", self.row_line);
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        if count == 0 && !buffer.is_empty() && self.at == At::Quoted {
            let message = format!(
                "the quote that opens on line {} is never closed; all that follows would be one \
                 value",
                self.opened
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        buffer[..count].iter().for_each(|byte| self.take(*byte));
        if self.row_bytes > LONGEST { Err(self.too_long()) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_quote_is_told_with_its_line() {
        for (text, line) in [
            ("a,b\n1,\"2\n3,4\n", Some(2)),
            ("\"", Some(1)),
            ("\u{feff}\"a", Some(1)),
            ("a\n\"x\"\"", Some(2)),
            ("a\n\"x\ny\",\"\nz", Some(3)),
            ("a,b\n1,\"2\"\n", None),
            ("a\n\"x\"\"y\"", None),
            ("a\nx\"y\n\"z\"w\"\n", None),
            ("\u{feff}\"a\"\n", None),
            ("", None),
        ] {
            // A byte at a time too: what was seen stays over reads.
            for most in [1, 4096] {
                let (mut quotes, mut buffer) =
                    (Quotes::new(text.as_bytes(), Format::Csv), vec![0; most]);
                let end = loop {
                    match quotes.read(&mut buffer) {
                        Ok(0) => break None,
                        Ok(_) => {}
                        Err(error) => break Some(error.to_string()),
                    }
                };
                let expected = line.map(|line| format!("opens on line {line} is never"));
                match (&end, &expected) {
                    (None, None) => {}
                    (Some(end), Some(expected)) => assert!(end.contains(expected), "{end}"),
                    _ => panic!("{text:?}: {end:?}"),
                }
            }
        }
    }
}
