//! `scan`: records in the order of their keys.

use std::ffi::OsString;
use std::ops::Bound;

use crate::args::ScanArguments;
use crate::failure::{Failure, Outcome};
use crate::session::Session;

/// Prints the records that were asked for.
pub(crate) fn run(session: &mut Session, arguments: &ScanArguments) -> Result<Outcome, Failure> {
    let encoding = session.output.encoding;
    let parse = |argument: &Option<OsString>| {
        argument.as_ref().map(|argument| encoding.parse(argument)).transpose()
    };
    let (prefix, from, to) =
        (parse(&arguments.prefix)?, parse(&arguments.from)?, parse(&arguments.to)?);
    let database = session.read()?;
    let table = database.existing_table(&arguments.table)?;
    let range = match prefix {
        Some(prefix) => table.prefix(&prefix),
        None => {
            let from = from.map_or(Bound::Unbounded, Bound::Included);
            table.range((from, to.map_or(Bound::Unbounded, Bound::Excluded)))
        }
    };
    let range = if arguments.reverse { range.rev() } else { range };
    let range = range.limit(arguments.limit.unwrap_or(usize::MAX));
    let records: Box<dyn Iterator<Item = terrace::Result<(_, Option<_>)>>> =
        match arguments.keys_only {
            true => Box::new(range.keys().map(|key| key.map(|key| (key, None)))),
            false => Box::new(range.map(|record| record.map(|(key, value)| (key, Some(value))))),
        };
    for record in records {
        let (key, value) = record?;
        session.output.record(&key, value.as_deref())?;
        if session.output.reader_is_gone() {
            break;
        }
    }
    Ok(Outcome::Good)
}
