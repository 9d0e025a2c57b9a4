//! The rows of a CSV, TSV or JSON Lines file, each a key and a JSON object.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};

use serde::ser::{SerializeMap, Serializer};
use terrace::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};

use super::field;
use super::quotes::{LONGEST, Quotes};
use crate::args::Format;
use crate::failure::Failure;

/// A sound row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// A broken row: where, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadRow {
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// A row as it was read. The outer error of [`Rows`] ends the reading; a bad row does not.
pub(crate) type Reading = Result<Row, BadRow>;

/// An iterator over the rows of a file.
pub(crate) type Rows<'a> = Box<dyn Iterator<Item = Result<Reading, Failure>> + 'a>;

/// Starts to read. `key` names the column that is the key.
pub(crate) fn read<'a>(
    input: impl Read + 'a,
    format: Format,
    key: Option<&str>,
) -> Result<Rows<'a>, Failure> {
    match format {
        Format::Csv | Format::Tsv => delimited(Quotes::new(input, format), format, key),
        Format::Jsonl => {
            let key = key.map(str::to_owned).ok_or_else(|| {
                Failure::Invalid("say which field is the key, with --key".to_owned())
            })?;
            Ok(objects(BufReader::new(input), key))
        }
    }
}

fn delimited<'a>(
    input: impl Read + 'a,
    format: Format,
    key: Option<&str>,
) -> Result<Rows<'a>, Failure> {
    let mut builder = csv::ReaderBuilder::new();
    // A tab-separated file quotes nothing: a tab inside a field is written in another way.
    let delimiter = if format == Format::Tsv { b'\t' } else { b',' };
    builder.delimiter(delimiter).quoting(format != Format::Tsv);
    let mut reader = builder.from_reader(input);
    let headers = reader.headers().map_err(|error| csv_failure(&error))?.clone();
    if let Some(name) = repeated(&headers) {
        return Err(Failure::Invalid(format!(
            "two columns are called `{name}`, and a row has one value of a name; give them \
             different names in the first line"
        )));
    }
    let column = match key {
        None => 0,
        Some(key) => headers.iter().position(|name| name == key).ok_or_else(|| {
            let names: Vec<&str> = headers.iter().collect();
            Failure::Invalid(format!("there is no column `{key}`; there are {}", listed(&names)))
        })?,
    };
    if headers.is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    Ok(Box::new(reader.into_records().map(move |record| {
        let record = match record {
            Ok(record) => record,
            Err(error) => return bad_csv(&error),
        };
        let line = record.position().map_or(0, csv::Position::line);
        let value = object_of(&headers, &record);
        Ok(row(line, record[column].as_bytes().to_vec(), value))
    })))
}

/// A name that stands twice in the first line.
fn repeated(headers: &csv::StringRecord) -> Option<&str> {
    let mut seen = HashSet::new();
    headers.iter().find(|name| !seen.insert(*name))
}

/// A row that the CSV reader refuses is bad; one that it cannot read at all is a failure.
fn bad_csv(error: &csv::Error) -> Result<Reading, Failure> {
    let line = error.position().map_or(0, csv::Position::line);
    let reason = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields where the first line names {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "not UTF-8".to_owned(),
        _ => return Err(csv_failure(error)),
    };
    Ok(Err(BadRow { line, reason }))
}

fn csv_failure(error: &csv::Error) -> Failure {
    match error.kind() {
        csv::ErrorKind::Io(error) => read_failure("read the rows", error),
        _ => Failure::Invalid(format!("cannot read the rows: {error}")),
    }
}

/// A file that is not what it says is the request's fault.
fn read_failure(doing: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidData => Failure::Invalid(format!("cannot {doing}: {error}")),
        _ => Failure::io(doing, error),
    }
}

/// A record as a JSON object, its fields in the order of the columns.
fn object_of(headers: &csv::StringRecord, record: &csv::StringRecord) -> Vec<u8> {
    let mut value = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut value);
    let written = serializer.serialize_map(Some(headers.len())).and_then(|mut map| {
        for (name, field) in headers.iter().zip(record) {
            map.serialize_entry(name, field)?;
        }
        map.end()
    });
    debug_assert!(written.is_ok(), "strings into memory always serialise");
    value
}

fn objects<'a>(input: impl BufRead + 'a, key: String) -> Rows<'a> {
    let mut lines = Lines { input, is_inside: false };
    let texts = std::iter::from_fn(move || lines.next().transpose()).zip(1..);
    Box::new(texts.filter_map(move |(text, line)| {
        let text = match text {
            Ok(text) => text,
            Err(error) => return Some(Err(read_failure(&format!("read line {line}"), &error))),
        };
        if text.len() as u64 > LONGEST {
            let reason = format!("the row has more than {LONGEST} bytes, at most {MAX_VALUE_LEN}");
            return Some(Ok(Err(BadRow { line, reason })));
        }
        let text = text.trim_ascii();
        if text.is_empty() {
            return None;
        }
        Some(Ok(match field::key(text, &key) {
            Ok(key) => row(line, key, text.to_vec()),
            Err(reason) => Err(BadRow { line, reason }),
        }))
    }))
}

/// The lines of a file, of which memory holds no more than [`LONGEST`] bytes and one.
struct Lines<R> {
    input: R,
    /// Whether the line before goes on here.
    is_inside: bool,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if std::mem::take(&mut self.is_inside) {
            self.input.skip_until(b'\n')?;
        }
        let mut text = Vec::new();
        self.input.by_ref().take(LONGEST + 1).read_until(b'\n', &mut text)?;
        self.is_inside = text.len() as u64 > LONGEST && text.last() != Some(&b'\n');
        Ok((!text.is_empty()).then_some(text))
    }
}

fn row(line: u64, key: Vec<u8>, value: Vec<u8>) -> Reading {
    let reason = if key.is_empty() {
        "the key is empty".to_owned()
    } else if key.len() > MAX_KEY_LEN {
        format!("the key has {} bytes, at most {MAX_KEY_LEN}", key.len())
    } else if value.len() > MAX_VALUE_LEN {
        format!("the row has {} bytes, at most {MAX_VALUE_LEN}", value.len())
    } else {
        return Ok(Row { key, value });
    };
    Err(BadRow { line, reason })
}

/// Names for a message.
pub(super) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, format: Format, key: Option<&str>) -> Vec<Result<(String, String), u64>> {
        read(text.as_bytes(), format, key)
            .unwrap_or_else(|failure| panic!("{}", failure.report(false)))
            .map(|row| match row.unwrap_or_else(|_| panic!("reading failed")) {
                Ok(Row { key, value }) => {
                    Ok((String::from_utf8(key).unwrap(), String::from_utf8(value).unwrap()))
                }
                Err(bad) => Err(bad.line),
            })
            .collect()
    }

    fn good(key: &str, value: &str) -> Result<(String, String), u64> {
        Ok((key.to_owned(), value.to_owned()))
    }

    #[test]
    fn csv_rows_become_objects_in_the_order_of_the_columns() {
        let text = "z,a\n1,\"x, \"\"y\"\"\"\nbroken\n2,\n";
        let expected =
            [good("1", r#"{"z":"1","a":"x, \"y\""}"#), Err(3), good("2", r#"{"z":"2","a":""}"#)];
        assert_eq!(rows(text, Format::Csv, None), expected);
    }

    #[test]
    fn tsv_quotes_nothing() {
        let expected = [good("\"b", r#"{"a":"1","k":"\"b"}"#)];
        assert_eq!(rows("a\tk\n1\t\"b\n", Format::Tsv, Some("k")), expected);
    }

    #[test]
    fn json_lines_stay_as_they_are() {
        let text =
            "{ \"id\": 7, \"a\": [1] }\n\n{\"id\": \"x\"}\n{\"no\": 1}\n[1]\n{\"id\": null}\n{";
        let expected = [
            good("7", "{ \"id\": 7, \"a\": [1] }"),
            good("x", "{\"id\": \"x\"}"),
            Err(4),
            Err(5),
            Err(6),
            Err(7),
        ];
        assert_eq!(rows(text, Format::Jsonl, Some("id")), expected);
    }

    #[test]
    fn a_missing_column_names_those_there_are() {
        let failure = read("a,b\n1,2\n".as_bytes(), Format::Csv, Some("c")).err().unwrap();
        assert!(failure.report(false).contains("there are `a`, `b`"));
    }

    /// Bug: a quote that is not closed, and a line without an end, took memory as long as the rest
    /// of the file. Cause: the readers hold a row. Fix: a row has a bound.
    #[test]
    fn a_row_without_an_end_ends_the_reading() {
        for (begin, format, key, why) in [
            ("id,a\n1,\"x", Format::Csv, None, "the quote that opens on line 2 is not closed"),
            ("id,a\n\n1,x", Format::Csv, None, "the row on line 3 has more than"),
            ("id\ta\n1\t\"x", Format::Tsv, None, "the row on line 2 has more than"),
        ] {
            let rest = io::repeat(b'x').take(super::super::quotes::LONGEST + (1 << 20));
            let rows = read(begin.as_bytes().chain(rest), format, key);
            let mut rows = rows.unwrap_or_else(|failure| panic!("{}", failure.report(false)));
            let failure = rows.find_map(Result::err);
            let failure = failure.unwrap_or_else(|| panic!("{begin:?} was read"));
            assert!(failure.report(false).contains(why), "{}", failure.report(false));
        }
    }

    /// Bug: such a line ended an import that was to leave broken rows out. Cause: it was an error
    /// of the reading. Fix: its end is where the line ends, so it is a broken row.
    #[test]
    fn a_line_of_json_that_is_too_long_is_left_out() {
        let long = "x".repeat(LONGEST as usize + 1);
        let text = format!("{{\"id\":1}}\n{{\"id\":\"{long}\"}}\n{{\"id\":3}}\n{long}");
        let expected = [good("1", "{\"id\":1}"), Err(2), good("3", "{\"id\":3}"), Err(4)];
        assert_eq!(rows(&text, Format::Jsonl, Some("id")), expected);
        // One that never ends takes no time before it is told.
        let endless = BufReader::new("{\"id\":1}\n".as_bytes().chain(io::repeat(b'x')));
        let mut rows = objects(endless, "id".to_owned());
        assert!(matches!(rows.next(), Some(Ok(Ok(_)))));
        assert!(matches!(rows.next(), Some(Ok(Err(BadRow { line: 2, .. })))));
    }

    #[test]
    fn empty_files_and_empty_keys() {
        assert_eq!(rows("", Format::Csv, None), []);
        assert_eq!(rows("a,b\n,2\n", Format::Csv, None), [Err(2)]);
    }
}
