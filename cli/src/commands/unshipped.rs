//! `dump --unshipped`: what a directory has committed and the shared store lacks, as JSON lines.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use terrace::{Database, UnshippedChange, UnshippedReport};

use crate::failure::Failure;
use crate::output::{JsonBytes, write_json_line};
use crate::text::Encoding;

/// The version of the lines.
const VERSION: u32 = 1;

/// A line; `docs/operations.md` has their order.
#[derive(Serialize)]
#[serde(untagged)]
enum UnshippedLine<'a> {
    Begin {
        unshipped: u32,
    },
    Put {
        commit: u64,
        table: &'a str,
        put: JsonBytes<'a>,
        value: JsonBytes<'a>,
    },
    Delete {
        commit: u64,
        table: &'a str,
        delete: JsonBytes<'a>,
    },
    DeleteRange {
        commit: u64,
        table: &'a str,
        delete_from: JsonBytes<'a>,
        up_to: Option<JsonBytes<'a>>,
    },
    Merge {
        commit: u64,
        table: &'a str,
        merge: JsonBytes<'a>,
        operands: Vec<JsonBytes<'a>>,
    },
    Blob {
        commit: u64,
        blob: JsonBytes<'a>,
    },
    Table {
        commit: u64,
        make_table: &'a str,
        options: BTreeMap<&'static str, String>,
    },
    Rename {
        commit: u64,
        rename: &'a str,
        to: &'a str,
    },
    Truncate {
        commit: u64,
        truncate: &'a str,
    },
    Drop {
        commit: u64,
        drop: &'a str,
    },
    End {
        end: UnshippedReport,
    },
}

impl<'a> UnshippedLine<'a> {
    /// The line of a change; `None` of one that this program does not know.
    fn of(
        commit: u64,
        change: UnshippedChange<'a>,
        encoding: Encoding,
    ) -> Option<UnshippedLine<'a>> {
        let text = |bytes| JsonBytes::new(encoding, bytes);
        Some(match change {
            UnshippedChange::Put { table, key, value } => {
                UnshippedLine::Put { commit, table, put: text(key), value: text(value) }
            }
            UnshippedChange::Delete { table, key } => {
                UnshippedLine::Delete { commit, table, delete: text(key) }
            }
            UnshippedChange::DeleteRange { table, from, end } => {
                let (delete_from, up_to) = (text(from), end.map(text));
                UnshippedLine::DeleteRange { commit, table, delete_from, up_to }
            }
            UnshippedChange::Merge { table, key, operands } => {
                let operands = operands.into_iter().map(text).collect();
                UnshippedLine::Merge { commit, table, merge: text(key), operands }
            }
            UnshippedChange::Blob(blob) => UnshippedLine::Blob { commit, blob: text(blob) },
            UnshippedChange::Table { name, options } => {
                let options = options.named().into_iter().collect();
                UnshippedLine::Table { commit, make_table: name, options }
            }
            UnshippedChange::Rename { from, to } => {
                UnshippedLine::Rename { commit, rename: from, to }
            }
            UnshippedChange::Drop(drop) => UnshippedLine::Drop { commit, drop },
            UnshippedChange::Truncate(name) => UnshippedLine::Truncate { commit, truncate: name },
            _ => return None,
        })
    }
}

/// Writes them.
pub(super) fn dump_unshipped(
    database: &Database,
    url: &str,
    encoding: Encoding,
    to: &mut dyn Write,
) -> Result<UnshippedReport, Failure> {
    let mut line = |line: &UnshippedLine<'_>| write_json_line(to, line);
    let failed = |error| Failure::io("write the dump", &error);
    line(&UnshippedLine::Begin { unshipped: VERSION }).map_err(failed)?;
    let report = database.unshipped(url, |commit, change| {
        let known = UnshippedLine::of(commit, change, encoding);
        line(&known.ok_or_else(|| io::Error::other("a change of a kind that is not known"))?)
    })?;
    line(&UnshippedLine::End { end: report }).map_err(failed)?;
    Ok(report)
}
